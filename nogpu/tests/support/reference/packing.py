"""Conversion to narrow floating-point formats, and several narrow numbers in one register (PTX ISA, "cvt").

Numbers are float arrays of any shape, and their codes have the same shape. The numbers packed in one register are the
columns of an array, the lowest one first.
"""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic.lanes import INTS, UINTS
from tests.support.reference.floats import canonical, rectify
from tests.support.reference.minifloats import FORMATS, decode, encode, encode_scale
from tests.support.reference.roundings import bf16_bits, odd_float32, round_float

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
f16, f32, f64 = np.float16, np.float32, np.float64

TF32_DROPPED = 13  # bits of a float32's mantissa that tf32 lacks


def _half(values: np.ndarray, rounding: str) -> np.ndarray:
    values = values if rounding == "rn" else values.astype(f64)
    return canonical(round_float(values, f16, rounding)).view(u16)


def _brain(values: np.ndarray, rounding: str) -> np.ndarray:
    return bf16_bits(odd_float32(values) if values.dtype == f64 else values.astype(f32), rounding)


def _single(values: np.ndarray, rounding: str) -> np.ndarray:
    return canonical(round_float(values, f32, rounding) if values.dtype == f64 else values.astype(f32)).view(u32)


def _double(values: np.ndarray, rounding: str) -> np.ndarray:
    single = values if values.dtype == f64 else canonical(values.astype(f32))
    return single.astype(f64).view(u64)


def _tf32(values: np.ndarray, rounding: str) -> np.ndarray:
    bits = values.view(u32)
    half = u32(1 << TF32_DROPPED - 1)
    to_even = half - u32(1) + (bits >> u32(TF32_DROPPED) & u32(1))
    added: dict[str, np.ndarray | np.uint32] = {"rz": u32(0), "rna": half, "rn": to_even}
    rounded = (bits + added[rounding]) >> u32(TF32_DROPPED) << u32(TF32_DROPPED)
    return np.where(np.isfinite(values), rounded, canonical(values).view(u32))


_NARROW = {"f16": _half, "bf16": _brain, "f32": _single, "f64": _double, "tf32": _tf32}
_LARGEST = {
    "f16": float(np.finfo(f16).max),
    "bf16": float(np.array(0x7F7F0000, u32).view(f32)),
    "tf32": float(np.array(0x7F7FE000, u32).view(f32)),
}


def narrow(
    values: np.ndarray, name: str, rounding: str = "rn", satfinite: bool = False, relu: bool = False
) -> np.ndarray:
    """Numbers -> codes of a format: f16, bf16, f32, f64, tf32, ue8m0 or a key of `minifloats.FORMATS`.

    rounding: rn, rz, rm, rp, or rna (tf32). Formats of `minifloats.FORMATS` round to nearest and always saturate.
    """
    if name == "ue8m0":
        return encode_scale(values, rounding == "rp", satfinite)
    values = rectify(values) if relu else values
    if name in FORMATS:
        return encode(values, name)
    if satfinite:
        values = np.clip(values, -_LARGEST[name], _LARGEST[name])
    return _NARROW[name](values, rounding)


def stochastic(values: np.ndarray, name: str, random: np.ndarray, satfinite: bool, relu: bool) -> np.ndarray:
    """`.rs` of float32[n, 2] to f16 or bf16: random bits are added to the bits cut off; a carry rounds away from zero.

    random: uint32[n], the upper half for the second column; f16 uses 13 bits of a half. Where an f16 result is
    subnormal, they are added to the first bits cut off (PTX leaves open to which).
    """
    values = rectify(values) if relu else values
    if satfinite:
        values = np.clip(values, -_LARGEST[name], _LARGEST[name])
    random = np.stack([random & u32(0xFFFF), random >> u32(16)], axis=1)
    if name == "bf16":
        bits = values.view(u32)
        carried = np.where(np.isfinite(values), bits + random, bits)
        return np.where(np.isnan(values), u16(0x7FFF), (carried >> u32(16)).astype(u16))
    wide = values.astype(f64)
    kept = round_float(wide, f16, "rz")
    step = np.abs(np.nextafter(kept, np.copysign(f16(np.inf), kept)).astype(f64) - kept)
    step = np.where(np.isfinite(step), step, 32.0)  # step of the largest numbers, whose neighbour is infinite
    cut = np.floor(np.abs(wide - kept) / step * (1 << 13))
    away = np.isfinite(values) & (cut + (random & u32(0x1FFF)) >= 1 << 13)
    return canonical(np.where(away, np.nextafter(kept, np.copysign(f16(np.inf), kept)), kept)).view(u16)


def columns(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Two rows -> [lanes, 2]."""
    result = np.empty((len(low), 2), low.dtype)
    result[:, 0], result[:, 1] = low, high
    return result


def packed(codes: np.ndarray, bits: int, width: int) -> np.ndarray:
    """Codes [n, count] of `bits` bits each -> a row of registers of `width` bits."""
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << u8(4)
    total = codes.shape[1] * codes.dtype.itemsize * 8
    return codes.view(UINTS[total])[:, 0].astype(UINTS[width], copy=False)


def unpacked(row: np.ndarray, name: str) -> np.ndarray:
    """The two numbers in the low byte (e2m1) or the two low bytes of every register: float32[lanes, 2]."""
    width = 4 if name == "e2m1" else 8
    mask = row.dtype.type((1 << width) - 1)
    codes = columns(row & mask, row >> row.dtype.type(width) & mask)
    return decode(codes.astype(u8), name)


def pack_integers(a: np.ndarray, b: np.ndarray, c: np.ndarray, width: int, is_signed: bool) -> np.ndarray:
    """cvt.pack: int32 rows saturated to a width; `b` is lowest, then `a`, then the low bits of `c`."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    parts = [np.clip(row.view(INTS[32]), low, high).view(u32) & u32((1 << width) - 1) for row in (b, a)]
    above = c << u32(2 * width) if width < 16 else u32(0)
    return parts[0] | parts[1] << u32(width) | above
