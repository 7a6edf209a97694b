"""Jobs in processes of their own, each within a limit of time: commands, questions to workers, forked tasks."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import gc
import itertools
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from argparse import Namespace

    from rich.console import Console

START_LIMIT_S = 300  # limit of a worker's imports, before the first question
UNITS_PER_WORKER = 25  # limit, because compiled code stays in a process's memory
POLL_S = 0.5  # time between looks at the limits
STACK_S = 1  # time for a worker that hangs to print its stack
END_S = 10  # time for a worker to end
SAVED_EVERY = 10.0  # seconds
GRACE = 5.0  # seconds in which a killed process has to be gone


class Sessions:
    """Commands that run in sessions of their own, from any thread; `end` kills those that run."""

    def __init__(self) -> None:
        self._leaders: set[int] = set()  # process numbers, which are the sessions' numbers too
        self._lock = threading.Lock()
        self._ended = False

    def output(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float
    ) -> tuple[str, int | None]:
        """Runs a command, for `limit` seconds at most. Returns (standard output and error, exit code); the code of a
        command that was stopped is None.
        """
        with self._lock:
            if self._ended:
                return "", None
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._leaders.add(process.pid)
        with process:
            try:
                output, _ = process.communicate(timeout=limit)
                code: int | None = process.returncode
            except subprocess.TimeoutExpired:
                kill_session(process.pid)
                output, _ = process.communicate()
                code = None
            finally:
                with self._lock:
                    self._leaders.discard(process.pid)
        return output, code

    def end(self) -> None:
        """Kills all commands that run; no command starts any more."""
        with self._lock:
            self._ended = True
            leaders = list(self._leaders)
        for leader in leaders:
            kill_session(leader)


def kill_session(leader: int) -> None:
    """Kills the processes of a session and all that they have started.

    A process group is not enough: ninja puts each compiler in a group of its own. Descendants may have other sessions.
    """
    give_up = time.monotonic() + GRACE
    family = {leader}
    while time.monotonic() < give_up:
        found = _members(leader, family)
        if not found:
            return
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        family |= found
        time.sleep(0.01)


def _members(session: int, family: Iterable[int]) -> set[int]:
    """Numbers of the running processes of the session and the family, and of their descendants."""
    parents: dict[int, int] = {}
    members = set()
    family = set(family)
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            # The name, in parentheses, may have spaces: fields are counted behind it.
            state, parent, _, of_session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if state in "ZX":
            continue
        number = int(place.name)
        parents[number] = int(parent)
        if int(of_session) == session or number in family:
            members.add(number)
    while more := {number for number, parent in parents.items() if parent in members and number not in members}:
        members |= more
    return members


class PoolError(Exception):
    """Error of a worker that did not start."""


def _serve(pipe: Connection, make: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Answers questions, in the worker, until the pipe is closed or an answer asks for a restart."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    answer = make(*arguments)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(answer.about)
        is_last = False
        while not is_last:
            found = answer(pipe.recv())
            pipe.send(found)
            is_last = found["restart"]


class _Worker:
    def __init__(self, how: str, make: Callable[..., Any], arguments: Sequence[Any], unit: Iterable[Any]) -> None:
        context = multiprocessing.get_context(how)
        self.pipe, theirs = context.Pipe()
        # mypy does not know the attributes that every context has.
        self.process: Any = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()
        self.questions, self.units = collections.deque(unit), 1
        self.starting, self.deadline = True, time.monotonic() + START_LIMIT_S
        self.question: Any = None

    def ask(self, limit_s: float) -> None:
        self.question, self.deadline = self.questions.popleft(), time.monotonic() + limit_s
        with contextlib.suppress(OSError):  # the error of a dead worker, which the next look at its pipe reports
            self.pipe.send(self.question)

    def kill(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


class Pool:
    """Worker processes that answer one question each at a time, within a limit of time. A worker that dies or hangs is
    ended, its question is reported, and a new worker takes over the rest of its unit.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        arguments: Sequence[Any],
        units: Iterable[Sequence[Any]],
        jobs: int,
        limit_s: float,
        how: str = "spawn",
    ) -> None:
        """make: called with the arguments in each worker; it returns a function from question to answer, a dict, with
        an attribute `about`. An answer with a true "restart" is its worker's last. units: lists of questions, each for
        one worker, in order. jobs: workers at once. limit_s: seconds for an answer. how: start of a worker, "spawn"
        (with nothing of this process) or "fork".
        """
        self.make, self.arguments, self.jobs, self.limit_s, self.how = make, arguments, jobs, limit_s, how
        self.units: Iterator[Sequence[Any]] = iter(units)
        self.workers: list[_Worker] = []
        self.retired: list[Any] = []  # processes
        self.about: Any = None  # `about` of the last worker that started

    def answers(self, stop: Callable[[], bool] = lambda: False) -> Iterator[tuple[Any, Any, str]]:
        """Yields (question, answer, "") or (question, None, reason). stop: called repeatedly; once it returns True, no
        more questions are asked. Raises PoolError for a worker that does not start.
        """
        try:
            while True:
                self._deal(stop())
                if not self.workers:
                    return
                ready = wait([worker.pipe for worker in self.workers], POLL_S)
                for worker in list(self.workers):
                    if worker.pipe in ready:
                        yield from self._receive(worker)
                    elif time.monotonic() > worker.deadline:
                        yield from self._lost(worker, f"no end within {self.limit_s:g} s")
        finally:
            for worker in self.workers:
                worker.kill()
            for process in self.retired:
                process.join(END_S)
                process.kill()

    def _deal(self, stopped: bool) -> None:
        """Gives every idle worker a question or retires it, and starts workers while there are units."""
        for worker in list(self.workers):
            if worker.starting and stopped:
                worker.kill()
                self.workers.remove(worker)
            if worker.starting or worker.question is not None:
                continue
            if not worker.questions and not stopped and worker.units < UNITS_PER_WORKER:
                worker.questions.extend(next(self.units, ()))
                worker.units += 1
            if worker.questions and not stopped:
                worker.ask(self.limit_s)
            else:
                self._retire(worker)
        while not stopped and len(self.workers) < self.jobs and (unit := next(self.units, None)):
            self.workers.append(_Worker(self.how, self.make, self.arguments, unit))

    def _retire(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        self.retired = [process for process in self.retired if process.is_alive()] + [worker.process]
        self._give_back(worker)
        worker.pipe.close()

    def _give_back(self, worker: _Worker) -> None:
        if worker.questions:
            self.units = itertools.chain([list(worker.questions)], self.units)

    def _receive(self, worker: _Worker) -> Iterator[tuple[Any, Any, str]]:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(END_S)
            yield from self._lost(worker, f"the process died, exit code {worker.process.exitcode}")
            return
        if worker.starting:
            worker.starting, worker.deadline, self.about = False, float("inf"), answer
            return
        question, worker.question, worker.deadline = worker.question, None, float("inf")
        if answer["restart"]:
            self._retire(worker)
        yield question, answer, ""

    def _lost(self, worker: _Worker, reason: str) -> Iterator[tuple[Any, Any, str]]:
        """Ends a worker that died or hangs, and yields its question. Raises PoolError if it was still starting."""
        if worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGUSR1)
            worker.process.join(STACK_S)
        worker.kill()
        self.workers.remove(worker)
        if worker.starting:
            raise PoolError(f"a worker did not start: {reason}")
        self._give_back(worker)
        yield worker.question, None, reason


class Ended(NamedTuple):
    """A task that is over."""

    number: int  # place among the tasks
    result: Any  # None if the task failed, took too long, or its process died
    seconds: float  # duration; the limit if the task took too long or its process died
    failure: str  # "" for none, else the exception or the end of the process


class _Tasks:
    """The tasks of `forked`, one for each worker."""

    about = None

    def __init__(self, tasks: Sequence[Callable[[], Any]]) -> None:
        self.tasks = tasks

    def __call__(self, number: int) -> dict[str, Any]:
        began, result, failure = time.monotonic(), None, ""
        try:
            result = self.tasks[number]()
        except BaseException as error:  # the parent decides what follows
            failure = f"{type(error).__name__}: {error}"
        return {"result": result, "failure": failure, "seconds": time.monotonic() - began, "restart": True}


def forked(
    tasks: Sequence[Callable[[], Any]], jobs: int, limit: float, seconds: float | None = None
) -> Iterator[Ended]:
    """Yields the tasks as they end. Each runs in a process that is forked for it, `limit` seconds at most. No task
    starts when `seconds` are over. Processes end with the iterator.
    """
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, memory in the children
    began = time.monotonic()
    pool = Pool(_Tasks, (tasks,), ([number] for number in range(len(tasks))), jobs, limit, "fork")
    try:
        for number, answer, reason in pool.answers(lambda: seconds is not None and time.monotonic() - began > seconds):
            found = answer or {"result": None, "failure": reason, "seconds": limit}
            yield Ended(number, found["result"], found["seconds"], found["failure"])
    finally:
        gc.unfreeze()


def each(
    work: Callable[..., Any],
    items: Iterable[tuple[Any, ...]],
    jobs: int,
    description: str,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (item, result of `work` with the item as arguments) as they come, with a progress bar.

    options: those of ProcessPoolExecutor.
    """
    from rich.progress import Progress

    with Progress(transient=True) as progress, ProcessPoolExecutor(jobs, **(options or {})) as pool:
        running = {pool.submit(work, *item): item for item in items}
        for done in progress.track(as_completed(running), total=len(running), description=description):
            yield running[done], done.result()


def shown(
    tasks: Sequence[Callable[[], Any]], options: Namespace, console: Console, save: Callable[[], None]
) -> Iterator[Ended]:
    """Yields the tasks as `forked` ends them, with a progress bar on a terminal. options: has jobs, limit and seconds.
    save: called every SAVED_EVERY seconds or later, and at the end, an interruption included.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    ended, last = forked(tasks, options.jobs, options.limit, options.seconds), time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        try:
            for each in bar.track(ended, total=len(tasks), description=""):
                yield each
                if time.monotonic() - last > SAVED_EVERY:
                    save()
                    last = time.monotonic()
        finally:
            save()
