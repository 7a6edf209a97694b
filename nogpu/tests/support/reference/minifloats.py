"""Conversion to and from 8-, 6- and 4-bit floating-point formats, as `cvt` does it (PTX ISA, "cvt", "Alternate
Floating-Point Formats").

Encoding rounds to nearest even and saturates (`.satfinite`). NaN becomes the format's NaN, or the largest number
where it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nogpu.arithmetic.numerics import DECODED, DTYPES


@dataclass(frozen=True)
class Format:
    """A format with a sign."""

    decoded: np.ndarray  # float32 value of every code
    dtype: np.dtype
    largest: float  # largest finite value
    nan_code: int


def _format(name: str) -> Format:
    decoded = DECODED[name]
    positive = decoded[: len(decoded) // 2]
    # The code of positive sign with all other bits set is NaN, or the largest number of a format without NaN.
    return Format(decoded, DTYPES[name], float(positive[np.isfinite(positive)].max()), len(positive) - 1)


FORMATS = {name: _format(name) for name in ("e4m3", "e5m2", "e2m1", "e2m3", "e3m2")}


def encode(values: np.ndarray, name: str) -> np.ndarray:
    """Floats of at most 32 bits, of any for the fixed-point format s2f6, -> codes uint8 of the same shape."""
    if name == "s2f6":
        return np.clip(np.rint(np.where(np.isnan(values), 9, values) * 64.0), -128, 127).astype(np.int8).view(np.uint8)
    number_format = FORMATS[name]
    single = values.astype(np.float32)
    nan = np.isnan(single)
    clipped = np.clip(np.where(nan, np.float32(0), single), -number_format.largest, number_format.largest)
    codes = clipped.astype(number_format.dtype).view(np.uint8)
    return np.where(nan, np.uint8(number_format.nan_code), codes)


def decode(codes: np.ndarray, name: str) -> np.ndarray:
    """Codes uint8 -> float32. name: a key of FORMATS, ue8m0 (scales) or s2f6. Bits above a code's are ignored."""
    if name == "s2f6":
        return codes.view(np.int8).astype(np.float32) / 64
    table = DECODED[name]
    return table[codes & np.uint8(len(table) - 1)]


def encode_scale(values: np.ndarray, up: bool, saturates: bool = True) -> np.ndarray:
    """Floats of any type -> ue8m0 codes uint8: the power of two at or above (`up`, `.rp`) or below (`.rz`) a magnitude.

    A magnitude above the largest power becomes NaN, or that power if the conversion saturates (`.satfinite`).
    """
    mantissa, exponent = np.frexp(np.abs(values.astype(np.float64)))
    power = np.where((mantissa == 0.5) | (not up), exponent - 1, exponent)
    code = np.where(values == 0, 0, np.maximum(power + 127, 0))
    too_large = np.isinf(values) | (code > 254)
    return np.where(np.isnan(values), 0xFF, np.where(too_large, 254 if saturates else 0xFF, code)).astype(np.uint8)
