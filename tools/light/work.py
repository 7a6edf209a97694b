"""What the process of a step does; it writes events to the file that LIGHT_RESULTS names (`outcomes`).

python -m tools.light.work which                     the device that there is
python -m tools.light.work survey                    device, driver, versions, hash of submission.py, check groups
python -m tools.light.work calls GROUP [CHECK ...]   checks of a group of `calls`
python -m tools.light.work compare PROBLEM           times: ours, baseline, memory, every configuration
python -m tools.light.work stages PROBLEM            times with fewer stages
python -m tools.light.work profile CONSTANTS.json    the clock's chip profile, from measured constants
python -m tools.light.work suggest FIGURES.json      better costs for the choice
"""

from __future__ import annotations

import functools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import devices
from tools.light.outcomes import Writer, is_skipped

REPEATS = 10  # of a timing


def which(writer: Writer) -> None:
    writer.figure(device=devices.choose_device(None).name)


def leave_if_lost(name: str) -> None:
    """End the process, for another one to go on, after an error that CUDA reports from every later call."""
    from harness.runner import device_is_usable

    if not device_is_usable():
        sys.exit(f"{name}: this process's CUDA context is lost")


def survey(writer: Writer) -> None:
    import torch

    from tools import records
    from tools.light import calls

    facts = {
        **records.gpu(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        **records.versions([]),
        "cuda of torch": torch.version.cuda,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    del facts["command"]
    writer.figure(facts=facts, groups={name: list(checks) for name, checks in calls.groups().items()})


def run_calls(writer: Writer, group: str, *names: str) -> None:
    """Each check once; one that raises is reported, and the next follows unless the device has failed with it."""
    from tools.light import calls

    for name, check in calls.groups()[group].items():
        if is_skipped(name) or (names and name not in names):
            continue
        writer.begin(name)
        began = time.monotonic()
        try:
            check()
        except Exception as error:  # of the kernel, the compiler, the driver
            writer.end(name, False, f"{type(error).__name__}: {error}")
            leave_if_lost(name)
        else:
            writer.end(name, True, f"{time.monotonic() - began:.1f} s")


# ----------------------------------------------------------------------------------------------------------------------
# Times
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """A benchmark case with the inputs of one timing."""

    problem: str
    case: int
    inputs: list[Any]
    sizes: tuple[tuple[int, ...], ...]  # (M, N, K, L) of each group or of the call
    nbytes: int  # that must move
    products: int


def timed_cases(name: str) -> list[Timed]:
    """The benchmark cases of a problem."""
    import reference
    from harness.plan_report import PRODUCTS
    from harness.timing import timing_inputs
    from task import PROBLEMS, TestSpec

    problem, described = PROBLEMS[name], reference.REFERENCES[name]
    found = []
    for case, benchmark in enumerate(problem.benchmarks):
        inputs = timing_inputs(problem, described.generate_input, TestSpec.parse(benchmark.line).args)
        sizes = tuple(map(tuple, described.problem_sizes(inputs[0])))
        nbytes = sum(described.minimum_traffic(inputs[0]))
        found.append(Timed(name, case, inputs, sizes, nbytes, PRODUCTS[name]))
    return found


def measure(writer: Writer, of: Timed, name: str, call: Callable[[Any], Any], inputs: list[Any], **facts: Any) -> None:
    """Time a row and write its figure; one that fails is a failed check."""
    from tools.rows import Row, time_row

    label = f"{of.problem}, case {of.case}: {name}"
    if is_skipped(label):
        return
    writer.begin(label)
    try:
        times, hidden = time_row(Row(name, call, inputs), _flush(), REPEATS)
    except Exception as error:  # of the compiler, the driver, torch's own kernels
        writer.end(label, False, f"{type(error).__name__}: {error}")
        leave_if_lost(label)
        return
    ordered, tenth = sorted(times), len(times) // 10
    figures = {"us": statistics.median(times), "p10": ordered[tenth], "p90": ordered[-1 - tenth]}
    rounded = {key: round(value, 4) for key, value in figures.items()}
    where = {"problem": of.problem, "case": of.case, "row": name}
    writer.figure(**where, **rounded, repeats=len(times), host_included=not hidden, **facts)


@functools.cache
def _flush() -> Any:
    from tools.rows import flush_buffer

    return flush_buffer()


def both_ways(submission: Any, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """(launches, call) of a configuration: with everything promised, and with nothing."""
    from tools.compare import one_shape

    yield "overlapping", one_shape(submission, shape)
    yield "in turn", functools.partial(submission.run, configurations=(shape,))


def compare(writer: Writer, problem: str) -> None:
    """First the rows beside ours in every case, then every configuration, pairs first, with launches of both kinds."""
    import torch

    import reference
    import submission
    from harness.plan_report import configuration_name
    from tools.rings import memory_rows

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    cases = timed_cases(problem)
    for of in cases:
        schedule = None
        if of.products:
            schedule = submission.configure(of.sizes, sms, products=of.products)[0].schedule
        measure(writer, of, "ours, overlapping", submission.custom_kernel, of.inputs)
        measure(writer, of, "ours, in turn", submission.solve, of.inputs)
        if reference.has_native_scaled_mm():
            measure(writer, of, "torch._scaled_mm", reference.REFERENCES[problem].baseline, of.inputs)
        for row in memory_rows(of.nbytes, schedule, sms, len(of.inputs)):
            measure(writer, of, row.name, row.call, row.inputs)
    for of in cases:
        shapes = submission.shapes(of.products) if of.products else []
        for shape in sorted(shapes, key=lambda x: -x.cta_group):
            for launches, call in both_ways(submission, shape):
                name = configuration_name(shape)
                facts = {"configuration": shape, "name": name, "launches": launches, "sizes": ordered_sizes(of)}
                label = f"{name}, {launches}"
                measure(writer, of, label, call, of.inputs, products=of.products, **facts)


def ordered_sizes(of: Timed) -> list[tuple[int, ...]]:
    """(M, N, K) of the groups of the first launch, in the order of its tiles."""
    import submission
    from harness.plan_report import current_sms

    return list(submission.configure(of.sizes, current_sms(), products=of.products)[0].schedule.sizes)


def stages(writer: Writer, problem: str) -> None:
    """Configurations in the order of the choice, each with 2 stages, 3, ... up to those that fit, in every case."""
    import torch

    import submission
    from harness.plan_report import configuration_name
    from tools.stages import FEWEST, at_most

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    cases = timed_cases(problem)
    ordered = [submission.candidates(tuple(ordered_sizes(of)), sms, True, of.products) for of in cases]
    for rank in range(max(map(len, ordered))):
        for of, schedules in zip(cases, ordered):
            if rank < len(schedules):
                plan = schedules[rank].plan
                shape = submission.Configuration(plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.k_split)
                for count in range(FEWEST, plan.stages + 1):
                    for launches, call in both_ways(at_most(count), shape):
                        name = configuration_name(shape)
                        label = f"{name}, {count} stages, {launches}"
                        facts = {"configuration": shape, "name": name, "launches": launches, "stages": count}
                        measure(writer, of, label, call, of.inputs, fitting=plan.stages, **facts)


# ----------------------------------------------------------------------------------------------------------------------
# Without a GPU
# ----------------------------------------------------------------------------------------------------------------------


def profile(writer: Writer, constants: str) -> None:
    """The profile of the chip that the constants are of, on the basis of the committed one."""
    from emulator.clock.chip import PROFILES
    from tools import chip_profile

    record = json.loads(Path(constants).read_text(encoding="utf-8"))
    base = PROFILES / ("b200.json" if record["arch"] == "sm_100a" else "h200.json")
    data = chip_profile.derived(json.loads(base.read_text(encoding="utf-8")), record["constants"])
    writer.figure(profile=data, base=base.name)


def suggest(writer: Writer, figures: str) -> None:
    from tools.light.suggest import suggestion

    record = json.loads(Path(figures).read_text(encoding="utf-8"))
    writer.figure(suggestion=suggestion(record["figures"], record["sms"]))


KINDS: dict[str, Callable[..., None]] = {
    "which": which,
    "survey": survey,
    "calls": run_calls,
    "compare": compare,
    "stages": stages,
    "profile": profile,
    "suggest": suggest,
}


def main() -> None:
    kind, *arguments = sys.argv[1:]
    KINDS[kind](Writer(), *arguments)


if __name__ == "__main__":
    main()
