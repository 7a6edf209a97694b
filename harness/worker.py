"""The process that runs cases. It may hang or die with a submission: the harness notices and starts another.

Classes here and in harness.cases have the same module names in both processes, so results cross as they are. Exceptions
cross as text, since those of the DSL do not pickle.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.cases import Case
from harness.modules import load_module
from harness.results import Result
from task import PROBLEMS, Problem, TestSpec

START_TIMEOUT_S = 180  # of importing torch and the emulator
EXIT_TIMEOUT_S = 10
LIVENESS_INTERVAL_S = 0.2
PR_SET_PDEATHSIG = 1


# ---------------------------------------------------------------------------------------------------------------------
# In the worker
# ---------------------------------------------------------------------------------------------------------------------


def load_submission(path: str) -> ModuleType:
    """The module `submission` from the file at `path`, imported once."""
    return sys.modules.get("submission") or load_module("submission", path)


def device_is_usable() -> bool:
    """False after an error that CUDA reports from every later call."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


def worker_main(connection: multiprocessing.connection.Connection, submission_path: str) -> None:
    """Send the device's name, then answer every (job, problem's name, args, options) with a pair.

    The pair is a Result and whether this process can run another case.
    """
    os.setsid()  # the parent kills the session: the worker and every process that a submission has started
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed harness must not leave a hung kernel behind
    import torch

    import reference

    connection.send(torch.cuda.get_device_name())
    while True:
        try:
            job, problem, args, options = connection.recv()
        except EOFError:
            return
        try:
            submission = load_submission(submission_path)
            result = job(Case(PROBLEMS[problem], reference.REFERENCES[problem], submission, args), **options)
        except BaseException as error:  # SystemExit included
            text = "".join(traceback.format_exception(error))
            result = Result(False, f"{type(error).__name__}: {error}", traceback=text)
        connection.send((result, device_is_usable()))


# ---------------------------------------------------------------------------------------------------------------------
# In the harness
# ---------------------------------------------------------------------------------------------------------------------


class WorkerLost(Exception):
    """The worker died or exceeded its time; the text says how. Its process has ended."""


class WorkerProcess:
    """One spawned process and the pipe to it."""

    def __init__(self, submission: Path):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker_main, args=(theirs, str(submission)))
        self.process.start()
        theirs.close()

    def ask(self, request: tuple[Any, ...], timeout_s: float) -> Any:
        """The worker's answer to a request. Raises WorkerLost."""
        try:
            self.connection.send(request)
        except OSError:
            raise self._death() from None
        return self.receive(timeout_s, "--timeout sets the limit")

    def receive(self, timeout_s: float, remark: str) -> Any:
        """The next object that the worker sends. remark: about the limit. Raises WorkerLost."""
        deadline = time.monotonic() + timeout_s
        # Polling for death, not waiting for the pipe's end: a process that outlives the worker may hold the pipe open.
        while self.process.is_alive() and time.monotonic() < deadline:
            if self.connection.poll(LIVENESS_INTERVAL_S):
                break
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if not self.process.is_alive():
            raise self._death()
        self.kill()
        raise WorkerLost(f"no result after {timeout_s:g} s: the worker was killed ({remark})")

    def finish(self) -> None:
        """Close the pipe, so that a waiting worker returns and a profiler around it can write its report; then kill."""
        self.connection.close()
        self.process.join(EXIT_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it has started."""
        pid = self.process.pid
        assert pid is not None, "the process was started by __init__"
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet the leader of its group, or over
            self.process.kill()
        self.process.join()
        self.connection.close()

    def _death(self) -> WorkerLost:
        self.process.join()
        code = self.process.exitcode
        assert code is not None, "the process was joined"
        self.kill()
        how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code} ({signal.strsignal(-code)})"
        return WorkerLost(f"the worker process {how}")


class Worker:
    """Runs cases in a worker process, and starts another process when the last one had to end."""

    def __init__(self, submission: Path, timeout_s: float):
        self.submission = submission
        self.timeout_s = timeout_s  # of one case
        self.process: WorkerProcess | None = None
        self.device = ""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self.process:
            if error:
                self.process.kill()
            else:
                self.process.finish()
        self.process = None

    def device_name(self) -> str:
        """The name of the device that cases run on."""
        try:
            self._running()
        except WorkerLost as lost:
            self.process = None
            return f"no device ({lost})"
        return self.device

    def run(self, job: Callable[..., Result], problem: Problem, spec: TestSpec, **options: Any) -> Result:
        """Run `job` on a case. A worker that dies or exceeds its time gives a failed Result."""
        request = job, problem.name, dict(spec.args), options
        try:
            process = self._running()
            answer: tuple[Result, bool] = process.ask(request, self.timeout_s)
        except WorkerLost as lost:
            self.process = None
            return Result(False, str(lost))
        result, is_usable = answer
        if not is_usable:
            process.kill()
            self.process = None
        return result

    def _running(self) -> WorkerProcess:
        if self.process is None:
            self.process = WorkerProcess(self.submission)
            self.device = self.process.receive(START_TIMEOUT_S, "while it started")
        return self.process
