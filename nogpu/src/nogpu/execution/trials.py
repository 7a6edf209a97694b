"""Runs of launches under schedules that an explorer chooses. None of them changes the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from nogpu.errors import EmulatorError, leniency
from nogpu.execution.journal import Journal, agree, journal
from nogpu.execution.launch import Launch
from nogpu.execution.meter import Meter, Tally
from nogpu.execution.runs import Runner
from nogpu.execution.workers import Report


class Follower(Protocol):
    """Follower of one run."""

    def found(self) -> list[Any]:
        """Findings of the run, to be pickled."""


class Explorer(Protocol):
    """Search for a schedule under which a launch fails."""

    def follower(self) -> Any:
        """New `Follower` and `Sanitizer` of one run."""

    def explore(self, trial: Trial) -> None:
        """Raises EmulatorError for a launch that fails under some schedule."""


@dataclass
class Tried:
    """Outcome of a run under one schedule."""

    failure: EmulatorError | None
    """An error, or other bytes than the first run's."""
    races: list[Any]
    """As `Follower.found`."""


class Trial:
    """Launch, or several that overlap, to be explored."""

    def __init__(self, runner: Runner, chain: Sequence[Launch], explorer: Explorer) -> None:
        self._runner, self._chain, self._explorer = runner, chain, explorer
        self.kernel, self.at_once = " overlapped by ".join(launch.kernel for launch in chain), runner.workers
        self._first: dict[str, list[Journal]] = {}  # schedule of the first run, and the bytes that it has left

    def run(self, schedules: list[str]) -> list[Tried]:
        """Runs the launch under each of the schedules, from the same memory."""
        tasks = [(f"{self.kernel} under schedule {schedule}", partial(self._try, schedule)) for schedule in schedules]
        found = []
        for schedule, (failure, stores, races) in zip(schedules, self._runner.run_apart(tasks, None)):
            if failure is None:
                failure = self._compared(schedule, stores)
            found.append(Tried(failure, races))
        return found

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

    def _try(self, schedule: str, report: Report) -> tuple[EmulatorError | None, list[Journal], list[Any]]:
        follower = self._explorer.follower()
        chain = [replace(launch, sanitizer=follower, recording=None) for launch in self._chain]
        try:
            found = self._runner.execute(chain, schedule, Meter(Tally(self._runner.max_instructions)))
        except EmulatorError as error:
            return error, [], follower.found()
        return None, [journal(ran.traffic) for ran in found], follower.found()


def explore(runner: Runner, chain: Sequence[Launch]) -> None:
    """Explores launches that run next, if there is an explorer. Raises EmulatorError if they fail."""
    first = chain[0]
    if first.explorer is not None and first.recording is None:
        with leniency(first.lenient):
            first.explorer.explore(Trial(runner, chain, first.explorer))
