"""Kernels as they are, under many schedules with the sanitizer: it reports nothing, and results are the same."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import nogpu
from workshop import processes, records
from workshop.console import make_console
from workshop.mutants import tape, trial

SOURCES = "*.py", "*.c", "*.h"


class Program(Protocol):
    """A kernel, and how it is recorded."""

    @property
    def name(self) -> str: ...

    @property
    def record(self) -> Callable[[], tape.Tape]: ...


SAVED_EVERY = 10.0  # seconds


def main(options: argparse.Namespace, found: Sequence[Program], versions: dict[str, Any]) -> int:
    """Exit code 1 if anything is reported, or a run has no end. versions: what the file says of the run.

    A file goes on where an earlier run of the same PTX in the same emulator has ended.
    """
    console = make_console(highlight=False)
    schedules = ["late", "eager", *(f"random:{seed}" for seed in range(1, options.silence + 1))]
    tapes = {program.name: program.record() for program in found}
    for recorded in tapes.values():
        tape.settle(recorded)
    texts = {name: hashlib.sha256(recorded.ptx.encode()).hexdigest() for name, recorded in tapes.items()}
    record = _begin(options.save, texts, versions)
    tasks, of = [], []
    for schedule in schedules:  # all kernels under the first comes before the second
        for name, recorded in tapes.items():
            if schedule not in record["runs"][name]:
                of.append((name, schedule))
                tasks.append(partial(trial.once, recorded, recorded.ptx, schedule, True))
    last, unfinished = time.monotonic(), len(tasks)
    for ended in processes.shown(
        processes.forked(tasks, options.jobs, options.limit, options.seconds), len(tasks), console
    ):
        name, schedule = of[ended.number]
        outcome = ended.result
        if ended.failure:
            console.print(f"{name} under {schedule}: {ended.failure}", markup=False, soft_wrap=True)
            continue
        unfinished -= 1
        record["runs"][name].append(schedule)
        if outcome is not None:
            report = {"program": name, "schedule": schedule, "verdict": outcome.verdict, "reason": outcome.reason}
            record["reports"].append(report)
            console.print(f"{name} under {schedule}: {outcome.verdict} {outcome.reason}", markup=False, soft_wrap=True)
        if time.monotonic() - last > SAVED_EVERY:
            records.write(options.save, record)
            last = time.monotonic()
    records.write(options.save, record)
    runs = sum(map(len, record["runs"].values()))
    text = f"{len(record['reports'])} reports in {runs} runs of {len(found)} kernels"
    console.print(f"{text}; {unfinished} runs are left" if unfinished else text, markup=False)
    return 1 if record["reports"] or unfinished else 0


def _begin(path: Path | None, texts: dict[str, str], versions: dict[str, Any]) -> dict[str, Any]:
    """The file's record of this emulator, and of these kernels as long as none has changed; else an empty one."""
    record = {**versions, "emulator sha256": _emulator(), "texts": texts}
    saved = records.load(path) or {}
    same = all(saved.get(key) == record[key] for key in ("emulator sha256", "texts"))
    runs = saved["runs"] if same else {name: [] for name in texts}
    return record | {"runs": runs, "reports": saved["reports"] if same else []}


def _emulator() -> str:
    """The hash of the emulator's sources."""
    root, digest = Path(nogpu.__file__).parent, hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in root.rglob(pattern)):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
