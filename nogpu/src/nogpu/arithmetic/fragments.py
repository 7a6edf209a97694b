"""mma.sync: the fragments of a warp's matrices, and their product (PTX ISA, "Warp-level Matrix Instructions: mma").

A is M x K, B K x 8, C and D are M x 8; M is 8 or 16. A register holds `per` adjacent elements, as many as 32 bits hold,
or one f64.
With g = lane / 4 and t = lane % 4,

- register r of A holds row g + 8 (r % 2), from column per (t + 4 (r / 2)) on; with M = 8 row g, column per (t + 4 r),
- register r of B column g, from row per (t + 4 r) on,
- C and D row g + 8 (r / 2), column 2 t + r % 2; of 16-bit elements register r both columns of row g + 8 r.
"""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic.floats import fused
from nogpu.arithmetic.numerics import DECODED

_GROUPS, _MEMBERS = 8, 4  # lanes are 8 groups of 4
_NAN = {np.dtype(np.float32): 0x7FFFFFFF, np.dtype(np.float16): 0x7FFF}
_TF32 = np.uint32(0xFFFFE000)  # the bits of a float32 that tf32 has
INTEGERS = ("s8", "u8", "s4", "u4")


def elements(registers: np.ndarray, type_name: str) -> np.ndarray:
    """The numbers in registers, exact: float64[..., per], or int64 for integers. registers: uint32 or uint64[...]."""
    parts = registers[..., None]
    match type_name:
        case "f64":
            return parts.view(np.float64)
        case "f32":
            return parts.view(np.float32).astype(np.float64)
        case "s32":
            return parts.view(np.int32).astype(np.int64)
        case "f16":
            return parts.view(np.float16).astype(np.float64)
        case "bf16":
            return (parts.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        case "tf32":
            return (parts & _TF32).view(np.float32).astype(np.float64)
        case "s8" | "u8":
            return parts.view(np.int8 if type_name == "s8" else np.uint8).astype(np.int64)
        case "s4" | "u4":
            codes = (parts >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)).astype(np.int64)
            return (codes ^ 8) - 8 if type_name == "s4" else codes
    return DECODED[type_name][parts.view(np.uint8)].astype(np.float64)


def rows_of_a(registers: np.ndarray, type_name: str, m: int) -> np.ndarray:
    """A as [m, k]. registers: [count, 32]."""
    halves = m // _GROUPS
    parts = elements(
        registers.reshape(-1, halves, _GROUPS, _MEMBERS), type_name
    )  # register / halves, half, g, t, element
    return parts.transpose(1, 2, 0, 3, 4).reshape(m, -1)


def columns_of_b(registers: np.ndarray, type_name: str) -> np.ndarray:
    """B as [8 columns, k]. registers: [count, 32]."""
    return rows_of_a(registers, type_name, _GROUPS)


def matrix_of_c(registers: np.ndarray, type_name: str, m: int) -> np.ndarray:
    """C as [m, 8]. registers: [count, 32]."""
    halves = m // _GROUPS
    parts = elements(
        registers.reshape(halves, -1, _GROUPS, _MEMBERS), type_name
    )  # half, column % 2 or 0, g, t, element
    return parts.transpose(0, 2, 3, 1, 4).reshape(m, 8)


def registers_of_d(matrix: np.ndarray, m: int) -> np.ndarray:
    """The registers of D [m, 8] as uint[count, 32]; the matrix has their type."""
    halves = m // _GROUPS
    if matrix.dtype == np.float16:
        return np.ascontiguousarray(matrix).view(np.uint32).reshape(halves, 32)
    parts = matrix.reshape(halves, _GROUPS, _MEMBERS, 2).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(parts).reshape(2 * halves, 32).view(f"u{matrix.itemsize}")


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, result: str, saturates: bool) -> np.ndarray:
    """D = A B + C in the result type. a [m, k], b [8, k], c [m, 8], in the form that `elements` returns.

    Floating-point products are exact, summed in order of k in double precision, C last, and rounded once; those of f64
    are fused to C in that order. Sums of integers wrap around, or saturate.
    """
    if result == "s32":
        total = a @ b.T + c
        return (np.clip(total, -(1 << 31), (1 << 31) - 1) if saturates else total).astype(np.int32)
    with np.errstate(all="ignore"):
        if result == "f64":
            total = np.ravel(c)
            for k in range(a.shape[1]):
                total = fused(np.repeat(a[:, k], len(b)), np.tile(b[:, k], len(a)), total)
            return total.reshape(c.shape)
        total = np.zeros(c.shape)
        for k in range(a.shape[1]):
            total += a[:, k, None] * b[:, k]
        rounded = (total + c).astype(np.float16 if result == "f16" else np.float32)
    bits = rounded.view(f"u{rounded.itemsize}")
    bits[np.isnan(rounded)] = _NAN[rounded.dtype]
    return rounded
