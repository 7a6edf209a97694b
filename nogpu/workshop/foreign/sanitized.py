"""Programs of others under the sanitizer: its reports on each, and verdicts on those reports.

`python -m workshop.foreign FOLDER --sanitize` runs them. Pairs of one rule, one kernel and the same two opcodes are one
report. The first entry of workshop/foreign/judged.toml whose patterns fit a report gives its verdict.

    verdict        meaning for the pair
    true           the PTX ISA asks for an order that nothing gives
    doubt          the PTX ISA asks for an order that nothing gives, and that kernels that ship leave out
    false alarm    something that the sanitizer does not see orders the two
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nogpu.errors import readable
from workshop import records
from workshop.foreign.verdicts import ADDRESS, PASS, WRONG

JUDGEMENTS = Path(__file__).with_name("judged.toml")
VERDICTS = TRUE, DOUBT, FALSE = "true", "doubt", "false alarm"
_BEGIN, _USUAL = re.compile(r"^sanitizer, rule \S+: (?:nothing orders\s)?"), "The usual way:"
_FOLDERS = re.compile(r"(?<=, )(?:\.{0,2}/)?(?:[^\s/]+/)+(?=[^\s/]+:\d)")  # folders of a source file
_INSTRUCTION = re.compile(r"^ {4}(\S+) of .*$", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """A report of the sanitizer on a program."""

    rule: str
    kernel: str
    pairs: int  # number of pairs of instructions
    text: str  # the first pair's text: both accesses, their places, the missing order
    verdict: str = ""  # one of VERDICTS, "" if it is not judged
    reason: str = ""


@dataclass(frozen=True)
class Judgement:
    """An entry of judged.toml: the verdict on reports that fit three regular expressions."""

    program: str  # pattern in OWNER/NAME/program
    rule: str  # pattern of the whole rule
    report: str  # pattern in "KERNEL: TEXT" of the report
    verdict: str
    reason: str


@dataclass(frozen=True)
class Sanitized:
    """A run of a program under the sanitizer."""

    repository: str
    name: str
    framework: str
    schedule: str
    outcome: str  # the program's verdict (workshop.foreign.verdicts)
    seconds: float
    why: str  # reason of the outcome
    reports: tuple[Report, ...]

    @property
    def is_whole(self) -> bool:
        """True if the program ran to its end, with right results or wrong ones."""
        return self.outcome in (PASS, WRONG)

    @property
    def is_silent(self) -> bool:
        """True if the program ran to its end without a report."""
        return self.is_whole and not self.reports


def judgements(path: Path = JUDGEMENTS) -> list[Judgement]:
    """The entries of a file. Raises ValueError for an unknown verdict."""
    found = [Judgement(**{"report": "", **entry}) for entry in tomllib.loads(path.read_text())["judged"]]
    for each in found:
        if each.verdict not in VERDICTS:
            raise ValueError(f"{path}: {each.verdict!r} is no verdict: {', '.join(VERDICTS)}")
    return found


def judged(run: Sanitized, entries: Iterable[Judgement]) -> Sanitized:
    """The run, with the verdict and reason of the first entry that fits each report."""
    program, entries = f"{run.repository}/{run.name}", list(entries)

    def one(report: Report) -> Report:
        for each in entries:
            if (
                re.search(each.program, program)
                and re.fullmatch(each.rule, report.rule)
                and re.search(each.report, f"{report.kernel}: {report.text}")
            ):
                return replace(report, verdict=each.verdict, reason=each.reason)
        return replace(report, verdict="", reason="")

    return replace(run, reports=tuple(map(one, run.reports)))


def reports(lines: Iterable[str]) -> tuple[Report, ...]:
    """The reports of a log (NOGPU_SANITIZE_LOG), in the order of their first pairs.

    Their texts name source files without folders.
    """
    first: dict[tuple[str, ...], str] = {}
    pairs: dict[tuple[str, ...], set[str]] = {}
    for line in lines:
        entry = json.loads(line)
        text = " ".join(_BEGIN.sub("", entry["text"].partition(_USUAL)[0]).split())
        key = entry["rule"], readable(entry["kernel"]), *_INSTRUCTION.findall(entry["text"])
        first.setdefault(key, ADDRESS.sub("0x...", _FOLDERS.sub("", text)))
        pairs.setdefault(key, set()).add(text)
    return tuple(Report(key[0], key[1], len(pairs[key]), text) for key, text in first.items())


def load(path: Path | None) -> list[Sanitized]:
    """The runs of a file, none if there is no file."""
    runs = (records.load(path) or {"runs": []})["runs"]
    return [Sanitized(**{**run, "reports": tuple(Report(**each) for each in run["reports"])}) for run in runs]


def counts(runs: Sequence[Sanitized]) -> str:
    """A sentence with the numbers of silent programs, programs with a false alarm, and reports without a verdict."""
    alarms = [run for run in runs if any(each.verdict == FALSE for each in run.reports)]
    left = sum(not each.verdict for run in runs for each in run.reports)
    silent = sum(run.is_silent for run in runs)
    share = f" ({len(alarms) / len(runs):.1%})" if runs else ""
    return f"{len(runs)} runs: {silent} silent, {len(alarms)} with a false alarm{share}; {left} reports are not judged."
