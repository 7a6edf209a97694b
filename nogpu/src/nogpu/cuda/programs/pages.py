"""Pages of the process, and files in memory (memfd_create), whose pages several addresses and processes can map."""

from __future__ import annotations

import ctypes
import mmap
import os

from nogpu.cuda.programs import status

NONE, READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_FIXED, _NO_RESERVE = 0x10, 0x4000  # MAP_FIXED, MAP_NORESERVE (Linux, mman.h)
_system = ctypes.CDLL(None, use_errno=True)
_system.mmap.restype = ctypes.c_void_p
_system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int32] * 3, ctypes.c_long]
_system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def rounded(nbytes: int) -> int:
    """Bytes of the pages that `nbytes` bytes take."""
    return nbytes + -nbytes % mmap.PAGESIZE


def _mapped(address: int, nbytes: int, access: int, flags: int, file: int, offset: int) -> int:
    found = _system.mmap(address or None, nbytes, access, flags | (_FIXED if address else 0), file, offset)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise status.Refused(status.OUT_OF_MEMORY, f"{nbytes} bytes: {os.strerror(ctypes.get_errno())}")
    return int(found)


def create(nbytes: int) -> int:
    """The descriptor of a new file in memory of `nbytes` zeros."""
    file = os.memfd_create("nogpu")
    os.ftruncate(file, rounded(nbytes))
    return file


def show(file: int, nbytes: int, address: int = 0, offset: int = 0) -> int:
    """Map bytes of a file for reads and writes, at an address or, for 0, where there is room. Returns the address.

    Raises Refused if there is no room.
    """
    return _mapped(address, rounded(nbytes), READ_WRITE, mmap.MAP_SHARED, file, offset)


def reserve(nbytes: int, alignment: int, address: int = 0) -> int:
    """Take addresses that nothing can access. Returns the first one, a multiple of the alignment. address: replaces
    what is mapped there, if it is not 0. Raises Refused if there is no room.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    if address:
        return _mapped(address, nbytes, NONE, flags, -1, 0)
    start = _mapped(0, nbytes + alignment, NONE, flags, -1, 0)
    first = start + -start % alignment
    for at, extra in ((start, first - start), (first + nbytes, start + alignment - first)):
        if extra:
            give_back(at, extra)
    return first


def renew(address: int, nbytes: int) -> None:
    """Put pages of the process's own, of zeros, in the place of those of a file."""
    _mapped(address, rounded(nbytes), READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def give_back(address: int, nbytes: int) -> None:
    """Unmap pages."""
    _system.munmap(address, rounded(nbytes))
