"""Runs programs of others on the emulator, unmodified, and compares each fate with the one published for a B200.

    python -m tools.foreign FOLDER [--only TEXT] [--schedule late,eager,random:1] [--timeout 900] [--save FILE.json]

FOLDER holds checkouts of the repositories that the lists in tools/programs name, each as OWNER+NAME; those that are missing are
named with the command that fetches them, and skipped. A program runs once under each schedule, in a process of its own,
without `--lenient`. Its verdict:

    pass          it ended with exit code 0, and with the text that its list asks for
    wrong         it says that its results are wrong
    hang          the emulator reports a hang
    error         the emulator reports any other error
    unsupported   the emulator says that it does not model what the program uses
    failed        it ended with another exit code
    time limit    it was stopped after --timeout seconds

A line is added to --save's file for each program, which a later run with the same file continues. The table says where
the verdict of a B200 that has been published differs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import ROOT
from harness.console import make_console, make_table
from harness.options import command_parser
from tools import records

LISTS = ROOT / "tools" / "programs"  # one .toml for each family of programs
SCHEDULES = ("late", "eager", "random:1")
TIME_LIMIT = 900.0  # seconds of a run

PASS, WRONG, HANG, ERROR, UNSUPPORTED, FAILED, LATE = VERDICTS = (
    *("pass", "wrong", "hang", "error", "unsupported", "failed", "time limit"),
)
_REASONS = (
    (UNSUPPORTED, r"^.*(?:is not modelled|are not modelled|is not supported|not in the opcode table).*$"),
    (HANG, r"^.*the kernel hangs.*$"),
    (ERROR, r"^.*(?:EmulatorError|emulator\.errors\.\w+).*$"),
    (WRONG, r"^.*(?:mismatch|not close|[Ii]ncorrect|[Ww]rong|FAILED|[Tt]ensor-likes|disagree).*$"),
)
MOST = 300  # characters of a reason


@dataclass(frozen=True)
class Program:
    """A program of the list."""

    framework: str
    repository: str  # OWNER/NAME
    name: str  # of its file, in the repository
    command: str  # with {file} and {schedule}; begins with a file of ours, or -m
    folder: Path  # in which it runs
    expects: str  # a regular expression that its output must match
    silicon: str  # what has been published of it on a B200: a time, or what happened; "" if nothing
    note: str  # why it fails, if it does


@dataclass(frozen=True)
class Run:
    """A run of a program."""

    repository: str
    name: str
    framework: str
    schedule: str
    verdict: str
    seconds: float
    reason: str
    silicon: str
    note: str

    @property
    def agrees(self) -> bool | None:
        """Whether the program passes here as it does on a B200; None if nothing is published."""
        return None if not self.silicon else (self.verdict == PASS) == _passes(self.silicon)


def _passes(silicon: str) -> bool:
    return bool(re.match(r"[\d.]", silicon))


def published(path: Path) -> dict[str, str]:
    """Name of a program -> its first time, or what happened, by a file like NVFP4_Kernels' group_gemm_timings.txt: a
    name on a line of its own, then lines that end with `-> TIME`, or one line in words.
    """
    found: dict[str, str] = {}
    name = ""
    for line in (line.strip() for line in path.read_text().splitlines()):
        if not line:
            name = ""
        elif not name:
            name = line.removesuffix(".py")
        else:
            found.setdefault(name, line.rpartition("->")[2].strip())
    return found


def programs(folder: Path, missing: set[str]) -> Iterator[Program]:
    """The programs of the list whose repositories are in the folder; adds the others' to `missing`."""
    groups = [group for path in sorted(LISTS.glob("*.toml")) for group in tomllib.loads(path.read_text())["group"]]
    for group in groups:
        repository = group["repository"]
        checkout = folder / repository.replace("/", "+")
        if not checkout.is_dir():
            missing.add(repository)
            continue
        base = checkout / group.get("folder", "")
        verdicts = published(base / group["verdicts"]) if "verdicts" in group else {}
        for entry in group["programs"]:
            item: dict[str, Any] = {"file": entry} if isinstance(entry, str) else entry
            published_as = item.get("published_as", Path(item["file"]).stem)
            yield Program(
                framework=group["framework"],
                repository=repository,
                name=str(Path(group.get("folder", "")) / item["file"]) + (f" {item['arguments']}" if "arguments" in item else ""),
                command=item.get("command", group["command"]).replace("{arguments}", item.get("arguments", "")),
                folder=base,
                expects=item.get("expects", group.get("expects", "")),
                silicon=item.get("silicon", verdicts.get(published_as, "")),
                note=item.get("note", ""),
            )


def run(program: Program, schedule: str, limit: float) -> Run:
    """Runs a program under a schedule."""
    file = program.folder / Path(program.name.split(" ")[0]).name
    words = [word.format(file=file, schedule=schedule, folder=program.folder) for word in shlex.split(program.command)]
    first = ROOT / words[0]
    if first.suffix == ".py":
        words[0] = str(first)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EMULATOR")}
    # A contest's file finds its `utils` beside it, as the contest's runner has it.
    paths = str(ROOT), str(program.folder), environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=program.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            code = None
    seconds = time.monotonic() - started
    verdict, reason = judge(output, code, program.expects)
    return Run(
        *(program.repository, program.name, program.framework, schedule, verdict, round(seconds, 1), reason),
        *(program.silicon, program.note),
    )


def judge(output: str, code: int | None, expects: str) -> tuple[str, str]:
    """(verdict, the line that says why) of a program's output and exit code; None: it was stopped."""
    if code is None:
        return LATE, ""
    if code == 0 and re.search(expects, output):
        return PASS, ""
    for verdict, pattern in _REASONS:
        found = re.search(pattern, output, re.MULTILINE)
        if found:
            return verdict, " ".join(found.group(0).split())[:MOST]
    lines = [line for line in output.splitlines() if line.strip()]
    return FAILED, " ".join((lines or ["no output"])[-1].split())[:MOST]


def load(path: Path | None) -> list[Run]:
    """The runs of a file, none where there is no file."""
    if path is None or not path.exists():
        return []
    return [Run(**run) for run in json.loads(path.read_text())["runs"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where a verdict differs from a published one, else 0."""
    parser = command_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder with the checkouts")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose repository or name contains it")
    parser.add_argument("--schedule", default=",".join(SCHEDULES), metavar="S[,S...]", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=TIME_LIMIT, metavar="SECONDS", help="default: %(default)g")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    console = make_console()
    missing: set[str] = set()
    chosen = [p for p in programs(options.folder, missing) if options.only in f"{p.repository}/{p.name}"]
    for repository in sorted(missing):
        target = options.folder / repository.replace("/", "+")
        console.print(f"not there: git clone https://github.com/{repository} {target}", markup=False, highlight=False)
    runs = load(options.save)
    done = {(run.repository, run.name, run.schedule) for run in runs}
    total = len(chosen) * len(options.schedule.split(","))
    for number, (program, schedule) in enumerate((p, s) for p in chosen for s in options.schedule.split(",")):
        if (program.repository, program.name, schedule) in done:
            continue
        with console.status(f"{number + 1} of {total}: {program.name} under {schedule}"):
            result = run(program, schedule, options.timeout)
        runs.append(result)
        console.print(f"{result.verdict:11} {result.seconds:7.1f} s  {schedule:9} {program.name}  {result.reason}", markup=False, highlight=False, soft_wrap=True)
        if options.save:
            record = {**records.versions(), "runs": [asdict(each) for each in runs]}
            options.save.write_text(json.dumps(record, indent=1) + "\n")
    console.print(_table(runs))
    differing = [each for each in runs if each.agrees is False]
    known = [each for each in runs if each.agrees is not None]
    counts = Counter(each.verdict for each in runs)
    console.print(f"{len(runs)} runs: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    if known:
        console.print(f"{len(known) - len(differing)} of {len(known)} agree with what is published of a B200")
    return 1 if differing else 0


def _table(runs: Sequence[Run]) -> Any:
    table = make_table(["repository", "program", "schedule", "verdict", "B200, published", "reason"], ["s"])
    for each in runs:
        mark = " (differs)" if each.agrees is False else ""
        cells = (each.repository, each.name, each.schedule, each.verdict + mark, each.silicon, each.note or each.reason)
        table.add_row(*cells, f"{each.seconds:.1f}")
    return table


if __name__ == "__main__":
    raise SystemExit(main())
