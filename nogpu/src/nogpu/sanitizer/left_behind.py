"""Leftovers of a CTA when its last thread exits: work that nobody has waited for, barriers half arrived on.

| left behind | verdict |
|---|---|
| an arrival, a copy or a commit of another CTA that is ordered before no thread of this one | error |
| bulk stores that may still read its shared memory, its own copies to it, `cp.async` | doubt |
| a phase of an mbarrier, or a named barrier, on which some have arrived | doubt |
| arrivals on the cluster's barrier for which nobody waits | doubt |

Work that has not happened when the CTA exits is refused or doubted when it does (`Cta.alive`). Here the order of events
decides, under every schedule alike. Completed phases without a waiter are allowed: the last ones of most pipelines are
such. So are bytes that are expected and of which none has come: producers of CuTe DSL 4.5.2 end so.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.hardware.barriers import ClusterBarrier, label
from nogpu.sanitizer.clocks import ANYWAY, FULL, lanes_of

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.clocks import Cause
    from nogpu.sanitizer.cluster_state import ClusterState
    from nogpu.sanitizer.report import Reporter


class _Work(NamedTuple):
    """Asynchronous work, or an arrival, on the memory of a CTA."""

    issuer: Issuer
    until: int  # count of its agent


@lru_cache(maxsize=4096)
def _is_lane_copy(opcode: str) -> bool:
    return opcode.startswith("cp.async.c")


class LeftBehind:
    """Leftovers of a cluster's CTAs. Its handlers come after those of other parts."""

    def __init__(self, cluster: Cluster, state: ClusterState) -> None:
        self._agents, self._warps, self._cluster = state.agents, state.warps, cluster
        self._reporter: Reporter = state.reporter
        # CTA -> {agent: its last work}. An agent's counts only grow.
        self._work: dict[Cta, dict[int, _Work]] = {cta: {} for cta in cluster.ctas}
        self._named: dict[object, Issuer] = {}  # last arrival on each named barrier
        self._awaited = -1  # last generation of the cluster's barrier for which somebody has waited
        self._arrived: tuple[int, Issuer] | None = None  # last generation of the cluster's barrier with an arrival

    def issued(self, async_op: AsyncOperation, g: ActiveGroup, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Notes an operation of a thread that reads or writes the memory of the thread's CTA (`Events.issued`)."""
        if running is not None:
            return
        cause = async_op.cause
        channel, (group, index) = cause.channel, cause.issuer
        opcode = group.grid.entry.instructions[index].opcode
        if channel is None or opcode.startswith("tcgen05."):
            return
        lanes = tuple(lanes_of(cause.mask)) if _is_lane_copy(opcode) else (0,)
        for lane in lanes:
            self._work[group.cta][channel.agent + lane] = _Work(cause.issuer, cause.count)

    def written(self, cta: Cta, place: int | np.ndarray) -> None:
        """Notes a write of the operation that runs to a CTA's shared memory."""
        running = cta.machine.running
        if running is None or running.cause is None or running.cause.channel is not None:
            return
        first = int(place[0]) if isinstance(place, np.ndarray) else place
        channel = self._agents.find(("place", cta.rank, first))
        if channel is not None:
            self._work[cta][channel.agent] = _Work(running.cause.issuer, channel.count)

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Notes an arrival on an mbarrier of another CTA, under its thread or its agent (`Events.mbarrier_arrived`)."""
        home, warp = barrier.home, issuer[0].warp
        if home is None or home is warp.cta:
            return
        cause: Cause | None = running.cause if running is not None else None
        if cause is None:
            clock = self._warps[warp]
            self._work[home][clock.base] = _Work(issuer, clock.now - 1)
        elif cause.channel is not None:
            self._work[home][cause.channel.agent] = _Work(issuer, cause.count)
        else:
            agent = self._warps[cause.issuer[0].warp].base + lanes_of(cause.mask)[0]
            count = int(self._agents.fit(cause.clock).table[ANYWAY, agent])
            self._work[home][agent] = _Work(issuer, count)

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Notes the last arrival on a barrier (`Events.arrived`)."""
        issuer = warp.first_group, warp.registers.context.pc
        if isinstance(barrier, ClusterBarrier):
            self._arrived = generation, issuer
        else:
            self._named[barrier] = issuer

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Notes a wait for the cluster's barrier (`Events.met`)."""
        if isinstance(barrier, ClusterBarrier):
            self._awaited = max(self._awaited, generation)

    def exited(self, cta: Cta) -> None:
        """Reports the leftovers of a CTA that exits (`Events.exited`)."""
        known = self._joined_clock(cta)
        for agent, work in self._work[cta].items():
            if known[agent] < work.until:
                self._report_work(cta, work)
        for barrier in cta.mbarriers.values():
            if 0 < barrier.pending < barrier.expected and barrier.last is not None:
                text = f"{barrier}: nobody can wait for this phase"
                self._reporter.report_left(text, cta, barrier.last[1], is_error=False)
        for named in cta.named_barriers:
            if named.present or named.parted:
                self._reporter.report_left(str(named), cta, self._named[named], is_error=False)
        if self._cluster.live == 1 and self._arrived is not None and self._arrived[0] > self._awaited:
            _, issuer = self._arrived
            self._reporter.report_left(
                f"an arrival on the cluster's barrier by {label(issuer)}, for which nobody waits", cta, issuer, False
            )

    def _joined_clock(self, cta: Cta) -> np.ndarray:
        """int32[agents]: the join of the clocks of a CTA's threads, with their own accesses."""
        clock = self._agents.clock()
        for warp in cta.warps:
            of = self._warps[warp]
            for _, part in of.parts(FULL):
                clock.join(part)
            clock.table[ANYWAY, of.base : of.base + len(lanes_of(FULL))] = of.now
        return self._agents.fit(clock).table[ANYWAY]

    def _report_work(self, cta: Cta, work: _Work) -> None:
        group, index = work.issuer
        opcode = group.grid.entry.instructions[index].opcode
        text = f"{opcode} of {label(work.issuer)}, of whose end no thread of this CTA has heard"
        self._reporter.report_left(text, cta, work.issuer, is_error=group.cta is not cta)
