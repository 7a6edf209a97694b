"""Spins: warps that run without an effect. One is a hang if it repeats, and legal otherwise.

An effect is whatever could change what a lane reads: a write that changes bytes, an arrival, a copy that lands, an
exit. The time between two effects is an epoch. Within it a lane's future depends on its own state alone, whatever the
order of the turns, so that a warp goes round for ever if all of its lanes have run and it is back in a state in which
it has been in the same epoch. If all warps that can run do so, and no asynchronous operation is outstanding, no effect
will come: the kernel hangs. Any other spin goes on.

A state is whatever a warp's next instructions depend on: the places of its active groups, registers, local memory,
and the asynchronous work that the warp alone can see. It is looked at between turns, so an engine that runs many
instructions in a turn need only have put it back into the warp by then. States are kept at looks 1, 2, 4, 8, ... of an
epoch and compared at every look (Brent's cycle detection), so that a spin of any period is found and a look costs the
same however long a spin lasts.

A warp that reads the clock does not repeat, since time goes on: it may wait for a deadline. If no warp would do
anything else, the clock goes forward faster, by an eighth of the time that the epoch has lasted at each look. Deadlines
end soon, and one that is less than eight ninths of another is over before it. nanosleep has no effect: a spin that
sleeps repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup, Warp

LOOK_TURNS = 16  # turns of every warp that can run, between two looks


class Outlook(Enum):
    """What the warps that can run will do, as far as is known."""

    OPEN = "some may have an effect"
    CLOCK = "all repeat, but some of them read the clock"
    HANG = "all repeat"


class State:
    """The state of a warp at a look."""

    __slots__ = ("_groups", "_local", "_registers", "_work", "clock_reads")

    def __init__(self, warp: Warp) -> None:
        self._groups = _places(warp)
        self._registers = list(warp.registers)  # rows are never changed in place
        self._local = warp.local.data.copy()
        self._work = _own_work(warp)
        self.clock_reads = warp.clock_reads

    def holds(self, warp: Warp) -> bool:
        """Whether the warp is in this state, whatever the clock says."""
        return (
            self._groups == _places(warp)
            and all(map(_equal, self._registers, warp.registers))
            and np.array_equal(self._local, warp.local.data)
            and self._work == _own_work(warp)
        )


def _places(warp: Warp) -> list[tuple]:
    """Where the warp's groups are and where they will reconverge; their lanes differ, so that the order is one."""
    return sorted(_place(group) for group in warp.groups)


def _place(group: ActiveGroup) -> tuple:
    points, point = [], group.reconvergence
    while point is not None:
        points.append((point.pc, point.expected, point.arrived))
        point = point.parent
    return group.bits, group.pc, group.blocked, group.waiting is not None, points


def _own_work(warp: Warp) -> tuple[list, ...]:
    """Asynchronous work by identity: loads and stores of tensor memory, whose rows are filled in when they complete,
    and the groups of copies.
    """
    return (
        list(warp.tensor.queue),
        list(warp.bulk_open),
        list(warp.bulk_groups),
        list(warp.lane_copies_open),
        list(warp.lane_copy_groups),
        list(warp.map_reads),
    )


def _equal(a: Any, b: Any) -> bool:
    """Whether two registers, integers or rows, hold the same."""
    return a is b or (np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b)


@dataclass(slots=True)
class _Watch:
    """A warp in an epoch."""

    state: State
    looks: int = 1
    due: int = 2
    """The look at which the next state is kept."""
    repeats: bool = False
    reads_clock: bool = False
    """It repeats but for its reads of the clock."""

    def look(self, warp: Warp) -> None:
        self.looks += 1
        if self.state.holds(warp):
            starved = next((group for group in warp.groups if not group.blocked and group.bits & ~warp.ran), None)
            if starved is not None:
                warp.prefer(starved)
            elif self.state.clock_reads != warp.clock_reads:
                self.reads_clock = True
            else:
                self.repeats = True
        if self.looks == self.due:
            self.due *= 2
            self.keep(warp)

    def keep(self, warp: Warp) -> None:
        """Later looks compare with the warp's present state."""
        self.state, self.reads_clock, warp.ran = State(warp), False, 0


class Spins:
    """The warps that spin."""

    def __init__(self) -> None:
        self._epoch = -1
        self._began = 0
        self._watches: dict[Warp, _Watch] = {}

    def forget(self) -> None:
        """Drops what has been seen so far."""
        self._watches.clear()

    def look(self, ready: Iterable[Warp], epoch: int, clock: int) -> Outlook:
        """Looks at the warps that can run, between two turns, while no asynchronous operation is outstanding.

        epoch: the number of effects so far. clock: cycles.
        """
        if epoch != self._epoch:
            self._epoch, self._began = epoch, clock
            self._watches.clear()
        outlook = Outlook.HANG
        for warp in ready:
            watch = self._watches.get(warp)
            if watch is None:
                self._watches[warp] = watch = _Watch(State(warp))
                warp.ran = 0
            elif not watch.repeats:
                watch.look(warp)
            if watch.repeats:
                continue
            if not watch.reads_clock:
                outlook = Outlook.OPEN
            elif outlook is Outlook.HANG:
                outlook = Outlook.CLOCK
        return outlook

    def skip(self, clock: int) -> int:
        """Cycles by which the clock may go forward, since nothing else happens. clock: cycles."""
        for warp, watch in self._watches.items():
            if watch.reads_clock:
                watch.keep(warp)
        return 1 + (clock - self._began) // 8
