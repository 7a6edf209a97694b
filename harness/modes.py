"""Runs a mode: warms up, runs the mode's job on every case of a problem, and reports the results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.clocks import Clocking
from harness.devices import Device
from harness.judge import check_plan, offer_plans
from harness.protocol import ProtocolReport
from harness.results import Result
from harness.tables import ConsoleReport, shapes_text
from harness.worker import LIMIT, Worker
from task import Problem, TestSpec


@dataclass(frozen=True)
class Wishes:
    """Work that the caller asks for beside a mode's own; a mode that has no baseline ignores that wish."""

    baseline: bool = False  # also time torch's own kernels
    clocks: Sequence[Clocking] | None = None  # for each case, the chip on which its calls are replayed
    every_plan: bool = False  # also call each case in every plan that can be forced on it


NONE = Wishes()


def run_mode(
    mode: str,
    device: Device,
    problem: Problem,
    specs: list[TestSpec],
    worker: Worker,
    report: ProtocolReport | ConsoleReport,
    wishes: Wishes = NONE,
) -> bool:
    """Run and report every case; mode leaderboard ends at the first failure. Returns whether every case passed.

    The caller ends the report. mode: one that the device offers.
    """
    job = device.jobs[mode]
    options = {**job.options, **({"baseline": wishes.baseline} if job.has_baseline else {})}
    passed = True
    report.begin(mode, specs)
    if job.warm_up:
        report.working("warming up")
        for spec in specs if job.warms_up_every_case else specs[:1]:
            worker.run(job.run, problem, spec, limits=job.warm_up)
    for index, (spec, following) in enumerate(zip(specs, [*specs[1:], None])):
        report.case_begins(index, spec)
        if wishes.clocks is not None:
            options |= {"clock": wishes.clocks[index], "replaying": report.replaying}
        result = worker.run(job.run, problem, spec, following, **options)
        if wishes.every_plan and result.passed:
            result = run_plans(result, problem, spec, worker, report)
        report.case_ends(index, result)
        passed = passed and result.passed
        if mode == "leaderboard" and not passed:
            break
    return passed


def run_plans(
    result: Result, problem: Problem, spec: TestSpec, worker: Worker, report: ProtocolReport | ConsoleReport
) -> Result:
    """Add the outcome of one call in every plan to a case's result. If a plan ends the worker, only that plan fails."""
    offered = worker.run(offer_plans, problem, spec)
    if not offered.passed or offered.plans is None:
        return offered
    ends: dict[str, Result] = {}
    deadline = time.monotonic() + worker.timeout_s
    for name in offered.plans.names:
        if time.monotonic() > deadline:
            ends[name] = Result(False, f"did not run: those before took {worker.timeout_s:g} s ({LIMIT})")
            continue
        report.working(f"{shapes_text(spec)}, forced to {name}")
        ends[name] = worker.run(check_plan, problem, spec, plan=name)
    plans = replace(offered.plans, ends=ends)
    failed = {name: end for name, end in ends.items() if not end.passed}
    if failed:
        text = "\n".join(f"forced to {name}: {end.traceback or end.message}" for name, end in failed.items())
        return Result(False, f"{len(failed)} of {len(ends)} plans fail\n{text}", plans=plans)
    count = f"{len(ends)} plans" if ends else "no plan to force"
    return replace(result, message=f"{result.message}; {count}", plans=plans)
