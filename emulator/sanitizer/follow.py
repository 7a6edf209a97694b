"""Follows the events of a cluster, and checks each access to its shared memory."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from emulator.execution import device
from emulator.hardware.mbarriers import MBarrier
from emulator.sanitizer.clocks import FULL, LANES, Agents, Cause, Channel, Clock, WarpClock, lanes_of
from emulator.sanitizer.report import refuse
from emulator.sanitizer.shadow import Access, Shadow, View

if TYPE_CHECKING:
    from emulator.hardware.async_operations import AsyncOperation
    from emulator.hardware.cluster import Cluster, Cta
    from emulator.hardware.warp import ActiveGroup, Issuer, Warp

KEPT = 32  # uses of a barrier for which a warp may still wait
_STRONG = re.compile(
    r"(?:atom|red)\.|(?:ld|st)\.(?:\S*\.)?(?:volatile|relaxed|acquire|release|mmio)(?:\.|$)|cp\.reduce\."
)
_BULK_STORE = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.\S*global\.shared::cta")


@lru_cache(maxsize=4096)
def _is_strong(opcode: str) -> bool:
    return _STRONG.match(opcode) is not None


class _MbarrierState:
    """What those knew who have arrived on an mbarrier."""

    def __init__(self, clock: Clock, over: Clock, phase: int) -> None:
        self.clock = clock  # in this phase
        self.over = over  # in those that are over
        self.phase = phase


class ClusterCauses:
    """`hardware.causes.Causes` of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self._agents = Agents(LANES * len(warps))
        self._warps = {warp: WarpClock(self._agents, LANES * i) for i, warp in enumerate(warps)}
        self._mbarriers: dict[MBarrier, _MbarrierState] = {}
        self._uses: dict[object, dict[int, Clock]] = {}
        self._words: dict[int, Clock] = {}
        self._known: dict[tuple, Access] = {}
        self._nothing: list[np.ndarray] = []
        for cta in cluster.ctas:
            cta.shared.marks = None  # its rule is one of these
            cta.shared.notes_only = True
            cta.shared.observer = partial(self._access, cta, Shadow(len(cta.shared.data)))
            nothing = np.zeros(len(cta.shared.live_barriers.addresses), np.uint64)
            for warp in cta.warps:  # compiled code leaves all operations on mbarriers to Python
                warp.registers.context.barriers = nothing.ctypes.data
            self._nothing.append(nothing)

    # Asynchronous operations

    def issued(self, g: ActiveGroup, issuer: Issuer, cause: AsyncOperation | None) -> Cause:
        """As `Causes.issued`."""
        if cause is not None and cause.cause is not None:
            return cause.cause
        warp, clock = g.warp, self._warps[g.warp]
        mask = warp.registers.context.mask & warp.live or 1
        found = Cause(clock.release(mask), issuer, mask)
        known, lane = found.clock.known, mask.bit_length() - 1
        opcode = g.grid.entry.instructions[issuer[1]].opcode
        channel: Channel | None = None
        if opcode.startswith("tcgen05."):
            channel = self._agents.channel(("tensor core", warp, lane))
            found.count = channel.count
            if ".commit" in opcode:
                channel.count += 1
        elif _BULK_STORE.match(opcode):
            channel = self._agents.channel(("bulk stores", warp, lanes_of(mask)[0]))
            found.count = channel.count
        elif opcode.startswith("cp.async.c"):
            channel = self._agents.channel(("lane copies", warp), LANES)
            found.count, channel.count = channel.count, channel.count + 1
        elif opcode.startswith("cp.async.mbarrier"):
            copies = self._agents.known(("lane copies", warp))
            if copies is not None:
                self._agents.fit(found.clock)
                found.clock.known[[copies.agent + lane for lane in lanes_of(mask)]] = copies.count - 1
        if channel is not None:
            found.channel = channel
            known = self._agents.fit(found.clock).known
            if opcode.startswith("tcgen05."):
                known[channel.agent] = found.count
        return found

    def committed(self, warp: Warp, mask: int) -> None:
        """As `Causes.committed`."""
        for channel in self._bulk_stores(warp, mask):
            channel.count += 1

    def completed(self, warp: Warp, mask: int, newest: int, read_only: bool) -> None:
        """As `Causes.completed`."""
        clock = self._agents.clock()
        for channel in self._bulk_stores(warp, mask):
            clock.known[channel.agent] = max(0, channel.count - 1 - newest)
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
                clock.known[copies.agent + lane] = groups[-1 - (newest or 0)]
        of.acquire(mask, clock)

    # Barriers

    def heard(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """As `Causes.heard`."""
        if running is not None and running.cause is not None:
            clock = running.cause.clock
        else:
            warp = issuer[0].warp
            clock = self._warps[warp].release(warp.registers.context.mask & warp.live or 1)
        self._state(barrier).clock.join(clock)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """As `Causes.passed`."""
        self._warps[warp].acquire(warp.registers.context.mask, self._state(barrier).over)

    def _state(self, barrier: MBarrier) -> _MbarrierState:
        state = self._mbarriers.get(barrier)
        if state is None:
            clocks = self._agents.clock(), self._agents.clock()
            state = self._mbarriers[barrier] = _MbarrierState(*clocks, barrier.phase)
        if barrier.phase > state.phase:
            state.over.join(state.clock)
            state.clock, state.phase = self._agents.clock(), barrier.phase
        return state

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.arrived`."""
        uses = self._uses.setdefault(barrier, {})
        clock = self._warps[warp].release(mask)
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
        self._warps[warp].fence(warp.registers.context.mask)

    def told(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.told`."""
        clock = self._warps[warp].release(mask)
        if key in self._words:
            self._words[key].join(clock)
        else:
            self._words[key] = clock

    def learned(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.learned`."""
        clock = self._words.get(key)
        if clock is not None:
            self._warps[warp].acquire(mask, clock)

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
        if isinstance(place, np.ndarray):
            place = (place & 0xFFFFFF).astype(np.int64)
        if running is not None and running.cause is not None:
            access, views = self._of_operation(running.cause, cta, kind, proxy, place)
            mask = running.cause.mask if access.lanes else 0
        else:
            warp = issuer[0].warp
            mask = warp.registers.context.mask & warp.live or 1
            if isinstance(place, np.ndarray) and mask == FULL and len(place) < LANES:
                mask = (1 << len(place)) - 1  # the rows of ldmatrix and stmatrix
            access = self._of_warp(warp, mask, kind, issuer)
            views = [View(None, part, clock) for part, clock in self._warps[warp].parts(mask)]
        if isinstance(place, np.ndarray) and mask and len(place) == mask.bit_count():
            lanes = np.array(lanes_of(mask), np.uint8)
            if len(views) > 1:
                views = [View((view.lanes >> lanes.astype(np.int64) & 1).astype(bool), *view[1:]) for view in views]
        conflict = shadow.access(access, place, width, lanes, views)
        if conflict is not None:
            refuse(conflict, access, cta)

    def _of_warp(self, warp: Warp, mask: int, kind: str, issuer: Issuer) -> Access:
        clock = self._warps[warp]
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
            self._agents.fit(cause.clock).known[channel.agent] = count
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

    def join(self, cluster: Cluster) -> None:
        """As `Sanitizer.join`."""
        cluster.causes = ClusterCauses(cluster)


def install() -> None:
    """Launches of this process are followed (EMULATOR_SANITIZE)."""
    device.sanitizer = Sanitizer()
