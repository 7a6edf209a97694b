"""A mode: its job on every case of a problem, warm-up before and report after."""

from __future__ import annotations

from harness.devices import Device
from harness.protocol import ProtocolReport
from harness.tables import ConsoleReport
from harness.worker import Worker
from task import Problem, TestSpec


def run_mode(
    mode: str,
    device: Device,
    problem: Problem,
    specs: list[TestSpec],
    worker: Worker,
    report: ProtocolReport | ConsoleReport,
    baseline: bool = False,
    clock: str | None = None,
) -> bool:
    """Run and report every case; mode leaderboard ends at the first failure. Returns whether every case passed.

    The report's end is left to the caller.
    mode: one that the device offers. baseline: time torch's own kernels as well, in the modes that can.
    clock: a chip profile on which calls are replayed, in the modes that can.
    """
    job = device.jobs[mode]
    options = {**job.options, **({"baseline": baseline} if job.has_baseline else {})}
    if clock is not None:
        options["clock"] = clock
    passed = True
    report.begin(mode, specs)
    if job.warm_up:
        report.working("warming up")
        for spec in specs if job.warms_up_every_case else specs[:1]:
            worker.run(job.run, problem, spec, limits=job.warm_up)
    for index, (spec, following) in enumerate(zip(specs, [*specs[1:], None])):
        report.case_begins(index, spec)
        result = worker.run(job.run, problem, spec, following, **options)
        report.case_ends(index, result)
        passed = passed and result.passed
        if mode == "leaderboard" and not passed:
            break
    return passed
