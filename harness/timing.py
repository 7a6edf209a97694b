"""Times calls as the contest does: back to back between two CUDA events on a flushed L2, repeated by its stop rules."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from task import SEED_STEP, Problem

if TYPE_CHECKING:
    import torch

L2_FLUSH_ELEMENTS = 16000 * 1024 * 1024  # float32: 67 GB of randn take long enough to hide the host work of the calls
L2_FLUSH_SHARE = 0.8  # largest part of the free memory for the flush
MIN_RUNS = 3
MIN_ELAPSED_NS = 1e8
MAX_ELAPSED_NS = 120e9
MAX_RELATIVE_ERROR = 1e-3


@dataclass(frozen=True)
class Limits:
    """The limits of a timing; `repeat` stops at the first that is reached."""

    repeats: int
    budget_ns: float  # device time: nanoseconds per call, summed over the repeats


BENCHMARK_WARM_UP = Limits(100, 1e8)
BENCHMARK = Limits(100, 10e9)
LEADERBOARD_WARM_UP = Limits(50, 5e8)
LEADERBOARD = Limits(100, 30e9)


@dataclass(frozen=True)
class Stats:
    """Nanoseconds per call over the repeats of a timing. The fields have the names of the contest's protocol."""

    runs: int
    mean: float
    std: float
    err: float  # standard error of the mean
    best: float
    worst: float

    @classmethod
    def of(cls, durations: list[float]) -> Stats:
        """The statistics of at least two durations, in nanoseconds per call."""
        runs, std = len(durations), statistics.stdev(durations)
        return cls(runs, statistics.fmean(durations), std, std / math.sqrt(runs), min(durations), max(durations))


def timing_arguments(problem: Problem, args: Mapping[str, Any], first: int = 0) -> list[dict[str, Any]]:
    """generate_input's arguments for the inputs of one timing, whose seeds are SEED_STEP apart.

    args: the case's arguments. first: number of the first input; number 0 has the seed of `args`.
    """
    return [{**args, "seed": args["seed"] + SEED_STEP * (first + i)} for i in range(problem.inputs_per_timing)]


def timing_inputs(
    problem: Problem, generate_input: Callable[..., tuple[Any, ...]], args: Mapping[str, Any], first: int = 0
) -> list[tuple[Any, ...]]:
    """The inputs of one timing; see timing_arguments."""
    return [generate_input(**arguments) for arguments in timing_arguments(problem, args, first)]


@functools.cache
def l2_flush_elements() -> int:
    """The number of elements of the float32 tensor whose initialization flushes L2."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return min(L2_FLUSH_ELEMENTS, int(free_bytes * L2_FLUSH_SHARE) // 4)


def release_memory() -> None:
    """Release cached device memory: the judge and the worker share a device, and each flush takes most of it."""
    import torch

    torch.cuda.empty_cache()


def time_back_to_back(
    call: Callable[[Any], Any], inputs: list[Any], queued: Callable[[torch.cuda.Event], None] | None = None
) -> tuple[float, list[Any]]:
    """(nanoseconds per call, outputs) of one call per input between one pair of CUDA events.

    queued: called with the start event once every call has returned to the host, before the end event is recorded.
    """
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    outputs = [call(data) for data in inputs]
    if queued:
        queued(start)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e6 / len(inputs), outputs


def time_calls(call: Callable[[Any], Any], inputs: list[Any]) -> tuple[float, list[Any]]:
    """Run time_back_to_back on a flushed L2; the flush runs asynchronously, which hides the host work of the calls."""
    import torch

    torch.cuda.synchronize()
    flush = torch.randn(l2_flush_elements(), device="cuda")
    del flush
    return time_back_to_back(call, inputs)


def measure(call: Callable[[Any], Any], inputs: list[Any], limits: Limits) -> Stats:
    """Run `repeat` on calls of this process."""
    stats = repeat(lambda: time_calls(call, inputs)[0], limits)
    assert isinstance(stats, Stats), "nothing is rechecked"
    return stats


def repeat(time_once: Callable[[], float], limits: Limits, recheck: Callable[[], str] | None = None) -> Stats | str:
    """Repeat a timing until the contest's stop rules or `limits` end it.

    time_once: returns nanoseconds per call. recheck: called after each repeat; if it returns a text, the timing ends
    and that text is returned.
    """
    durations: list[float] = []
    began = time.perf_counter_ns()
    for _ in range(limits.repeats):
        durations.append(time_once())
        mismatch = recheck() if recheck else ""
        if mismatch:
            return mismatch
        elapsed = time.perf_counter_ns() - began
        if len(durations) >= MIN_RUNS and elapsed > MIN_ELAPSED_NS:
            stats = Stats.of(durations)
            spent = stats.mean * stats.runs > limits.budget_ns or elapsed > MAX_ELAPSED_NS
            if spent or stats.err < MAX_RELATIVE_ERROR * stats.mean:
                break
    return Stats.of(durations)
