"""Tables of the programs of others that `workshop.foreign` has run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from workshop.foreign import sanitized
from workshop.foreign.runs import Run
from workshop.foreign.verdicts import PASS
from workshop.records import load
from workshop.tables import command_text, markdown, missing

_INSTRUCTION = re.compile(r"(\S+) of warp \d+ of CTA \S+ \S+ \S+(?: of launch \d+ \([^)]*\))? at PTX line (\d+)")

SANITIZER = "foreign-sanitizer.json"


def foreign_programs(results: Path, name: str) -> str:
    """A table of a list's programs, a row each: the verdict under each schedule beside a B200's, the first finding."""
    saved = load(results / f"foreign-{name}.json")
    if saved is None:
        return missing(f"python -m workshop.foreign FOLDER --save ../docs/results/foreign-{name}.json")
    runs = [Run(**run) for run in saved["runs"]]
    schedules = list(dict.fromkeys(run.schedule for run in runs))
    rows = []
    for program, own in _by_program(runs).items():
        first = next(iter(own.values()))
        differing = [run.schedule for run in own.values() if run.agrees is False]
        finding = next(filter(None, (run.reason for run in own.values())), "")
        mark = (f"**not** under {', '.join(differing)}" if differing else "yes") if first.silicon else "-"
        verdicts = [_verdict(own.get(schedule)) for schedule in schedules]
        rows.append([Path(program).name, *verdicts, first.silicon or "-", mark, _cell(finding), _cell(first.note)])
    header = ["program", *schedules, "B200, published", "agrees", "finding", "why"]
    known = [[run.agrees for run in runs if run.schedule == each and run.silicon] for each in schedules]
    counts = "; ".join(f"{each}: {sum(map(bool, of))} of {len(of)}" for each, of in zip(schedules, known))
    sentence = f"Programs that agree with the B200, {counts}."
    caption = f"{sentence} {command_text('workshop.foreign', saved['command'])}; torch {saved['torch']}"
    return f"{markdown(header, rows)}\n\n{caption}"


def foreign_lists(results: Path, _: str) -> str:
    """Tables of programs that check themselves, of which nothing is published: a row for each list, then a row for each
    program that does not pass under every schedule, with its note or its first finding.
    """
    found = {path: load(path) for path in sorted(results.glob("foreign-*.json"))}
    lists = {
        path.stem.removeprefix("foreign-"): [Run(**run) for run in saved["runs"]]
        for path, saved in found.items()
        if saved is not None and path.name != SANITIZER and not any(run["silicon"] for run in saved["runs"])
    }
    if not lists:
        return missing("python -m workshop.foreign FOLDER --lists LIST.toml --save ../docs/results/foreign-LIST.json")
    schedules = list(dict.fromkeys(run.schedule for runs in lists.values() for run in runs))
    counted = [[name, *_counts(runs, schedules)] for name, runs in lists.items()]
    everything = ["**all**", *_counts([run for runs in lists.values() for run in runs], schedules)]
    refused = []
    for name, runs in lists.items():
        short = _short([run.name for run in runs])
        for program, own in _by_program(runs).items():
            if any(run.verdict != PASS for run in own.values()):
                why = next(filter(None, (text for run in own.values() for text in (run.note, run.reason))), "")
                verdicts = [_verdict(own.get(schedule)) for schedule in schedules]
                refused.append([short[program], name, *verdicts, _cell(why)])
    header = ["list", "programs", *schedules, "under each of them", "cases that are right", "cases under each of them"]
    passing = markdown(header, [*counted, everything])
    return f"{passing}\n\n{markdown(['program', 'list', *schedules, 'why'], refused)}"


def foreign_runs(results: Path, _: str) -> str:
    """A table of every run: program, list, the commit of its repository, verdict and seconds under each schedule."""
    found = {path.stem.removeprefix("foreign-"): load(path) for path in sorted(results.glob("foreign-*.json"))}
    lists = {
        name: [Run(**run) for run in saved["runs"]]
        for name, saved in found.items()
        if saved is not None and f"foreign-{name}.json" != SANITIZER
    }
    if not lists:
        return missing("python -m workshop.foreign FOLDER --results ../docs/results")
    schedules = list(dict.fromkeys(run.schedule for runs in lists.values() for run in runs))
    rows = []
    for name, runs in lists.items():
        short = _short([run.name for run in runs])
        for program, own in _by_program(runs).items():
            versions = dict.fromkeys(run.version for run in own.values() if run.version)
            timed = [f"{_verdict(own.get(each))}{_seconds(own.get(each))}" for each in schedules]
            rows.append([short[program], name, ", ".join(versions) or "not recorded", *timed])
    return markdown(["program", "list", "commit", *schedules], rows)


def foreign_sanitizer(results: Path, _: str) -> str:
    """Tables of the sanitizer on the programs of others: how many programs it is silent about, then a row for each
    report with the verdict on it.
    """
    saved = load(results / SANITIZER)
    if saved is None:
        return missing(f"python -m workshop.foreign FOLDER --sanitize --save ../docs/results/{SANITIZER}")
    runs = sanitized.load(results / SANITIZER)
    frameworks = list(dict.fromkeys(run.framework for run in runs))
    short = _short([run.name for run in runs])
    counted = [[name, *_verdicts([run for run in runs if run.framework == name])] for name in frameworks]
    rows = [
        [short[run.name], report.rule, _place(report.text), report.verdict or "not judged", report.reason]
        for run in runs
        for report in run.reports
    ]
    header = ["programs of", "programs", "silent", *sanitized.VERDICTS, "no end"]
    silence = markdown(header, [*counted, ["**all**", *_verdicts(runs)]])
    table = markdown(["program", "rule", "where", "verdict", "why"], [[_cell(text) for text in row] for row in rows])
    caption = f"{sanitized.counts(runs)} {command_text('workshop.foreign', saved['command'])}; torch {saved['torch']}"
    return f"{silence}\n\n{table}\n\n{caption}"


def _by_program(runs: Sequence[Run]) -> dict[str, dict[str, Run]]:
    """The runs of each program by schedule."""
    found: dict[str, dict[str, Run]] = {}
    for run in runs:
        found.setdefault(run.name, {})[run.schedule] = run
    return found


def _verdicts(runs: Sequence[sanitized.Sanitized]) -> list[str]:
    """Numbers of programs: all, silent to their end, with a report of each verdict, without an end."""
    of = [{report.verdict for report in run.reports} for run in runs]
    counts = (sum(verdict in each for each in of) for verdict in sanitized.VERDICTS)
    ends = sum(run.is_silent for run in runs), *counts, sum(not run.is_whole for run in runs)
    return [str(count) for count in (len(runs), *ends)]


def _place(text: str) -> str:
    """The instructions of a report, with their lines of PTX."""
    return " behind ".join(f"{opcode}, line {line}" for opcode, line in _INSTRUCTION.findall(text)[:2])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _counts(runs: Sequence[Run], schedules: Sequence[str]) -> list[str]:
    """Cells of a list: its number of programs; how many pass under each schedule, of those that ran; how many pass
    under all; the cases of programs that pass wherever they ran, and of those that pass under all.
    """
    programs: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        programs.setdefault((run.repository, run.name), []).append(run)
    texts = []
    for each in schedules:
        own = [run for run in runs if run.schedule == each]
        texts.append(f"{sum(run.verdict == PASS for run in own)} of {len(own)}" if own else "-")
    right = [own for own in programs.values() if all(run.verdict == PASS for run in own)]
    under_all = [own for own in right if {run.schedule for run in own} >= set(schedules)]
    cases = [str(sum(min(run.cases for run in own) for own in chosen)) for chosen in (right, under_all)]
    return [str(len(programs)), *texts, str(len(under_all)), *cases]


def _verdict(run: Run | None) -> str:
    if run is None:
        return "-"
    return f"{run.verdict}, lenient {run.lenient}" if run.lenient else run.verdict


def _seconds(run: Run | None) -> str:
    return f", {run.seconds:.0f} s" if run else ""


def _short(programs: Sequence[str]) -> dict[str, str]:
    """Program -> its name without folders, but for those that tell its file from other programs'."""
    files = {Path(program.partition(" ")[0]) for program in programs}
    tails = Counter("/".join(file.parts[-count:]) for file in files for count in range(1, len(file.parts) + 1))
    found = {}
    for program in programs:
        name, space, arguments = program.partition(" ")
        parts = Path(name).parts
        own = ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))
        found[program] = f"{next((tail for tail in own if tails[tail] == 1), name)}{space}{arguments}"
    return found
