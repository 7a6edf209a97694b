"""The elements of the tensor core's operands: from bytes to numbers.

An operand has 32 bytes per row and instruction. In shared memory 16 elements of 4 or 6 bits, of kinds f8f6f4 and
mxf8f6f4, take 16 bytes: first the packed elements, then padding (none with mxf8f6f4's K of 64 on Rubin). In tensor
memory each element lies in the middle of a byte of its own (PTX ISA, tcgen05: "Packing format for matrix A and B",
"Optional Decompression"): in bits 2-5 with 4 bits, 1-6 with 6 bits (CUTLASS's example cp_narrow_a_to_tmem_mma.py).
"""

from __future__ import annotations

import numpy as np

from nogpu.hardware.tma.swizzle import CHUNK

NARROW_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_HELD_SHIFT = {4: 2, 6: 1}

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


WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4}
"""Bytes of the elements that take more than one in kinds that transpose."""
