"""Kernels as they are, under many schedules with the sanitizer: it must report nothing, and results must be the same."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from harness.console import make_console
from tools import records
from tools.mutants import pool, programs, tape, trial


def main(options: argparse.Namespace, found: Sequence[programs.Program], arguments: Sequence[str]) -> int:
    """Exit code 1 if anything is reported. options: as of `__main__`."""
    console = make_console(highlight=False)
    schedules = ["late", "eager", *(f"random:{seed}" for seed in range(1, options.silence + 1))]
    tasks, of = [], []
    for program in found:
        recorded = program.record()
        tape.settle(recorded)
        for schedule in schedules:
            of.append((program.name, schedule))
            tasks.append(partial(trial.once, recorded, recorded.ptx, schedule, True))
    reports: list[dict[str, Any]] = []
    for ended in pool.shown(pool.run(tasks, options.jobs, options.limit), len(tasks), console):
        name, schedule = of[ended.number]
        outcome = ended.result
        if outcome is not None or ended.failure:
            verdict, reason = (outcome.verdict, outcome.reason) if outcome else (trial.LATE, ended.failure)
            reports.append({"program": name, "schedule": schedule, "verdict": verdict, "reason": reason})
            console.print(f"{name} under {schedule}: {verdict} {reason}", markup=False, soft_wrap=True)
    console.print(f"{len(reports)} reports in {len(tasks)} runs of {len(found)} kernels", markup=False)
    if options.save:
        record = {"programs": [program.name for program in found], "schedules": len(schedules), "runs": len(tasks)}
        records.save(options.save, {**records.versions(list(arguments)), **record, "reports": reports})
    return 1 if reports else 0
