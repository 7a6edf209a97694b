"""Runs of eval.py on hostile submissions, started as in the contest, and checks after each run.

A process with such runs is the reaper of all that eval.py's processes leave behind, so it misses no survivor.
"""

import ctypes
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tty
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.submissions.hostile.kit import FAILS, FIRST_M, OVER, PASSES, PROOF, SERVICE, TIMEOUT_S, Kind
from tests.submissions.hostile.register import KINDS
from tests.support.commands import ROOT, clean_environment

SUBMISSION = Path("tests/submissions/hostile/submission.py")
TREE = ("eval.py", "reference.py", "task.py", "submission.py", "nogpu", "harness", "tests")  # files of a copy
FOR_PERSONS = ("person", "reader", "terminal")
LONGEST_LINE = 1 << 20  # characters of a line of the protocol
LIMIT_S, LIMIT_PER_CASE_S = 60, 20  # seconds of a run, if no case takes the time of its --timeout
GRACE_S = 0.5  # seconds after eval.py's end, for processes that it has killed
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Run:
    """One run of eval.py: a case per kind, in this order."""

    names: tuple[str, ...]

    @property
    def kinds(self) -> list[Kind]:
        return [KINDS[name] for name in self.names]

    @property
    def name(self) -> str:
        return self.kinds[0].family if len(self.kinds) > 1 and not self.kinds[0].then else self.kinds[0].name


@dataclass
class Outcome:
    """The outcome of a run; `problems` is empty if all is as it should be."""

    run: Run
    seconds: float = 0
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # kind -> failures of the harness
    notes: list[str] = field(default_factory=list)  # possible events that the harness is not asked to prevent
    lines: list[str] = field(default_factory=list)
    output: str = ""

    def add(self, kind: Kind, text: str) -> None:
        """Note a failure in a kind's case; in a case behind another kind's, the failure belongs to that kind."""
        first = self.run.kinds[0]
        self.problems[first.name if first.then else kind.name].append(text)


def plan(names: list[str]) -> list[Run]:
    """The runs of the named kinds and families, or of all kinds: one run per kind alone, one for a family's other kinds
    with the same --timeout."""
    chosen = [kind for kind in KINDS.values() if not names or kind.name in names or kind.family in names]
    together, runs = defaultdict(list), []
    for kind in chosen:
        if kind.alone:
            runs.append(Run((kind.name, *kind.then)))
        else:
            together[kind.family, kind.timeout_s].append(kind.name)
    return [*(Run(tuple(group)) for group in together.values()), *runs]


# ---- A run ----


def execute(run: Run) -> Outcome:
    """Run eval.py and judge its conduct. Every process that it leaves is killed."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            began = time.monotonic()
            outcome = _execute(run, Path(folder))
            outcome.seconds = time.monotonic() - began
            return outcome
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)


def _execute(run: Run, folder: Path) -> Outcome:
    first, outcome = run.kinds[0], Outcome(run)
    root = copied_tree(folder / "tree") if first.copied_tree else ROOT
    digest = tree_digest(root) if first.copied_tree else ""
    before = children()
    kept = {"file": ("protocol", "output"), "reader": ("unused", "output")}.get(first.protocol)
    protocol, output = (Drain(folder / name) for name in kept) if kept else (Drain(), Drain())
    if first.protocol == "terminal":
        output = Terminal()
    service = socket.socket(socket.AF_UNIX)
    service.bind(str(folder / SERVICE))
    service.listen()
    service.setblocking(False)
    process = start_eval(run, root, folder, protocol.writing, output.writing)
    protocol.start()
    output.start()
    try:
        process.wait(limit_s(run))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        outcome.add(first, f"the harness hung: killed after {limit_s(run):g} s")
    protocol.mark()
    left = survivors(before)
    if left:
        outcome.add(first, f"survivors: {len(left)}, {', '.join(left[:3])}")
    (folder / OVER).touch()
    end_children(before)
    outcome.lines, outcome.output = protocol.end().splitlines(), output.end()
    with service, suppress(BlockingIOError):
        service.accept()[0].close()
        outcome.add(first, "a service of the user was reached")
    if late := protocol.late():
        outcome.add(first, f"written after the harness's end: {late[:100]!r}")
    if (folder / PROOF).exists() and (folder / PROOF).read_text() == str(process.pid):
        outcome.add(first, "code of the submission ran in the harness")
    if first.copied_tree and tree_digest(root) != digest:
        outcome.add(first, "the project's files were changed")
    if remains := [*(folder / "tmp").iterdir(), *Path("/dev/shm").glob(folder.name)]:
        outcome.add(first, f"files that stay: {remains[0]}")
    if first.protocol in FOR_PERSONS:
        judge_summary(outcome, process.returncode)
    else:
        judge_lines(outcome, process.returncode, case_lines(run))
    return outcome


def start_eval(run: Run, root: Path, folder: Path, protocol: int, output: int) -> subprocess.Popen:
    """Start eval.py in a session of its own. root: the project's folder. protocol, output: descriptors for writing."""
    first = run.kinds[0]
    (folder / "tmp").mkdir()
    (folder / "specs.txt").write_text("".join(f"{line}\n" for line in case_lines(run)))
    variables = {
        "HOSTILE": ",".join(run.names),
        "HOSTILE_FOLDER": str(folder),
        "HOSTILE_HOME": str(Path.home()),
        "HOSTILE_RUNNER": str(os.getpid()),
        "PYTHONPATH": f"{root}:{root}/nogpu/src",
        "TMPDIR": str(folder / "tmp"),
        "TERM": "dumb",
    }
    if first.copied_tree:
        variables |= {"HOSTILE_TREE": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    if first.protocol not in FOR_PERSONS:
        variables["POPCORN_FD"] = str(protocol)
    shown = protocol if first.protocol == "output" else output
    return subprocess.Popen(
        [
            *(sys.executable, root / "eval.py", first.mode, folder / "specs.txt", "--problem", first.problem),
            *("--submission", root / SUBMISSION, "--device", "emulator", "--timeout", f"{first.timeout_s:g}"),
            *(first.options or ("--schedule", "late")),
        ],
        env=clean_environment(**variables),
        pass_fds=[protocol],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=shown,
        stderr=shown,
        start_new_session=True,
    )


def limit_s(run: Run) -> float:
    """The seconds after which the harness of a run counts as hanging."""
    hanging = sum(kind.timeout_s for kind in run.kinds if kind.timeout_s != TIMEOUT_S)
    return LIMIT_S + LIMIT_PER_CASE_S * len(run.names) + hanging


def case_lines(run: Run) -> list[str]:
    """The spec line of each case: a small one whose first M tells the kind, or the kind's own."""
    default = "m: [{}, 24]; n: [16, 8]; k: [64, 128]; g: 2; seed: 1111"
    return [kind.line or default.format(FIRST_M + index) for index, kind in enumerate(run.kinds)]


def copied_tree(folder: Path) -> Path:
    """Make a copy of the files that eval.py needs."""
    folder.mkdir()
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def tree_digest(root: Path) -> str:
    """A hash of all names and contents in a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        digest.update(str(path.relative_to(root)).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Drain:
    """A pipe that a thread reads to its end, or with a path that file; the first megabytes are kept."""

    KEPT = 64 << 20

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        if path:
            self.reading, self.writing = os.open(os.devnull, os.O_RDONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
        else:
            self.reading, self.writing = os.pipe()
        self.data, self.marked = bytearray(), 0
        self.thread = threading.Thread(target=self._read)

    def start(self) -> None:
        """Read, and leave the writing end to others."""
        os.close(self.writing)
        self.thread.start()

    def _read(self) -> None:
        while part := os.read(self.reading, 1 << 16):
            if len(self.data) < self.KEPT:
                self.data += part

    def mark(self) -> None:
        """Count text from now on as late; text from before is read in time."""
        self.thread.join(GRACE_S)
        self.marked = len(self.data)

    def end(self) -> str:
        """The whole text. Nobody may be able to write any more."""
        self.thread.join()
        os.close(self.reading)
        return (self.path.read_bytes() if self.path else self.data).decode(errors="replace")

    def late(self) -> bytes:
        return bytes(self.data[self.marked :])


class Terminal(Drain):
    """A terminal that is nobody's controlling one, with typed text that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        os.close(self.reading)
        os.close(self.writing)
        self.reading, self.writing = os.openpty()
        tty.setraw(self.writing)
        os.write(self.reading, b"typed")

    def _read(self) -> None:
        with suppress(OSError):  # the end of the last process that has it open
            super()._read()


# ---- What is left of a run ----


def children() -> dict[int, str]:
    """The description of every running process that descends from this one, by process id."""
    found, parents = {}, {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat") as file:
                head, _, tail = file.read().rpartition(")")
                state, parent, *rest = tail.split()
                threads = int(rest[15])
                parents[int(name)] = int(parent)
                if state != "Z" or threads > 1:  # without its first thread a process looks like a zombie
                    found[int(name)] = f"{name} ({head.partition('(')[2]}, state {state})"
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {process: text for process, text in found.items() if process in ours and process != os.getpid()}


def survivors(before: dict[int, str]) -> list[str]:
    """Descriptions of the processes that are still there after a moment."""
    end = time.monotonic() + GRACE_S
    while (left := [text for process, text in children().items() if process not in before]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def end_children(before: dict[int, str]) -> None:
    """Kill and reap the descendants that did not run before."""
    while left := children().keys() - before.keys():
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.001)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


# ---- What the harness says ----


def judge_summary(outcome: Outcome, code: int) -> None:
    """Compare the end of a person's table, and the exit code, with those of the kinds' verdicts."""
    first, verdicts = outcome.run.kinds[0], [kind.verdict for kind in outcome.run.kinds]
    if code == 0 and FAILS in verdicts:
        outcome.add(first, "a wrong result passed")
    elif code != (112 if FAILS in verdicts else 0):
        outcome.add(first, f"the harness crashed: exit code {code}")
    last = outcome.output.rstrip("\n").rpartition("\n")[2]
    if last != f"{verdicts.count(PASSES)} passed, {verdicts.count(FAILS)} failed":
        outcome.add(first, f"the last line is not the harness's: {last[:100]!r}")
    _, _, table = outcome.output.rpartition("FAILED: ")
    if any(not character.isprintable() for character in table.replace("\n", "")):
        outcome.add(first, "control characters in the table")


def judge_lines(outcome: Outcome, code: int, specs: list[str]) -> None:
    """Compare the lines with those that the harness must write, and the verdicts with the right ones."""
    run, first = outcome.run, outcome.run.kinds[0]
    key = "test" if first.mode == "test" else "benchmark"
    written = key, "check", "submission-sha256"
    lines = [line for line in outcome.lines if first.protocol != "output" or line.startswith(written)]
    passed = []

    def take(prefix: str) -> str | None:
        if lines and lines[0].startswith(f"{prefix}: "):
            return lines.pop(0).removeprefix(f"{prefix}: ")
        return None

    if take("submission-sha256") != hashlib.sha256((ROOT / SUBMISSION).read_bytes()).hexdigest():
        outcome.add(first, "the submission's digest is missing, or another one's")
    take(f"{key}-count")
    for index, (kind, spec) in enumerate(zip(run.kinds, specs)):
        if first.mode == "leaderboard" and not all(passed):
            break
        status = take(f"{key}.{index}.status") if take(f"{key}.{index}.spec") == spec else None
        if status is None and first.mode == "profile" and (report := take(f"{key}.{index}.report")) is not None:
            status, text = "pass", report
        else:
            text = take(f"{key}.{index}.message" if status == "pass" else f"{key}.{index}.error")
        if status not in ("pass", "fail") or text is None:
            outcome.add(kind, f"the harness crashed: no result, exit code {code}")
            for unseen in run.kinds[index + 1 :]:
                outcome.add(unseen, "not run: the harness had crashed")
            break
        passed.append(status == "pass")
        if status == "pass" and kind.verdict == FAILS:
            outcome.add(kind, "a wrong result passed")
        if status == "fail" and kind.verdict == PASSES:
            outcome.add(kind, f"a right result was refused: {text[:200]}")
    else:
        if take("check") != ("pass" if all(passed) else "fail"):
            outcome.add(run.kinds[-1], f"the harness crashed: no verdict, exit code {code}")
        elif code != (0 if all(passed) else 112):
            outcome.add(run.kinds[-1], f"the harness crashed: exit code {code} after its verdict")
    if lines:
        outcome.add(first, f"lines that the harness did not write: {lines[0][:100]!r}")
    for index, kind in enumerate(run.kinds):
        of_case = [line for line in outcome.lines if line.startswith(f"{key}.{index}.")]
        if any(len(line) > LONGEST_LINE for line in of_case):
            outcome.add(kind, f"a line of {max(map(len, of_case))} characters")
        if any(not character.isprintable() for line in of_case for character in line):
            outcome.add(kind, "control characters in a line")
