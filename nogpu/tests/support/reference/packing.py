"""Conversion to narrow floating-point formats, and several narrow numbers in one register (PTX ISA, "cvt").

Numbers are float arrays of any shape, and their codes have the same shape. The numbers packed in one register are the
columns of an array, the lowest one first.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nogpu.arithmetic.lanes import INTS, UINTS
from tests.support.reference.floats import canonical, rectify
from tests.support.reference.minifloats import FORMATS, decode, encode, encode_scale
from tests.support.reference.roundings import rounded

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
f16, f32, f64 = np.float16, np.float32, np.float64

STORED = {"f16": f16, "bf16": ml_dtypes.bfloat16, "tf32": f32, "f32": f32, "f64": f64}
LARGEST = {"f16": 65504.0, "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), "tf32": (2 - 2.0**-10) * 2.0**127}


def narrow(
    values: np.ndarray, name: str, rounding: str = "rn", satfinite: bool = False, relu: bool = False
) -> np.ndarray:
    """Numbers -> codes of a format: f16, bf16, f32, f64, tf32, ue8m0, s2f6 or a key of `minifloats.FORMATS`.

    rounding: rn, rz, rm, rp, or rna (tf32). s2f6 and `minifloats.FORMATS` round to nearest and always saturate.
    """
    if name == "ue8m0":
        return encode_scale(values, rounding == "rp", satfinite)
    values = rectify(values) if relu else values
    if name in FORMATS or name == "s2f6":
        return encode(values, name)
    if satfinite:
        values = np.clip(values, -LARGEST[name], LARGEST[name])
    if name == "f64":
        return (canonical(values.astype(f32)).astype(f64) if values.dtype in (f16, f32) else values.astype(f64)).view(
            u64
        )
    return stored(rounded("cvt", [values.ravel()], name, rounding).reshape(values.shape), name)


def stored(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers that a format has -> their codes; NaN is the canonical one."""
    codes = values.astype(STORED[name])
    codes = codes.view(f"u{codes.itemsize}")
    return np.where(np.isnan(values), codes.dtype.type((1 << 8 * codes.itemsize - 1) - 1), codes)


def stochastic(values: np.ndarray, name: str, random: np.ndarray, satfinite: bool, relu: bool) -> np.ndarray:
    """`.rs` of float32[n, 2] to f16 or bf16: random bits are added to the bits cut off; a carry rounds away from zero.

    random: uint32[n], the upper half for the second column; f16 uses 13 bits of a half. Where an f16 result is
    subnormal, they are added to the first bits cut off (PTX leaves open to which).
    """
    values = rectify(values) if relu else values
    if satfinite:
        values = np.clip(values, -LARGEST[name], LARGEST[name])
    random = np.stack([random & u32(0xFFFF), random >> u32(16)], axis=1)
    if name == "bf16":
        bits = values.view(u32)
        carried = np.where(np.isfinite(values), bits + random, bits)
        return np.where(np.isnan(values), u16(0x7FFF), (carried >> u32(16)).astype(u16))
    wide = values.astype(f64)
    kept = rounded("cvt", [wide.ravel()], "f16", "rz").reshape(wide.shape).astype(f16)
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
