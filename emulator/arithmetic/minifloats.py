"""Conversion to and from 8-, 6- and 4-bit floating-point formats, as `cvt` does it (PTX ISA, "cvt", "Alternate
Floating-Point Formats").

Encoding rounds to nearest even and saturates (`.satfinite`). NaN becomes the format's NaN, or the largest number
where it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emulator.arithmetic.numerics import E2M1, E4M3, UE8M0


@dataclass(frozen=True)
class Format:
    """decoded: float32 value of every code. finite: the non-negative finite values in code order. nan_code,
    sign_code: codes.
    """

    decoded: np.ndarray
    finite: np.ndarray
    midpoints: np.ndarray
    sign_code: int
    nan_code: int


def _format(decoded: np.ndarray, sign_code: int, nan_code: int) -> Format:
    positive = decoded[:sign_code]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    return Format(decoded, finite, (finite[1:] + finite[:-1]) / 2, sign_code, nan_code)


def _decoded(exponent_bits: int, mantissa_bits: int, reserves_top_exponent: bool = False) -> np.ndarray:
    code = np.arange(1 << 1 + exponent_bits + mantissa_bits)
    sign = np.where(code >> exponent_bits + mantissa_bits, -1.0, 1.0)
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    magnitude = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if reserves_top_exponent:
        top = exponent == (1 << exponent_bits) - 1
        magnitude = np.where(top, np.where(mantissa == 0, np.inf, np.nan), magnitude)
    return (sign * magnitude).astype(np.float32)


FORMATS = {
    "e4m3": _format(E4M3, 0x80, 0x7F),
    "e5m2": _format(_decoded(5, 2, reserves_top_exponent=True), 0x80, 0x7F),
    "e2m1": _format(E2M1, 0x8, 0x7),
    "e2m3": _format(_decoded(2, 3), 0x20, 0x1F),
    "e3m2": _format(_decoded(3, 2), 0x20, 0x1F),
}


def encode(values: np.ndarray, name: str) -> np.ndarray:
    """Floats of any type -> codes uint8 of the same shape."""
    number_format = FORMATS[name]
    magnitude = np.minimum(np.abs(values.astype(np.float64)), number_format.finite[-1])
    code = np.searchsorted(number_format.midpoints, magnitude, side="left")
    at_tie = magnitude == number_format.midpoints[np.minimum(code, len(number_format.midpoints) - 1)]
    code = code + (at_tie & (code & 1 == 1) & (code < len(number_format.midpoints)))
    code = code | np.where(np.signbit(values), number_format.sign_code, 0)
    return np.where(np.isnan(values), number_format.nan_code, code).astype(np.uint8)


def decode(codes: np.ndarray, name: str) -> np.ndarray:
    """Codes uint8 -> float32. Also of the scale format ue8m0."""
    return (UE8M0 if name == "ue8m0" else FORMATS[name].decoded)[codes]


def encode_scale(values: np.ndarray, up: bool, saturates: bool = True) -> np.ndarray:
    """Floats of any type -> ue8m0 codes uint8: the power of two at or above (`.rp`) or below (`.rz`) the magnitude. What
    is too large becomes NaN, or the largest power if it saturates (`.satfinite`).
    """
    mantissa, exponent = np.frexp(np.abs(values.astype(np.float64)))
    power = np.where((mantissa == 0.5) | (not up), exponent - 1, exponent)
    code = np.where(values == 0, 0, np.maximum(power + 127, 0))
    too_large = np.isinf(values) | (code > 254)
    return np.where(np.isnan(values), 0xFF, np.where(too_large, 254 if saturates else 0xFF, code)).astype(np.uint8)
