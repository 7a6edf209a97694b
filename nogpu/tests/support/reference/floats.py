"""Floating-point operations on rows of lanes: min and max, saturation, NaN, conversion to integers.

Values are in the instruction's own type, or in float32 for bf16.
"""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic.lanes import INTS, UINTS

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
f16, f32, f64 = np.float16, np.float32, np.float64


def from_bf16(row: np.ndarray) -> np.ndarray:
    """uint16[32] -> float32[32], or packed uint32[32] -> float32[64]."""
    return (np.ascontiguousarray(row).view(u16).astype(u32) << u32(16)).view(f32)


def flush(values: np.ndarray) -> np.ndarray:
    """The values with zeros of the same sign in place of subnormals."""
    zeros = np.copysign(values.dtype.type(0), values)
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, zeros, values)


def saturate(values: np.ndarray) -> np.ndarray:
    """`.sat`: the values clamped to [0, 1]; NaN and -0 become +0."""
    one = values.dtype.type(1)
    return np.where(values > 0, np.minimum(values, one), np.zeros((), values.dtype))


def rectify(values: np.ndarray) -> np.ndarray:
    """`.relu`: the values with +0 in place of negative numbers and -0, and the canonical NaN in place of NaNs."""
    return canonical(np.where(values <= 0, np.zeros((), values.dtype), values))


def canonical(values: np.ndarray) -> np.ndarray:
    """The values with the NaN that NVIDIA GPUs make, all bits set but the sign, in place of each NaN (half, single)."""
    nan = _NANS.get(values.dtype.type)
    if nan is None:
        return values
    found = np.isnan(values)
    return np.where(found, nan, values) if found.any() else values


def with_nan(values: np.ndarray, *sources: np.ndarray) -> np.ndarray:
    """NaN results: the canonical one, of float64 the first source that is NaN, made quiet, else the default one."""
    if values.dtype != f64:
        return canonical(values)
    found = np.isnan(values)
    if not found.any():
        return values
    bits = np.full(values.shape, _DEFAULT_NAN, u64)
    for source in reversed(sources):
        bits = np.where(np.isnan(source), source.view(u64) | _QUIET, bits)
    return np.where(found, bits.view(f64), values)


_DEFAULT_NAN, _QUIET = u64(0xFFF8 << 48), u64(1 << 51)
_NANS: dict[type, np.ndarray] = {f16: np.array(0x7FFF, u16).view(f16), f32: np.array(0x7FFFFFFF, u32).view(f32)}


def smaller(a: np.ndarray, b: np.ndarray, propagate: bool = False) -> np.ndarray:
    """min: -0 is below +0; the other source where one is NaN, unless NaNs propagate (PTX ISA, "min")."""
    result = np.minimum(a, b) if propagate else np.fmin(a, b)
    zero = result == 0
    if zero.any():
        result = np.where(zero & (a == b), np.where(np.signbit(a), a, b), result)
    return canonical(result)


def larger(a: np.ndarray, b: np.ndarray, propagate: bool = False) -> np.ndarray:
    """max, with the rules of `smaller` (PTX ISA, "max")."""
    result = np.maximum(a, b) if propagate else np.fmax(a, b)
    zero = result == 0
    if zero.any():
        result = np.where(zero & (a == b), np.where(np.signbit(a), b, a), result)
    return canonical(result)


def signed_by(magnitude: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`.xorsign`: the sign of a result that is not NaN is the exclusive or of the sources' signs."""
    negative = (np.signbit(a) ^ np.signbit(b)) & ~np.isnan(magnitude)
    return np.where(negative, -magnitude, magnitude)


def without_oob(result: np.ndarray, a: np.ndarray, b: np.ndarray, pattern: type) -> np.ndarray:
    """`.oob`: the result is 0 where a factor is the NaN that tensor copies fill with (PTX ISA, "fma" and "Tensors").

    pattern: the unsigned type of the factors' bits, uint16 for float16, uint32 for bf16 widened to float32. The fill
    NaN is assumed to have all bits set but the sign.
    """
    nan = 0x7FFF if pattern is u16 else 0x7FFF0000
    return np.where((a.view(pattern) == nan) | (b.view(pattern) == nan), result.dtype.type(0), result)


def float_to_int(values: np.ndarray, width: int, is_signed: bool, rounding: str) -> np.ndarray:
    """cvt from a float to an integer: rounded, saturated to the integer's range, as raw bits of the width.

    NaN becomes 0, or the top bit alone where source or result has 64 bits (PTX ISA, "cvt").
    """
    rounded = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[rounding](values.astype(f64))
    low = -(1 << width - 1) if is_signed else 0
    high = (1 << width - (1 if is_signed else 0)) - 1
    dtype = (INTS if is_signed else UINTS)[width]
    inside = np.where((rounded > low) & (rounded < high), rounded, 0.0).astype(dtype)
    result = np.where(rounded <= low, dtype(low), np.where(rounded >= high, dtype(high), inside)).view(UINTS[width])
    of_nan = 1 << width - 1 if width == 64 or values.dtype == f64 else 0
    return np.where(np.isnan(values), UINTS[width](of_nan), result)


def saturate_integer(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers clamped to [low, high], without leaving their type."""
    info = np.iinfo(values.dtype)
    return np.clip(values, max(low, info.min), min(high, info.max))


def interleave(rows: tuple[np.ndarray, ...], dtype: type) -> np.ndarray:
    """Rows of narrow words -> one row of wide words (`dtype`); the first row's words are the lowest."""
    return np.stack(rows, axis=1).view(dtype)[:, 0]
