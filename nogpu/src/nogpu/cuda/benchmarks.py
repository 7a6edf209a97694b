"""One run of a function that a program's benchmark would repeat, and its time."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from nogpu.execution.device import run_pending

ONE_RUN = "benchmarks run once; a time is the emulator's own, and says nothing of a B200"
BY_CLOCK = "benchmarks run once; a time is modelled on {chip}"


@functools.cache
def note(text: str) -> None:
    """Prints a note, once in this process."""
    print(f"nogpu: {text}", file=sys.stderr, flush=True)


def milliseconds(fn: Callable[[], Any]) -> float:
    """Milliseconds of a call of `fn`, modelled if NOGPU_CLOCK is set, else of the host's clock."""
    run_pending()
    return (_modelled if os.environ.get("NOGPU_CLOCK") else _measured)(fn)


def _measured(fn: Callable[[], Any]) -> float:
    note(ONE_RUN)
    start = time.perf_counter()
    fn()
    run_pending()
    return (time.perf_counter() - start) * 1e3


def _modelled(fn: Callable[[], Any]) -> float:
    """Milliseconds of the launches that a function makes, on the profile of NOGPU_CLOCK."""
    from nogpu.clock.chip import profile
    from nogpu.clock.record import recording
    from nogpu.clock.replay import replay
    from nogpu.clock.trace import Trace

    chip = profile(os.environ["NOGPU_CLOCK"])
    note(BY_CLOCK.format(chip=chip.name))
    traces: list[Trace] = []
    with recording(traces.append, values=True):
        fn()
        run_pending()
    return replay(traces, chip, other_data=False).us / 1e3 if traces else 0.0
