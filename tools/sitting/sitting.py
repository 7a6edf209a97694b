"""Runs steps within the sitting's time, in processes of their own, killed when they hang, reported when they die.

A fault on a GPU is confined to the process that made the call, since a CUDA context is one process's. A check that has
begun when its process is lost has failed, and another process runs the remaining ones.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from harness import ROOT
from tools.sitting.outcomes import CUT, FAILED, PASSED, RESULTS, SKIP, Check, Outcome
from tools.sitting.steps import Step
from workshop.processes import kill_session

LOOK_S = 0.1  # seconds between two looks at a process
END_S = 10  # seconds to wait for a killed process; one that the driver holds longer is left behind
LOSSES = 3  # processes of a step that may be lost; nothing is left to learn from more
OUTPUT = 3000  # characters that are kept of a step's output

Show = Callable[[str, str | None], None]  # step, its present work; None at its end


class Sitting:
    """The time of a sitting and its running steps. After `end` it starts nothing more."""

    def __init__(self, folder: Path, total_s: float, show: Show = lambda step, what: None):
        """folder: place of the steps' files. total_s: seconds from now on."""
        self.folder, self.show = folder, show
        self.began = time.monotonic()
        self.deadline = self.began + total_s
        self.ended = False
        self.running: set[subprocess.Popen] = set()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def left(self, kept_s: float = 0) -> float:
        """Seconds until the end, less those kept back."""
        return self.deadline - time.monotonic() - kept_s

    def end(self) -> None:
        """Kill all running processes, and start no more."""
        self.ended = True
        for process in list(self.running):
            kill_session(process.pid)

    def run_all(self, steps: Iterable[Step], jobs: int, kept_s: float, done: Callable[[Outcome], None]) -> None:
        """Run the steps in order; adjacent ones that need not be alone run side by side, `jobs` at a time.

        kept_s: seconds kept back for later steps. done: called with each outcome.
        """
        for alone, together in itertools.groupby(steps, key=lambda step: step.alone):
            if alone:
                for step in together:
                    done(self.run(step, kept_s))
                continue
            with ThreadPoolExecutor(jobs) as pool:
                try:
                    for future in as_completed([pool.submit(self.run, step, kept_s) for step in together]):
                        done(future.result())
                except BaseException:
                    self.end()
                    raise

    def run(self, step: Step, kept_s: float = 0) -> Outcome:
        """Run a step, unless the device refuses it or too little time is left."""
        outcome = Outcome(step.name, step.title, started_s=round(self.elapsed(), 1))
        left = self.left(kept_s)
        if step.refusal:
            outcome.reason = step.refusal
        elif step.needs_file is not None and not step.needs_file.is_file():
            outcome.reason = f"no step has left {step.needs_file.name}"
        elif self.ended:
            outcome.reason = "interrupted"
        elif left < step.needs_s:
            outcome.reason = f"{max(left, 0):.0f} s of the sitting were left, it needs {step.needs_s:.0f}"
        else:
            self._run(step, outcome, min(step.limit_s, left))
            outcome.seconds = round(self.elapsed() - outcome.started_s, 1)
        self.show(step.name, None)
        return outcome

    def _run(self, step: Step, outcome: Outcome, limit_s: float) -> None:
        """Start processes until one reaches the step's end or LOSSES are lost, and fill in the outcome."""
        events, printed = self.folder / f"{step.name}.events", self.folder / f"{step.name}.txt"
        end, lost = time.monotonic() + limit_s, dict[str, str]()
        for losses in range(1, LOSSES + 1):
            before = len(step.read(events).every)
            how, is_limit = self._process(step, events, printed, end, limit_s)
            found = step.read(events)
            came_on = len(found.every) > before
            if not how or is_limit or not step.resumes or not came_on or losses == LOSSES or self.ended:
                break
            if found.begun:
                lost[found.begun] = how
        if how and found.begun and not (is_limit and step.measures) and not self.ended:
            lost[found.begun] = how
        ended = {check.name for check in found.checks}
        outcome.checks = [
            *(Check(check.name, check.passed, without_folders(check.message)) for check in found.checks),
            *(Check(name, False, why) for name, why in lost.items() if name not in ended),
        ]
        outcome.figures = found.figures
        outcome.state, outcome.reason = verdict(step, outcome, how, is_limit)
        if self.ended:
            outcome.state, outcome.reason = CUT, "interrupted"
        if outcome.state != PASSED and printed.is_file():
            outcome.output = without_folders(printed.read_text(encoding="utf-8", errors="replace"))[-OUTPUT:]

    def _process(self, step: Step, events: Path, printed: Path, end: float, limit_s: float) -> tuple[str, bool]:
        """(how a process of the step ended, "" if well; whether the step's limit ended it)."""
        found = step.read(events)
        path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "nogpu"), os.environ.get("PYTHONPATH"))))
        variables = {"PYTHONPATH": path, RESULTS: str(events), SKIP: json.dumps(found.every)}
        with printed.open("ab") as output:
            process = subprocess.Popen(
                step.command,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.add(process)
        try:
            return self._watch(process, step, events, end, limit_s)
        finally:
            kill_session(process.pid)  # processes that it has left behind
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            self.running.discard(process)

    def _watch(
        self, process: subprocess.Popen, step: Step, events: Path, end: float, limit_s: float
    ) -> tuple[str, bool]:
        """Wait for the process's end; see _process."""
        begun, since, read_at = "", time.monotonic(), -1.0
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
                return how_it_ended(process.returncode), False
            changed = events.stat().st_mtime if events.exists() else -1.0
            if changed != read_at:
                read_at, found = changed, step.read(events)
                if found.begun != begun:
                    begun, since = found.begun, time.monotonic()
                self.show(step.name, begun)
            now = time.monotonic()
            if now > end:
                return f"no end after {limit_s:.0f} s: killed", True
            if begun and now - since > step.row_limit_s:
                return f"no end after {step.row_limit_s:.0f} s: killed", False


def without_folders(text: str) -> str:
    """The text without this machine's paths of the repository and of the user's home, since others read it."""
    text, home = text.replace(f"{ROOT}{os.sep}", ""), os.path.expanduser("~")
    return text if home == os.sep else text.replace(home, "~")


def how_it_ended(code: int) -> str:
    """A text on a process's end by its return code; empty for code 0."""
    if code == 0:
        return ""
    return f"exit code {code}" if code > 0 else f"killed by signal {-code} ({signal.strsignal(-code)})"


def verdict(step: Step, outcome: Outcome, how: str, is_limit: bool) -> tuple[str, str]:
    """(state, reason) of a step. how: end of its last process, "" if well. is_limit: the step's limit ended it."""
    failures, names = outcome.failures(), {check.name for check in outcome.checks}
    missing = [name for name in step.expected if name not in names]
    count = f"{len(failures)} of {len(step.expected)} checks" if step.expected else f"{len(failures)}"
    reasons = [f"{count} failed"] if failures else []
    if missing:
        reasons.append(f"not run: {', '.join(missing)}")
    if how and not (failures and how.startswith("exit code")):
        reasons.append(how)
    if failures or (how and not is_limit):
        return FAILED, "; ".join(reasons)
    if is_limit:
        if not step.measures:
            return FAILED, "; ".join(reasons)
        return (CUT if outcome.figures else FAILED), "; ".join([*reasons, f"{len(outcome.figures)} figures are kept"])
    if missing or not (outcome.checks or outcome.figures):
        return FAILED, "; ".join(reasons) or "it reported nothing"
    return PASSED, ""
