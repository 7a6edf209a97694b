"""Searches the interleavings of a launch for one that fails, and says how far it has come (nogpu explore).

A run is one trace (`reversals.py`): it stands for all interleavings that differ by the order of independent turns. Each
reversal of its trace begins another one, which is run in turn, until no trace is new: then every interleaving has been
seen. Steps that access the same bytes, which nothing orders (`races.py`), are swapped, too: that may show what a race
does. Plans with few reversals come first, and pairs of instructions that have been tried least. A run that ends with an
error, or leaves other bytes than the first one, fails; of its holds those are kept without which it would not fail.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nogpu.errors import EmulatorError, readable
from nogpu.execution import device, settings, status
from nogpu.execution.replay import Hold, schedule_of
from nogpu.notes import note
from nogpu.sanitizer import observer
from nogpu.sanitizer.races import Found, Race, Races

if TYPE_CHECKING:
    from nogpu.execution.trials import Trial, Tried
    from nogpu.sanitizer.reversals import Reversal

CLEAN, BOUNDED = "clean", "bounded"
BYTES = 0  # kind of a plan that swaps accesses to bytes; others: `reversals.Reversal.kind`


class _Plan(NamedTuple):
    """Holds of a run."""

    holds: dict[Hold, str]  # with their texts
    past: frozenset[int] | None = frozenset()  # turns with which the run must begin; None: any
    depth: int = 0  # number of reversals

    @property
    def schedule(self) -> str:
        return schedule_of(list(self.holds))

    def swapping(self, race: Race) -> _Plan | None:
        """The plan that also swaps two accesses; None if this one decides their order."""
        hold = race.reversal
        if hold in self.holds or Hold(hold.behind, hold.step) in self.holds:
            return None
        return _Plan({**self.holds, hold: race.text}, None, self.depth + 1)


class _Queue:
    """Plans to be tried, the most promising first."""

    def __init__(self) -> None:
        self._plans: list[tuple[tuple[int, int, int, int], Callable[[], _Plan]]] = []
        self._seen: set[Hashable] = set()
        self._tried: Counter[tuple[int, int]] = Counter()  # plans so far, by pair of instructions
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._plans)

    def add(self, plan: _Plan, found: Found) -> None:
        """Adds the plans that follow from the run of a plan."""
        for race in found.races:
            swapped = plan.swapping(race)
            if swapped is not None:
                self._add(BYTES, race.where, frozenset(swapped.holds), swapped.depth, partial(_Plan, *swapped))
        if plan.past is not None:
            depth = plan.depth + 1
            for each in found.trace.reversals:
                self._add(each.kind, each.where, each.key, depth, partial(_reversing, each, depth))

    def _add(self, kind: int, where: tuple[int, int], key: Hashable, depth: int, plan: Callable[[], _Plan]) -> None:
        """Adds a plan, to be made when it is taken: of a large run's reversals a few are."""
        if key not in self._seen:
            self._seen.add(key)
            heapq.heappush(self._plans, ((kind, depth, self._tried[where], next(self._numbers)), plan))
            self._tried[where] += 1

    def take(self, count: int) -> list[_Plan]:
        """Removes and returns the first plans."""
        return [heapq.heappop(self._plans)[1]() for _ in range(min(count, len(self._plans)))]


def _reversing(reversal: Reversal, depth: int) -> _Plan:
    return _Plan(reversal.holds(), reversal.past(), depth)


class Verdict(NamedTuple):
    """End of a search that has found no failure."""

    kernel: str
    runs: int
    traces: int  # number of different ones
    turns: int  # number in the longest trace
    left: list[str]  # what the search has not covered

    @property
    def word(self) -> str:
        return BOUNDED if self.left else CLEAN

    def __str__(self) -> str:
        orders = f"{self.traces} different order{'s' if self.traces > 1 else ''} of up to {self.turns} turns"
        runs = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        if not self.left:
            return f"{readable(self.kernel)} is clean for all interleavings: {orders}, in {runs}"
        left = "".join(f"\n    {text}" for text in self.left)
        return f"{readable(self.kernel)} is bounded: {orders} without a fault, in {runs}; left:{left}"


class Explorer:
    """Search that implements `execution.trials.Explorer`."""

    def __init__(self, limit: int, allowed: tuple[str, ...] = ()) -> None:
        """limit: runs of a launch. allowed: as in `observer.Sanitizer`."""
        self._limit, self._allowed = limit, allowed
        self._checks = False  # True if the sanitizer follows the launch that is searched
        self.verdicts: list[Verdict] = []
        self.runs = 0
        """Number of runs of all launches. It includes those that fail and those that reduce a failure's holds."""

    def follower(self) -> Races:
        """Collector of one run."""
        return Races(self._allowed, self._checks)

    def sanitizer(self) -> observer.Sanitizer:
        """Sanitizer of one run."""
        found = observer.Sanitizer(self._allowed, kept_reads=None)
        found.queues = None
        return found

    def explore(self, trial: Trial) -> None:
        """Searches the interleavings of a launch. Raises EmulatorError for one that fails."""
        shown = status.Status(f"exploring {trial.kernel}", "runs") if status.is_shown() else None
        try:
            verdict = self._search(trial, shown)
        finally:
            if shown is not None:
                shown.close()
        self.verdicts.append(verdict)
        note(
            "exploration",
            kernel=readable(trial.kernel),
            verdict=verdict.word,
            runs=verdict.runs,
            orders=verdict.traces,
            turns=verdict.turns,
            left=verdict.left,
        )

    def _search(self, trial: Trial, shown: status.Status | None) -> Verdict:
        queue, plans, runs, turns, missed = _Queue(), [_Plan({})], 0, 0, 0
        seen: set[frozenset[int]] = set()
        left: set[str] = set()
        self._checks = trial.is_sanitized
        racing: tuple[int, str] | None = None  # the first run with unordered accesses to bytes, and its schedule
        while plans:
            for plan, tried in zip(plans, self._run(trial, [plan.schedule for plan in plans])):
                runs += 1
                if shown is not None:
                    shown(runs, self._limit, 0)
                if tried.failure is not None:
                    raise self._reduced(trial, plan, tried, runs)
                found: Found = tried.found
                trace = found.trace
                missed += plan.past is not None and (trace.dropped > 0 or not plan.past <= trace.turns)
                left |= trace.left
                turns = max(turns, trace.length)
                if found.races and racing is None:
                    racing = runs, plan.schedule
                if trace.turns in seen and plan.past is not None:
                    continue
                if trace.turns not in seen and found.complains:
                    failure = trial.check(plan.schedule)
                    if failure is not None:
                        raise _told(failure, plan.schedule, runs, plan.holds.values())
                if plan.past is not None:
                    seen.add(trace.turns)
                queue.add(plan, found)
            plans = queue.take(min(trial.at_once, self._limit - runs))
        if racing is not None:
            failure = trial.check(racing[1])
            if failure is not None:
                raise _told(failure, racing[1], racing[0], [])
            left.add("accesses to bytes that nothing orders, which a waiver allows")
        if missed:
            left.add(f"orders that could not be had: {missed}")
        if len(queue):
            left.add(f"orders that were found and not run: {len(queue)}")
        return Verdict(trial.kernel, runs, len(seen), turns, sorted(left))

    def _run(self, trial: Trial, schedules: list[str]) -> list[Tried]:
        self.runs += len(schedules)
        return trial.run(schedules)

    def _reduced(self, trial: Trial, plan: _Plan, tried: Tried, runs: int) -> EmulatorError:
        """Failure of a plan's run, with as few holds as it needs."""
        holds, failure = list(plan.holds), tried.failure
        assert failure is not None  # the run has failed
        size = len(holds)
        while size:
            fewer = [holds[:start] + holds[start + size :] for start in range(0, len(holds), size)]
            for kept in fewer:
                (again,) = self._run(trial, [schedule_of(kept)])
                if again.failure is not None:
                    holds, failure = kept, again.failure
                    break
            else:
                size //= 2
            size = min(size, len(holds))
        return _told(failure, schedule_of(holds), runs, [plan.holds[hold] for hold in holds])

    def summarise(self) -> None:
        """Prints the verdicts, and the number of runs and launches, on standard error."""
        if self.verdicts:
            words = Counter(verdict.word for verdict in self.verdicts)
            runs, launches = sum(verdict.runs for verdict in self.verdicts), len(self.verdicts)
            lines = [f"explore: {runs} run{_s(runs)} of {launches} launch{'es' if launches > 1 else ''}, "]
            lines[0] += ", ".join(f"{number} {word}" for word, number in sorted(words.items()))
            lines += dict.fromkeys(f"explore: {verdict}" for verdict in self.verdicts)
            print("\n".join(lines), file=sys.stderr, flush=True)


def _s(number: int) -> str:
    return "s" if number > 1 else ""


def _told(failure: EmulatorError, schedule: str, runs: int, texts: Iterable[str]) -> EmulatorError:
    """Adds the schedule that shows a failure to it, and returns it. texts: of the schedule's holds."""
    lines = "".join(f"\n    {text}" for text in texts) or '\n    as under "late", warp by warp'
    options = "--sanitize " if failure.reason.startswith("sanitizer, rule ") else ""
    again = f"{options}--schedule '{schedule}'"
    failure.reason += f"\n  found in run {runs} of nogpu explore, and again by {again}:{lines}"
    failure.args = (failure.reason,)
    failure.schedule = schedule
    return failure


def install() -> None:
    """Makes this process explore its launches (NOGPU_EXPLORE), and sanitize them, too, if NOGPU_SANITIZE is 1.

    Raises EmulatorError for a number of runs that is not legal.
    """
    try:
        limit = settings.runs(os.environ["NOGPU_EXPLORE"])
    except ValueError as error:
        raise EmulatorError(f"environment variable NOGPU_EXPLORE: {error}") from None
    device.explorer = explorer = Explorer(limit, tuple(observer.listed("NOGPU_SANITIZE_ALLOW")))
    if os.environ.get("NOGPU_SANITIZE") == "1":
        observer.install()
    if status.is_first():
        atexit.register(explorer.summarise)
