"""Times a problem's benchmark cases on a GPU: our rows and those beside, every configuration, trials, fewer stages."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import harness.dsl  # noqa: F401
import reference
import submission
from harness import devices
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from harness.plan_report import configuration_name, configuration_of, current_sms
from task import PROBLEMS
from tools.compare import (
    OURS_ORDINARY,
    OURS_OVERLAPPING,
    OURS_PROGRAMMATIC,
    edited_module,
    ordinary_launches,
    ordinary_solve,
    promised,
    wrapped,
)
from tools.rings import memory_rows
from tools.rows import Row, Timed, figures, flush_buffer, time_row, timed_case
from tools.sitting.outcomes import Writer, is_skipped
from tools.sitting.trials import TRIALS, left_out
from tools.stages import FEWEST, at_most
from tools.variants import ORDINARY_EDIT

REPEATS = 10  # repeats of a timing


def timed_cases(name: str) -> list[Timed]:
    """The benchmark cases of a problem."""
    return [timed_case(name, case) for case in range(len(PROBLEMS[name].benchmarks))]


def measure(writer: Writer, of: Timed, row: Row, **facts: Any) -> None:
    """Time a row and write its figure with these facts. A row that raises an exception is a failed check."""
    label = f"{of.problem}, case {of.case}: {row.name}"
    if is_skipped(label):
        return
    writer.begin(label)
    try:
        times, hidden = time_row(row, _flush(), REPEATS)
    except Exception as error:  # an error of the compiler, the driver or torch's own kernels
        writer.fail(label, error)
        return
    where = {"problem": of.problem, "case": of.case, "row": row.name}
    writer.figure(**where, **figures(times), repeats=len(times), host_included=not hidden, **facts)


_flush = functools.cache(flush_buffer)


def configuration_rows(
    writer: Writer, of: Timed, module: Any, shape: submission.Configuration, stages: int | None = None, **facts: Any
) -> None:
    """Time a configuration, overlapping and programmatic. module: submission.py or an edited copy of it."""
    name = configuration_name(shape)
    what = name if stages is None else f"{name}, {stages} stages"
    facts |= {"configuration": shape, "name": name, "sizes": ordered_sizes(of), "products": max(1, of.products)}
    if stages is not None:
        facts["stages"] = stages
    unpromised = functools.partial(module.solve, configurations=(shape,))
    for launches, call in ((OVERLAPPING, promised(module, shape)), (PROGRAMMATIC, unpromised)):
        measure(writer, of, Row(f"{what}, {launches}", call, of.inputs), launches=launches, **facts)


def ordered_sizes(of: Timed) -> submission.Sizes:
    """(M, N, K) of the groups of the first launch, in the order of its tiles."""
    return submission.configure(of.sizes, current_sms(), products=of.products)[0].schedule.sizes


def in_order_of_choice(cases: list[Timed]) -> Iterator[tuple[Timed, submission.Schedule]]:
    """Yield every case with the best configuration by the present constants, then every case with the next, ..."""
    ordered = [submission.candidates(ordered_sizes(of), current_sms(), True, max(1, of.products)) for of in cases]
    for rank in range(max(map(len, ordered))):
        for of, schedules in zip(cases, ordered):
            if rank < len(schedules):
                yield of, schedules[rank]


def compare(writer: Writer, problem: str) -> None:
    """Time our rows and those beside in every case, then every configuration, overlapping and programmatic."""
    cases = timed_cases(problem)
    for of in cases:
        measure(writer, of, Row(OURS_ORDINARY, ordinary_solve(submission, devices.has_hopper()), of.inputs))
        measure(writer, of, Row(OURS_PROGRAMMATIC, submission.solve, of.inputs))
        measure(writer, of, Row(OURS_OVERLAPPING, promised(submission), of.inputs))
        if reference.has_native_scaled_mm():
            measure(writer, of, Row("torch._scaled_mm", reference.REFERENCES[problem].baseline, of.inputs))
        for row in memory_rows(of.nbytes, of.schedule(current_sms()), current_sms(), len(of.inputs)):
            measure(writer, of, row)
    for of, candidate in in_order_of_choice(cases):
        configuration_rows(writer, of, submission, configuration_of(candidate))


def trials(writer: Writer, problem: str) -> None:
    """Time every case with each trial in three launch modes, then each configuration that the choice leaves out."""
    cases = timed_cases(problem)
    for name, edits in TRIALS.items():
        module = edited_module(*edits)
        ordinary = wrapped(module.solve, ordinary_launches) if devices.has_hopper() else None
        calls = {
            ORDINARY: ordinary or edited_module(*edits, ORDINARY_EDIT).solve,
            PROGRAMMATIC: module.solve,
            OVERLAPPING: promised(module),
        }
        for of, (mode, call) in itertools.product(cases, calls.items()):
            measure(writer, of, Row(f"{name}, {mode}", call, of.inputs), trial=name, launches=mode)
    for of in cases:
        for configuration in left_out(max(1, of.products)):
            configuration_rows(writer, of, submission, configuration, trial=configuration_name(configuration))


def stages(writer: Writer, problem: str) -> None:
    """Time every configuration with 2 stages, 3, ... up to those that fit, in every case."""
    for of, candidate in in_order_of_choice(timed_cases(problem)):
        for count in range(FEWEST, candidate.plan.stages + 1):
            configuration_rows(writer, of, at_most(count), configuration_of(candidate), count)
