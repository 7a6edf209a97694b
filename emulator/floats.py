"""Floating-point helpers that translated programs call: bf16, packed 8- and 4-bit formats, roundings, saturation.

Values come as rows (`lanes.py`) of raw bits and leave as such; arithmetic is done in the views' own types.
"""

from __future__ import annotations

import numpy as np

from emulator.lanes import UINTS
from emulator.minifloats import decode, encode, encode_scale

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
f16, f32, f64 = np.float16, np.float32, np.float64


def from_bf16(row: np.ndarray) -> np.ndarray:
    """uint16[32], or packed uint32[32] -> float32[32] or float32[64]."""
    return (np.ascontiguousarray(row).view(u16).astype(u32) << u32(16)).view(f32)


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """float32 -> bf16 bits (uint16), to nearest even; NaN becomes the canonical one."""
    bits = np.ascontiguousarray(values, f32).view(u32)
    rounded = (bits + u32(0x7FFF) + (bits >> u32(16) & u32(1))) >> u32(16)
    return np.where(np.isnan(values), u16(0x7FFF), rounded.astype(u16))


def to_bf16(values: np.ndarray, width: int) -> np.ndarray:
    """float32[32] -> uint16[32], or float32[64] -> packed uint32[32]."""
    return bf16_bits(values).view(UINTS[width])


def flush(values: np.ndarray) -> np.ndarray:
    """Subnormals become zeros of the same sign."""
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, np.copysign(values.dtype.type(0), values), values)


def saturate(values: np.ndarray) -> np.ndarray:
    """To [0, 1], NaN to 0."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), 0, 1).astype(values.dtype)


def reciprocal_root(values: np.ndarray) -> np.ndarray:
    return (1 / np.sqrt(values.astype(f64))).astype(values.dtype)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c with one rounding."""
    if a.dtype == f16:
        return (a.astype(f64) * b + c).astype(f16)
    if a.dtype == f64:
        wide = np.longdouble
        return (a.astype(wide) * b + c).astype(f64)
    product = a.astype(f64) * b  # exact: 24 + 24 bits
    total = product + c
    # Rounding twice, to double and to float, errs only if the double is a tie between floats; subnormal floats have
    # other ties.
    suspect = (total.view(u64) & u64(0x1FFFFFFF) == u64(0x10000000)) | (np.abs(total) < np.finfo(f32).tiny)
    if suspect.any():
        total = _round_to_odd(product, c, total)
    return total.astype(f32)


def _round_to_odd(product: np.ndarray, c: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The sum in double, an inexact one with its last bit set: it then rounds to float as the exact sum does."""
    carried = total - product
    error = (product - (total - carried)) + (c - carried)
    bits = total.view(u64)
    inexact = (error != 0) & np.isfinite(total) & (bits & u64(1) == 0)
    away = (error > 0) == (total > 0)
    return np.where(inexact, np.where(away, bits + u64(1), bits - u64(1)), bits).view(f64)


def float_to_half2(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """cvt.rn.f16x2.f32: the first source goes to the upper half."""
    pair = np.empty(64, f16)
    pair[0::2] = low.view(f32)
    pair[1::2] = high.view(f32)
    return pair.view(u32)


def float_to_bf16x2(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return bf16_bits(np.stack([low.view(f32), high.view(f32)], axis=1)).view(u32)[:, 0]


def pack_small(high: np.ndarray, low: np.ndarray, name: str, relu: bool = False) -> np.ndarray:
    """Two float32 rows -> packed small floats, saturating, as uint16[32]; two 4-bit codes share the low byte."""
    codes = [encode(_rectified(row.view(f32), relu), name).astype(u16) for row in (low, high)]
    return codes[0] | codes[1] << u16(4 if name == "e2m1" else 8)


def _rectified(values: np.ndarray, relu: bool) -> np.ndarray:
    return np.where(values < 0, f32(0), values) if relu else values


def pack_scales(high: np.ndarray, low: np.ndarray, up: bool) -> np.ndarray:
    """cvt to ue8m0x2."""
    return encode_scale(low.view(f32), up).astype(u16) | encode_scale(high.view(f32), up).astype(u16) << u16(8)


def unpack_small(row: np.ndarray, name: str, relu: bool = False) -> np.ndarray:
    """Two packed small floats per lane, uint16[32] (two 4-bit codes in the low byte) -> f16x2 in uint32[32]."""
    values = decode(_codes(row, 4 if name == "e2m1" else 8), name)
    return _rectified(values, relu).astype(f16).view(u32)[:, 0]


def _codes(row: np.ndarray, width: int) -> np.ndarray:
    """The lower and the upper code of each lane: uint8[32, 2]."""
    return np.stack([row & u16((1 << width) - 1), row >> u16(width) & u16((1 << width) - 1)], axis=1).astype(u8)


def unpack_scales(row: np.ndarray) -> np.ndarray:
    """cvt.rn.bf16x2.ue8m0x2."""
    return bf16_bits(decode(_codes(row, 8), "ue8m0")).view(u32)[:, 0]


def float_to_int(values: np.ndarray, width: int, is_signed: bool, rounding: str) -> np.ndarray:
    """Rounds, saturates to the type's range and turns NaN to 0 (PTX ISA, "cvt"). Returns raw bits of the width."""
    rounded = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[rounding](values.astype(f64))
    low = -(1 << width - 1) if is_signed else 0
    high = (1 << width - (1 if is_signed else 0)) - 1
    dtype = {8: i8, 16: i16, 32: i32, 64: i64}[width] if is_signed else UINTS[width]
    rounded = np.where(np.isnan(rounded), 0.0, rounded)
    inside = np.where((rounded > low) & (rounded < high), rounded, 0.0).astype(dtype)
    return np.where(rounded <= low, dtype(low), np.where(rounded >= high, dtype(high), inside)).view(UINTS[width])


def round_float(values: np.ndarray, dtype: type, rounding: str) -> np.ndarray:
    """float64 -> a float type: rn, or toward zero, -inf, +inf (rz, rm, rp)."""
    nearest = values.astype(dtype)
    if rounding == "rn":
        return nearest
    back = nearest.astype(f64)
    too_far = {"rz": np.abs(back) > np.abs(values), "rm": back > values, "rp": back < values}[rounding]
    toward = {"rz": dtype(0), "rm": dtype(-np.inf), "rp": dtype(np.inf)}[rounding]
    return np.where(too_far, np.nextafter(nearest, toward), nearest).astype(dtype)


def truncate_bf16(values: np.ndarray) -> np.ndarray:
    """float64 -> bf16 bits, toward zero."""
    single = round_float(values, f32, "rz")
    return (single.view(u32) >> u32(16)).astype(u16)


def saturate_integer(values: np.ndarray, low: int, high: int) -> np.ndarray:
    info = np.iinfo(values.dtype)
    return np.clip(values, max(low, info.min), min(high, info.max))


def interleave(rows: tuple[np.ndarray, ...], dtype: type) -> np.ndarray:
    """Rows of narrow words -> one row of wide words, the first row lowest."""
    return np.stack(rows, axis=1).view(dtype)[:, 0]
