"""Reads the contest service's replies to submissions, in every form in which popcorn-cli leaves them, into one table.

Forms (gpu-mode/popcorn-cli and gpu-mode/kernelbot on GitHub):

    NAME.txt    popcorn-cli's --output. From version 1.3.16 on JSON, with a line per score before it: the runs, whether
                they passed, and the leaderboard's score. Before that, and in mode profile: the service's report as text
    NAME.json   the service's record of the submission, /user/submissions/NUMBER: as the JSON above, and the results of
                its runs in modes test and benchmark, in the `key: value` form of the contest's eval.py
    NAME.log    what popcorn-cli wrote to stderr: progress, and an error where it ended with one

NAME is PROBLEM.VARIANT.MODE.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.console import geomean, make_console, make_table

NS = {"ns": 1.0, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}
NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"
TIME = re.compile(rf"⏱ *{NUMBER}(?: ± *{NUMBER})? *(\S+)")
EXTREMES = re.compile(rf"⚡ *{NUMBER} *(\S+) *🐌 *{NUMBER} *(\S+)")
SECTION = re.compile(r"## (.+):$")
FAILED = " failed testing:"  # behind the case of a benchmark
SECTIONS = {"Benchmarks": "benchmark", "Ranked Benchmark": "leaderboard", "Test log": "test"}  # heading -> run
ENDINGS = ".json .txt .log"  # the record first: it says most
PASSED = re.compile(r"✅ Passed \d+/\d+ tests")
ERROR = re.compile(r"^(?:Application error|Error): (.*)", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Case:
    """One case of a run: times in microseconds per call, None where there are none, or an error."""

    run: str  # test, benchmark or leaderboard; a leaderboard submission has all three
    number: int
    spec: str
    mean: float | None = None
    err: float | None = None
    best: float | None = None
    worst: float | None = None
    error: str = ""


@dataclasses.dataclass
class Reply:
    """The service's reply to one submission."""

    problem: str
    variant: str
    mode: str
    cases: list[Case] = dataclasses.field(default_factory=list)
    score: float | None = None  # microseconds: the geometric mean that the leaderboard ranks
    errors: list[str] = dataclasses.field(default_factory=list)

    def fail(self, text: str) -> None:
        """Add an error, unless it is empty or already there."""
        if text and text not in self.errors:
            self.errors.append(text)

    @property
    def timed(self) -> list[Case]:
        """The cases of the timed run that counts: the ranked run if there is one, else the benchmark run."""
        timed = [case for case in self.cases if case.run != "test"]
        ranked = [case for case in timed if case.run == "leaderboard"]
        return ranked or timed


def microseconds(result: dict[str, Any], key: str) -> float | None:
    """The microseconds of a time in nanoseconds, which is a number or text; None if the result lacks it."""
    return None if result.get(key) is None else float(result[key]) / 1e3


def cases_of(run: str, result: dict[str, Any]) -> Iterator[Case]:
    """The cases of one run's result."""
    kind = "test" if run == "test" else "benchmark"
    for number in range(int(result.get(f"{kind}-count", 0))):
        prefix = f"{kind}.{number}"
        times = {name: microseconds(result, f"{prefix}.{name}") for name in ("mean", "err", "best", "worst")}
        failed = result.get(f"{prefix}.status") == "fail"
        error = str(result.get(f"{prefix}.error") or "failed without a message") if failed else ""
        yield Case(run, number, str(result.get(f"{prefix}.spec", "")), **times, error=error.replace("\\n", "\n"))


def runs_in(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(mode, run) of every run in a record: an entry with `mode`, or a value of `runs` by mode."""
    if isinstance(value, list):
        for entry in value:
            yield from runs_in(entry, name)
    elif isinstance(value, dict):
        if "passed" in value:
            yield str(value.get("mode", name)), value
        else:
            for key, entry in value.items():
                yield from runs_in(entry, name if key == "run" else key)


def add_records(reply: Reply, records: list[Any]) -> None:
    """Add the cases, score and errors of a submission's records: the service's, or popcorn-cli's summary of them."""
    for job in (entry.get("job") for entry in records if isinstance(entry, dict)):
        if job and job.get("error"):
            reply.fail(f"{job.get('status') or 'failed'}: {job['error']}")
    for mode, run in runs_in(records):
        # The secret run of a leaderboard submission repeats the public one with other values.
        where = f"{mode}{', secret' if run.get('secret') else ''}"
        cases = [] if run.get("secret") else list(cases_of(mode, run.get("result") or {}))
        known = {(case.run, case.number) for case in reply.cases}
        reply.cases += [case for case in cases if (case.run, case.number) not in known]
        if run.get("score") is not None and not run.get("secret"):
            reply.score = float(run["score"]) * 1e6
        if not run["passed"] and not any(case.error for case in cases):
            reply.fail(f"{where}: not passed")


def as_us(text: str, unit: str) -> float:
    """A time of a report in microseconds. Raises ValueError for a unit that the service does not write."""
    if unit not in NS:
        raise ValueError(f"a time of {text} {unit}; the units are {', '.join(NS)}")
    return float(text) * NS[unit] / 1e3


def add_report(reply: Reply, text: str) -> None:
    """Add the cases and errors of a report. Raises ValueError for a time that cannot be read."""
    run, numbers, spec, failing = "", dict.fromkeys(SECTIONS.values(), 0), "", False

    def add(**found: Any) -> None:
        reply.cases.append(Case(run, numbers[run], spec, **found))
        numbers[run] += 1

    for line in (line.strip().removesuffix("```") for line in text.strip("\"'[]").splitlines()):
        if section := SECTION.match(line):
            run = "test" if PASSED.match(section[1]) else SECTIONS.get(section[1], "")
            spec = ""
        elif line.startswith("# "):  # Running failed, Testing failed, Compilation failed
            reply.fail(line[2:])
        elif found := re.match(r"> (❌ .*)", line):
            reply.fail(found[1][2:])
        elif run and (found := TIME.match(line)):
            add(mean=as_us(found[1], found[3]), err=as_us(found[2], found[3]) if found[2] else None)
        elif run and (found := EXTREMES.match(line)):
            best, worst = as_us(found[1], found[2]), as_us(found[3], found[4])
            reply.cases[-1] = dataclasses.replace(reply.cases[-1], best=best, worst=worst)
        elif run and line.startswith(("✅", "❌")):
            failing, spec = line.startswith("❌"), line[1:].strip().removesuffix(FAILED)
            add(error="failed" if failing else "")
        elif failing and line and line != "```":
            reply.cases[-1] = dataclasses.replace(reply.cases[-1], error=line.removeprefix("> "))
            failing = False
        elif run and line and line != "```":
            spec = line


def add_file(reply: Reply, path: Path) -> None:
    """Add the content of one file to the reply. Raises ValueError if the file has none of the forms."""
    text = path.read_text()
    if path.suffix == ".log":
        reply.fail(error[1].strip() if (error := ERROR.search(text)) else "")
        return
    start = re.search(r"^\s*[\[{]\s*$" if path.suffix == ".txt" else r"[\[{]", text, re.MULTILINE)
    try:
        # popcorn-cli takes the brackets of a list away, and writes line ends within strings.
        found = json.loads(f"[{text[start.start() :]}]", strict=False) if start else None
    except ValueError as wrong:
        raise ValueError(f"{path.name} is no JSON: {wrong}") from None
    if found is not None:
        add_records(reply, found)
    elif "⏱" in text or "##" in text or "❌" in text:
        add_report(reply, text)
    elif text.strip():
        raise ValueError(f"{path.name} is in no form of the service's replies: it begins with {text.strip()[:80]!r}")


def read(folder: Path) -> list[Reply]:
    """The replies in a folder, the fastest variant of a problem and mode first, those without times last.

    Raises ValueError for a file that is no reply, and for a folder without one.
    """
    found: dict[tuple[str, ...], Reply] = {}
    for path in sorted(folder.glob("*"), key=lambda path: (path.stem, ENDINGS.find(path.suffix))):
        if path.suffix not in ENDINGS.split():
            raise ValueError(f"{path.name} is no reply; those end in {ENDINGS}")
        match = re.fullmatch(r"(\w+)\.([\w-]+)\.(\w+)", path.stem)
        if match is None:
            raise ValueError(f"{path.name} is not named PROBLEM.VARIANT.MODE")
        add_file(found.setdefault(match.groups(), Reply(match[1], match[2], match[3])), path)
    if not found:
        raise ValueError(f"no reply is in {folder}; submit.sh puts them there")
    for reply in found.values():
        if not reply.cases and reply.score is None:
            reply.fail("no times: neither a report nor the service's record, NAME.json, is there")
    return sorted(found.values(), key=lambda reply: (reply.problem, reply.mode, mean_of(reply) or float("inf")))


def mean_of(reply: Reply) -> float | None:
    """The geometric mean over the cases, in microseconds: the service's, or of the cases' means; None if one failed."""
    means = [case.mean for case in reply.timed]
    if reply.score is not None or not means or None in means:
        return reply.score
    return geomean(mean for mean in means if mean is not None)


def figure(case: Case) -> str:
    """Text of a case: its mean, with best and worst in parentheses; "failed", or "" if it has no times."""
    if case.mean is None:
        return "failed" if case.error else ""
    return f"{case.mean:.2f}" + (f" ({case.best:.2f}-{case.worst:.2f})" if case.best and case.worst else "")


def show(found: list[Reply]) -> None:
    """Print a table for each problem and mode, with a row per variant and a column per case."""
    console = make_console()
    for problem, mode in dict.fromkeys((reply.problem, reply.mode) for reply in found):
        rows = [reply for reply in found if (reply.problem, reply.mode) == (problem, mode)]
        columns = max(len(reply.timed) for reply in rows)
        heads = [f"case {number}" for number in range(columns)]
        caption = "us per call: mean (best-worst)" if columns else None
        table = make_table(["variant"], [*heads, "geomean"], title=f"{problem}, {mode}", caption=caption)
        table.add_column("what went wrong")
        for reply in rows:
            figures = [figure(case) for case in reply.timed]
            mean = mean_of(reply)
            wrong = [f"{case.run} {case.number}: {case.error}" for case in reply.cases if case.error]
            texts = [*figures, *[""] * (columns - len(figures)), f"{mean:.2f}" if mean else ""]
            table.add_row(reply.variant, *texts, "\n".join([*reply.errors, *wrong]))
        console.print(table)


def record(found: list[Reply]) -> dict[str, Any]:
    """Every reply with its figures, for a file."""
    return {"replies": [{**dataclasses.asdict(reply), "geomean": mean_of(reply)} for reply in found]}
