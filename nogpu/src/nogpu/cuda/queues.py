"""Queues of the device (cudaStream_t, CUstream). Work runs in the order of the calls; the sanitizer, if there is one,
is told which work queues, events and waits of the host order.

Callers run the pending launches before they say that the host waits, or that memory is accessed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from nogpu.cuda import current_queue, graphs
from nogpu.errors import UnknownHandle
from nogpu.execution.device import Device, queue_order

LEGACY = 0
CURRENT = 3  # torch's current queue, as C++ extensions name it
NON_BLOCKING = 1  # cudaStreamNonBlocking, CU_STREAM_NON_BLOCKING
_DEFAULTS = (LEGACY, 1, 2)  # the null queue, cudaStreamLegacy, cudaStreamPerThread
Box = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Bytes of memory: address, shape, strides in bytes."""

_handles = itertools.count(16)
_live: set[int] = set()


def create(flags: int = 0) -> int:
    """The handle of a new queue. flags: NON_BLOCKING for one that does not wait for the legacy default queue."""
    handle = next(_handles)
    _live.add(handle)
    order = queue_order()
    if order is not None:
        order.created(handle, not flags & NON_BLOCKING)
    return handle


def check(handle: int) -> None:
    """Raise UnknownHandle for the handle of no queue: hardware reports cudaErrorInvalidResourceHandle, or crashes."""
    if handle not in (*_DEFAULTS, CURRENT) and handle not in _live:
        raise UnknownHandle(f"queue {handle:#x}: no such queue has been created, or it has been destroyed")


def resolved(handle: int) -> int:
    """The handle of a queue, with that of torch's current queue in place of CURRENT."""
    return current_queue.get() if handle == CURRENT else handle


def destroy(handle: int) -> None:
    """Forget a queue. Raises UnknownHandle for an unknown handle and for the default queues."""
    if handle in _DEFAULTS:
        raise UnknownHandle(f"queue {handle:#x}: a default queue cannot be destroyed")
    check(handle)
    _live.remove(handle)


def waited(queue: int) -> None:
    """Note that the host has waited for a queue."""
    order = queue_order()
    if order is not None:
        order.host_waits(queue)


def answers(queue: int) -> bool:
    """True if a query of a queue says that its work is over."""
    order = queue_order()
    return order is None or order.answers(queue=queue)


def join(queue: int, other: int) -> None:
    """Order later work of a queue behind another's work so far."""
    order = queue_order()
    if order is not None:
        graphs.submit(lambda: order.joins(queue, other), queue)


def run_of(address: int, nbytes: int) -> Box:
    """The Box of `nbytes` contiguous bytes."""
    return address, (nbytes,), (1,)


def accessed(queue: int, what: str, reads: Iterable[Box] = (), writes: Iterable[Box] = ()) -> Any:
    """Note work of a queue that is no launch, with the device memory that it accesses; host memory does not count.
    Returns the sanitizer's node for it, if there is one.

    what: the work in words. Raises EmulatorError for an access that is not ordered behind other work.
    """
    order = queue_order()
    if order is None:
        return None
    node = order.submitted(queue, what)
    order.touches(Device.current().memory, node, reads, writes)
    return node
