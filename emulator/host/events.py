"""Events of the device: points in its work, with their times on the host's clock.

Callers run the pending launches before they record an event or wait for one.
"""

from __future__ import annotations

import itertools
import time

_handles = itertools.count(1)
_recorded: dict[int, float] = {}


def create() -> int:
    """A new handle (cudaEvent_t, CUevent), not 0."""
    return next(_handles)


def record(handle: int) -> None:
    """Set the event's time to now."""
    _recorded[handle] = time.perf_counter()


def milliseconds(start: int, end: int) -> float:
    """Time between two recorded events. Raises KeyError with the handle of an event that is not recorded."""
    return (_recorded[end] - _recorded[start]) * 1e3


def destroy(handle: int) -> None:
    """Forget an event, recorded or not."""
    _recorded.pop(handle, None)
