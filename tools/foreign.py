"""Runs programs of others on the emulator, unmodified, and compares each fate with the one published for a B200.

    python -m tools.foreign FOLDER [--only TEXT] [--schedule late,eager,random:1] [--jobs 2] [--save FILE.json]
    python -m tools.foreign FOLDER --sanitize [--schedule late] [--save docs/results/foreign-sanitizer.json]

FOLDER holds checkouts of the repositories that the lists in tools/programs name, each as OWNER+NAME; those that are
missing are named with the command that fetches them, and skipped. A program runs once under each schedule, in a process
of its own. Where the emulator reports an error it runs once more with NOGPU_LENIENT=1, by which rules of order that
a GPU does not check are warnings: a published time asks for a pass in one of the two. Verdicts:

    pass          it ended with exit code 0, and with the text that its list asks for
    wrong         it says that its results are wrong, even if its exit code is 0
    hang          the emulator reports a hang
    error         the emulator reports any other error
    unsupported   the emulator says that it does not model what the program uses
    failed        it ended with another exit code
    time limit    it was stopped after --timeout seconds, with all processes that it had started

Runs are added to --save's file as they end; a later run with the same file continues it. The table says where the
verdict differs from the published one: a hang asks for a hang or an error that precedes it, a fault for an error, wrong
results for wrong results or an error, none of them for a pass. Exit codes: 0 no verdict differs, 1 one does, 2 usage.

--sanitize: each runs once, leniently and followed by the sanitizer, which reports every pair and goes on. `judged` in a
program's list says of each rule what its reports are worth ("true", "doubt" or "false alarm", then why); verdicts are
compared with nothing. Exit codes: 0 every report is judged, 1 one is not, 2 usage.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import sysconfig
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness import ROOT
from harness.console import make_console, make_table
from harness.options import command_parser
from tools import records, sanitized
from tools.processes import Sessions
from tools.verdicts import ERROR, HANG, PASS, VERDICTS, WRONG, judge

if TYPE_CHECKING:
    from argparse import Namespace

    from rich.console import Console

Result = TypeVar("Result")
LISTS = ROOT / "tools" / "programs"  # one .toml for each family of programs
SCHEDULES = ("late", "eager", "random:1")
TIME_LIMIT = 900.0  # seconds of a run

# What a B200 did, by a pattern of the published text -> the verdicts that agree with it.
_AGREE = ((r"[\d.]", {PASS}), (r"(?i)hang", {HANG, ERROR}), (r"(?i)fault", {ERROR}), (r"(?i).*correct", {WRONG, ERROR}))


@dataclass(frozen=True)
class Program:
    """A program of the lists."""

    framework: str
    repository: str  # OWNER/NAME
    name: str  # of its file in the repository, with its arguments
    file: Path
    command: str  # with {file}, {folder}, {root} and {schedule}; begins with a file of ours, or -m
    folder: Path  # in which it runs
    environment: Mapping[str, str]  # variables that its list sets
    expects: str  # a regular expression that its output must match
    silicon: str  # what has been published of it on a B200: a time, or what happened; "" if nothing
    note: str  # why it fails, or why the B200 did not notice


@dataclass(frozen=True)
class Run:
    """A run of a program."""

    repository: str
    name: str
    framework: str
    schedule: str
    verdict: str  # one of VERDICTS
    seconds: float  # of both runs
    reason: str  # the line of the output that says why, and the place in the PTX
    silicon: str
    note: str
    lenient: str = ""  # the verdict with NOGPU_LENIENT=1, after an error, wrong results or a hang
    lenient_reason: str = ""

    @property
    def outcome(self) -> str:
        """What becomes of the program without the rules that a GPU does not check."""
        return self.lenient or self.verdict

    @property
    def agrees(self) -> bool | None:
        """Whether the run comes to what is published; None if nothing is published. A failure agrees if the strict or
        the lenient run reports it, unless the lenient one passes.
        """
        if not self.silicon:
            return None
        found = {self.outcome} if self.outcome == PASS else {self.verdict, self.outcome}
        return any(re.match(pattern, self.silicon) and found & verdicts for pattern, verdicts in _AGREE)


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


def programs(folder: Path, missing: set[str], lists: Path = LISTS) -> Iterator[Program]:
    """The programs of the lists whose repositories are in the folder; adds the others' to `missing`.

    lists: a list, or a folder of them.
    """
    paths = sorted(lists.glob("*.toml")) if lists.is_dir() else [lists]
    groups = [group for path in paths for group in tomllib.loads(path.read_text())["group"]]
    for group in groups:
        repository = group["repository"]
        checkout = folder / repository.replace("/", "+")
        if not checkout.is_dir():
            missing.add(repository)
            continue
        base = checkout / group.get("folder", "")
        packages = sysconfig.get_path("purelib")
        places = {"checkout": checkout, "folder": base, "root": ROOT, "packages": packages}
        verdicts = published(base / group["verdicts"]) if "verdicts" in group else {}
        for entry in group["programs"]:
            item: dict[str, Any] = {**group, **({"file": entry} if isinstance(entry, str) else entry)}
            file, arguments = base / item["file"], item.get("arguments", "")
            yield Program(
                framework=item["framework"],
                repository=repository,
                name=f"{file.relative_to(checkout)} {arguments}".strip(),
                file=file,
                command=item["command"].replace("{arguments}", arguments),
                folder=base,
                environment={name: value.format(**places) for name, value in item.get("environment", {}).items()},
                expects=item.get("expects", ""),
                silicon=item.get("silicon", verdicts.get(item.get("published_as", file.stem), "")),
                note=item.get("note", ""),
            )


def run(program: Program, schedule: str, limit: float, sessions: Sessions) -> Run:
    """Runs a program under a schedule, strictly and, unless it passes, leniently; each at most `limit` seconds.

    A strict run may come to wrong results or hang by an order of events that is legal and that hardware never shows.
    """
    started = time.monotonic()
    verdict, reason = attempt(program, schedule, limit, sessions)
    lenient = attempt(program, schedule, limit, sessions, lenient=True) if verdict in (ERROR, WRONG, HANG) else ("", "")
    seconds = round(time.monotonic() - started, 1)
    return Run(
        *(program.repository, program.name, program.framework, schedule, verdict, seconds, reason),
        *(program.silicon, program.note, *lenient),
    )


def attempt(
    program: Program, schedule: str, limit: float, sessions: Sessions, lenient: bool = False
) -> tuple[str, str]:
    """(verdict, reason) of one process."""
    output, code = execute(program, schedule, limit, sessions, {"NOGPU_LENIENT": "1"} if lenient else {})
    return judge(output.replace(f"{program.folder}/", ""), code, program.expects)


def follow(program: Program, schedule: str, limit: float, sessions: Sessions) -> sanitized.Sanitized:
    """Runs a program under a schedule, leniently, with the sanitizer."""
    started, log = time.monotonic(), sanitized.Log()
    output, code = execute(program, schedule, limit, sessions, log.settings)
    verdict, reason = judge(output.replace(f"{program.folder}/", ""), code, program.expects)
    seconds = round(time.monotonic() - started, 1)
    return sanitized.Sanitized(
        *(program.repository, program.name, program.framework, schedule, verdict, seconds, reason),
        log.take(),
    )


def execute(
    program: Program, schedule: str, limit: float, sessions: Sessions, settings: Mapping[str, str] | None = None
) -> tuple[str, int | None]:
    """(output, exit code) of one process; None if it was stopped. settings: the emulator's variables."""
    places = {"file": program.file, "folder": program.folder, "root": ROOT, "schedule": schedule}
    words = [word.format(**places) for word in shlex.split(program.command)]
    if words[0].endswith(".py"):
        words[0] = str(ROOT / words[0])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NOGPU")}
    own = dict(program.environment)
    # A contest's file finds its `utils` beside it, as the contest's runner has it.
    paths = str(ROOT), str(program.folder), str(program.file.parent), own.pop("PYTHONPATH", ""), os.getenv("PYTHONPATH")
    environment |= own | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths)))} | dict(settings or {})
    return sessions.output([sys.executable, *words], program.folder, environment, limit)


def load(path: Path | None) -> list[Run]:
    """The runs of a file, none where there is no file."""
    if path is None or not path.exists():
        return []
    return [Run(**run) for run in json.loads(path.read_text())["runs"]]


def _save(path: Path | None, runs: Sequence[Run]) -> None:
    if path is not None:
        record = {**records.versions(), "runs": [asdict(each) for each in runs]}
        path.write_text(json.dumps(record, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where a verdict differs from a published one, else 0."""
    parser = command_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder with the checkouts")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose repository or name contains it")
    parser.add_argument("--schedule", metavar="S[,S...]", help=f"default: {','.join(SCHEDULES)}, of --sanitize: late")
    parser.add_argument("--sanitize", action="store_true", help="what the sanitizer reports, in place of verdicts")
    parser.add_argument("--timeout", type=float, default=TIME_LIMIT, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time, default: %(default)s")
    parser.add_argument("--lists", type=Path, default=LISTS, metavar="PATH", help="one list, or a folder of them")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; it must be at least 1")
    console = make_console()
    missing: set[str] = set()
    found = programs(options.folder.resolve(), missing, options.lists)
    chosen = [each for each in found if options.only in f"{each.repository}/{each.name}"]
    for repository in sorted(missing):
        target = options.folder / repository.replace("/", "+")
        console.print(f"not there: git clone https://github.com/{repository} {target}", markup=False, soft_wrap=True)
    schedules = (options.schedule or (SCHEDULES[0] if options.sanitize else ",".join(SCHEDULES))).split(",")
    # All programs under the first schedule come before the second one.
    wanted = [(program, schedule) for schedule in schedules for program in chosen]
    if options.sanitize:
        return _follow(wanted, options, console)
    runs = load(options.save)
    for result in run_all(_left(wanted, runs), options.timeout, options.jobs, console, run):
        runs.append(result)
        lenient = f", lenient: {result.lenient}" if result.lenient else ""
        text = f"{result.name} under {result.schedule}: {result.verdict}{lenient}, {result.seconds:.1f} s"
        console.print(text, markup=False, soft_wrap=True)
        _save(options.save, runs)
    _save(options.save, runs)
    console.print(_table(runs))
    console.print(counts(runs), markup=False)
    return 1 if any(each.agrees is False for each in runs) else 0


def _left(
    wanted: Sequence[tuple[Program, str]], runs: Sequence[Run] | Sequence[sanitized.Sanitized]
) -> list[tuple[Program, str]]:
    done = {(each.repository, each.name, each.schedule) for each in runs}
    return [each for each in wanted if (each[0].repository, each[0].name, each[1]) not in done]


def _follow(wanted: Sequence[tuple[Program, str]], options: Namespace, console: Console) -> int:
    """--sanitize. Exit code 1 where a report is not judged, else 0."""
    entries = sanitized.judgements()
    runs = [sanitized.judged(each, entries) for each in sanitized.load(options.save)]
    for result in run_all(_left(wanted, runs), options.timeout, options.jobs, console, follow):
        runs.append(sanitized.judged(result, entries))
        text = f"{result.name} under {result.schedule}: {result.outcome}, {result.seconds:.1f} s"
        console.print(text, markup=False, soft_wrap=True)
        for each in runs[-1].reports:
            verdict = each.verdict or "not judged"
            line = f"    {each.rule} ({verdict}, {each.pairs} pairs), {each.kernel}: {each.text}"
            console.print(line, markup=False, soft_wrap=True)
        sanitized.save(options.save, runs)
    sanitized.save(options.save, runs)
    console.print(sanitized.counts(runs), markup=False)
    return 1 if any(not each.verdict for run in runs for each in run.reports) else 0


def run_all(
    wanted: Sequence[tuple[Program, str]],
    limit: float,
    jobs: int,
    console: Console,
    how: Callable[[Program, str, float, Sessions], Result],
) -> Iterator[Result]:
    """The runs, as they end, `jobs` at a time; on a terminal with a bar and the programs that run.

    how: `run` or `follow`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    sessions = Sessions()
    running: dict[int, str] = {}  # by number
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        ThreadPoolExecutor(jobs) as pool,
    ):
        task = bar.add_task("", total=len(wanted))

        def show() -> None:
            bar.update(task, description=", ".join(running.copy().values()), refresh=True)

        def one(number: int) -> Result:
            program, schedule = wanted[number]
            running[number] = f"{program.file.name} under {schedule}"
            show()
            try:
                return how(program, schedule, limit, sessions)
            finally:
                del running[number]
                show()

        pending = {pool.submit(one, number) for number in range(len(wanted))}
        try:
            while pending:
                ended, pending = wait(pending, return_when=FIRST_COMPLETED)
                bar.advance(task, len(ended))
                yield from (each.result() for each in ended)
        finally:
            for each in pending:
                each.cancel()
            sessions.end()


def counts(runs: Sequence[Run]) -> str:
    """The verdicts and the agreement with silicon in a sentence."""
    verdicts = Counter(each.verdict for each in runs)
    known = [each for each in runs if each.agrees is not None]
    text = (
        f"{len(runs)} runs: {', '.join(f'{verdicts[verdict]} {verdict}' for verdict in VERDICTS if verdicts[verdict])}"
    )
    agreeing = sum(each.agrees is True for each in known)
    return f"{text}. {agreeing} of {len(known)} agree with what is published of a B200." if known else f"{text}."


def _table(runs: Sequence[Run]) -> Any:
    table = make_table(["program", "schedule", "verdict", "lenient", "B200, published", "reason"], ["s"])
    for each in runs:
        mark = " (differs)" if each.agrees is False else ""
        cells = (each.name, each.schedule, each.verdict, each.lenient, each.silicon + mark, each.note or each.reason)
        table.add_row(*cells, f"{each.seconds:.1f}")
    return table


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # programs end with this process, as they do at Ctrl-C
    raise SystemExit(main())
