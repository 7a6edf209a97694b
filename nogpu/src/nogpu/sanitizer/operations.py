"""Follows asynchronous operations: their clocks, the agents that their accesses count for, the waits for their end."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from nogpu.sanitizer.clocks import LANES, OF_CLUSTER, Agents, Cause, Channel, Clock, lanes_of
from nogpu.sanitizer.cluster_state import ClusterState, running_lanes

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

_BULK_STORE = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.\S*global\.shared::cta")


BULK_STORE_PARTS = 2  # components: its read of shared memory, its write to global memory
SLOTS = 16  # components of reads that a thread's copies make, which may end in any order


@lru_cache(maxsize=4096)
def _is_bulk_store(opcode: str) -> bool:
    return _BULK_STORE.match(opcode) is not None


def slot(agents: Agents, what: str, cause: Cause) -> tuple[int, int]:
    """(component, count) of the next read by copies of the thread that `cause` is of. what: kind of the read."""
    channel = agents.channel((what, cause.warp, lanes_of(cause.mask)[0]), SLOTS)
    channel.count += 1
    return channel.agent + channel.count % SLOTS, channel.count


class Operations:
    """Asynchronous operations of a cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._agents, self._warps = state, state.agents, state.warps
        self._in_a_row: dict[Warp, tuple[int, int, Clock]] = {}

    def issued(self, async_op: AsyncOperation, g: ActiveGroup, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Sets an operation's clock and agent (`Events.issued`)."""
        if running is not None and running.cause is not None:
            async_op.cause = running.cause
        else:
            async_op.cause = self._cause(g, issuer)

    def _cause(self, g: ActiveGroup, issuer: Issuer) -> Cause:
        """Clock and agent of an operation of a thread."""
        warp, clock = g.warp, self._warps[g.warp]
        mask, lane = running_lanes(warp), running_lanes(warp).bit_length() - 1
        opcode = g.grid.entry.instructions[issuer[1]].opcode
        relaxed = opcode.startswith("mbarrier.") and not self._state.releases(issuer)
        if relaxed:
            found = Cause(clock.release_relaxed(mask, OF_CLUSTER), issuer, mask)
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
            channel = self._agents.channel(("bulk stores", warp, lanes_of(mask)[0]), BULK_STORE_PARTS)
            found.count = channel.count
        elif opcode.startswith("cp.async.c"):
            channel = self._agents.channel(("lane copies", warp), LANES)
            found.count, channel.count = channel.count, channel.count + 1
        elif opcode.startswith("cp.async.mbarrier"):
            copies = self._agents.find(("lane copies", warp))
            if copies is not None:
                self._agents.fit(found.clock)
                found.clock.set_lanes(copies.agent, mask, copies.count - 1)
        if channel is not None:
            found.channel = channel
            self._agents.fit(found.clock)
            if opcode.startswith("tcgen05."):
                found.clock.set(channel.agent, found.count)
        return found

    def _of_thread(self, warp: Warp, mask: int) -> Clock:
        """Clock of an operation of the tensor core: one for all that are issued in a row."""
        clock = self._warps[warp]
        clock.settle()
        last = self._in_a_row.get(warp)
        if last is not None and last[:2] == (mask, clock.changes):
            return last[2]
        released = clock.release(mask)
        self._in_a_row[warp] = mask, clock.changes, released
        return released

    def committed(self, warp: Warp, mask: int) -> None:
        """Ends the bulk groups of lanes (`Events.committed`)."""
        for channel in self._bulk_stores(warp, mask):
            channel.count += 1

    def completed(self, warp: Warp, mask: int, newest: int, read_only: bool) -> None:
        """Acquires what completed bulk groups of lanes accessed (`Events.completed`)."""
        clock = self._agents.clock()
        for channel in self._bulk_stores(warp, mask):
            over = max(0, channel.count - 1 - newest)
            clock.set(channel.agent, over)
            if not read_only:
                clock.set(channel.agent + 1, over)
        for lane in lanes_of(mask):
            reads = self._agents.find(("map reads", warp, lane))
            if reads is not None:
                clock.set(slice(reads.agent, reads.agent + SLOTS), reads.count)
        self._warps[warp].acquire(mask, clock)

    def _bulk_stores(self, warp: Warp, mask: int) -> list[Channel]:
        found = (self._agents.find(("bulk stores", warp, lane)) for lane in lanes_of(mask))
        return [channel for channel in found if channel is not None]

    def lane_copies_committed(self, warp: Warp, mask: int) -> None:
        """Notes a group of cp.async (`Events.lane_copies_committed`)."""
        copies = self._agents.channel(("lane copies", warp), LANES)
        self._warps[warp].commits.append((mask, copies.count - 1))

    def lane_copies_completed(self, warp: Warp, mask: int, newest: int | None) -> None:
        """Acquires what completed groups of cp.async accessed (`Events.lane_copies_completed`)."""
        copies = self._agents.channel(("lane copies", warp), LANES)
        clock, of = self._agents.clock(), self._warps[warp]
        for lane in lanes_of(mask):
            groups = [copies.count - 1] if newest is None else [n for lanes, n in of.commits if lanes >> lane & 1]
            if len(groups) > (newest or 0):
                clock.set(copies.agent + lane, groups[-1 - (newest or 0)])
        of.acquire(mask, clock)
