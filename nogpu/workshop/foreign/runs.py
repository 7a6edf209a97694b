"""Programs of others: their lists, and the run of each in a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workshop import records
from workshop.foreign import sanitized
from workshop.foreign.verdicts import ERROR, HANG, PASS, VERDICTS, WRONG, judge
from workshop.processes import Sessions

if TYPE_CHECKING:
    from rich.console import Console

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[2]  # folder that programs find in PYTHONPATH, for workshop
LISTS = Path(__file__).with_name("lists")  # one .toml for each family of programs
SCHEDULES = ("late", "eager", "random:1")
TIME_LIMIT = 900.0  # seconds of a run
WORKERS = "NOGPU_WORKERS"  # the one setting that programs inherit

# Pattern of the published text, which says what a B200 did -> the verdicts that agree with it.
_AGREE = ((r"[\d.]", {PASS}), (r"(?i)hang", {HANG, ERROR}), (r"(?i)fault", {ERROR}), (r"(?i).*correct", {WRONG, ERROR}))


@dataclass(frozen=True)
class Program:
    """A program of the lists."""

    framework: str
    list: str  # name of its list
    repository: str  # OWNER/NAME
    version: str  # commit of the checkout, "" if it has none
    name: str  # path of its file in the repository, with its arguments
    file: Path
    command: str  # a file or -m, then arguments, with {file}, {folder}, {lists} and {schedule}
    folder: Path  # the one in which it runs
    lists: Path  # folder of its list
    environment: Mapping[str, str]  # variables that its list sets
    expects: str  # a regular expression that its output must match; its group `cases`, if any, counts those that passed
    silicon: str  # the published result on a B200: a time, or what happened; "" if there is none
    note: str  # the reason why it fails, or why the B200 did not notice


@dataclass(frozen=True)
class Run:
    """A run of a program."""

    repository: str
    name: str
    framework: str
    schedule: str
    verdict: str  # one of VERDICTS
    seconds: float  # duration of the strict and the lenient run together
    reason: str  # the line of the output that says why, and the place in the PTX
    silicon: str
    note: str
    lenient: str = ""  # the verdict with NOGPU_LENIENT=1, after an error, wrong results or a hang
    lenient_reason: str = ""
    cases: int = 1  # number of cases that passed
    version: str = ""  # as in Program

    @property
    def outcome(self) -> str:
        """The verdict without the rules that a GPU does not check: the lenient run's, if there was one."""
        return self.lenient or self.verdict

    @property
    def agrees(self) -> bool | None:
        """True if the run agrees with the published result; None if nothing is published. A failure agrees if the
        strict or the lenient run reports it, unless the lenient one passes.
        """
        if not self.silicon:
            return None
        found = {self.outcome} if self.outcome == PASS else {self.verdict, self.outcome}
        return any(re.match(pattern, self.silicon) and found & verdicts for pattern, verdicts in _AGREE)


def published(path: Path) -> dict[str, str]:
    """Name of a program -> its first time, or what happened, from a file like NVFP4_Kernels' group_gemm_timings.txt: a
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


def files_of(lists: Path) -> list[Path]:
    """The lists: one, or those of a folder."""
    return sorted(lists.glob("*.toml")) if lists.is_dir() else [lists]


def version_of(checkout: Path) -> str:
    """The checkout's commit, "" if it is no repository of its own."""
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def programs(folder: Path, missing: set[str], lists: Path = LISTS) -> Iterator[Program]:
    """The programs of the lists that have all they need; adds commands that bring what others need to `missing`.

    lists: a list, or a folder of them. A group of a list has one repository, framework and command (`Program.command`).
    `beside` names other repositories whose checkouts it needs, `needs` other files with the commands that bring them.
    `environment` sets variables. In these two {checkout}, {folder}, {lists} (the list's own folder) and {packages} (the
    folder of Python's packages) stand for paths; PYTHONPATH is added to the session's. `verdicts` names a file of the
    repository that says what happened on a B200. Programs are files, or tables with `file` and the entries that differ
    from the group's, `folder` among them, and with `options`, which {options} in the command stands for.
    """
    groups = [(place, group) for place in files_of(lists) for group in tomllib.loads(place.read_text())["group"]]
    for path, group in groups:
        repository = group["repository"]
        checkout, *others = [folder / each.replace("/", "+") for each in (repository, *group.get("beside", ()))]
        base = checkout / group.get("folder", "")
        packages = sysconfig.get_path("purelib")
        places = {"checkout": checkout, "folder": base, "lists": path.parent.resolve(), "packages": packages}
        needed = {
            each: f"git clone https://github.com/{each.name.replace('+', '/', 1)} {each}"
            for each in (checkout, *others)
        } | {Path(name.format(**places)): command for name, command in group.get("needs", {}).items()}
        absent = {command for each, command in needed.items() if not each.exists()}
        if absent:
            missing |= absent
            continue
        version = version_of(checkout)
        verdicts = published(base / group["verdicts"]) if "verdicts" in group else {}
        for entry in group["programs"]:
            item: dict[str, Any] = {**group, **({"file": entry} if isinstance(entry, str) else entry)}
            own = checkout / item.get("folder", "")
            file, arguments = own / item["file"], item.get("arguments", "")
            yield Program(
                framework=item["framework"],
                list=path.stem,
                repository=repository,
                version=version,
                name=f"{file.relative_to(checkout)} {arguments}".strip(),
                file=file,
                command=item["command"].replace("{arguments}", arguments).replace("{options}", item.get("options", "")),
                folder=own,
                lists=places["lists"],
                environment={name: value.format(**places) for name, value in item.get("environment", {}).items()},
                expects=item.get("expects", ""),
                silicon=item.get("silicon", verdicts.get(item.get("published_as", file.stem), "")),
                note=item.get("note", ""),
            )


def run(program: Program, schedule: str, limit: float, sessions: Sessions, outputs: Path | None = None) -> Run:
    """Runs a program under a schedule: strictly, and leniently after an error, wrong results or a hang.

    limit: seconds of each run, at most. outputs: folder for a file with the output of each program's last run. A strict
    run may come to wrong results or hang by an order of events that is legal and that hardware never shows.
    """
    started = time.monotonic()
    verdict, reason, cases = attempt(program, schedule, limit, sessions, {}, outputs)
    lenient, lenient_reason = "", ""
    if verdict in (ERROR, WRONG, HANG):
        lenient, lenient_reason, cases = attempt(program, schedule, limit, sessions, {"NOGPU_LENIENT": "1"}, outputs)
    seconds = round(time.monotonic() - started, 1)
    return Run(
        *(program.repository, program.name, program.framework, schedule, verdict, seconds, reason),
        *(program.silicon, program.note, lenient, lenient_reason, cases, program.version),
    )


def follow(program: Program, schedule: str, limit: float, sessions: Sessions) -> sanitized.Sanitized:
    """Runs a program under a schedule, leniently, with the sanitizer."""
    started = time.monotonic()
    with tempfile.NamedTemporaryFile("r", prefix="sanitizer-") as log:
        settings = {"NOGPU_SANITIZE": "1", "NOGPU_SANITIZE_LOG": log.name, "NOGPU_LENIENT": "1"}
        verdict, reason, _ = attempt(program, schedule, limit, sessions, settings)
        reports = sanitized.reports(log)
    seconds = round(time.monotonic() - started, 1)
    return sanitized.Sanitized(
        *(program.repository, program.name, program.framework, schedule, verdict, seconds, reason, reports)
    )


def attempt(
    program: Program,
    schedule: str,
    limit: float,
    sessions: Sessions,
    settings: Mapping[str, str],
    outputs: Path | None = None,
) -> tuple[str, str, int]:
    """(verdict, reason, number of cases that passed) of one process. settings: the emulator's variables."""
    output, code = execute(program, schedule, limit, sessions, settings)
    if outputs:
        name = f"{program.repository}/{program.name} {schedule}".replace("/", "+")
        (outputs / name).write_text(f"{output}\nexit code {code}\n")
    verdict, reason = judge(output.replace(f"{program.folder}/", ""), code, program.expects)
    counted = re.search(program.expects, output) if verdict == PASS else None
    return verdict, reason, int(counted.groupdict().get("cases", 1)) if counted else 0


def execute(
    program: Program, schedule: str, limit: float, sessions: Sessions, settings: Mapping[str, str] | None = None
) -> tuple[str, int | None]:
    """(output, exit code) of one process; the code is None if it was stopped. settings: the emulator's variables."""
    places = {"file": program.file, "folder": program.folder, "lists": program.lists, "schedule": schedule}
    words = [word.format(**places) for word in shlex.split(program.command)]
    environment = {k: v for k, v in os.environ.items() if k == WORKERS or not k.startswith("NOGPU")}
    own = dict(program.environment)
    # A list's own folders come first: a contest entry may have a `task` beside it. The runner of the contest puts a
    # file's `utils` there.
    paths = str(ROOT), own.pop("PYTHONPATH", ""), str(program.folder), str(program.file.parent), os.getenv("PYTHONPATH")
    environment |= own | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths)))} | dict(settings or {})
    return sessions.output([sys.executable, *words], program.folder, environment, limit)


def load(path: Path | None) -> list[Run]:
    """The runs of a file, none if there is no file."""
    return [Run(**run) for run in (records.load(path) or {"runs": []})["runs"]]


def run_all(
    wanted: Sequence[tuple[Program, str]],
    limit: float,
    jobs: int,
    console: Console,
    how: Callable[[Program, str, float, Sessions], Result],
) -> Iterator[Result]:
    """Yields the results of runs as they end, `jobs` at a time; on a terminal, shows a bar and the programs that run.

    how: `run` or `follow`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    sessions = Sessions()
    running: list[str] = []
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        ThreadPoolExecutor(jobs) as pool,
    ):
        task = bar.add_task("", total=len(wanted))

        def one(program: Program, schedule: str) -> Result:
            name = f"{program.file.name} under {schedule}"
            running.append(name)
            bar.update(task, description=", ".join(running), refresh=True)
            try:
                return how(program, schedule, limit, sessions)
            finally:
                running.remove(name)
                bar.update(task, description=", ".join(running), refresh=True)

        try:
            for each in as_completed([pool.submit(one, *each) for each in wanted]):
                bar.advance(task)
                yield each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            sessions.end()


def counts(runs: Sequence[Run]) -> str:
    """A text with the number of each verdict, and of agreements with published results."""
    verdicts = Counter(each.verdict for each in runs)
    known = [each for each in runs if each.agrees is not None]
    counted = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS if verdicts[verdict])
    text = f"{len(runs)} runs: {counted}"
    agreeing = sum(each.agrees is True for each in known)
    return f"{text}. {agreeing} of {len(known)} agree with what is published of a B200." if known else f"{text}."
