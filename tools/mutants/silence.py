"""Kernels as they are, under many schedules with the sanitizer: it reports nothing, and results are the same."""

from __future__ import annotations

import argparse
from collections import Counter
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
    tapes = {program.name: program.record() for program in found}
    for recorded in tapes.values():
        tape.settle(recorded)
    for schedule in schedules:  # all kernels under the first comes before the second
        for name, recorded in tapes.items():
            of.append((name, schedule))
            tasks.append(partial(trial.once, recorded, recorded.ptx, schedule, True))
    runs: Counter[str] = Counter()  # by schedule
    reports: list[dict[str, Any]] = []
    for ended in pool.shown(pool.run(tasks, options.jobs, options.limit, options.seconds), len(tasks), console):
        name, schedule = of[ended.number]
        runs[schedule] += 1
        outcome = ended.result
        if outcome is not None or ended.failure:
            verdict, reason = (outcome.verdict, outcome.reason) if outcome else (trial.LATE, ended.failure)
            reports.append({"program": name, "schedule": schedule, "verdict": verdict, "reason": reason})
            console.print(f"{name} under {schedule}: {verdict} {reason}", markup=False, soft_wrap=True)
    console.print(f"{len(reports)} reports in {runs.total()} runs of {len(found)} kernels", markup=False)
    if options.save:
        record = {"programs": [program.name for program in found], "runs": runs}
        records.save(options.save, {**records.versions(list(arguments)), **record, "reports": reports})
    return 1 if reports else 0
