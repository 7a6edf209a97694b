"""Named barriers of a CTA, and the barrier of a cluster.

An active group that has to wait is put on the barrier's list and woken when the barrier is complete. At a named barrier
the lanes of a warp that has parted wait for each other, and go on together: the thread that executes a barrier waits
for all threads of its warp that have not exited (PTX ISA, "barrier{.cta}"); ptxas puts a WARPSYNC before each BAR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nogpu import headers
from nogpu.errors import Fault
from nogpu.hardware.native import WaitingWarps
from nogpu.hardware.properties import WARP_THREADS

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation, Queues
    from nogpu.hardware.warp import ActiveGroup, Issuer, ReconvergencePoint, Warp

(UNCOUNTED,) = headers.constants("native/engine.h", "UNCOUNTED")
KEPT_RESULTS = 16  # uses of a named barrier for which a warp may still ask for the result of bar.red


class Timed(Protocol):
    """Part of a machine that barriers use."""

    queues: Queues
    progress: int  # time, which grows with every event that another warp may see


def label(issuer: Issuer) -> str:
    """Text of an issuer in a message: its warp, CTA and line of PTX."""
    group, index = issuer
    return f"warp {group.warp.index} of {group.cta.label} at PTX line {group.grid.entry.instructions[index].line}"


def wake(waiters: list[ActiveGroup]) -> None:
    """Lets the groups in `waiters` run again and empties the list."""
    for group in waiters:
        group.wake()
    waiters.clear()


class PartedArrival:
    """Lanes of a warp that have arrived on a named barrier before the warp's others."""

    __slots__ = ("count", "lanes", "waiters")

    def __init__(self, count: int | None):
        self.count = count  # count of the barrier
        self.lanes = 0
        self.waiters: list[ActiveGroup] = []  # groups that wait for the barrier

    def unite(self, warp: Warp, last: ActiveGroup | None = None, pc: int = -1) -> bool:
        """Merges the warp's groups into the first that has waited, if all live lanes wait at one instruction.

        last: a group that has just arrived at `pc`. Returns True if `last` has been merged into the first.
        """
        groups = [*self.waiters, *([last] if last else [])]
        places = {group.pc for group in self.waiters} | ({pc} if last else set())
        present = {group for group in warp.groups if group.bits & warp.live}
        if len(places) > 1 or len(groups) < 2 or set(groups) != present:
            return False
        kept = groups[0]
        kept.reconvergence = _common(groups)
        for group in groups[1:]:
            kept.bits |= group.bits
            group.bits = 0
            warp.groups.remove(group)
            warp.issued += group.issued
        return last is not None


def _common(groups: list[ActiveGroup]) -> ReconvergencePoint | None:
    """Innermost reconvergence point that lies ahead of all groups. No lane waits at points inside it."""
    chains = [_chain(group.reconvergence) for group in groups]
    return next((point for point in chains[0] if all(point in chain for chain in chains)), None)


def _chain(point: ReconvergencePoint | None) -> list[ReconvergencePoint]:
    chain = []
    while point is not None:
        chain.append(point)
        point = point.parent
    return chain


class NamedBarrier:
    """Named barrier of a CTA (bar, barrier.cta), or the barrier of a mask of lanes (bar.warp.sync)."""

    def __init__(self, number: int, machine: Timed | None = None, compiled: WaitingWarps | None = None):
        """compiled: the warps that compiled code lets wait; None if it does not."""
        self.number, self.machine, self._compiled = number, machine, compiled
        self.generation = 0  # number of completed uses
        self.ended = 0  # time of its last completion
        self.count: int | None = None  # threads that the instructions of this use name; None: all that have not exited
        self.needed = 0  # threads that this use waits for
        self.completed = 0  # threads of the last completed use
        self.arrived: list[tuple[str, int]] = []  # (warp, threads)
        self.present = 0  # number of threads that have arrived
        self.parted: dict[Warp, PartedArrival] = {}  # warps of which only a part has arrived
        self.heard = 0  # join of `Warp.known` of the warps that have arrived
        self.news = 0  # value of `heard` at the last completed use
        self.votes = 0, 0  # bar.red: (threads whose predicate holds, threads that execute it)
        self.results: dict[int, tuple[int, int]] = {}  # generation -> its votes, for the last uses
        self.waiters: list[ActiveGroup] = []

    def take_over(self, groups: list[ActiveGroup], needed: int) -> None:
        """Makes groups wait that compiled code lets wait. needed: as for `arrive`, for a barrier without a count."""
        assert self._compiled is not None
        threads = self._compiled.threads
        self.count = None if threads == UNCOUNTED else threads
        self.needed, self.heard = self.count or needed, self._compiled.heard
        for group in groups:
            self.arrived.append((f"warp {group.warp.index}", WARP_THREADS))
            self.present += WARP_THREADS
            group.waiting = ("", self, self.generation)
            self.waiters.append(group)
        self._compiled.arrived = self._compiled.heard = 0

    def arrive(self, warp: str, threads: int, count: int | None, needed: int, known: int = 0) -> None:
        """Counts an arrival of `threads` threads of one warp. Raises Fault if the threads do not fit this use.

        warp: name of the warp in messages. count, needed: values for these attributes. known: the warp's `Warp.known`.
        """
        if self.arrived and self.count != count:
            raise Fault(
                f"barrier {self.number} is used with {count or 'all'} threads while {self._names()} wait(s) for "
                f"{self.count or 'all'} (PTX ISA, bar)"
            )
        self.count = count
        self.heard |= known
        self.arrived.append((warp, threads))
        self.present += threads
        if self.present > needed:
            raise Fault(
                f"{self.present} threads have arrived on barrier {self.number}, which waits for {needed}: "
                f"{self._names()} (PTX ISA, bar)"
            )
        self.settle(needed)

    def arrive_in_part(self, group: ActiveGroup, lanes: int, count: int | None, waits: bool) -> PartedArrival | None:
        """Counts an arrival of lanes of a warp that has parted. Returns the warp's `PartedArrival` if they are its last
        lanes, else None: they wait for the others.

        count: value for `self.count`. waits: True if the group also waits until the barrier is complete. Raises Fault
        if lanes have arrived already, or with another count.
        """
        warp = group.warp
        parted = self.parted.setdefault(warp, PartedArrival(count))
        if parted.count != count or parted.lanes & lanes:
            raise Fault(
                f"lanes {lanes:#010x} arrive on barrier {self.number} with {count or 'all'} threads while lanes "
                f"{parted.lanes:#010x} of their warp wait there with {parted.count or 'all'} for the others "
                "(PTX ISA, bar)"
            )
        parted.lanes |= lanes
        if parted.lanes & warp.live == warp.live:
            self._gather(warp)
            return parted
        if waits:
            group.waiting = ("", self, self.generation)
            parted.waiters.append(group)
        return None

    def _gather(self, warp: Warp) -> None:
        """Lets a warp's waiting groups wait for the whole barrier, since all lanes of the warp have arrived."""
        for group in self.parted.pop(warp).waiters:
            group.waiting = ("", self, self.generation)
            self.waiters.append(group)

    def leave(self, warp: Warp, threads: int) -> None:
        """Handles the exit of lanes of the warp, after which all lanes that are left may have arrived.

        threads: number that a barrier without a count waits for.
        """
        parted = self.parted.get(warp)
        if parted is not None and parted.lanes & warp.live == warp.live:
            self._gather(warp)
            parted.unite(warp)
            self.arrive(f"warp {warp.index}", WARP_THREADS, parted.count, parted.count or threads, warp.known)

    def settle(self, needed: int) -> None:
        """Completes the barrier if the threads that it waits for have arrived."""
        self.needed = needed
        if self.arrived and self.present >= needed:
            self.arrived, self.present, self.completed = [], 0, needed
            if self.votes[1]:
                self.results[self.generation] = self.votes
                self.results.pop(self.generation - KEPT_RESULTS, None)
                self.votes = 0, 0
            if self.machine is not None:
                self.ended = self.machine.progress
            self.generation += 1
            self.news, self.heard = self.heard, 0
            for group in self.waiters:
                group.warp.known |= self.news
            wake(self.waiters)
            if self._compiled is not None and not self.parted:
                self._compiled.in_python = 0

    def _names(self) -> str:
        return ", ".join(name for name, _ in self.arrived) or "nobody"

    def __str__(self) -> str:
        parted = "".join(
            f"; lanes {part.lanes:#010x} of warp {warp.index} wait for its others" for warp, part in self.parted.items()
        )
        return f"named barrier {self.number}: {self.present} of {self.needed} threads, arrived: {self._names()}{parted}"


class ClusterBarrier:
    """Barrier of a cluster (barrier.cluster), which waits for all threads that have not exited."""

    def __init__(self, threads: int, machine: Timed | None = None):
        self.threads, self.machine = threads, machine
        self.generation = 0  # number of completed phases
        self.ended = 0  # time of its last completion
        self.arrived = 0  # threads that have arrived in this phase
        self.departed = 0  # threads that have arrived and then exited
        self.before: list[AsyncOperation] = []  # arrivals on mbarriers that are ordered before the end of this phase
        self.waiters: list[ActiveGroup] = []
        self.last: Issuer | None = None  # issuer of the last arrival

    def arrive(self, lanes: int, issuer: Issuer) -> None:
        """Counts an arrival of `lanes` lanes."""
        self.arrived += lanes
        self.last = issuer
        self._settle()

    def leave(self, waiting: int, arrived: int) -> None:
        """Handles the exit of threads: `waiting` that had not arrived in this phase, and `arrived` that had."""
        self.threads -= waiting
        self.departed += arrived
        self._settle()

    def _settle(self) -> None:
        if self.arrived and self.arrived >= self.threads:
            self.threads -= self.departed
            self.arrived = self.departed = 0
            if self.machine is not None:
                self.machine.queues.force(self.before)
                self.ended = self.machine.progress
            self.before = []
            self.generation += 1
            wake(self.waiters)

    def __str__(self) -> str:
        last = "" if self.last is None else f", the last: {label(self.last)}"
        return f"cluster barrier: {self.arrived} of {self.threads} threads arrived{last}"
