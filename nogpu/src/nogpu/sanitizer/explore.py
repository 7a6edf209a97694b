"""Searches the interleavings of a launch that matter for one that fails (nogpu explore).

A run has steps that conflict although nothing orders them (`races.py`). Each of these pairs may happen the other way
round: that is a hold (`execution.replay`), and a further run. Its pairs are held, too, on top of its own holds, and so
on, as dynamic partial order reduction does (Flanagan, Godefroid, POPL 2005). Plans with few holds come first, and pairs
of instructions that have not been tried. A run that ends with an error, or leaves other bytes than the first one,
fails; of its holds those are kept without which it would not fail.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from nogpu.errors import EmulatorError
from nogpu.execution import device, settings, status
from nogpu.execution.replay import schedule_of
from nogpu.sanitizer import observer
from nogpu.sanitizer.races import Race, Races

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nogpu.execution.replay import Hold
    from nogpu.execution.trials import Trial, Tried


class _Plan(NamedTuple):
    """Pairs of steps that are to happen the other way round, in the order in which they were found."""

    races: tuple[Race, ...]

    @property
    def schedule(self) -> str:
        return schedule_of([race.reversal for race in self.races])

    @property
    def holds(self) -> frozenset[Hold]:
        return frozenset(race.reversal for race in self.races)

    def without(self, index: int) -> _Plan:
        return _Plan(self.races[:index] + self.races[index + 1 :])

    def takes(self, race: Race) -> bool:
        """True if the plan can also reverse a pair."""
        holds = self.holds
        return race.reversal not in holds and all((hold.behind, hold.step) != race.reversal for hold in holds)


class _Queue:
    """Plans to be tried, the most promising first."""

    def __init__(self) -> None:
        self._plans: list[tuple[tuple[int, int, int, int], _Plan]] = []
        self._seen: set[frozenset[Hold]] = set()
        self._tried: Counter[tuple[int, int]] = Counter()  # pairs of instructions
        self._numbers = itertools.count()

    def add(self, plan: _Plan, races: list[Race]) -> None:
        """Adds the plans that follow from the races of a plan's run."""
        for race in races:
            further = _Plan((*plan.races, race))
            if plan.takes(race) and further.holds not in self._seen:
                self._seen.add(further.holds)
                place = race.kind, len(further.races), self._tried[race.where], next(self._numbers)
                self._tried[race.where] += 1
                heapq.heappush(self._plans, (place, further))

    def take(self, count: int) -> list[_Plan]:
        """Removes and returns the first plans."""
        return [heapq.heappop(self._plans)[1] for _ in range(min(count, len(self._plans)))]


class Explorer:
    """Search that implements `execution.trials.Explorer`."""

    def __init__(self, limit: int) -> None:
        """limit: runs of a launch."""
        self._limit = limit
        self._launches = self._runs = 0

    def follower(self) -> Races:
        """Collector of the races of one run."""
        return Races()

    def explore(self, trial: Trial) -> None:
        """Searches the interleavings of a launch."""
        shown = status.Status(f"exploring {trial.kernel}", "runs") if status.is_shown() else None
        self._launches += 1
        try:
            for runs, plan, tried in self._search(trial):
                self._runs += 1
                if shown is not None:
                    shown(runs, self._limit, 0)
                if tried.failure is not None:
                    raise self._reduced(trial, plan, tried.failure, runs)
        finally:
            if shown is not None:
                shown.close()

    def _search(self, trial: Trial) -> Iterator[tuple[int, _Plan, Tried]]:
        """Runs plans and yields (runs so far, plan, outcome)."""
        queue, plans, runs, seen = _Queue(), [_Plan(())], 0, set()
        while plans:
            for plan, tried in zip(plans, trial.run([plan.schedule for plan in plans])):
                runs += 1
                yield runs, plan, tried
                orders = frozenset(tried.races)
                if orders not in seen:
                    seen.add(orders)
                    queue.add(plan, tried.races)
            plans = queue.take(min(trial.at_once, self._limit - runs))

    def _reduced(self, trial: Trial, plan: _Plan, failure: EmulatorError, runs: int) -> EmulatorError:
        """The failure with as few holds as it needs."""
        index = 0
        while index < len(plan.races):
            fewer = plan.without(index)
            (tried,) = trial.run([fewer.schedule])
            if tried.failure is None:
                index += 1
            else:
                plan, failure, index = fewer, tried.failure, 0
        lines = "".join(f"\n    {race.text}" for race in plan.races) or '\n    as under "late", warp by warp'
        failure.reason += f"\n  found in run {runs} of nogpu explore, and again by --schedule '{plan.schedule}':{lines}"
        failure.args = (failure.reason,)
        failure.schedule = plan.schedule
        return failure

    def summarise(self) -> None:
        """Prints on standard error how many launches and runs have been explored."""
        if self._launches:
            print(
                f"explore: {self._runs} runs of {self._launches} launch{'es' if self._launches > 1 else ''}",
                file=sys.stderr,
                flush=True,
            )


def install() -> None:
    """Explores launches of this process (NOGPU_EXPLORE), and follows them if that is wanted, too.

    Raises EmulatorError for a number of runs that is not legal.
    """
    try:
        device.explorer = explorer = Explorer(settings.runs(os.environ["NOGPU_EXPLORE"]))
    except ValueError as error:
        raise EmulatorError(f"environment variable NOGPU_EXPLORE: {error}") from None
    if os.environ.get("NOGPU_SANITIZE") == "1":
        observer.install()
    if status.is_first():
        atexit.register(explorer.summarise)
