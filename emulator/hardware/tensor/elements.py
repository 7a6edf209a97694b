"""The elements of the tensor core's operands: from bytes to numbers.

An operand has 32 bytes per row and instruction. In shared memory 16 elements of 4 or 6 bits, of kinds f8f6f4 and
mxf8f6f4, take 16 bytes: first the packed elements, then padding. In tensor memory each element lies in the middle of a
byte of its own (PTX ISA, tcgen05: "Packing format for matrix A and B", "Optional Decompression"): in bits 2-5 with 4
bits, 1-6 with 6 bits (CUTLASS's example cp_narrow_a_to_tmem_mma.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.arithmetic.minifloats import FORMATS
from emulator.arithmetic.numerics import bf16_to_f32, unpack_e2m1
from emulator.hardware.tma.swizzle import CHUNK

NARROW_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_HELD_SHIFT = {4: 2, 6: 1}
_TF32_BITS = 0xFFFFE000

SOURCE_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}
"""Source format of tcgen05.cp -> bits of an element."""


def unpad(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8[..., n] -> codes uint8[..., n]: every 16 bytes hold 16 elements of `bits` bits, then padding."""
    chunks = packed.reshape(-1, CHUNK)[:, : 2 * bits]
    digits = np.unpackbits(chunks, axis=1, bitorder="little").reshape(len(chunks), CHUNK, bits)
    return np.packbits(digits, axis=2, bitorder="little").reshape(packed.shape)


def hold(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes uint8 of 4 or 6 bits -> bytes of tensor memory."""
    return codes << _HELD_SHIFT[bits]


def _table(name: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda codes: FORMATS[name].decoded.take(codes)


def _narrow(name: str, codes_of: Callable[[np.ndarray, int], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda packed: FORMATS[name].decoded.take(codes_of(packed, NARROW_BITS[name]))


def _unhold(held: np.ndarray, bits: int) -> np.ndarray:
    return held >> _HELD_SHIFT[bits] & (1 << bits) - 1


_WHOLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "e2m1": unpack_e2m1,
    "e4m3": _table("e4m3"),
    "e5m2": _table("e5m2"),
    "f16": lambda packed: packed.view(np.float16).astype(np.float32),
    "bf16": lambda packed: bf16_to_f32(packed.view(np.uint16)),
    # The low 13 bits of a 32-bit element are not part of a tf32 (PTX ISA, "Alternate floating-point data formats").
    "tf32": lambda packed: (packed.view(np.uint32) & np.uint32(_TF32_BITS)).view(np.float32),
    "u8": lambda packed: packed.astype(np.float32),
    "s8": lambda packed: packed.view(np.int8).astype(np.float32),
}
_PADDED = _WHOLE | {name: _narrow(name, unpad) for name in NARROW_BITS}
_HELD = _WHOLE | {name: _narrow(name, _unhold) for name in NARROW_BITS}

WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1}
"""Bytes of the elements that may be transposed."""


def decode(packed: np.ndarray, element: str, padded: bool = False, in_tmem: bool = False) -> np.ndarray:
    """float32[rows, k] of an operand's bytes, uint8[rows, 32]. padded: whether 4- and 6-bit elements take a byte."""
    decoders = _WHOLE if not padded else _HELD if in_tmem else _PADDED
    return decoders[element](packed)
