"""Times rows of `tools.compare`, each a function to call on every input of a case, on the GPU."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.timing import time_back_to_back, timing_inputs
from task import PROBLEMS, TestSpec

if TYPE_CHECKING:
    import torch

    import submission

FLUSH_BYTES = 512 * 2**20  # several times the L2 of any GPU
WAIT_CYCLES = 10_000_000  # first length of the kernel that hides the host's work
LONGEST_WAIT_CYCLES = 100_000_000


@dataclasses.dataclass
class Row:
    """A row in one case. A timing calls `call` with each of `inputs`, back to back."""

    name: str
    call: Callable[[Any], Any]
    inputs: list[Any]


@dataclasses.dataclass(frozen=True)
class Timed:
    """A benchmark case with the inputs of one timing."""

    problem: str
    case: int
    inputs: list[Any]
    sizes: tuple[tuple[int, ...], ...]  # (M, N, K, L) of each group or of the call
    nbytes: int  # bytes that must move
    products: int  # products as in submission.Call

    def schedule(self, sms: int) -> submission.Schedule:
        """The schedule of the first launch of calls that may overlap."""
        import submission

        return submission.configure(self.sizes, sms, True, self.products)[0].schedule


def timed_case(name: str, case: int, inputs: list[Any] | None = None) -> Timed:
    """A benchmark case of a problem. inputs: those to call in place of a timing's."""
    import reference
    from harness.plan_report import PRODUCTS

    problem, described = PROBLEMS[name], reference.REFERENCES[name]
    args = TestSpec.parse(problem.benchmarks[case].line).args
    inputs = inputs or timing_inputs(problem, described.generate_input, args)
    sizes = tuple(map(tuple, described.problem_sizes(inputs[0])))
    return Timed(name, case, inputs, sizes, sum(described.minimum_traffic(inputs[0])), PRODUCTS[name])


def percentiles(times: Sequence[float]) -> tuple[float, float, float]:
    """The (median, 10th percentile, 90th percentile) of at least one time."""
    ordered, tenth = sorted(times), len(times) // 10
    return statistics.median(ordered), ordered[tenth], ordered[-1 - tenth]


def range_text(times: Sequence[float]) -> str:
    """The median and, in parentheses, 10th and 90th percentile as text; empty without times."""
    return "{:.2f} ({:.2f}-{:.2f})".format(*percentiles(times)) if times else ""


def figures(times: Sequence[float]) -> dict[str, float]:
    """The median and percentiles of times, with the names that files give them."""
    return {name: round(value, 4) for name, value in zip(("us", "p10", "p90"), percentiles(times))}


def flush_buffer() -> torch.Tensor:
    """The buffer whose initialization flushes L2."""
    import torch

    return torch.empty(FLUSH_BYTES // 4, device="cuda")


def time_row(row: Row, flush: torch.Tensor, repeats: int) -> tuple[list[float], bool]:
    """(microseconds per call of each repeat, whether the host's work was hidden). A first repeat is not counted.

    A kernel that waits runs while the host launches every call. Its length doubles until it hides the host's work or
    exceeds LONGEST_WAIT_CYCLES, as for calls that wait for the GPU.
    """
    import torch

    hidden = False

    def call(data: Any) -> None:  # outputs are dropped at once, so that their memory is free for the next call
        row.call(data)

    def queued(start: torch.cuda.Event) -> None:
        nonlocal hidden
        hidden = not start.query()

    durations: list[float] = []
    cycles = WAIT_CYCLES
    while len(durations) <= repeats:
        flush.zero_()
        torch.cuda._sleep(cycles)
        nanoseconds, _ = time_back_to_back(call, row.inputs, queued)
        if hidden or cycles > LONGEST_WAIT_CYCLES:
            durations.append(nanoseconds / 1e3)
        else:
            cycles *= 2
    return durations[1:], hidden


def kernel_time(row: Row) -> float:
    """Microseconds per call that kernels and copies ran on the GPU, summed by torch's profiler."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for data in row.inputs:
            row.call(data)
        torch.cuda.synchronize()
    total: float = sum(event.self_device_time_total for event in profiler.key_averages())
    return total / len(row.inputs)
