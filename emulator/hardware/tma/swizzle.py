"""Where the 16-byte chunks of a tile lie in shared memory (PTX ISA, "Swizzling Modes").

A tile is packed densely and then permuted: atoms within a line of 128 bytes change places by the absolute address in
shared memory, not by their place in the tile. With line = address / 128, the atom's number a within the line becomes

    span 128: a ^= line & 7 (atoms of 16 bytes), line & 3 (32 bytes), line & 1 (64 bytes)
    span 64: a ^= line & 3        span 32: a ^= line & 1        (16 bytes)

With 8-byte flip (atoms of 32 bytes only) the halves of every 16-byte chunk change places in odd lines: every
alternate row, says the CUDA Driver API; that these are the odd ones is an assumption.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emulator.hardware.memory import SharedMemory

CHUNK = 16
_CHUNKS_PER_LINE = 8
_PERIOD = 1024  # bytes after which every pattern repeats
# (span, atom) in bytes -> which bits of the line's number change the chunk's, and by how much they are shifted
_PATTERNS = {
    (0, 16): (0, 0),
    (32, 16): (1, 0),
    (64, 16): (3, 0),
    (128, 16): (7, 0),
    (128, 32): (3, 1),
    (128, 64): (1, 2),
}
# A 16-byte item that NumPy moves as one, without looking at it.
CHUNK_TYPE = np.complex128


def swizzle(chunks: np.ndarray, span: int, atom: int = 16) -> np.ndarray:
    """Where the hardware puts 16-byte chunks: absolute chunk numbers (int64, any shape) to absolute chunk numbers.

    span: 32, 64 or 128 bytes, 0 for none; atom: 16, with a span of 128 also 32 or 64 bytes.
    """
    bits, shift = _PATTERNS[span, atom]
    return chunks ^ (chunks // _CHUNKS_PER_LINE & bits) << shift


def chunk_view(shared: SharedMemory) -> np.ndarray:
    """The whole of shared memory as 16-byte items; item i holds the bytes from address 16 i."""
    data = shared.data
    return data[: data.size & -CHUNK].view(CHUNK_TYPE)


@lru_cache(maxsize=1024)
def _relative_places(first_chunk: int, rows: int, row_chunks: int, span: int, atom: int) -> np.ndarray:
    linear = first_chunk + np.arange(rows * row_chunks).reshape(rows, row_chunks)
    places = swizzle(linear, span, atom)
    places.flags.writeable = False
    return places


def places(offset: int, rows: int, row_bytes: int, span: int, atom: int) -> tuple[int, np.ndarray]:
    """A chunk number and the places of a tile's chunks relative to it, int64[rows, chunks per row]; offset: bytes."""
    base = offset & -_PERIOD
    return base // CHUNK, _relative_places((offset - base) // CHUNK, rows, row_bytes // CHUNK, span, atom)


def flipped(chunks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Chunks (CHUNK_TYPE, any shape) with their 8-byte halves swapped where their place is in an odd line."""
    halves = np.ascontiguousarray(chunks).view(np.uint64).reshape(*chunks.shape, 2)
    odd = (places // _CHUNKS_PER_LINE & 1).astype(bool)
    return np.where(odd[..., None], halves[..., ::-1], halves).view(CHUNK_TYPE)[..., 0]
