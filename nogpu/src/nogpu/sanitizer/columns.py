"""Follows accesses to the tensor memory of a cluster's CTAs.

The order of accesses follows from what threads have executed in turn and from tcgen05.fence, which `tensor.order`
checks. Orders and scopes of barriers do not matter, but for orders in kernels without any such fence (PTX ISA, "tcgen05
Memory Consistency Model").
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.tensor.order import COLUMNS, HALVES
from nogpu.sanitizer.clocks import ANYWAY, UNSCOPED, Cause, Channel
from nogpu.sanitizer.conflicts import Access, View
from nogpu.sanitizer.report import spread
from nogpu.sanitizer.shadow import Shadow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.clocks import Agents
    from nogpu.sanitizer.report import Reporter
    from nogpu.sanitizer.warp_clocks import WarpClock

_CELLS = COLUMNS * HALVES


@lru_cache(maxsize=1024)
def _cells(mask: int) -> np.ndarray:
    """int64[n]: numbers of the bits that are set in a mask of columns (`tensor.order.columns_mask`)."""
    bits = np.frombuffer(mask.to_bytes(_CELLS // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def _row(issuer: Issuer) -> int:
    """Row of a clock that says what happens before an access to columns. tcgen05.fence orders accesses even where a
    barrier is relaxed (PTX ISA, tcgen05 Memory Consistency Model); in a kernel without that fence only barriers do.
    """
    return ANYWAY if issuer[0].grid.program.traits.tensor_fences else UNSCOPED


class _Run:
    """Operations of the tensor core, issued by one thread, that access a CTA's columns, with nobody else's in between.

    Columns that have been checked once need not be checked again; what accesses them is recorded when the run ends.
    """

    def __init__(self, agent: int) -> None:
        self.agent = agent  # component of the thread
        self.reads = self.writes = 0  # masks of the columns that have been checked
        # (columns read, columns written, instruction) -> the last such operation
        self.later: dict[tuple[int, int, int], tuple[Issuer, Cause, int]] = {}


class Columns:
    """Accesses to the tensor memories of a cluster."""

    def __init__(self, agents: Agents, warps: dict[Warp, WarpClock], reporter: Reporter) -> None:
        self._agents, self._warps, self._reporter = agents, warps, reporter
        self._shadows: dict[Cta, Shadow] = {}
        # (warp, stores) -> columns of its tcgen05.ld or st that no wait has followed, and the last of these
        # instructions
        self._open: dict[tuple[Warp, bool], tuple[int, Issuer]] = {}
        self._runs: dict[Cta, _Run] = {}
        self._pending: dict[Warp, set[int]] = {}  # indices of tcgen05.ld that no tcgen05.wait::ld has followed

    def touched(self, cta: Cta, issuer: Issuer, reads: int, writes: int) -> None:
        """Checks an access to columns. reads, writes: masks of columns (`Events.touched`)."""
        running = cta.machine.running
        if running is not None and running.cause is not None:
            self._touched_by_core(cta, issuer, running.cause, reads, writes)
            return
        warp = issuer[0].warp
        channel = self._fragments(warp, "ld" if reads else "st")
        if reads:
            self._pending.setdefault(warp, set()).add(issuer[1])
        access = Access(channel.agent, channel.count, 0, bool(writes), True, False, issuer)
        views = [View(None, 0, clock, _row(issuer)) for _, clock in self._warps[warp].parts(warp.live)]
        self._end_run(cta)
        self._check(cta, access, reads | writes, views)
        columns, _ = self._open.get((warp, access.is_write), (0, issuer))
        self._open[warp, access.is_write] = columns | reads | writes, issuer

    def _touched_by_core(self, cta: Cta, issuer: Issuer, cause: Cause, reads: int, writes: int) -> None:
        assert cause.channel is not None  # every operation of the tensor core has one
        agent = cause.channel.agent
        run = self._runs.get(cta)
        if (
            run is not None
            and run.agent == agent
            and not writes & ~run.writes
            and not reads & ~(run.reads | run.writes)
        ):
            run.later[reads, writes, issuer[1]] = issuer, cause, cause.count
            return
        if run is None or run.agent != agent:
            self._end_run(cta)
            run = self._runs[cta] = _Run(agent)
        self._settle(cta, run)
        self._record(cta, issuer, cause, cause.count, reads, writes)
        run.reads, run.writes = run.reads | reads, run.writes | writes

    def _record(
        self, cta: Cta, issuer: Issuer, cause: Cause, count: int, reads: int, writes: int, reports: bool = True
    ) -> None:
        assert cause.channel is not None
        views = [View(None, 0, self._agents.fit(cause.clock), _row(issuer))]
        for columns, is_write in ((reads, False), (writes, True)):
            if columns:
                access = Access(cause.channel.agent, count, 0, is_write, True, False, issuer)
                access.cause = cause
                self._check(cta, access, columns, views, reports=reports)

    def _settle(self, cta: Cta, run: _Run) -> None:
        for (reads, writes, _), (issuer, cause, count) in run.later.items():
            self._record(cta, issuer, cause, count, reads, writes, reports=False)
        run.later.clear()

    def _end_run(self, cta: Cta) -> None:
        """Ends the run of a CTA: another agent is about to access its columns."""
        run = self._runs.pop(cta, None)
        if run is not None:
            self._settle(cta, run)

    def _check(
        self, cta: Cta, access: Access, columns: int, views: list[View], records: bool = True, reports: bool = True
    ) -> None:
        shadow = self._shadows.get(cta)
        if shadow is None:
            shadow = self._shadows[cta] = Shadow(_CELLS, by_byte=True)
        found = shadow.access(access, _cells(columns), 1, None, views, records)
        for conflict in found if reports else ():
            before, frees = conflict.before, access.is_strong
            # A wait of a warp counts for its lanes.
            if before.lanes and not access.cause and not frees and before.issuer[0].warp is access.issuer[0].warp:
                continue
            # Threads that have exited release nothing, but a barrier that does not wait for them is ordered after their
            # exit.
            is_over = before.lanes and not before.issuer[0].warp.live & before.lanes
            if frees and conflict.missing == ANYWAY and is_over:
                continue
            first, end = conflict.place
            end = min(end, first - first % COLUMNS + COLUMNS)  # The columns of the next half lie behind.
            place = f"{spread('column', first % COLUMNS, first % COLUMNS + end - first)} of {cta.label}"
            self._reporter.report(conflict, access, place, "tensor")

    def allocated(self, cta: Cta, columns: int) -> None:
        """Clears the access history of columns that tcgen05.alloc has given (`Events.allocated`)."""
        if cta in self._shadows:
            self._shadows[cta].forget(_cells(columns))

    def freed(self, cta_group: int, issuer: Issuer, columns: int) -> None:
        """Checks tcgen05.dealloc: nobody may access the columns of the group's CTAs later or at the same time."""
        warp = issuer[0].warp
        clock = self._warps[warp]
        of = issuer[0].cta
        for cta in [of] if cta_group == 1 else [of, of.cluster.ctas[of.rank ^ 1]]:
            # Deallocations of both CTAs may come at once. An access behind the CTA's own deallocation finds no columns.
            access = Access(clock.base, clock.now, warp.live, True, True, True, issuer)
            views = [View(None, 0, known, _row(issuer)) for _, known in clock.parts(warp.live)]
            self._end_run(cta)
            self._check(cta, access, columns, views, records=cta is not of)

    def fragments_completed(self, warp: Warp, kind: str) -> None:
        """Completes a warp's loads or stores at tcgen05.wait::ld or ::st. kind: "ld" or "st"."""
        channel = self._fragments(warp, kind)
        self._warps[warp].acquire_count(warp.live, channel.agent, channel.count)
        channel.count += 1
        self._complete(warp, kind == "st")
        if kind == "ld":
            self._pending.pop(warp, None)

    def _complete(self, warp: Warp, is_write: bool) -> None:
        """Counts loads or stores as the lanes' own accesses: each lane has waited for its own."""
        columns, issuer = self._open.pop((warp, is_write), (0, None))
        if issuer is None:
            return
        clock = self._warps[warp]
        access = Access(clock.base, clock.now, warp.live, is_write, True, False, issuer)
        views = [View(None, 0, known, ANYWAY) for _, known in clock.parts(warp.live)]
        self._end_run(warp.cta)
        self._check(warp.cta, access, columns, views, reports=False)

    def fragments_used(self, g: ActiveGroup, loads: Sequence[int]) -> None:
        """Reports a use of registers that pending loads fill. The use waits for the loads."""
        pending = self._pending.get(g.warp, set())
        used = pending.intersection(loads)
        if not used:
            return
        self._reporter.report_use(g, used)
        pending -= used
        if not pending:
            self.fragments_completed(g.warp, "ld")

    def _fragments(self, warp: Warp, kind: str) -> Channel:
        return self._agents.channel(("fragments", warp, kind))
