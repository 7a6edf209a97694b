"""The judge's side of the worker process: starts it, sends requests, keeps time, and ends all that it has started."""

from __future__ import annotations

import fcntl
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from harness import messages
from harness.cases import Case, Inputs
from harness.folders import make_folders
from harness.interpreter import without_collection, without_meta_kernels
from harness.judge import Body, Trial
from harness.messages import Channel, Lost, MalformedMessage
from harness.nursery import Nursery, NurseryLost, Setting
from harness.processes import children, end_descendants, protect_from_children
from harness.relay import Relay
from harness.results import Result
from harness.submissions import Submission
from task import Problem, TestSpec

START_TIMEOUT_S = 180  # time to import torch and the emulator
EXIT_TIMEOUT_S = 10
LIMIT = "--timeout sets the limit"


class WorkerLost(Exception):
    """A worker that died, exceeded its time or broke the protocol; the text says how. All its processes have ended."""


class SubmissionFailed(Exception):
    """An exception that a request raised in the worker."""

    def __init__(self, failed: messages.Failed):
        super().__init__(failed.error)
        self.traceback = failed.traceback


def sealed_memory() -> int:
    """A descriptor of empty memory that can grow but not shrink and takes no further seals."""
    fd = os.memfd_create("judge", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


def places_of(error: BaseException) -> str:
    """The traceback of an exception of the judge, without source text, which would mean reading files."""
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    return "".join(f"{frame.filename}:{frame.lineno}, in {frame.name}\n" for frame in frames)


def preload() -> None:
    """Import the judge's modules, before the submission can change files."""
    with without_collection(), without_meta_kernels():
        for name in ("reference", "harness.outputs", "harness.shared_memory"):
            importlib.import_module(name)


class WorkerProcess:
    """One worker process and the socket to it."""

    def __init__(self, nursery: Nursery):
        self.spared = children()
        self.number = 0  # number of the last request
        self.deadline = time.monotonic() + START_TIMEOUT_S
        self.limit = f"{START_TIMEOUT_S} s: the worker was killed (while it started)"
        ours, theirs = socket.socketpair()
        memory = sealed_memory()
        with theirs:
            nursery.order(theirs.fileno(), memory)
        preload()  # imports torch, at the same time as the worker or the nursery
        from harness.shared_memory import SharedMemory

        try:
            self.process = nursery.deliver(self.deadline)
        except NurseryLost as lost:
            ours.close()
            os.close(memory)
            raise WorkerLost(f"there is no worker process: {lost}") from None
        self.channel = Channel(ours, self.process.pidfd)
        self.is_held = True  # true while the descriptors are open
        self.memory = SharedMemory(memory)
        self.device = cast(messages.Ready, self._receive(messages.Ready)).device

    def begin_case(self, timeout_s: float) -> None:
        """Set the time that all following requests have together."""
        self.deadline = time.monotonic() + timeout_s
        self.limit = f"{timeout_s:g} s: the worker was killed ({LIMIT})"

    def ask(self, request: messages.Request, reply: type[Body], meanwhile: Callable[[], Any] | None = None) -> Body:
        """Send a request and return the reply, of class `reply`. meanwhile: called while the worker works.

        Raises WorkerLost, SubmissionFailed for an exception in the worker, or the exception of `meanwhile`.
        """
        self.number += 1
        with self._ending():
            self.channel.send(messages.encode(messages.NumberedRequest(self.number, request)), self.deadline)
        error = None
        try:
            if meanwhile:
                meanwhile()
        except Exception as raised:  # raised only after the reply, which the next request would receive otherwise
            error = raised
        answer = self._receive(reply, messages.Failed)
        if isinstance(answer, messages.Failed):
            raise SubmissionFailed(answer)
        if error:
            raise error
        return cast(Body, answer)

    def _receive(self, *expected: type[messages.Message]) -> messages.Message:
        with self._ending():
            return messages.decode_reply(self.channel.receive(self.deadline), self.number, *expected)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """A context that turns the channel's exceptions into WorkerLost and ends the process."""
        try:
            yield
        except TimeoutError:
            self.kill()
            raise WorkerLost(f"no result after {self.limit}") from None
        except Lost:
            how = self._how_it_ended()
            self.kill()
            raise WorkerLost(f"the worker process {how}") from None
        except MalformedMessage as error:
            self.kill()
            raise WorkerLost(f"the worker process sent no valid message: {error}") from None

    def finish(self) -> None:
        """End the requests, so that the worker returns and a profiler around it writes its report, then call `kill`."""
        self.channel.hang_up()
        self.process.wait(EXIT_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it has started."""
        if not self.is_held:
            return
        self.is_held = False
        self.channel.close()
        self.memory.close()
        self.process.terminate()  # SIGTERM, at which a keeper kills all that it keeps
        self.process.wait(EXIT_TIMEOUT_S)
        if not end_descendants(self.spared):
            print("eval.py: processes that the submission has started could not be ended", file=sys.stderr, flush=True)
        os.close(self.process.pidfd)

    def _how_it_ended(self) -> str:
        code = self.process.wait(EXIT_TIMEOUT_S)
        if code is None:
            return "closed its socket"
        return f"exited with code {code}" if code >= 0 else f"was killed by signal {-code} ({signal.strsignal(-code)})"


class Worker:
    """Runs cases in a worker process, and starts another one when the last had to end."""

    def __init__(
        self,
        submission: Submission,
        timeout_s: float,
        preloads: bool = False,
        keeps_rights: bool = False,
        shown: bool = True,
        files: Sequence[Path] = (),
    ):
        """preloads, keeps_rights: see nursery.Setting. shown: print the submission's output.

        files: paths that a worker writes for the command line.
        """
        self.timeout_s = timeout_s  # seconds for one case
        self.process: WorkerProcess | None = None
        self.device = ""
        self.inputs = Inputs()
        protect_from_children()
        self.folders = make_folders(submission.digest)
        places = str(submission.path.resolve()), str(self.folders.home), str(self.folders.temporary)
        setting = Setting(*places, tuple(map(str, files)), keeps_rights, preloads)
        self.nursery = Nursery(setting, Relay() if shown else Relay((None, None)))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self.process:
            if error:
                self.process.kill()
            else:
                self.process.finish()
        self.process = None
        self.nursery.end()
        self.folders.remove()

    def device_name(self) -> str:
        """The name of the device that cases run on."""
        try:
            self._running()
        except WorkerLost as lost:
            return f"no device ({lost})"
        return self.device

    def run(
        self,
        job: Callable[..., Result],
        problem: Problem,
        spec: TestSpec,
        following: TestSpec | None = None,
        **options: Any,
    ) -> Result:
        """Run `job` on a case. A worker that dies, exceeds its time or breaks the protocol causes a failed Result.

        following: the case of the next run, if it is known.
        """
        try:
            process = self._running()
            process.begin_case(self.timeout_s)
            result = self._judge(process, job, problem, spec, following, options)
            is_usable = self._is_usable(process)
        except WorkerLost as lost:
            self.process = None
            return Result(False, str(lost)).cleaned()
        if not is_usable:
            process.kill()
            self.process = None
        return result.cleaned()

    @staticmethod
    def _is_usable(process: WorkerProcess) -> bool:
        try:
            return process.ask(messages.Finish(), messages.Finished).is_usable
        except SubmissionFailed:
            return False

    def _judge(
        self,
        process: WorkerProcess,
        job: Callable[..., Result],
        problem: Problem,
        spec: TestSpec,
        following: TestSpec | None,
        options: dict[str, Any],
    ) -> Result:
        import reference

        case = Case(problem, reference.REFERENCES[problem.name], spec.args)
        later = None
        if following:
            with suppress(Exception):  # sizes that are no numbers, which the next run reports
                later = replace(case, args=following.args).rehearsal()
        try:
            return job(Trial(case, process, self.inputs, later), **options)
        except SubmissionFailed as failed:
            return Result(False, str(failed), traceback=failed.traceback)
        except WorkerLost:
            raise
        except Exception as error:  # an exception of the judge: inputs that cannot be made, memory that is missing
            message = f"{type(error).__name__}: {error}"
            return Result(False, message, traceback=f"{places_of(error)}{message}\n")

    def _running(self) -> WorkerProcess:
        if self.process is None:
            self.process = WorkerProcess(self.nursery)
            self.device = self.process.device
        return self.process
