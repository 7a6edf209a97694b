"""The narrow number formats of the tensor core, as tables of float32.

| format | codes | source |
|---|---|---|
| e2m1 | 16: sign, 2 exponent bits, 1 mantissa bit; no NaN, no infinity | OCP Microscaling Formats, FP4 |
| e4m3 | 256: the "fn" variant, 0x7f and 0xff are NaN, no infinity | OCP 8-bit Floating Point |
| ue4m3 | e4m3 of a scale factor: unsigned, the top bit is taken as absent | PTX ISA, Block Scaling |
| ue8m0 | 256 powers of two from 2**-127 to 2**127, 0xff is NaN | OCP Microscaling Formats, E8M0 |
"""

from __future__ import annotations

import numpy as np


def _minifloat(codes: int, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """float32 values of every code of a format with IEEE-style bias and subnormals, and with no reserved exponent."""
    code = np.arange(codes)
    sign = np.where(code >> (exponent_bits + mantissa_bits), -1.0, 1.0)
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (code & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    magnitude = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    return (sign * magnitude).astype(np.float32)


def _e4m3() -> np.ndarray:
    values = _minifloat(256, 4, 3)
    values[[0x7F, 0xFF]] = np.nan
    return values


def _ue8m0() -> np.ndarray:
    powers = 2.0 ** (np.arange(255) - 127.0)
    return np.append(powers, np.nan).astype(np.float32)


def _frozen(table: np.ndarray) -> np.ndarray:
    table.flags.writeable = False
    return table


E2M1 = _frozen(_minifloat(16, 2, 1))
"""float32[16]."""

E4M3 = _frozen(_e4m3())
"""float32[256]."""

UE4M3 = _frozen(np.concatenate([E4M3[:128], E4M3[:128]]))
"""float32[256]. That the top bit is ignored is an assumption; PTX defines no code with it set."""

UE8M0 = _frozen(_ue8m0())
"""float32[256]."""

E2M1_PAIRS = _frozen(np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=1).view(np.uint64).ravel())
"""uint64[256]: the two float32 of a byte, low nibble (the even element) first, as one item to be taken at a time."""


def unpack_e2m1(packed: np.ndarray) -> np.ndarray:
    """float32[..., 2 n] of uint8[..., n] with two e2m1 elements per byte, the even element in the low nibble."""
    # Any byte is an index of the table; "wrap" only spares the check.
    return E2M1_PAIRS.take(packed, mode="wrap").view(np.float32)


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 bit patterns (uint16), NaN payloads kept."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
