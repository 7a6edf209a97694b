"""Spins: warps that run without an effect. A spin is a hang if it repeats, and legal otherwise.

An effect is any event that could change the bytes that a lane reads: a store, an atomic that changes a word, an
arrival, a copy that lands, an exit. The time between two effects is an epoch. Within it a lane's future depends on its
own state alone, whatever the order of the turns, so that a warp repeats for ever if all of its groups have run and it
is back in a state in which it has been in the same epoch. If every warp that can run repeats, and no asynchronous
operation is outstanding, no effect will come: the kernel hangs. Any other spin goes on.

A state is all that a warp's next instructions depend on: the places of its active groups, registers, local memory, and
the asynchronous work that the warp alone can see. It is looked at between turns, when nothing else is live in the
register file: no nested branch lasts longer than a turn. Each look compares the state with a few earlier ones, which
are farther and farther apart as in Brent's cycle detection: a spin of any period is found, and a look costs the same
however long a spin lasts.

A warp that reads the clock does not repeat, since time goes on: it may wait for a deadline. If every warp would repeat
but for the clock, each look puts the clock forward by an eighth of the time that the epoch has lasted. So deadlines
pass soon. Of two deadlines, counted from the epoch's start, the earlier passes first if it is less than eight ninths of
the later. nanosleep has no effect: a spin that sleeps repeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Warp

LOOK_TURNS = {"late": 8, "eager": 8, "random": 64, "last": 64, "replay": 256}
"""Turns of every warp that can run between two looks, by the kind of the schedule: random turns are shorter."""

LONGEST_SKIP = 10**9  # cycles

KEPT_STATES = 16  # number of states of a warp; one would do, but under a random schedule more are met again sooner


class Outlook(Enum):
    """Expected future of the warps that can run."""

    OPEN = "some may have an effect"
    CLOCK = "all repeat, but some of them read the clock"
    HANG = "all repeat"


class State:
    """State of a warp at a look."""

    __slots__ = ("_issued", "_local", "_places", "_registers", "_work", "clock_reads")

    def __init__(self, warp: Warp) -> None:
        self._places = _places(warp)
        self._registers = _live_registers(warp)
        self._local = warp.local.data
        self._work = _own_work(warp)
        self._issued = {group: group.issued for group in warp.groups if not group.blocked}
        self.clock_reads = warp.clock_reads

    def keep(self) -> None:
        """Keeps the state beyond the look."""
        self._local = self._local.copy()

    def repeats(self, earlier: State) -> bool:
        """True if the warp is back in an earlier state, whatever the clock says."""
        return (
            self._registers == earlier._registers
            and self._places == earlier._places
            and np.array_equal(self._local, earlier._local)
            and self._work == earlier._work
            and all(earlier._issued.get(group) != issued for group, issued in self._issued.items())
        )


def _places(warp: Warp) -> list[tuple]:
    """Places of the warp's groups and of their reconvergence points, sorted by the groups' lanes, which differ."""
    return sorted(_place(group) for group in warp.groups)


def _place(group: ActiveGroup) -> tuple:
    points, point = [], group.reconvergence
    while point is not None:
        points.append((point.pc, point.expected, point.arrived))
        point = point.parent
    return group.bits, group.pc, group.blocked, group.waiting is not None, points


def _live_registers(warp: Warp) -> bytes:
    """Registers that the warp's groups may read, and those that are read where they reconverge."""
    starts = set()
    for group in warp.groups:
        starts.add(group.pc)
        point = group.reconvergence
        while point is not None:
            starts.add(point.pc)
            point = point.parent
    words = warp.registers.data.view(np.uint64)
    live_words = warp.cta.grid.program.live_words
    return b"".join(words[live_words(start)].tobytes() for start in sorted(starts))


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


class _Watch:
    """States of a warp that the looks of an epoch have kept."""

    __slots__ = ("_kept", "_looks", "_stride", "reads_clock", "repeats")

    def __init__(self) -> None:
        self._looks, self._stride = 0, 1
        self._kept: list[State] = []
        self.repeats = False
        self.reads_clock = False  # True if the warp repeats except for its reads of the clock

    def look(self, warp: Warp) -> None:
        state = State(warp)
        for earlier in self._kept:
            if state.repeats(earlier):
                self.repeats |= state.clock_reads == earlier.clock_reads
                self.reads_clock = True
        self._looks += 1
        if self._looks % self._stride == 0:
            state.keep()
            self._kept.append(state)
        if len(self._kept) == KEPT_STATES:
            del self._kept[::2]
            self._stride *= 2


class Spins:
    """Looks for spins among a machine's warps."""

    def __init__(self) -> None:
        self._epoch = -1
        self._began = 0
        self._watches: dict[Warp, _Watch] = {}

    def forget(self) -> None:
        """Forgets all states seen so far."""
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
                watch = self._watches[warp] = _Watch()
            if not watch.repeats:
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
        self._watches = {warp: watch for warp, watch in self._watches.items() if watch.repeats}
        return min(1 + (clock - self._began) // 8, LONGEST_SKIP)
