"""Watches of torch's memory for writes (torch_allocations.c)."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
from collections.abc import Callable
from typing import Any

from nogpu import toolchain


@functools.cache
def _library() -> ctypes.CDLL:
    # PyDLL: its functions take less time than to give up Python's lock.
    library = toolchain.opened(toolchain.build("cuda/torch_allocations.c"), ctypes.PyDLL)
    library.align_allocations.argtypes = library.watch.argtypes = library.watch_of.argtypes = [ctypes.c_size_t]
    library.end_watches.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    library.watch.restype = library.watch_of.restype = ctypes.c_long
    return library


def align(nbytes: int) -> bool:
    """Aligns what torch's CPU allocator gives out from now on to `nbytes` or more. False if it cannot be patched."""
    return bool(_library().align_allocations(nbytes))


def watch(address: int, begins: bool) -> int:
    """Number of the watch of the block of torch's allocator that starts at an address, 0 if none is under way: the
    first write to the block by any code of this process has ended it. begins: a watch begins, unless the block is
    another allocator's or has less than 64 KiB.
    """
    if not begins:
        return int(_library().watch_of(address))
    _keep_ahead_of_faulthandler()
    return int(_library().watch(address))


def end(address: int, nbytes: int) -> None:
    """Ends the watches of blocks that have some of the bytes, which a system call of Python's is about to fill."""
    _library().end_watches(address, nbytes)


@functools.cache
def _keep_ahead_of_faulthandler() -> None:
    """Has Python's handler of faults, which takes a write for the program's end, installed behind that of watches."""
    original: Callable[..., None] = faulthandler.enable

    @functools.wraps(original)
    def enable(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        _library().handle_writes()

    faulthandler.enable = enable
