"""Follows the events of a cluster, and checks each access to its shared memory."""

from __future__ import annotations

import os
import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from emulator.execution import device
from emulator.hardware.mbarriers import MBarrier
from emulator.sanitizer.clocks import FULL, KNOWN, LANES, UNSCOPED, Agents, Cause, Channel, Clock, WarpClock, lanes_of
from emulator.sanitizer.columns import Columns
from emulator.sanitizer.orders import is_wide, learns, releases
from emulator.sanitizer.report import Reporter
from emulator.sanitizer.shadow import Access, Shadow, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emulator.hardware.async_operations import AsyncOperation
    from emulator.hardware.cluster import Cluster, Cta
    from emulator.hardware.warp import ActiveGroup, Issuer, Warp

KEPT = 32  # uses of a barrier for which a warp may still wait
_STRONG = re.compile(
    r"(?:atom|red)\.|(?:ld|st)\.(?:\S*\.)?(?:volatile|relaxed|acquire|release|mmio)(?:\.|$)|cp\.reduce\."
)
_BULK_STORE = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.\S*global\.shared::cta")


@lru_cache(maxsize=4096)
def _is_bulk_store(opcode: str) -> bool:
    return _BULK_STORE.match(opcode) is not None


@lru_cache(maxsize=4096)
def _is_strong(opcode: str) -> bool:
    return _STRONG.match(opcode) is not None


_Source = tuple[int | None, bool]
"""Who has arrived: threads of a CTA of this rank, with a scope that is wider than the CTA; None: an operation."""
_OPERATION: _Source = None, True


class _MbarrierState:
    """What those knew who have arrived on an mbarrier."""

    def __init__(self, phase: int) -> None:
        self.clocks: dict[_Source, Clock] = {}  # in this phase
        self.over: dict[_Source, Clock] = {}  # in those that are over
        self.phase = phase


def _add(clocks: dict[_Source, Clock], source: _Source, clock: Clock) -> None:
    if source in clocks:
        clocks[source].join(clock)
    else:
        clocks[source] = clock.copy()


def _lanes(warp: Warp) -> int:
    """The mask of the lanes that run."""
    return warp.registers.context.mask & warp.live or 1


def _opcode(warp: Warp) -> str:
    """That of the instruction that the warp executes."""
    return warp.cta.grid.entry.instructions[warp.registers.context.pc].opcode


class ClusterCauses:
    """`hardware.causes.Causes` of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter) -> None:
        self._reporter, self._kernel = reporter, cluster.grid.entry.name
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self._agents = Agents(LANES * len(warps))
        self._warps = {warp: WarpClock(self._agents, LANES * i) for i, warp in enumerate(warps)}
        self._columns = Columns(self._agents, self._warps, reporter)
        self._mbarriers: dict[MBarrier, _MbarrierState] = {}
        self._uses: dict[object, dict[int, Clock]] = {}
        self._words: dict[int, dict[_Source, Clock]] = {}
        self._known: dict[tuple, Access] = {}
        self._in_a_row: dict[Warp, tuple[int, int, Clock]] = {}
        self._nothing: list[np.ndarray] = []
        for cta in cluster.ctas:
            cta.shared.marks = None  # its rule is one of these
            cta.shared.notes_only = True
            cta.shared.observer = partial(self._access, cta, Shadow(len(cta.shared.data)))
            nothing = np.zeros(len(cta.shared.live_barriers.addresses), np.uint64)
            cta.tmem.observer = partial(self.touched, cta)
            for warp in cta.warps:  # compiled code leaves all operations on mbarriers to Python
                warp.registers.context.barriers = nothing.ctypes.data
            self._nothing.append(nothing)

    # Asynchronous operations

    def issued(self, g: ActiveGroup, issuer: Issuer, cause: AsyncOperation | None) -> Cause:
        """As `Causes.issued`."""
        if cause is not None and cause.cause is not None:
            return cause.cause
        warp, clock = g.warp, self._warps[g.warp]
        mask, lane = _lanes(warp), _lanes(warp).bit_length() - 1
        opcode = g.grid.entry.instructions[issuer[1]].opcode
        relaxed = opcode.startswith("mbarrier.") and not releases(opcode)
        if relaxed:
            found = Cause(clock.release_relaxed(mask), issuer, mask)
        elif opcode.startswith(("tcgen05.mma", "tcgen05.cp")):
            found = Cause(self._of_thread(warp, mask), issuer, mask)
        else:
            found = Cause(clock.release(mask), issuer, mask)
        channel: Channel | None = None
        if opcode.startswith("tcgen05."):
            channel = self._agents.channel(("tensor core", warp, lane))
            found.count = channel.count
            if ".commit" in opcode:
                channel.count += 1
        elif _is_bulk_store(opcode):
            channel = self._agents.channel(("bulk stores", warp, lanes_of(mask)[0]))
            found.count = channel.count
        elif opcode.startswith("cp.async.c"):
            channel = self._agents.channel(("lane copies", warp), LANES)
            found.count, channel.count = channel.count, channel.count + 1
        elif opcode.startswith("cp.async.mbarrier"):
            copies = self._agents.known(("lane copies", warp))
            if copies is not None:
                self._agents.fit(found.clock)
                found.clock.set([copies.agent + lane for lane in lanes_of(mask)], copies.count - 1)
        if channel is not None:
            found.channel = channel
            self._agents.fit(found.clock)
            if opcode.startswith("tcgen05."):
                found.clock.set(channel.agent, found.count)
        return found

    def _of_thread(self, warp: Warp, mask: int) -> Clock:
        """What an operation of the tensor core knows: one clock for all that are issued in a row."""
        clock = self._warps[warp]
        last = self._in_a_row.get(warp)
        if last is not None and last[:2] == (mask, clock.changes):
            return last[2]
        released = clock.release(mask)
        self._in_a_row[warp] = mask, clock.changes, released
        return released

    def committed(self, warp: Warp, mask: int) -> None:
        """As `Causes.committed`."""
        for channel in self._bulk_stores(warp, mask):
            channel.count += 1

    def completed(self, warp: Warp, mask: int, newest: int, read_only: bool) -> None:
        """As `Causes.completed`."""
        clock = self._agents.clock()
        for channel in self._bulk_stores(warp, mask):
            clock.set(channel.agent, max(0, channel.count - 1 - newest))
        self._warps[warp].acquire(mask, clock)

    def _bulk_stores(self, warp: Warp, mask: int) -> list[Channel]:
        found = (self._agents.known(("bulk stores", warp, lane)) for lane in lanes_of(mask))
        return [channel for channel in found if channel is not None]

    def lane_copies_committed(self, warp: Warp, mask: int) -> None:
        """As `Causes.lane_copies_committed`."""
        copies = self._agents.channel(("lane copies", warp), LANES)
        self._warps[warp].commits.append((mask, copies.count - 1))

    def lane_copies_completed(self, warp: Warp, mask: int, newest: int | None) -> None:
        """As `Causes.lane_copies_completed`."""
        copies = self._agents.channel(("lane copies", warp), LANES)
        clock, of = self._agents.clock(), self._warps[warp]
        for lane in lanes_of(mask):
            groups = [copies.count - 1] if newest is None else [n for lanes, n in of.commits if lanes >> lane & 1]
            if len(groups) > (newest or 0):
                clock.set(copies.agent + lane, groups[-1 - (newest or 0)])
        of.acquire(mask, clock)

    # Barriers

    def heard(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """As `Causes.heard`."""
        opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
        source = (issuer[0].cta.rank, is_wide(opcode)) if opcode.startswith("mbarrier.arrive") else _OPERATION
        if running is not None and running.cause is not None:
            clock = running.cause.clock
        else:
            clock = self._released(issuer[0].warp, _lanes(issuer[0].warp), opcode)
        _add(self._state(barrier).clocks, source, clock)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """As `Causes.passed`."""
        opcode = _opcode(warp)
        for (rank, wide), clock in self._state(barrier).over.items():
            self._learn(warp, _lanes(warp), clock, opcode, self._first_row(warp, rank, wide and is_wide(opcode)))

    def _first_row(self, warp: Warp, rank: int | None, wide: bool) -> int:
        """Of a clock that a CTA's threads have released, the first row that another warp learns. wide: both scopes."""
        if rank is None or rank == warp.cta.rank or wide or not self._reporter.follows_scopes(self._kernel):
            return KNOWN
        return UNSCOPED

    def _state(self, barrier: MBarrier) -> _MbarrierState:
        state = self._mbarriers.get(barrier)
        if state is None:
            state = self._mbarriers[barrier] = _MbarrierState(barrier.phase)
        if barrier.phase > state.phase:
            for source, clock in state.clocks.items():
                _add(state.over, source, clock)
            state.clocks, state.phase = {}, barrier.phase
        return state

    def _released(self, warp: Warp, mask: int, opcode: str) -> Clock:
        """What lanes release by an instruction."""
        clock = self._warps[warp]
        return clock.release(mask) if releases(opcode) else clock.release_relaxed(mask)

    def _learn(self, warp: Warp, mask: int, clock: Clock, opcode: str, row: int = KNOWN) -> None:
        """Lanes acquire by an instruction."""
        if learns(opcode):
            self._warps[warp].acquire(mask, clock, row)
        else:
            self._warps[warp].hear(mask, clock, row)

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.arrived`."""
        uses = self._uses.setdefault(barrier, {})
        clock = self._released(warp, mask, _opcode(warp))
        if generation in uses:
            uses[generation].join(clock)
        else:
            uses[generation] = clock
            uses.pop(generation - KEPT, None)

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.met`."""
        clock = self._uses.get(barrier, {}).get(generation)
        if clock is not None:
            self._warps[warp].acquire(mask, clock)

    def joined(self, warp: Warp, mask: int) -> None:
        """As `Causes.joined`."""
        clock = self._warps[warp]
        clock.acquire(mask, clock.release(mask))

    def fenced(self, warp: Warp) -> None:
        """As `Causes.fenced`."""
        self._warps[warp].fence_proxy(_lanes(warp))

    def fenced_threads(self, warp: Warp) -> None:
        """As `Causes.fenced_threads`."""
        self._warps[warp].fence(_lanes(warp))

    def told(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.told`."""
        opcode = _opcode(warp)
        _add(self._words.setdefault(key, {}), (warp.cta.rank, is_wide(opcode)), self._released(warp, mask, opcode))

    def learned(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.learned`."""
        opcode = _opcode(warp)
        for (rank, wide), clock in self._words.get(key, {}).items():
            self._learn(warp, mask, clock, opcode, self._first_row(warp, rank, wide and is_wide(opcode)))

    # Tensor memory

    def touched(self, cta: Cta, issuer: Issuer, reads: int, writes: int) -> None:
        """As `Causes.touched`."""
        running = cta.machine.running
        self._columns.touched(cta, issuer, None if running is None else running.cause, reads, writes)

    def allocated(self, cta: Cta, columns: int) -> None:
        """As `Causes.allocated`."""
        self._columns.allocated(cta, columns)

    def freed(self, cta_group: int, issuer: Issuer, columns: int) -> None:
        """As `Causes.freed`."""
        self._columns.freed(cta_group, issuer, columns)

    def fragments_completed(self, warp: Warp, kind: str) -> None:
        """As `Causes.fragments_completed`."""
        self._columns.completed(warp, kind)

    def fragments_used(self, g: ActiveGroup, loads: Sequence[int]) -> None:
        """As `Causes.fragments_used`."""
        self._columns.used(g, loads)

    # Accesses

    def _access(
        self,
        cta: Cta,
        shadow: Shadow,
        kind: str,
        proxy: str,
        place: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        """The observer of a CTA's shared memory."""
        assert issuer is not None  # every access of a launch has one
        running = cta.machine.running
        width, lanes = shape[0], None
        if isinstance(place, np.ndarray) and proxy == "generic":
            place = (place & 0xFFFFFF).astype(np.int64)
        if running is not None and running.cause is not None:
            access, views = self._of_operation(running.cause, cta, kind, proxy, place)
            mask = running.cause.mask if access.lanes else 0
        else:
            warp = issuer[0].warp
            mask = _lanes(warp)
            if isinstance(place, np.ndarray) and mask == FULL and len(place) < LANES:
                mask = (1 << len(place)) - 1  # the rows of ldmatrix and stmatrix
            access = self._of_warp(warp, mask, kind, issuer)
            views = [View(None, part, clock) for part, clock in self._warps[warp].parts(mask)]
        if isinstance(place, np.ndarray) and mask and len(place) == mask.bit_count():
            lanes = np.array(lanes_of(mask), np.uint8)
            if len(views) > 1:
                views = [View((view.lanes >> lanes.astype(np.int64) & 1).astype(bool), *view[1:]) for view in views]
        for conflict in shadow.access(access, place, width, lanes, views):
            self._reporter.report(conflict, access, cta)

    def _of_warp(self, warp: Warp, mask: int, kind: str, issuer: Issuer) -> Access:
        clock = self._warps[warp]
        clock.changes += 1
        is_strong = _is_strong(issuer[0].grid.entry.instructions[issuer[1]].opcode)
        return Access(clock.base, clock.now, mask, kind == "store", False, is_strong, issuer)

    def _of_operation(
        self, cause: Cause, cta: Cta, kind: str, proxy: str, place: int | np.ndarray
    ) -> tuple[Access, list[View]]:
        issuer, channel, count, mask = cause.issuer, cause.channel, cause.count, 0
        opcode = issuer[0].grid.entry.instructions[issuer[1]].opcode
        if channel is None:
            first = int(place[0]) if isinstance(place, np.ndarray) else place
            channel = self._agents.channel(("place", cta.rank, first))
            channel.count += 1
            count = channel.count
            self._agents.fit(cause.clock).set(channel.agent, count)
        elif opcode.startswith("cp.async.c"):
            mask = cause.mask
        key = channel.agent, count, issuer[1], kind
        access = self._known.get(key)
        if access is None or access.issuer[0].warp is not issuer[0].warp:
            is_async = proxy == "async"
            access = Access(channel.agent, count, mask, kind == "store", is_async, _is_strong(opcode), issuer)
            access.cause = cause
            self._known[key] = access
        return access, [View(None, 0, self._agents.fit(cause.clock))]


class Sanitizer:
    """`hardware.causes.Sanitizer`."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """allowed: rules that are waived. Raises ValueError for a name that is none."""
        self._reporter = Reporter(allowed)

    def join(self, cluster: Cluster) -> None:
        """As `Sanitizer.join`."""
        cluster.causes = ClusterCauses(cluster, self._reporter)


def install() -> None:
    """Launches of this process are followed (EMULATOR_SANITIZE)."""
    device.sanitizer = Sanitizer(filter(None, os.environ.get("EMULATOR_SANITIZE_ALLOW", "").split(",")))
