"""Structures of the copies that compiled code makes (native/copies.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from struct import Struct

from nogpu import headers

RANKS, FILL_BYTES = headers.constants("native/copies.h", "RANKS", "CHUNK")
(REFUSED,) = headers.constants("native/copies.h", "REFUSED")  # result of a copy that is not proven legal, nor made

_COORDINATES = [Struct(f"={n}q{8 * (RANKS - n)}x") for n in range(RANKS + 1)]


@headers.mirrors("native/copies.h")
class Window(ctypes.Structure):
    """Shared memory of a CTA."""


@headers.mirrors("native/copies.h", "Traffic")
class AllocationTraffic(ctypes.Structure):
    """Allocation of global memory, and the traffic to or from it."""


Tile = headers.structure("native/copies.h", "Tile")
"""Tensor map."""
TensorCopy = headers.structure("native/copies.h", "TensorCopy")
"""Copy by tcgen05.cp: the addresses of three tables of int64."""


def coordinates(boxes: Sequence[tuple[int, ...]]) -> bytes:
    """Bytes of the boxes' coordinates, five int64 for each box; those that a box lacks are 0."""
    return b"".join([_COORDINATES[len(coords)].pack(*coords) for coords in boxes])


@cache
def _buffer_type(nbytes: int) -> type[ctypes.Array]:
    return ctypes.c_uint8 * nbytes


def buffer(nbytes: int) -> ctypes.Array:
    """Buffer of `nbytes` zeros that compiled code can take and NumPy can view."""
    return _buffer_type(nbytes)()
