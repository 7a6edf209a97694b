"""Queues of the device (cudaStream_t, CUstream). All are one, in the order of the calls; their handles are checked."""

from __future__ import annotations

import itertools

from emulator.errors import Fault

_DEFAULTS = (0, 1, 2)  # the null queue, cudaStreamLegacy, cudaStreamPerThread
_handles = itertools.count(16)
_live: set[int] = set()


def create() -> int:
    """The handle of a new queue."""
    handle = next(_handles)
    _live.add(handle)
    return handle


def check(handle: int) -> None:
    """Raise Fault for the handle of no queue: hardware reports cudaErrorInvalidResourceHandle, or crashes."""
    if handle not in _DEFAULTS and handle not in _live:
        raise Fault(f"queue {handle:#x}: no such queue has been created, or it has been destroyed")


def destroy(handle: int) -> None:
    """Forget a queue. Raises Fault for the handle of none, and for the default queues."""
    if handle in _DEFAULTS:
        raise Fault(f"queue {handle:#x}: a default queue cannot be destroyed")
    check(handle)
    _live.remove(handle)
