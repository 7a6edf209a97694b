"""Times the kernel beside other kernels and plain memory traffic, in one run on one GPU: a B200 or a Hopper GPU.

    python -m tools.compare [--problem NAME] [--peer FILE ...] [--example FILE] [--case I ...] [--shapes]
                            [--stages N ...] [--repeats N] [--save FILE.json]

A figure is the median over repeats of microseconds per call. A repeat flushes L2, then calls the row back to back
between two events, once for each input of the contest's timing: 15 of a group GEMM, 50 of a GEMM or dual GEMM, one of a
GEMV. The host's work is hidden behind a kernel that waits. Rows:

    plain read            a grid-stride read of as many bytes as the case must move
    ring                  the same bytes through a ring of bulk copies, one CTA per SM: ordinary launches, and launches
                          that overlap (programmatic launch) with loads before the wait for the previous one
    ring, our traffic     the loads and stores of the kernel's own schedule, as plain bulk copies without arithmetic
    ours                  solve() in ordinary launches, as published kernels are timed; as it launches, programmatic,
                          nothing promised; with both promises, overlapping. On a Hopper GPU also the plans of the
                          latter in ordinary launches
    ours, TILE            with --shapes: every configuration of the kernel, overlapping
    ours, TILE, N stages  with --stages N, which may be repeated: the same with at most N stages, where more fit
    FILE                  --peer, which may be repeated: custom_kernel of another file. If its calls wait for the GPU,
                          the host's work cannot be hidden: one row is "host included", another, "kernels only", is the
                          profiler's sum of kernels and copies on the GPU
    NVIDIA grouped ...    --example: grouped_blockscaled_gemm.py from NVIDIA/cutlass, examples/python/CuTeDSL/cute/
                          blackwell/kernel/blockscaled_grouped_gemm, with one SM per MMA and, on a B200, with two

A Hopper GPU runs the B200's PTX without tensor-core work (nogpu/docs/manual.md): its times measure loads, barriers,
stores and launches on that GPU, and are no times of a B200.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

from harness.console import make_console, make_table
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from harness.modules import load_module
from harness.options import add_case, add_problem
from task import PROBLEMS, Problem
from tools import circumstances
from tools.peers import Kernel, load_grouped_example, load_submission
from tools.rings import memory_rows
from tools.rows import Row, flush_buffer, kernel_time, range_text, time_row, timed_case
from tools.stages import FEWEST, at_most
from workshop import records
from workshop.console import command_parser

if TYPE_CHECKING:
    from tools.variants import Edit

REPEATS = 40
PROFILED = 5  # repeats of a "kernels only" row
OURS_ORDINARY, OURS_PROGRAMMATIC, OURS_OVERLAPPING = (f"ours, {mode}" for mode in (ORDINARY, PROGRAMMATIC, OVERLAPPING))
OURS_IF_NONE_OVERLAPS = f"ours, plans for overlapping calls, {ORDINARY}"
# Rows of NVIDIA's example: MMA tile, CTAs of a cluster, whether a Hopper's time of the row means anything. Loads of two
# SMs are software there.
EXAMPLES = {
    "NVIDIA grouped example, 1-SM 128x128": ((128, 128), (1, 1), True),
    "NVIDIA grouped example, 2-SM 256x128": ((256, 128), (2, 1), False),
}

Results = dict[str, dict[int, list[float]]]  # row -> case -> microseconds per call of each repeat


@contextlib.contextmanager
def ordinary_launches() -> Iterator[None]:
    """A context in which launches on the Hopper path lose their programmatic attribute."""
    from nogpu import LaunchConfig
    from nogpu.hopper import gpu

    original = gpu.launch

    def without(function: Any, config: LaunchConfig, parameters: list[bytes], queue: int) -> None:
        original(function, dataclasses.replace(config, programmatic=False), parameters, queue)

    with mock.patch.object(gpu, "launch", without):
        yield


@functools.cache
def edited_module(*edits: Edit) -> ModuleType:
    """A module of submission.py with these edits. Raises ValueError for an edit that does not fit."""
    from tools.variants import SUBMISSION

    source = SUBMISSION.read_text()
    for edit in edits:
        source = edit.apply(source)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / f"edited_{hashlib.sha256(source.encode()).hexdigest()[:12]}.py"
    path.write_text(source)
    module = load_module(path.stem, path)
    vars(module)["folder"] = folder  # the DSL reads the file when it compiles
    return module


def ordinary_solve(submission: Any, hopper: bool) -> Kernel:
    """solve() in ordinary launches."""
    if hopper:
        return wrapped(submission.solve, ordinary_launches)
    from tools.variants import ORDINARY_EDIT

    kernel: Kernel = edited_module(ORDINARY_EDIT).solve
    return kernel


def promised(submission: Any, *shapes: tuple[int, ...]) -> Kernel:
    """solve() with both promises, which chooses among the configurations `shapes`, or among all if there are none."""
    return functools.partial(submission.solve, operands_ready=True, output_free=True, configurations=shapes or None)


def wrapped(call: Kernel, context: Callable[..., AbstractContextManager[None]], *arguments: Any) -> Kernel:
    """The call inside `context(*arguments)`."""

    def inside(data: tuple[Any, ...]) -> Any:
        with context(*arguments):
            return call(data)

    return inside


def example_calls(path: Path | None, hopper: bool) -> dict[str, Kernel]:
    """Rows of --example by name; none without a path."""
    if path is None:
        return {}
    return {
        name: load_grouped_example(path, tile, cluster)
        for name, (tile, cluster, on_hopper) in EXAMPLES.items()
        if on_hopper or not hopper
    }


def kernel_rows(
    submission: Any,
    inputs: list[Any],
    configurations: Sequence[tuple[int, ...]],
    products: int,
    hopper: bool,
    stages: Sequence[int] = (),
) -> Iterator[Row]:
    """The rows of the project's kernel.

    configurations: timed one by one, and again with at most each of `stages`. products: the kernel's, 1 for a GEMV.
    """
    from harness.plan_report import configuration_name

    yield Row(OURS_ORDINARY, ordinary_solve(submission, hopper), inputs)
    yield Row(OURS_PROGRAMMATIC, submission.solve, inputs)
    yield Row(OURS_OVERLAPPING, promised(submission), inputs)
    if hopper:
        yield Row(OURS_IF_NONE_OVERLAPS, wrapped(promised(submission), ordinary_launches), inputs)
    for configuration in configurations:
        name = f"ours, {configuration_name(configuration)}"
        yield Row(name, promised(submission, configuration), inputs)
        for count in stages:
            if count < submission.Plan(1, *configuration, products).stages:
                yield Row(f"{name}, {count} stages", promised(at_most(count), configuration), inputs)


def compare(problem: Problem, cases: list[int], options: argparse.Namespace, hopper: bool) -> Results:
    """Time every row in every case. options: the command line's."""
    import torch
    from rich.progress import Progress

    import submission
    from harness.plan_report import configuration_of

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    examples = example_calls(options.example, hopper)
    flush = flush_buffer()
    results: Results = {}
    with Progress(transient=True) as progress:
        for case in cases:
            of, every = timed_case(problem.name, case), []
            schedule = of.schedule(sms)
            if options.shapes or options.stages:
                candidates = submission.candidates(schedule.sizes, sms, True, schedule.plan.products)
                every = sorted(map(configuration_of, candidates))
            rows = itertools.chain(
                kernel_rows(submission, of.inputs, every, schedule.plan.products, hopper, options.stages),
                (Row(path.name, load_submission(path), of.inputs) for path in options.peer),
                (Row(name, call, of.inputs) for name, call in examples.items()),
                memory_rows(of.nbytes, schedule, sms, len(of.inputs)),
            )
            for row in rows:
                bar = progress.add_task(f"case {case}: {row.name}", total=None)
                times, hidden = time_row(row, flush, options.repeats)
                results.setdefault(row.name + ("" if hidden else ", host included"), {})[case] = times
                if not hidden:
                    times = [kernel_time(row) for _ in range(PROFILED)]
                    results.setdefault(f"{row.name}, kernels only", {})[case] = times
                progress.remove_task(bar)
            del of, rows, row
    return results


def show(results: Results, cases: list[int], title: str) -> None:
    """Print a table with a row per row and a column per case."""
    caption = "median us per call, (10th to 90th percentile)"
    table = make_table([""], [f"case {case}" for case in cases], title=title, caption=caption)
    for name, by_case in results.items():
        table.add_row(name, *(range_text(by_case.get(case, [])) for case in cases))
    make_console().print(table)


def parse_arguments(arguments: list[str] | None) -> tuple[argparse.Namespace, list[int]]:
    """(options, numbers of the cases)."""
    parser = command_parser(__doc__, "tools.compare")
    add_problem(parser)
    parser.add_argument(
        "--peer", type=Path, action="append", default=[], metavar="FILE", help="file that defines custom_kernel"
    )
    parser.add_argument("--example", type=Path, metavar="FILE", help="NVIDIA's grouped_blockscaled_gemm.py")
    add_case(parser)
    parser.add_argument("--shapes", action="store_true", help="time every configuration of the kernel")
    text = "time every configuration also with at most so many stages; may be repeated"
    parser.add_argument("--stages", type=int, action="append", default=[], metavar="N", help=text)
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help="default: %(default)s")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    every = range(len(PROBLEMS[options.problem].benchmarks))
    cases = list(every) if options.case is None else options.case
    if min(options.stages, default=FEWEST) < FEWEST:
        parser.error(f"--stages {min(options.stages)}: a ring has at least {FEWEST}, or loads and MMAs take turns")
    if unknown := set(cases) - set(every):
        parser.error(f"--case {min(unknown)}: the cases are numbered 0 to {len(every) - 1}")
    return options, cases


def main(arguments: list[str] | None = None) -> None:
    options, cases = parse_arguments(arguments)
    hopper = circumstances.on_hopper("tools.compare", arguments)

    import torch

    problem = PROBLEMS[options.problem]
    results = compare(problem, cases, options, hopper)
    omitted = ", Hopper: tensor core omitted, no B200 times" if hopper else ""
    title = f"{problem.name}, {torch.cuda.get_device_name()}{omitted}"
    show(results, cases, title)
    if options.save:
        record = {"problem": problem.name, "title": title, **circumstances.gpu(), **circumstances.versions(arguments)}
        records.save(options.save, {**record, "us": results})


if __name__ == "__main__":
    main()
