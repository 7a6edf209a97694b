"""The places of a tile's 16-byte chunks in shared memory (PTX ISA, "Swizzling Modes").

A tile is packed densely and then permuted: atoms change places within a line of 128 bytes, depending on the absolute
address in shared memory, not on the place in the tile. With line = address / 128, the number a of an atom in its line
becomes

    span 128: a ^= line & 7 (atoms of 16 bytes), line & 3 (32 bytes), line & 1 (64 bytes)
    span 64: a ^= line & 3        span 32: a ^= line & 1        (16 bytes)

With 8-byte flip (atoms of 32 bytes only) the halves of every 16-byte chunk change places in odd lines. The CUDA Driver
API says "every alternate row"; that these are the odd lines is an assumption.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nogpu.hardware.shared_memory import SharedMemory

CHUNK = 16
_CHUNKS_PER_LINE = 8
_PERIOD = 1024  # bytes after which every pattern repeats
# (span, atom) in bytes -> (bits of the line's number that change the chunk's, their shift)
PATTERNS = {
    (0, 16): (0, 0),
    (32, 16): (1, 0),
    (64, 16): (3, 0),
    (128, 16): (7, 0),
    (128, 32): (3, 1),
    (128, 64): (1, 2),
}
# Item type of 16 bytes, which NumPy moves without interpreting their value.
CHUNK_TYPE = np.complex128


def swizzle(chunks: np.ndarray, span: int, atom: int = 16) -> np.ndarray:
    """Chunk numbers (address / 16, int64, any shape) of an unswizzled tile -> those where the hardware puts the chunks.

    span: 32, 64 or 128 bytes, 0 for none. atom: 16 bytes; with a span of 128 also 32 or 64.
    """
    bits, shift = PATTERNS[span, atom]
    return chunks ^ (chunks // _CHUNKS_PER_LINE & bits) << shift


def chunk_view(shared: SharedMemory) -> np.ndarray:
    """Whole of shared memory as 16-byte items; item i holds the bytes from address 16 i."""
    data = shared.data
    return data[: data.size & -CHUNK].view(CHUNK_TYPE)


@lru_cache(maxsize=1024)
def _relative_places(first_chunk: int, rows: int, row_chunks: int, span: int, atom: int) -> np.ndarray:
    linear = first_chunk + np.arange(rows * row_chunks).reshape(rows, row_chunks)
    places = swizzle(linear, span, atom)
    places.flags.writeable = False
    return places


def places(offset: int, rows: int, row_bytes: int, span: int, atom: int) -> tuple[int, np.ndarray]:
    """Chunks of a swizzled tile: a chunk number, and int64[rows, chunks per row] relative to it.

    offset: bytes, of the tile in shared memory. span, atom: as for `swizzle`.
    """
    base = offset & -_PERIOD
    return base // CHUNK, _relative_places((offset - base) // CHUNK, rows, row_bytes // CHUNK, span, atom)


def flipped(chunks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Chunks (CHUNK_TYPE, any shape) with their 8-byte halves swapped if their place is in an odd line."""
    halves = np.ascontiguousarray(chunks).view(np.uint64).reshape(*chunks.shape, 2)
    odd = (places // _CHUNKS_PER_LINE & 1).astype(bool)
    return np.where(odd[..., None], halves[..., ::-1], halves).view(CHUNK_TYPE)[..., 0]
