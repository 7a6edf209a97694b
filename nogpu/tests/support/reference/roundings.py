"""Exact roundings that NumPy lacks (PTX ISA, "Floating Point Instructions"): toward zero, down and up (`.rz`, `.rm`,
`.rp`), and a single rounding of results that are computed in a wider type first.

A float64 *rounded to odd* (an inexact value has its last bit set) rounds to any format of at most 51 bits exactly as
the unrounded value does. Rows are arrays of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf, isfinite

import numpy as np

u16, u32, u64 = np.uint16, np.uint32, np.uint64
f16, f32, f64 = np.float16, np.float32, np.float64

_RESIDUALS: dict[str, Callable[..., Fraction]] = {
    "sum": lambda n, a, b: a + b - n,
    "product": lambda n, a, b: a * b - n,
    "quotient": lambda n, a, b: a / b - n,
    "root": lambda n, a: a - n * n,
    "fused": lambda n, a, b, c: a * b + c - n,
}
"""Operation -> the exact result minus a number n; for the root, a difference of the same sign."""


def round_float(values: np.ndarray, dtype: type, rounding: str) -> np.ndarray:
    """float64 -> a float type: to nearest (rn), toward zero (rz), -inf (rm) or +inf (rp)."""
    nearest: np.ndarray = values.astype(dtype)
    if rounding == "rn":
        return nearest
    back = nearest.astype(f64)
    too_far = {"rz": np.abs(back) > np.abs(values), "rm": back > values, "rp": back < values}[rounding]
    toward = {"rz": dtype(0), "rm": dtype(-np.inf), "rp": dtype(np.inf)}[rounding]
    return np.where(too_far, np.nextafter(nearest, toward), nearest).astype(dtype)


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float64 + float64, rounded to odd."""
    total = a + b
    carried = total - a
    error = (a - (total - carried)) + (b - carried)
    bits = total.view(u64)
    inexact = (error != 0) & np.isfinite(total) & (bits & u64(1) == 0)
    away = (error > 0) == (total > 0)
    return np.where(inexact, np.where(away, bits + u64(1), bits - u64(1)), bits).view(f64)


def odd_float32(values: np.ndarray) -> np.ndarray:
    """float64 -> float32, rounded to odd: for a later rounding to at most 22 bits."""
    kept = round_float(values, f32, "rz")
    return (kept.view(u32) | ((kept != values) & ~np.isnan(values)).astype(u32)).view(f32)


def odd_float64(values: np.ndarray) -> np.ndarray:
    """Integers of up to 64 bits -> float64, rounded to odd."""
    if values.dtype.itemsize < 8:
        return values.astype(f64)
    negative = values < 0
    magnitude = np.where(negative, ~values.view(u64) + u64(1), values.view(u64))
    large = magnitude >= u64(1 << 53)
    odd = (magnitude >> u64(11) | (magnitude & u64(0x7FF) != 0)).astype(f64) * 2048.0
    result = np.where(large, odd, np.where(large, u64(0), magnitude).astype(f64))
    return np.where(negative, -result, result)


def bf16_bits(values: np.ndarray, rounding: str = "rn") -> np.ndarray:
    """float32 -> bf16 bits (uint16); NaN becomes the canonical one."""
    bits = np.ascontiguousarray(values, f32).view(u32)
    if rounding == "rn":
        bits = bits + u32(0x7FFF) + (bits >> u32(16) & u32(1))
    elif rounding != "rz":
        away = np.signbit(values) == (rounding == "rm")
        bits = bits + np.where(away & np.isfinite(values), u32(0xFFFF), u32(0))
    return np.where(np.isnan(values), u16(0x7FFF), (bits >> u32(16)).astype(u16))


def _signed_zero(result: np.ndarray, zero: np.ndarray, a: np.ndarray, b: np.ndarray, rounding: str) -> np.ndarray:
    """The sum a + b with the sign of a zero: rounded down, it is -0 unless both terms are +0 (IEEE 754, 6.3).

    zero: where the exact sum is zero.
    """
    if rounding != "rm":
        return result
    return np.where(zero & (np.signbit(a) | np.signbit(b)), result.dtype.type(-0.0), result)


def rounded_sum(a: np.ndarray, b: np.ndarray, rounding: str) -> np.ndarray:
    """a + b of float32 or float64, rounded by rz, rm or rp."""
    if a.dtype == f64:
        result = _directed("sum", a + b, (a, b), rounding)
        return _signed_zero(result, result == 0, a, b, rounding)
    a, b = a.astype(f64), b.astype(f64)
    total = odd_sum(a, b)
    return _signed_zero(round_float(total, f32, rounding), total == 0, a, b, rounding)


def rounded_product(a: np.ndarray, b: np.ndarray, rounding: str) -> np.ndarray:
    """a * b of float32 or float64, rounded by rz, rm or rp."""
    if a.dtype == f64:
        return _directed("product", a * b, (a, b), rounding)
    return round_float(a.astype(f64) * b, f32, rounding)


def rounded_fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, rounding: str) -> np.ndarray:
    """a * b + c of float32 or float64 with one rounding, by rz, rm or rp."""
    if a.dtype == f64:
        result = _directed("fused", fused_double(a, b, c), (a, b, c), rounding)
        zero = np.array([not r and not Fraction(x) * Fraction(y) + Fraction(z) for r, x, y, z in zip(result, a, b, c)])
        return _signed_zero(result, zero, a * b, c, rounding)
    product, c = a.astype(f64) * b, c.astype(f64)
    total = odd_sum(product, c)
    return _signed_zero(round_float(total, f32, rounding), total == 0, product, c, rounding)


def rounded_quotient(a: np.ndarray, b: np.ndarray, rounding: str) -> np.ndarray:
    """a / b of float32 or float64, rounded by rz, rm or rp."""
    return _directed("quotient", a / b, (a, b), rounding)


def rounded_root(a: np.ndarray, rounding: str) -> np.ndarray:
    """The square root of float32 or float64, rounded by rz, rm or rp."""
    return _directed("root", np.sqrt(a), (a,), rounding)


def fused_double(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The sum a * b + c of float64 with one rounding to nearest, element by element in rational arithmetic."""
    result = a * b + c
    for i, values in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        if all(map(isfinite, values)):
            x, y, z = map(Fraction, values)
            exact = x * y + z
            if exact:
                result[i] = _nearest(exact)
        elif isfinite(values[0]) and isfinite(values[1]):
            result[i] = values[2]  # infinite or NaN, whatever the product
    return result


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def _directed(kind: str, nearest: np.ndarray, sources: tuple[np.ndarray, ...], rounding: str) -> np.ndarray:
    """Round as requested: float64 results that are rounded to nearest, element by element in rational arithmetic."""
    result = nearest.copy()
    for i, values in enumerate(zip(*(row.tolist() for row in sources), strict=True)):
        number = nearest[i]
        if not all(map(isfinite, values)) or np.isnan(number) or (kind == "quotient" and values[1] == 0):
            continue
        if np.isinf(number):
            too_high = number > 0
            too_low = not too_high
        else:
            error = _RESIDUALS[kind](Fraction(float(number)), *map(Fraction, values))
            too_high, too_low = error < 0, error > 0
        moves = {"rm": too_high, "rp": too_low, "rz": too_high if number > 0 else too_low}
        if moves[rounding]:
            toward = {"rm": -inf, "rp": inf, "rz": 0.0}[rounding]
            result[i] = np.nextafter(number, nearest.dtype.type(toward))
    return result


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "tf32": (11, -126, 127), "f32": (24, -126, 127)}
FORMATS["f64"] = (53, -1022, 1023)
"""Format -> bits of the significand, least and greatest exponent of normal numbers."""


def round_exactly(value: Fraction, name: str, rounding: str) -> float:
    """A rational number other than 0, rounded to a format of FORMATS: rn, rna, rz, rm or rp."""
    precision, low, high = FORMATS[name]
    magnitude = abs(Fraction(value))
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    count, rest = divmod(magnitude, unit)
    outwards = {"rz": False, "rm": value < 0, "rp": value > 0}
    up = {"rn": 2 * rest > unit or (2 * rest == unit and count % 2 == 1), "rna": 2 * rest >= unit}
    result = (count + (outwards | up)[rounding] if rest else count) * unit
    largest = Fraction(2) ** (high + 1) - Fraction(2) ** (high - precision + 1)
    if result > largest:
        result = inf if outwards.get(rounding, True) else largest
    return float(result) if value > 0 else -float(result)
