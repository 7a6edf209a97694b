"""Times whole kernels on a GPU, one point each. A model of time is checked against the points and never fitted to them.

    python -m tools.clock.truth [--problem NAME ...] [--only TEXT] [--peer FILE ...] [--example FILE] [--save FILE.json]
    python -m tools.clock.truth --program "FILE ARGUMENTS" ... [--save FILE.json]

The first form times, in every case of a problem, as `tools.compare` does: every configuration of our kernel,
overlapping and in ordinary launches; the launches that solve() chooses, with both promises and without; plain reads
and rings; other submissions and NVIDIA's grouped example. The second form runs a program of CuTe DSL to its end, then
launches its last kernel again with the same arguments: alone on a flushed L2, and 20 times in a row.

A point: program, configuration, problem and case or arguments, launches (a name of harness.launch_modes), mode of
the Hopper path ("timing": tensor core omitted; none on a B200), median microseconds per launch, 10th and 90th
percentile, number of repeats. The file is saved after each point.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from harness.launch_modes import ALONE, ORDINARY, OVERLAPPING, PROGRAMMATIC, LaunchMode
from task import GROUP_GEMM, PROBLEMS
from tools import circumstances, compare
from tools.peers import Kernel, load_submission
from tools.rings import memory_rows
from tools.rows import Row, Timed, figures, flush_buffer, kernel_time, time_row, timed_case
from workshop import records
from workshop.console import command_parser
from workshop.modules import run_script

if TYPE_CHECKING:
    import torch

Point = dict[str, Any]

REPEATS = 10
IN_A_ROW = 20  # launches of a program's last kernel


def point(times: list[float], **facts: Any) -> Point:
    """A point with the figures of `times`, in microseconds per launch."""
    return {**facts, **figures(times), "repeats": len(times)}


def our_rows(submission: Any, inputs: list[Any], problem: str, hopper: bool) -> Iterator[tuple[Row, Point]]:
    """(row, its facts) of our kernel: the launches that it chooses, and every configuration."""
    from harness.plan_report import configuration_name, configurations

    mode = "timing" if hopper else None

    def both(name: str, call: Kernel, launches: LaunchMode = OVERLAPPING) -> Iterator[tuple[Row, Point]]:
        facts = {"program": "submission.py", "configuration": name, "mode": mode}
        yield Row(f"{name}, {launches}", call, inputs), {**facts, "launches": launches}
        if hopper:
            ordinary = compare.wrapped(call, compare.ordinary_launches)
            yield Row(f"{name}, {ORDINARY}", ordinary, inputs), {**facts, "launches": ORDINARY}

    yield from both("chosen", compare.promised(submission))
    yield from both("chosen, nothing promised", submission.solve, PROGRAMMATIC)
    for configuration in configurations(problem):
        yield from both(configuration_name(configuration), compare.promised(submission, configuration))


def other_rows(
    inputs: list[Any], options: argparse.Namespace, hopper: bool, of_group: bool
) -> Iterator[tuple[Row, Point]]:
    """(row, its facts) of --peer and --example, which take a group GEMM's data; none if the problem is another."""
    facts = {"mode": "timing" if hopper else None, "launches": ORDINARY}
    if of_group:
        for path in options.peer:
            program = {"program": path.name, "configuration": path.parent.name}
            yield Row(path.name, load_submission(path), inputs), {**facts, **program}
        for name, call in compare.example_calls(options.example, hopper).items():
            yield Row(name, call, inputs), {**facts, "program": options.example.name, "configuration": name}


def byte_rows(nbytes: int, schedule: Any, sms: int, calls: int) -> Iterator[tuple[Row, Point]]:
    """(row, its facts) of plain reads and rings."""
    for row in memory_rows(nbytes, schedule, sms, calls):
        launches = ORDINARY if row.name in ("plain read", f"ring, {ORDINARY}") else OVERLAPPING
        facts = {"program": "plain_read.cu" if row.name == "plain read" else "ring.cu", "configuration": row.name}
        yield row, {**facts, "mode": None, "launches": launches, "bytes": nbytes, "sms": sms}


@contextlib.contextmanager
def seen_launches() -> Iterator[list[tuple[Any, ...]]]:
    """A context whose list gets the arguments of each gpu.launch inside."""
    from nogpu.hopper import gpu

    seen: list[tuple[Any, ...]] = []
    original = gpu.launch

    def launch(*arguments: Any) -> None:
        seen.append(arguments)
        original(*arguments)

    with mock.patch.object(gpu, "launch", launch):
        yield seen


def timed(row: Row, facts: Point, flush: torch.Tensor, repeats: int) -> Point:
    """The row's point, with the launches of a call.

    If the host's work cannot be hidden, the times are the profiler's sums of kernels.
    """
    with seen_launches() as seen:
        row.call(row.inputs[0])
    facts = {**facts, "launched": [dataclasses.asdict(config) for _, config, *_ in seen]}
    times, hidden = time_row(row, flush, repeats)
    if not hidden:
        times = [kernel_time(row) for _ in range(compare.PROFILED)]
        facts = {**facts, "by": "profiler, kernels only"}
    return point(times, **facts, calls=len(row.inputs))


def case_rows(of: Timed, options: argparse.Namespace, hopper: bool) -> Iterator[tuple[Row, Point]]:
    """Every (row, its facts) of a case. options: `example` and `peer` of the command line."""
    import torch

    import submission

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    yield from our_rows(submission, of.inputs, of.problem, hopper)
    yield from other_rows(of.inputs, options, hopper, of.problem == GROUP_GEMM.name)
    yield from byte_rows(of.nbytes, of.schedule(sms), sms, len(of.inputs))


def case_points(name: str, case: int, options: argparse.Namespace, hopper: bool, show: Any) -> Iterator[Point]:
    """Every point of a problem's case. show: called with the name of each row before it is timed."""
    rows = case_rows(timed_case(name, case), options, hopper)
    flush = flush_buffer()
    for row, facts in rows:
        if options.only not in row.name:
            continue
        label = f"{name}, case {case}: {row.name}"
        show(label)
        try:
            yield timed(row, {**facts, "problem": name, "case": case}, flush, options.repeats)
        except Exception as error:  # an error of a compiler or of a file of others, which leaves the other rows valid
            print(f"{label}: {error}"[:300], file=sys.stderr)


def run_program(path: Path, arguments: list[str]) -> object:
    """Run a program of CuTe DSL to its end. Returns its variables or the exception that ended it, with its tensors."""
    try:
        return run_script(path, arguments)
    except SystemExit as left:
        return left
    except Exception as error:  # results without a tensor core are worthless, and a reference may need a B200
        return error


def program_points(command: str, hopper: bool, repeats: int) -> Iterator[Point]:
    """Run the program, then time its last launch: many times in a row, and alone."""
    import torch
    from cuda.bindings import driver

    from nogpu.hopper import gpu

    path, *arguments = shlex.split(command)
    with seen_launches() as seen:
        kept = run_program(Path(path), arguments)
    if isinstance(kept, Exception) or (isinstance(kept, SystemExit) and kept.code):
        print(f"{command}: ended with {kept}"[:300], file=sys.stderr)
    if not seen:
        print(f"{command}: no launch of a kernel was seen", file=sys.stderr)
        return
    function, config, parameters, _ = seen[-1]
    launch_last = functools.partial(gpu.launch, function, config, parameters, torch.cuda.current_stream().cuda_stream)
    flush = flush_buffer()
    facts = {"program": Path(path).name, "configuration": " ".join(arguments), "mode": "timing" if hopper else None}
    facts |= {"kernel": gpu.call(driver.cuFuncGetName, function).decode()}
    in_a_row = OVERLAPPING if config.programmatic else ORDINARY
    for launches, count in ((in_a_row, IN_A_ROW), (ALONE, 1)):
        row = Row(path, lambda _: launch_last(), [None] * count)
        yield timed(row, {**facts, "launches": launches}, flush, repeats)
    del kept


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.clock.truth")
    parser.add_argument("--problem", action="append", choices=PROBLEMS, help="default: every problem")
    parser.add_argument("--only", default="", metavar="TEXT", help='rows with this in their names, such as "256x"')
    parser.add_argument("--peer", type=Path, action="append", default=[], metavar="FILE", help="group GEMM submission")
    parser.add_argument("--example", type=Path, metavar="FILE", help="NVIDIA's grouped_blockscaled_gemm.py")
    parser.add_argument("--program", action="append", metavar="COMMAND", help="a program and its arguments")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help="default: %(default)s")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    hopper = circumstances.on_hopper("tools.clock.truth", arguments)

    from rich.progress import Progress

    points: list[Point] = []
    with Progress(transient=True) as progress:
        bar = progress.add_task("", total=None)

        def show(text: str) -> None:
            progress.update(bar, description=text)

        for found in all_points(options, hopper, show):
            points.append(found)
            record = {**circumstances.gpu(), **circumstances.versions(arguments), "points": points}
            records.write(options.save, record, "points")
    print(f"{len(points)} points" + (f" are in {options.save}" if options.save else ""))


def all_points(options: argparse.Namespace, hopper: bool, show: Callable[[str], None]) -> Iterator[Point]:
    """The points that the command line asks for."""
    for command in options.program or ():
        show(command)
        yield from program_points(command, hopper, options.repeats)
    for name in () if options.program else options.problem or PROBLEMS:
        for case in range(len(PROBLEMS[name].benchmarks)):
            yield from case_points(name, case, options, hopper, show)


if __name__ == "__main__":
    main()
