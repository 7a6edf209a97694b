"""Reads and writes outcomes of steps of `tools.first_light`: checks and figures, in the file of a step's process.

The file has a line for each event, so that the findings of a process that hangs or dies are there. A process of ours
writes JSON: {"begin": NAME}, {"end": NAME, "passed": true, "message": TEXT}, {"figure": {...}}. eval.py writes the
contest's protocol.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

PASSED, FAILED, CUT, NOT_RUN = "passed", "failed", "cut short", "not run"
STATES = PASSED, FAILED, CUT, NOT_RUN
RESULTS = "LIGHT_RESULTS"  # variable with the file that a process appends to
SKIP = "LIGHT_SKIP"  # variable with the checks that earlier processes of the step have begun: a list in JSON

Figure = dict[str, Any]


def group_of(problem: str, configuration: Sequence[int]) -> str:
    """The name of the group of a configuration's checks."""
    tile, ctas, per_sm, neighbours = configuration
    return f"{problem}.sm{ctas}.tile{tile}.x{per_sm}.n{neighbours}"


@dataclasses.dataclass(frozen=True)
class Check:
    """A check that has ended, or that failed because its process ended first."""

    name: str
    passed: bool
    message: str = ""


@dataclasses.dataclass
class Outcome:
    """The outcome of a step. reason: a text if it did not simply pass."""

    name: str
    title: str
    state: str = NOT_RUN
    reason: str = ""
    started_s: float = 0  # seconds since the sitting began
    seconds: float = 0
    checks: list[Check] = dataclasses.field(default_factory=list)
    figures: list[Figure] = dataclasses.field(default_factory=list)
    output: str = ""  # end of the printed text; only of a step that did not pass

    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.passed]


class Found:
    """The events of a file so far.

    begun: the check or row that has begun and not ended, "" if there is none. every: all checks and rows begun.
    """

    def __init__(self) -> None:
        self.begun = ""
        self.every: list[str] = []
        self.checks: list[Check] = []
        self.figures: list[Figure] = []


def read_events(path: Path) -> Found:
    """The events that a process of ours has written; a last line that is cut off is left out."""
    found = Found()
    for line in _lines(path):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if "begin" in event:
            found.begun = event["begin"]
            found.every.append(found.begun)
        elif "end" in event:
            found.checks.append(Check(event["end"], event["passed"], event["message"]))
            found.begun = ""
        elif "figure" in event:
            found.figures.append(event["figure"])
            found.begun = ""
    return found


PROTOCOL = re.compile(r"(test|benchmark)\.(\d+)\.(\w+): (.*)")


def read_protocol(path: Path) -> Found:
    """The events that eval.py has written: a check for each case, and a figure in microseconds for each timed case."""
    found, cases = Found(), dict[str, dict[str, str]]()
    for line in _lines(path):
        if match := PROTOCOL.fullmatch(line.rstrip()):
            _, case, key, value = match.groups()
            cases.setdefault(case, {})[key] = value
    for case, values in cases.items():
        if "mean" in values:
            times = {f"{name}_us": float(values[name]) / 1e3 for name in ("mean", "std", "best", "worst")}
            found.figures.append(
                {"case": int(case), "spec": values["spec"], **times, "message": values.get("message", "")}
            )
        if "mean" in values or "status" in values:
            message = values.get("error") or values.get("message", "")
            found.checks.append(Check(f"case {case}", values.get("status") != "fail", message))
        else:
            found.begun = f"case {case}"
    return found


def read_constants(path: Path) -> Found:
    """The constants of workshop.calibration as figures, and a failed check for each that could not be measured."""
    found = Found()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return found
    for name, entry in record["constants"].items():
        found.figures.append({"constant": name, **{key: entry[key] for key in ("value", "unit", "low", "high")}})
    found.checks = [Check(name, False, error) for name, error in record["errors"].items()]
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


class Writer:
    """Writes events to the file that the variable RESULTS names, each at once."""

    def __init__(self) -> None:
        self.file: TextIO = open(os.environ[RESULTS], "a", encoding="utf-8")

    def write(self, **event: Any) -> None:
        self.file.write(json.dumps(event) + "\n")
        self.file.flush()

    def begin(self, name: str) -> None:
        self.write(begin=name)

    def end(self, name: str, passed: bool, message: str = "") -> None:
        self.write(end=name, passed=passed, message=message[:2000])

    def fail(self, name: str, error: Exception) -> None:
        """End a check or row that has raised `error`.

        If CUDA reports the error from every later call, this process exits, so that another one can continue.
        """
        from harness.runner import device_is_usable

        self.end(name, False, f"{type(error).__name__}: {error}")
        if not device_is_usable():
            sys.exit(f"{name}: this process's CUDA context is lost")

    def figure(self, **figure: Any) -> None:
        self.write(figure=figure)


def is_skipped(name: str) -> bool:
    """True if an earlier process of the step has begun the check or row `name`."""
    return name in json.loads(os.environ.get(SKIP, "[]"))
