"""The schedule "replay": warps run one after the other, each as far as it can, except where a hold keeps it back.

A step is the part of a warp's run up to the next place where it could be interrupted (a segment, internals.md,
"Turns"), or an asynchronous operation. An instruction by which threads communicate is a step of its own. A hold keeps a
step back until another one is over. Where nothing else can happen, the hold that stands in the way is dropped: its
order is impossible.

Steps have the same numbers in all orders that differ only by how long warps wait: a wait is one step, however often it
is executed, and so is a loop that polls. What a warp does from a poll on has not happened if it had no effect and has
brought the warp back to the poll in the same state.

| name | step |
|---|---|
| c3w1.14 | the fifteenth of warp 1 of CTA 3, CTAs counted by clusters |
| c3w1j2 | the third asynchronous operation that this warp has issued |
| c3w1j2j0 | the first operation that this one has issued: the arrival of a commit in another CTA |
| g1c3w1.14 | the fifteenth of this warp in the second of several launches that overlap |
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from nogpu.execution.machine import Machine
from nogpu.execution.spins import State
from nogpu.hardware.async_operations import AsyncOperation, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nogpu.execution.meter import Meter
    from nogpu.hardware.events import GridObserver
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup, Warp

UNHELD = "replay:-"
"""The schedule without holds."""
IN_A_ROW = 64  # steps of a warp, after which others take turns: it may poll
_POLLS = re.compile(r"(?:atom|mbarrier\.t(?:est|ry)_wait|ld\.(?:\S*\.)?(?:volatile|relaxed|acquire|mmio))\.")
_STEP = re.compile(r"((?:g\d+)?c\d+w\d+)(?:\.(\d+)|((?:j\d+)+))")


class Step(NamedTuple):
    """Part of a run that nothing interrupts."""

    agent: str  # name of a warp or of an operation
    number: int = 0  # index among the warp's steps

    def __str__(self) -> str:
        return self.agent if "j" in self.agent else f"{self.agent}.{self.number}"


class Hold(NamedTuple):
    """Order that keeps a step back until another one is over."""

    step: Step
    behind: Step

    def __str__(self) -> str:
        return f"{self.step}@{self.behind}"


def parse(text: str) -> list[Hold]:
    """Holds in a schedule's text behind "replay:", "-" for none. Raises ValueError if one does not name two steps."""
    return [] if text == "-" else [_hold(each) for each in text.split("+")]


def schedule_of(holds: list[Hold]) -> str:
    """Text of the schedule with these holds."""
    return "replay:" + ("+".join(map(str, holds)) or "-")


def _hold(text: str) -> Hold:
    step, at, behind = text.partition("@")
    if not at:
        raise ValueError(f"{text!r} is no hold of a replay: it lacks @ and the step that comes first, c0w1.4@c0w0.2")
    return Hold(_step(step), _step(behind))


def _step(text: str) -> Step:
    found = _STEP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no step of a replay: c3w1.14, or c3w1j2 for an asynchronous operation, expected")
    return Step(found[1] + found[3]) if found[3] else Step(found[1], int(found[2]))


class _Poll(NamedTuple):
    """Warp that is about to poll."""

    state: State
    number: int  # number of the step
    effects: int  # number of effects that the warp has had


class ReplayMachine(Machine):
    """Machine in which steps are held."""

    def __init__(self, schedule: Schedule, grids: Sequence[Grid], meter: Meter | None = None) -> None:
        super().__init__(schedule, grids, meter)
        self._holds: dict[Step, list[Step]] = {}
        for hold in parse(schedule.holds):
            self._holds.setdefault(hold.step, []).append(hold.behind)
        self._steps: dict[str, int] = {}  # number of each agent's steps that are over
        self._names: dict[AsyncOperation, Step] = {}
        self._of_warps: dict[Warp, str] = {}  # names
        self._polls: dict[tuple[Warp, int], _Poll] = {}  # by warp, and index of the instruction
        self._effects: dict[Warp, int] = {}
        self._arrived: set[ActiveGroup] = set()  # groups that wait at a barrier, and whose step is over
        self._in_a_row: tuple[Warp | None, int] = None, 0
        self._current: tuple[Step, Warp | AsyncOperation] | None = None
        self.queues.issued = []
        self.idle_turns = IN_A_ROW  # turns are short

    def next_warp(self, grid: Grid | None) -> int | None:
        """Index of the first warp that is not held (`Machine.next_warp`)."""
        if not self._holds:
            return super().next_warp(grid)
        for index, warp in enumerate(self.ready):
            if (grid is None or warp.cta.grid is grid) and not self._is_held(self._next(warp)):
                return index
        return None

    def run_warp(self, warp: Warp) -> None:
        """Runs one step of a warp."""
        group = warp.next_group()
        if group is None:  # woken in a turn in which the warp has waited again, or exited
            warp.queued = False
            return
        self._look_back(warp, group)
        step, pc, progress, quiet = self._next(warp), group.pc, self.progress, self.quiet
        resumes = group in self._arrived
        self._arrived.discard(group)
        self._begin(Step(step.agent, step.number - 1) if resumes else step, warp)
        runnable = self.run_segments(warp, 1)
        changed = self.progress - progress
        self._effects[warp] = self._effects.get(warp, 0) + changed - (self.quiet - quiet)
        waits = group.blocked and group.pc == pc
        if waits and changed:
            self._arrived.add(group)
        if not resumes and (changed or not waits):
            self._steps[step.agent] = step.number + 1
        last, steps = self._in_a_row
        steps = steps + 1 if last is warp else 1
        self._in_a_row = warp, steps
        if runnable:
            self.enqueue(warp)
            if steps % IN_A_ROW and isinstance(self.ready, deque):
                self.ready.rotate(1)
        self._name()
        self.wake_paused()

    def run_one(self, grid: Grid | None = None) -> bool:
        """Runs the first asynchronous operation that is not held, in the order of the schedule "late". Where all are
        held, and only one launch runs, a hold is dropped.
        """
        self._name()
        for queue, index in self.queues.heads():
            if (grid is None or queue[index].grid is grid) and not self._is_held(self._names[queue[index]]):
                self.queues.run_at(queue, index)
                return True
        return len(self.grids) == 1 and self._drop_operation()

    def stuck(self) -> None:
        """Drops a hold. If there is none, acts as `Machine.stuck`."""
        if not (self._drop([self._next(warp) for warp in self.ready]) or self._drop_operation()):
            super().stuck()

    def execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        self._name()
        step, outer = self._names[async_op], self._current
        self._begin(step, async_op)
        super().execute(async_op, action)
        self._name(step)
        if async_op.done:
            self._steps[step.agent] = 1
        self._current = outer
        if outer is not None:
            self._begin(*outer)

    def spins_for_ever(self) -> bool:
        held = [self._next(warp) for warp in self.ready if self._is_held(self._next(warp))]
        if held:
            self._drop(held)
            return False
        return super().spins_for_ever()

    def _begin(self, step: Step, actor: Warp | AsyncOperation) -> None:
        self._current = step, actor
        for observer in self._observers():
            observer.begins(step, actor)

    def _observers(self) -> list[GridObserver]:
        return self.resident[0].grid.observers if self.resident else []

    def _look_back(self, warp: Warp, group: ActiveGroup) -> None:
        """Gives a warp that polls again, unchanged since its last poll, the number of that poll's step."""
        if group.waiting is not None or not _POLLS.match(group.grid.entry.instructions[group.pc].opcode):
            return
        step, state, effects = self._next(warp), State(warp), self._effects.get(warp, 0)
        last = self._polls.get((warp, group.pc))
        if last is not None and last.effects == effects and state.repeats(last.state):
            self._steps[step.agent] = last.number
            for observer in self._observers():
                observer.repeats(Step(step.agent, last.number))
        else:
            state.keep()
            self._polls[warp, group.pc] = _Poll(state, step.number, effects)

    def _next(self, warp: Warp) -> Step:
        name = self._name_of(warp)
        return Step(name, self._steps.get(name, 0))

    def _name_of(self, warp: Warp) -> str:
        name = self._of_warps.get(warp)
        if name is None:
            name = self._of_warps[warp] = _name_of(warp)
        return name

    def _name(self, issuer: Step | None = None) -> None:
        """Names the operations that have been issued since the last time, by an operation or (None) by warps."""
        issued = self.queues.issued
        assert issued is not None  # set by __init__
        for async_op in issued:
            prefix = f"{self._name_of(async_op.warp) if issuer is None else issuer.agent}j"
            number = self._steps.get(prefix, 0)
            self._steps[prefix] = number + 1
            self._names[async_op] = Step(f"{prefix}{number}")
        issued.clear()

    def _is_held(self, step: Step) -> bool:
        holds = self._holds.get(step)
        return holds is not None and any(self._steps.get(each.agent, 0) <= each.number for each in holds)

    def _drop_operation(self) -> bool:
        """Drops the first hold of an asynchronous operation. Returns False if there is none."""
        return self._drop([self._names[queue[index]] for queue, index in self.queues.heads()])

    def _drop(self, steps: list[Step]) -> bool:
        """Drops the first hold of these steps, which cannot be kept. Returns False if there is none."""
        dropped = any(self._holds.pop(step, None) is not None for step in steps)
        if dropped:
            for observer in self._observers():
                observer.dropped()
        return dropped


def _name_of(warp: Warp) -> str:
    cta = warp.cta
    launch = f"g{cta.grid.number}" if cta.grid.number else ""
    return f"{launch}c{cta.cluster.number * cta.cluster.size + cta.rank}w{warp.index}"
