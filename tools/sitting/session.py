"""Runs a whole sitting of `tools.first_light`: device, steps, progress, JSON, page, summary."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.console import make_console, make_table
from tools.sitting import page
from tools.sitting.outcomes import FAILED, NOT_RUN, PASSED, Outcome
from tools.sitting.sitting import Show, Sitting
from tools.sitting.steps import Step, last_steps, plain_work, steps, work

if TYPE_CHECKING:
    from rich.console import Console

MOST_JOBS = 12
PAGE_S = 6  # seconds kept back for the page
SHOWN = {PASSED: "green", FAILED: "bold red", NOT_RUN: "yellow"}
INTERRUPTED = 130

Record = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Run the sitting that the command line asks for, and return the exit code."""
    console = make_console()
    folder: Path = options.save
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    for path in parts.iterdir():
        path.unlink()
    record: Record = {
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "minutes": options.minutes,
        "steps": [],
    }
    outcomes: list[Outcome] = []
    with progress(console) as show:
        sitting = Sitting(parts, 60 * options.minutes - PAGE_S, show)

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            console.print(line(outcome), style=SHOWN.get(outcome.state, "cyan"), markup=False, highlight=False)
            save(record, outcomes, sitting, folder)

        with interruptible(sitting):
            all_steps(sitting, record, options, done)
    save(record, outcomes, sitting, folder)
    summarise(console, record, folder)
    if sitting.ended:
        return INTERRUPTED
    return int(any(outcome.state == FAILED for outcome in outcomes) or not outcomes)


def all_steps(sitting: Sitting, record: Record, options: argparse.Namespace, done: Any) -> None:
    """Find the device, then run the steps there."""
    device = options.device
    if device is None:
        found = sitting.run(Step("which", "which device there is", plain_work("which")))
        if found.state != PASSED:
            return done(found)
        device = found.figures[0]["device"]
    record["device"] = device
    survey = sitting.run(Step("survey", "device, driver, versions", work(device, "survey"), limit_s=90))
    done(survey)
    if survey.state != PASSED:
        return None
    record["facts"], groups = survey.figures[0]["facts"], survey.figures[0]["groups"]
    jobs = options.jobs or max(1, min(MOST_JOBS, (os.cpu_count() or 1) * 3 // 4))

    def chosen(found: list[Step]) -> list[Step]:
        return [step for step in found if not options.only or step.name.startswith(tuple(options.only))]

    last = chosen(last_steps(device, sitting.folder))
    kept_s = sum(step.limit_s for step in last if not step.refusal)
    sitting.run_all(chosen(steps(device, groups, sitting.folder)), jobs, kept_s, done)
    figures = [figure for outcome in record["steps"] for figure in outcome["figures"] if "configuration" in figure]
    if figures:
        data = {"sms": record["facts"]["sms"], "figures": figures}
        (sitting.folder / "figures.json").write_text(json.dumps(data), encoding="utf-8")
    return sitting.run_all(last, 1, 0, done)


@contextlib.contextmanager
def interruptible(sitting: Sitting) -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM end the running steps, so that the findings are still written."""

    def end(*_: object) -> None:
        sitting.end()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Show]:
    """A context with a line on a terminal for each running step and its present work."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    lock, bars = threading.Lock(), dict[str, Any]()
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:

        def show(step: str, what: str | None) -> None:
            with lock:
                if what is None:
                    if step in bars:
                        shown.remove_task(bars.pop(step))
                elif step in bars:
                    shown.update(bars[step], description=f"{step}: {what}")
                else:
                    bars[step] = shown.add_task(step, total=None)

        yield show


def line(outcome: Outcome) -> str:
    """A line of the console for an outcome."""
    counts = [f"{len(outcome.checks)} checks"] if outcome.checks else []
    counts += [f"{len(outcome.figures)} figures"] if len(outcome.figures) > 1 else []
    remark = outcome.reason or ", ".join(counts)
    return f"{outcome.state:<9} {outcome.seconds:6.1f} s  {outcome.title}{': ' * bool(remark)}{remark}"


def save(record: Record, outcomes: list[Outcome], sitting: Sitting, folder: Path) -> None:
    """Write the JSON and the page of the outcomes so far."""
    record["seconds"] = round(sitting.elapsed(), 1)
    record["interrupted"] = sitting.ended
    record["steps"] = [dataclasses.asdict(outcome) for outcome in outcomes]
    texts = {
        "json": json.dumps(record, separators=(",", ":")).replace("},{", "},\n{") + "\n",
        "html": page.page(record),
    }
    for kind, text in texts.items():
        path = folder / f"first_light.{kind}"
        temporary = path.with_suffix(".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def summarise(console: Console, record: Record, folder: Path) -> None:
    """Print the page's summary, and the names and sizes of the files."""
    table = make_table(["", ""], [])
    for name, value in page.summary(record):
        table.add_row(name, value)
    console.print(table, markup=False, highlight=False)
    for kind in ("json", "html"):
        path = folder / f"first_light.{kind}"
        console.print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", markup=False, highlight=False)
