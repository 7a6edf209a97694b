"""Events of the device: points in its work that programs create, record and measure between.

Launches that are to run are run by whoever records or waits; an event is a time on the host's clock (see torch_cuda.py).
"""

from __future__ import annotations

import itertools
import time

_handles = itertools.count(1)
_recorded: dict[int, float] = {}


def create() -> int:
    """A handle (cudaEvent_t, CUevent) that is not 0."""
    return next(_handles)


def record(handle: int) -> None:
    _recorded[handle] = time.perf_counter()


def milliseconds(start: int, end: int) -> float:
    """Between two recorded events. KeyError with the handle of one that is not."""
    return (_recorded[end] - _recorded[start]) * 1e3


def destroy(handle: int) -> None:
    _recorded.pop(handle, None)
