"""Runs unchanged kernels under many schedules with the sanitizer, which must report nothing; results must be right."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from workshop import processes, records
from workshop.console import make_console
from workshop.mutants import tape, trial


def main(options: argparse.Namespace, found: Sequence[tape.Program], versions: dict[str, Any]) -> int:
    """Runs the kernels. Returns 1 if anything is reported or a run does not end, else 0. versions: facts for the file.

    A file continues an earlier one of the same PTX and emulator.
    """
    console = make_console(highlight=False)
    tapes = tape.settled(found)
    texts = {name: recorded.digest for name, recorded in tapes.items()}
    record = {**versions, "emulator sha256": records.emulator(), "texts": texts}
    saved = records.earlier(options.save, record, ("emulator sha256", "texts"))
    record |= {"runs": saved.get("runs", {name: [] for name in texts}), "reports": saved.get("reports", [])}
    of = [  # all kernels under the first schedule come before the second
        (name, schedule)
        for schedule in ("late", "eager", *(f"random:{seed}" for seed in range(1, options.silence + 1)))
        for name in tapes
        if schedule not in record["runs"][name]
    ]
    tasks = [partial(trial.once, tapes[name], tapes[name].ptx, schedule, True) for name, schedule in of]
    unfinished = len(tasks)
    for ended in processes.shown(tasks, options, console, lambda: records.write(options.save, record)):
        (name, schedule), outcome, text = of[ended.number], ended.result, ended.failure
        if not ended.failure:
            unfinished -= 1
            record["runs"][name].append(schedule)
        if outcome is not None:
            report = {"program": name, "schedule": schedule, "verdict": outcome.verdict, "reason": outcome.reason}
            record["reports"].append(report)
            text = f"{outcome.verdict} {outcome.reason}"
        if text:
            console.print(f"{name} under {schedule}: {text}", markup=False, soft_wrap=True)
    runs = sum(map(len, record["runs"].values()))
    text = f"{len(record['reports'])} reports in {runs} runs of {len(found)} kernels"
    console.print(f"{text}; {unfinished} runs are left" if unfinished else text, markup=False)
    return 1 if record["reports"] or unfinished else 0
