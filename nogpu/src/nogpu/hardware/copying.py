"""Structures and functions of the copies that compiled code makes (native/copies.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from struct import Struct

from nogpu import headers, toolchain

RANKS, FILL_BYTES = headers.constants("native/copies.h", "RANKS", "CHUNK")
(REFUSED,) = headers.constants("native/copies.h", "REFUSED")  # a copy that is not proven legal: nothing has been done

_COORDINATES = [Struct(f"={n}q{8 * (RANKS - n)}x") for n in range(RANKS + 1)]


@headers.mirrors("native/copies.h")
class Window(ctypes.Structure):
    """Shared memory of a CTA."""


@headers.mirrors("native/copies.h", "Traffic")
class AllocationTraffic(ctypes.Structure):
    """Allocation of global memory, and the traffic to or from it."""


@headers.mirrors("native/copies.h")
class Tile(ctypes.Structure):
    """Tensor map."""


@headers.mirrors("native/copies.c")
class TensorCopy(ctypes.Structure):
    """Copy by tcgen05.cp: the addresses of three tables of int64."""


_POINTER, _WORD, _NUMBER = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
_FUNCTIONS = {
    "load_tile": (_POINTER, _POINTER, _POINTER, _WORD, _POINTER, _NUMBER),
    "read_tile": (_POINTER, _POINTER, _WORD, _NUMBER, _POINTER),
    "write_tile": (_POINTER, _POINTER, _POINTER, _NUMBER, _POINTER),
    "load_bulk": (_POINTER, _POINTER, _WORD, _WORD, _WORD),
    "read_bulk": (_POINTER, _WORD, _WORD, _POINTER),
    "write_bulk": (_POINTER, _WORD, _POINTER, _WORD),
    "copy_to_tensor_memory": (_POINTER, _POINTER, _POINTER),
}


@cache
def library() -> ctypes.CDLL:
    """Compiled functions. Raises RuntimeError if there is no C compiler."""
    found = toolchain.load("native")
    for name, types in _FUNCTIONS.items():
        function = getattr(found, name)
        function.argtypes = types
        function.restype = None if name == "copy_to_tensor_memory" else ctypes.c_int64
    return found


def coordinates(boxes: Sequence[tuple[int, ...]]) -> bytes:
    """The coordinates of each box, at most five, as five int64, further ones 0."""
    return b"".join([_COORDINATES[len(coords)].pack(*coords) for coords in boxes])


@cache
def _buffer_type(nbytes: int) -> type[ctypes.Array]:
    return ctypes.c_uint8 * nbytes


def buffer(nbytes: int) -> ctypes.Array:
    """Buffer of zeros, which compiled code may be given and NumPy can view."""
    return _buffer_type(nbytes)()
