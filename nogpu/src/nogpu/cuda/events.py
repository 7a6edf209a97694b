"""Events of the device: points in its work, with their times on the host's clock.

Callers run the pending launches before they record an event or wait for one.
"""

from __future__ import annotations

import itertools
import time

from nogpu.cuda import graphs
from nogpu.errors import Fault, UnknownHandle
from nogpu.execution.device import queue_order

_handles = itertools.count(1)
_recorded: dict[int, float] = {}
NO_TIMES, INTERPROCESS = 2, 4  # cudaEventDisableTiming, cudaEventInterprocess
_flags: dict[int, int] = {}  # of events that have some


def create(flags: int = 0) -> int:
    """A new handle (cudaEvent_t, CUevent), not 0. Raises Fault for INTERPROCESS without NO_TIMES."""
    if flags & INTERPROCESS and not flags & NO_TIMES:
        raise Fault("cudaEventInterprocess needs cudaEventDisableTiming")
    handle = next(_handles)
    if flags & (NO_TIMES | INTERPROCESS):
        _flags[handle] = flags
    return handle


def is_shared(handle: int) -> bool:
    """True if the event may be passed to other processes."""
    return bool(_flags.get(handle, 0) & INTERPROCESS)


def record(handle: int, queue: int = 0) -> None:
    """Set the event's time to now. queue: handle of a queue; the event is behind the queue's work so far."""
    _recorded[handle] = time.perf_counter()
    graphs.recorded(handle, queue)
    order = queue_order()
    if order is not None:
        graphs.submit(lambda: order.recorded(handle, queue), queue)


def wait(queue: int, handle: int) -> None:
    """Order later work of a queue behind the event (cudaStreamWaitEvent)."""
    graphs.waited(queue, handle)
    order = queue_order()
    if order is not None:
        graphs.submit(lambda: order.waits(queue, handle), queue)


def waited(handle: int) -> None:
    """Note that the host has waited for the event, or has seen that it is over."""
    order = queue_order()
    if order is not None:
        order.host_waits_for(handle)


def answers(handle: int) -> bool:
    """True if a query of an event says that it is over."""
    order = queue_order()
    return order is None or order.answers(event=handle)


def milliseconds(start: int, end: int) -> float:
    """Milliseconds between two recorded events. Raises UnknownHandle for an event that is not recorded, or has no
    times.
    """
    for handle in (start, end):
        if _flags.get(handle, 0) & NO_TIMES:
            raise UnknownHandle(f"event {handle} has been created with cudaEventDisableTiming")
        if handle not in _recorded:
            raise UnknownHandle(f"event {handle} has not been recorded")
    return (_recorded[end] - _recorded[start]) * 1e3


def destroy(handle: int) -> None:
    """Forget an event, recorded or not."""
    _recorded.pop(handle, None)
    _flags.pop(handle, None)
    order = queue_order()
    if order is not None:
        order.forgotten(handle)
