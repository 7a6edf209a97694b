"""Times of every configuration on random shapes, by worker processes that compile side by side and time in turns.

A worker owns some of the compiled kernels and all of its tensors: views of one pool of random bytes. Only one worker
uses the GPU while times are taken.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from harness.plan_report import configuration_name, configuration_of
from task import PROBLEMS, TestSpec

if TYPE_CHECKING:
    import torch

GROUP_COUNTS = (2, 4, 8)
TURNS = ("group_gemm", "gemm", "group_gemm", "dual_gemm")  # problems of the shapes that are drawn
TOKENS = {"group_gemm": (16, 512), "gemm": (16, 1024), "dual_gemm": (16, 1024)}
ROWS, DEPTH = (1024, 16384), (512, 16384)  # ranges of N, a multiple of 128, and of K, a multiple of 256
MOST_BYTES = 140 * 2**20  # size limit of a call's tensors
CALLS = 15  # calls back to back, each on its own tensors
POOL_BYTES, PLACE = 9 * 2**28, 256  # a worker's memory for tensors, and the multiple at which each begins
PROMISED = (OVERLAPPING,)  # launch modes whose calls have both promises
REPEATS, MORE_REPEATS, NEAR = 5, 12, 1.08  # more for times below NEAR times the best

Size = tuple[int, int, int, int]
Sizes = tuple[Size, ...]
Shape = tuple[int, int, int, int]  # a configuration
Times = tuple[float, float, float]  # median, 10th and 90th percentile, microseconds per call


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A call of a GEMM problem: (M, N, K, L) of each group."""

    problem: str
    sizes: Sizes
    case: int | None = None  # number among the problem's benchmarks

    @property
    def groups(self) -> int:
        return sum(size[3] for size in self.sizes)


def log_uniform(source: random.Random, least: int, most: int, multiple: int) -> int:
    """A multiple of `multiple`, drawn with a logarithm that is uniform between those of both limits."""
    return max(multiple, round(math.exp(source.uniform(math.log(least), math.log(most))) / multiple) * multiple)


def draw(count: int, seed: int) -> list[Drawn]:
    """`count` shapes of the three GEMM problems in turns. Groups have N and K in common, as in the contest."""
    found = []
    for index in range(count):
        source, problem = random.Random(f"{seed} {index}"), TURNS[index % len(TURNS)]
        while True:
            groups = source.choice(GROUP_COUNTS) if problem == "group_gemm" else 1
            n, k = log_uniform(source, *ROWS, 128), log_uniform(source, *DEPTH, 256)
            sizes = tuple((log_uniform(source, *TOKENS[problem], 1), n, k, 1) for _ in range(groups))
            if call_bytes(problem, sizes) <= MOST_BYTES:
                found.append(Drawn(problem, sizes))
                break
    return found


def benchmarks() -> list[Drawn]:
    """The benchmark cases of the GEMM problems."""
    found = []
    for problem in dict.fromkeys(TURNS):
        for case, benchmark in enumerate(PROBLEMS[problem].benchmarks):
            args: dict[str, Any] = {"l": 1, **TestSpec.parse(benchmark.line).args}
            several = problem == "group_gemm"
            values = [args[name] if several else (args[name],) for name in "mnk"]
            sizes = tuple((m, n, k, args["l"]) for m, n, k in zip(*values, strict=True))
            found.append(Drawn(problem, sizes, case))
    return found


def products(problem: str) -> int:
    return 2 if problem == "dual_gemm" else 1


def call_bytes(problem: str, sizes: Sizes) -> int:
    """Bytes of the tensors that a call reads and writes, each at its place."""
    import submission

    return sum(-(-size // PLACE) * PLACE for size in submission.tensor_layouts(sizes, products(problem)).sizes)


@functools.cache
def pool() -> torch.Tensor:
    import torch

    return torch.randint(256, (POOL_BYTES,), dtype=torch.uint8, device="cuda")


@functools.cache
def flush() -> torch.Tensor:
    from tools.rows import flush_buffer

    return flush_buffer()


def call_data(problem: str, sizes: Sizes, memory: torch.Tensor) -> tuple[Any, ...]:
    """solve()'s input over the bytes of `memory`, one tensor after the other."""
    import submission

    layouts = submission.tensor_layouts(sizes, products(problem))
    starts = itertools.accumulate((-(-size // PLACE) * PLACE for size in layouts.sizes), initial=0)
    tensors = [
        memory[start : start + size].view(dtype).as_strided(shape, strides)
        for start, size, dtype, shape, strides in zip(
            starts, layouts.sizes, layouts.dtypes, layouts.shapes, layouts.strides
        )
    ]
    if problem == "dual_gemm":
        b1, b2, a, c, sfb1, sfb2, sfa = tensors
        return a, b1, b2, None, None, None, sfa, sfb1, sfb2, c
    groups = [tensors[first : first + 5] for first in range(0, len(tensors), 5)]
    if problem == "gemm":
        ((b, a, c, sfb, sfa),) = groups
        return a, b, None, None, sfa, sfb, c
    scales = [(sfa, sfb) for _, _, _, sfb, sfa in groups]
    return [(a, b, c) for b, a, c, _, _ in groups], scales, scales, list(sizes)


@functools.lru_cache(maxsize=1)
def inputs(problem: str, sizes: Sizes, calls: int = CALLS) -> list[tuple[Any, ...]]:
    size = call_bytes(problem, sizes)
    return [call_data(problem, sizes, pool()[call * size : (call + 1) * size]) for call in range(calls)]


def kernel(shape: Shape, launches: str) -> Callable[[Any], Any]:
    """A call of this configuration in one of the three launch modes."""
    import submission
    from tools import compare

    promised = launches in PROMISED
    call = functools.partial(
        submission.solve,
        operands_ready=promised,
        output_free=promised,
        configurations=(submission.Configuration(*shape),),
    )
    return compare.wrapped(call, compare.ordinary_launches) if launches == ORDINARY else call


def prepare(plans: Sequence[tuple[str, int, Shape]]) -> int:
    """Compile, load and launch each kernel once. plans: (problem, groups, configuration) of each."""
    import torch

    for problem, groups, shape in plans:
        small = ((16, 256, 1024, 1),) * groups if problem == "group_gemm" else ((16, 256, 1024, groups),)
        kernel(shape, PROGRAMMATIC)(inputs(problem, small, 1)[0])
    torch.cuda.synchronize()
    flush()
    return len(plans)


def timed(problem: str, sizes: Sizes, rows: Sequence[tuple[Shape, str]], repeats: int) -> list[Times]:
    """The times of the rows, each a configuration and a launch mode, in their order."""
    from tools.rows import Row, time_row

    found = []
    for shape, launches in rows:
        times = sorted(time_row(Row("", kernel(shape, launches), inputs(problem, sizes)), flush(), repeats)[0])
        tenth, middle = len(times) // 10, len(times) // 2
        found.append((times[middle], times[tenth], times[-1 - tenth]))
    return found


def legal(drawn: Drawn, sms: int) -> list[Shape]:
    """The configurations that can take the shape."""
    import submission

    sizes = tuple(size[:3] for size in drawn.sizes for _ in range(size[3]))
    schedules = submission.candidates(sizes, sms, True, products(drawn.problem))
    order = {
        tuple(shape): place for place, shape in enumerate(submission.legal_configurations(products(drawn.problem)))
    }
    return sorted(map(configuration_of, schedules), key=order.__getitem__)


def measure(
    every: Sequence[Drawn], sms: int, launches: Sequence[str], show: Callable[[str], None]
) -> Iterator[tuple[Drawn, dict[Shape, dict[str, Times]]]]:
    """Yield each shape with its times by configuration and launch mode."""
    plans = dict.fromkeys(
        # GEMM and group GEMM have their kernels in common.
        (products(drawn.problem), drawn.groups, shape)
        for drawn in every
        for shape in legal(drawn, sms)
    )
    count = min(len(plans), os.cpu_count() or 1)
    owner = {plan: place % count for place, plan in enumerate(plans)}
    workers = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(count)]
    try:
        show(f"{len(plans)} kernels, {count} workers")
        names = {1: "group_gemm", 2: "dual_gemm"}
        prepared = [
            worker.submit(prepare, [(names[p], g, shape) for (p, g, shape), place in owner.items() if place == number])
            for number, worker in enumerate(workers)
        ]
        for future in prepared:
            future.result()

        for drawn in every:
            show(f"{drawn.problem} {drawn.sizes}")

            def take(rows: Iterable[tuple[Shape, str]], repeats: int, of: Drawn = drawn) -> dict[Any, Times]:
                by_worker: dict[int, list[tuple[Shape, str]]] = {}
                for shape, way in rows:
                    place = owner[products(of.problem), of.groups, shape]
                    by_worker.setdefault(place, []).append((shape, way))
                found: dict[Any, Times] = {}
                for place, part in by_worker.items():
                    found.update(zip(part, workers[place].submit(timed, of.problem, of.sizes, part, repeats).result()))
                return found

            times = take([(shape, way) for shape in legal(drawn, sms) for way in launches], REPEATS)
            best = {way: min(found[0] for (_, of), found in times.items() if of == way) for way in launches}
            near = [row for row, found in times.items() if found[0] < NEAR * best[row[1]]]
            times.update(take(near, MORE_REPEATS))
            result: dict[Shape, dict[str, Times]] = {}
            for (shape, way), found in times.items():
                result.setdefault(shape, {})[way] = found
            yield drawn, result
    finally:
        for worker in workers:
            worker.shutdown(wait=False, cancel_futures=True)


def choice(drawn: Drawn, sms: int, overlapping: bool) -> str:
    """The name of the configuration that solve() chooses. overlapping: calls have both promises."""
    import submission

    sizes = sorted((size[:3] for size in drawn.sizes for _ in range(size[3])), key=lambda size: -size[0])
    schedule, *_ = submission.candidates(tuple(sizes), sms, overlapping, products(drawn.problem))
    return configuration_name(configuration_of(schedule))
