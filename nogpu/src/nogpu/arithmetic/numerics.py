"""The narrow number formats as tables: the float32 value of every code.

| format | codes | source |
|---|---|---|
| e2m1 | 16: sign, 2 exponent bits, 1 mantissa bit; no NaN, no infinity | OCP Microscaling Formats, FP4 |
| e2m3, e3m2 | 64: sign, exponent, mantissa; no NaN, no infinity | OCP Microscaling Formats, FP6 |
| e4m3 | 256: the "fn" variant, 0x7f and 0xff are NaN, no infinity | OCP 8-bit Floating Point |
| e5m2 | 256: infinities and NaNs as in IEEE 754 | OCP 8-bit Floating Point |
| ue4m3 | e4m3 of a scale factor: unsigned, the top bit is ignored | PTX ISA, Block Scaling |
| ue5m3 | 256: unsigned, 5 exponent bits, 3 mantissa bits; no infinity, 0xff is NaN | `cuda_fp8.hpp` of CUDA 13.5 |
| ue8m0 | 256 powers of two from 2**-127 to 2**127, 0xff is NaN | OCP Microscaling Formats, E8M0 |
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype] = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "ue8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""Format -> NumPy type; a code of less than 8 bits is the low part of a byte."""


def _frozen(table: np.ndarray) -> np.ndarray:
    table.flags.writeable = False
    return table


def _decoded(dtype: np.dtype) -> np.ndarray:
    """The float32 value of every code. All NaNs are equal: a NaN code's sign and payload mean nothing."""
    codes = np.arange(1 << ml_dtypes.finfo(dtype).bits).astype(np.uint8)
    values = codes.view(dtype).astype(np.float32)
    return _frozen(np.where(np.isnan(values), np.float32(np.nan), values))


DECODED: dict[str, np.ndarray] = {name: _decoded(dtype) for name, dtype in DTYPES.items()}
"""Format -> float32[codes]."""

E2M1 = DECODED["e2m1"]
"""float32[16]: value by code."""

UE4M3 = _frozen(np.tile(DECODED["e4m3"][:128], 2))
"""float32[256]. PTX defines no code with the top bit set; that the bit is ignored is an assumption."""

_CODES = np.arange(256)
UE5M3 = _frozen(
    np.where(_CODES == 255, np.nan, np.ldexp(_CODES & 7 | (_CODES >= 8) << 3, np.maximum(_CODES >> 3, 1) - 18)).astype(
        np.float32
    )
)
"""float32[256]: value by code."""

UE8M0 = DECODED["ue8m0"]
"""float32[256]: value by code."""

E2M1_PAIRS = _frozen(np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=1).view(np.uint64).ravel())
"""uint64[256]: the two float32 of a byte as one item, the low nibble's (the even element) first."""
