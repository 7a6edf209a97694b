"""The schedule "replay": warps run one after the other, each as far as it can, but for holds.

A step is what a warp runs until the next place where it could be interrupted (a segment, internals.md, "Turns"), or
an asynchronous operation. A hold keeps a step back until another one is over. Where nothing else can happen, the hold
that stands in the way is dropped: what it asks for cannot be.

| name | step |
|---|---|
| c3w1.14 | the fifteenth of warp 1 of CTA 3, CTAs counted by clusters |
| c3w1j2 | the third asynchronous operation that this warp has issued |
| g1c3w1.14 | of the second of several launches that overlap |
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from nogpu.execution.machine import WAITING, Machine
from nogpu.execution.overlap import OverlappingMachine
from nogpu.execution.scheduler import GridMachine
from nogpu.hardware.async_operations import AsyncOperation, Schedule
from nogpu.hardware.turns import TICKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import Warp

IN_A_ROW = 64  # steps of a warp, after which others take turns: it may poll
_STEP = re.compile(r"((?:g\d+)?c\d+w\d+)(?:\.(\d+)|(j\d+))")


class Step(NamedTuple):
    """A part of a run that nothing interrupts."""

    agent: str  # a warp or an operation
    number: int = 0  # of a warp's, from 0

    def __str__(self) -> str:
        return self.agent if "j" in self.agent else f"{self.agent}.{self.number}"


class Hold(NamedTuple):
    """A step that happens behind another one."""

    step: Step
    behind: Step

    def __str__(self) -> str:
        return f"{self.step}@{self.behind}"


def parse(text: str) -> list[Hold]:
    """The holds of a schedule's text behind "replay:", "-" for none. Raises ValueError."""
    return [] if text == "-" else [Hold(*map(_step, hold.split("@", 1))) for hold in text.split("+")]


def schedule_of(holds: list[Hold]) -> str:
    """The schedule's text."""
    return "replay:" + ("+".join(map(str, holds)) or "-")


def _step(text: str) -> Step:
    found = _STEP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no step of a replay: c3w1.14, or c3w1j2 for an asynchronous operation, expected")
    return Step(found[1] + found[3]) if found[3] else Step(found[1], int(found[2]))


class Holds(Machine):
    """A machine in which steps are held; who runs next is its subclasses' matter."""

    def __init__(self, schedule: Schedule, *others: Any) -> None:
        super().__init__(schedule, *others)
        self._holds: dict[Step, list[Step]] = {}
        for hold in parse(schedule.holds):
            self._holds.setdefault(hold.step, []).append(hold.behind)
        self._steps: dict[str, int] = {}  # of each agent, those that are over
        self._names: dict[AsyncOperation, Step] = {}
        self._in_a_row: tuple[Warp | None, int] = None, 0
        self.queues.issued = []

    def run_warp(self, warp: Warp) -> None:
        """Runs one step."""
        step = self._next(warp)
        warp.queued = False
        words = self.turns.words
        words[TICKS] += 1
        if words[TICKS] > self.count_at:
            self.count()
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        self._begin(step, warp)
        runnable = self.served(warp, lambda: warp.run(1))
        self._steps[step.agent] = step.number + 1
        last, steps = self._in_a_row
        steps = steps + 1 if last is warp else 1
        self._in_a_row = warp, steps
        if runnable:
            self.enqueue(warp)
            if steps % IN_A_ROW and isinstance(self.ready, deque):
                self.ready.rotate(1)
        self._name()

    def run_first(self, grid: Grid | None = None) -> bool:
        """Runs the first asynchronous operation that is not held, in the order of the schedule "late". Returns whether
        there is one. grid: it must be of this one.
        """
        self._name()
        for queue, index in self.queues.heads():
            if (grid is None or queue[index].grid is grid) and not self._is_held(self._names[queue[index]]):
                self.queues.run_at(queue, index)
                return True
        return False

    def drop_operation(self) -> bool:
        """Drops the first hold of an asynchronous operation. Returns whether there is one."""
        return self._drop([self._names[queue[index]] for queue, index in self.queues.heads()])

    def execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        self._name()
        step, outer = self._names[async_op], self._current
        self._begin(step, None)
        super().execute(async_op, action)
        if async_op.done:
            self._steps[step.agent] = 1
        self._current = outer
        if outer is not None:
            self._tell(outer)

    def spins_for_ever(self) -> bool:
        held = [self._next(warp) for warp in self.ready if self._is_held(self._next(warp))]
        if held:
            self._drop(held)
            return False
        return super().spins_for_ever()

    _current: Step | None = None

    def _begin(self, step: Step, warp: Warp | None) -> None:
        self._current = step
        self._tell(step)

    def _tell(self, step: Step) -> None:
        follower = self.resident[0].grid.sanitizer if self.resident else None
        if follower is not None:
            follower.begins(step)

    def _next(self, warp: Warp) -> Step:
        name = _name_of(warp)
        return Step(name, self._steps.get(name, 0))

    def _name(self) -> None:
        """Names the operations that have been issued since the last time."""
        issued = self.queues.issued
        assert issued is not None  # as __init__ has set it
        for async_op in issued:
            warp = _name_of(async_op.warp)
            number = self._steps.get(warp + "j", 0)
            self._steps[warp + "j"] = number + 1
            self._names[async_op] = Step(f"{warp}j{number}")
        issued.clear()

    def _is_held(self, step: Step) -> bool:
        return any(self._steps.get(behind.agent, 0) <= behind.number for behind in self._holds.get(step, ()))

    def _drop(self, steps: list[Step]) -> bool:
        """The first of these holds cannot be kept. Returns whether there is one."""
        return any(self._holds.pop(step, None) is not None for step in steps)


class ReplayMachine(Holds, GridMachine):
    """Runs clusters of one grid under "replay"."""

    def turn(self) -> None:
        """Runs a step of the first warp that can run and is not held, or an asynchronous operation."""
        ready = self.ready
        assert isinstance(ready, deque)  # as in every run in which Python gives the turns
        for _ in range(len(ready)):
            warp = ready[0]
            if not self._is_held(self._next(warp)):
                ready.popleft()
                self.run_warp(warp)
                return
            ready.rotate(-1)
        if self.outstanding:
            self.run_one()
        else:
            self._drop([self._next(warp) for warp in ready])

    def run_one(self) -> None:
        """Runs an asynchronous operation that is not held."""
        if not self.run_first():
            self.drop_operation()


class OverlappingReplay(Holds, OverlappingMachine):
    """Runs launches that overlap under "replay": as under "late", the newest first."""

    def run_warp(self, warp: Warp) -> None:
        super().run_warp(warp)
        self.wake_paused()

    def act(self, idle: int) -> None:
        """As of `OverlappingMachine`. Where nothing else can happen, a hold is dropped."""
        in_order = self.gives_turns(idle)
        for grid in self.order:
            if not in_order and self._run_of(grid):
                return
            if grid.outstanding and self.run_first(grid):
                return
        if self._run_of(None) or self.run_first():
            return
        if not (self._drop([self._next(warp) for warp in self.ready]) or self.drop_operation()):
            raise self.hang(WAITING)

    def _run_of(self, grid: Grid | None) -> bool:
        """Runs a step of the first warp of a grid, or (None) of any, that can run and is not held, if there is one."""
        assert isinstance(self.ready, deque)  # as in every run of several grids
        for warp in self.ready:
            if (grid is None or warp.cta.grid is grid) and not self._is_held(self._next(warp)):
                self.ready.remove(warp)
                self.run_warp(warp)
                return True
        return False


def _name_of(warp: Warp) -> str:
    cta = warp.cta
    launch = f"g{cta.grid.number}" if cta.grid.number else ""
    return f"{launch}c{cta.cluster.number * cta.cluster.size + cta.rank}w{warp.index}"
