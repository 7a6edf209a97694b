"""Runs of launches under schedules that an explorer chooses. None of them changes the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from nogpu.errors import EmulatorError, leniency
from nogpu.execution.journal import Journal, agree, journal
from nogpu.execution.launch import Launch, Sanitizer
from nogpu.execution.meter import Meter, Tally
from nogpu.execution.runs import Ran, Runner
from nogpu.execution.workers import Report


class Follower(Protocol):
    """Observer of one run, with findings."""

    def found(self) -> Any:
        """Findings of a run that has ended without an error, to be pickled."""


class Explorer(Protocol):
    """Search for a schedule under which a launch fails."""

    def follower(self) -> Any:
        """New object that is both `Follower` and `Sanitizer` of one run."""

    def sanitizer(self) -> Sanitizer:
        """New sanitizer, which reports what it finds."""

    def explore(self, trial: Trial) -> None:
        """Raises EmulatorError for a launch that fails under some schedule."""


@dataclass
class Tried:
    """Outcome of a run under one schedule."""

    failure: EmulatorError | None
    """Error of the run, or of a comparison with the first run's bytes; None for a success."""
    found: Any
    """Findings, of `Follower.found`; None if the run has not ended."""
    stores: list[Journal]
    """Bytes that each launch has left."""


class Trial:
    """Launch, or several that overlap, to be explored."""

    def __init__(self, runner: Runner, chain: Sequence[Launch], explorer: Explorer) -> None:
        self._runner, self._chain, self._explorer = runner, chain, explorer
        self.kernel, self.at_once = " overlapped by ".join(launch.kernel for launch in chain), runner.workers
        self._first: dict[str, list[Journal]] = {}  # schedule of the first run, and the bytes that it has left

    def run(self, schedules: list[str]) -> list[Tried]:
        """Runs the launch under each of the schedules, from the same memory."""
        tasks = [(f"{self.kernel} under schedule {schedule}", partial(self._try, schedule)) for schedule in schedules]
        ended = []
        for schedule, (failure, stores, found) in zip(schedules, self._runner.run_apart(tasks, None)):
            if failure is None:
                failure = self._compared(schedule, stores)
            ended.append(Tried(failure, found, stores))
        return ended

    @property
    def is_sanitized(self) -> bool:
        """True if the sanitizer follows the launch."""
        return self._chain[0].sanitizer is not None

    def check(self, schedule: str) -> EmulatorError | None:
        """Error of a run that a sanitizer follows, or None."""
        return self._runner.run_apart([(f"{self.kernel} under {schedule}", partial(self._check, schedule))], None)[0]

    def _check(self, schedule: str, report: Report) -> EmulatorError | None:
        sanitizer = self._explorer.sanitizer()
        for launch in self._chain:
            sanitizer.read(launch.program.entry)
        try:
            self._execute(schedule, sanitizer)
        except EmulatorError as error:
            return error
        return None

    def _execute(self, schedule: str, sanitizer: Sanitizer) -> list[Ran]:
        chain = [replace(launch, sanitizer=sanitizer, recording=None) for launch in self._chain]
        return self._runner.execute(chain, schedule, Meter(Tally(self._runner.max_instructions)))

    def _compared(self, schedule: str, stores: list[Journal]) -> EmulatorError | None:
        if not self._first:
            self._first[schedule] = stores
        if schedule in self._first:
            return None
        try:
            agree(self._runner.memory, {**self._first, schedule: stores}, self.kernel)
        except EmulatorError as error:
            return error
        return None

    def _try(self, schedule: str, report: Report) -> tuple[EmulatorError | None, list[Journal], Any]:
        follower = self._explorer.follower()
        for launch in self._chain:
            follower.read(launch.program.entry)
        try:
            ended = self._execute(schedule, follower)
        except EmulatorError as error:
            return error, [], None
        return None, [journal(ran.traffic) for ran in ended], follower.found()


def explore(runner: Runner, chain: Sequence[Launch]) -> None:
    """Explores launches that run next, if there is an explorer. Raises EmulatorError if they fail."""
    first = chain[0]
    if first.explorer is not None and first.recording is None:
        with leniency(first.lenient):
            first.explorer.explore(Trial(runner, chain, first.explorer))
