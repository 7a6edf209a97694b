"""mma.sync: the fragments of a warp's matrices (PTX ISA, "Warp-level Matrix Instructions: mma").

A is M x K, B K x 8, C and D are M x 8; M is 8 or 16. A register holds `per` adjacent elements, as many as 32 bits hold,
or one f64.
With g = lane / 4 and t = lane % 4,

- register r of A holds row g + 8 (r % 2), from column per (t + 4 (r / 2)) on; with M = 8 row g, column per (t + 4 r),
- register r of B column g, from row per (t + 4 r) on,
- C and D row g + 8 (r / 2), column 2 t + r % 2; of 16-bit elements register r both columns of row g + 8 r.
"""

from __future__ import annotations

import numpy as np

_GROUPS, _MEMBERS = 8, 4  # lanes are 8 groups of 4


def elements(registers: np.ndarray, bits: int) -> np.ndarray:
    """The codes in registers: unsigned[..., per]. registers: uint32 or uint64[...]. bits: width of an element."""
    parts = registers[..., None]
    if bits == 4:
        return parts >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
    return parts.view(f"u{bits // 8}")


def rows_of_a(registers: np.ndarray, bits: int, m: int) -> np.ndarray:
    """A as [m, k]. registers: [count, 32]. bits: width of an element."""
    halves = m // _GROUPS
    parts = elements(registers.reshape(-1, halves, _GROUPS, _MEMBERS), bits)  # register / halves, half, g, t, element
    return parts.transpose(1, 2, 0, 3, 4).reshape(m, -1)


def columns_of_b(registers: np.ndarray, bits: int) -> np.ndarray:
    """B as [8 columns, k]. registers: [count, 32]."""
    return rows_of_a(registers, bits, _GROUPS)


def matrix_of_c(registers: np.ndarray, bits: int, m: int) -> np.ndarray:
    """C as [m, 8]. registers: [count, 32]."""
    halves = m // _GROUPS
    parts = elements(registers.reshape(halves, -1, _GROUPS, _MEMBERS), bits)  # half, column % 2 or 0, g, t, element
    return parts.transpose(0, 2, 3, 1, 4).reshape(m, 8)


def registers_of_d(matrix: np.ndarray, m: int) -> np.ndarray:
    """The registers of D as uint[count, 32]. matrix: [m, 8] in its elements' type."""
    halves = m // _GROUPS
    if matrix.dtype == np.float16:
        return np.ascontiguousarray(matrix).view(np.uint32).reshape(halves, 32)
    parts = matrix.reshape(halves, _GROUPS, _MEMBERS, 2).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(parts).reshape(2 * halves, 32).view(f"u{matrix.itemsize}")
