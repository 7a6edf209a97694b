"""Warps: the registers of 32 lanes, and the groups into which the lanes have parted.

A warp starts as one group. At a branch that not all lanes take, the group parts into two. Both may run, the one that is
behind first. They become one group again at the reconvergence point, the first place to which all paths from the branch
lead, once all lanes that have not exited are there. NVIDIA's compilers make the same of structured code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.hardware.barriers import NamedBarrier
from emulator.hardware.local_memory import LocalMemory
from emulator.hardware.program import DONE
from emulator.hardware.tensor.order import TensorUser

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cta


Issuer = tuple["ActiveGroup", int]
"""Who issues an operation: an active group and the index of the instruction that it executes."""


class ReconvergencePoint:
    """The place where the lanes of a group that has parted become one group again.

    pc: index of the instruction. expected: lanes that have not exited. arrived: lanes that wait here.
    parent: the point of the group that parted.
    """

    __slots__ = ("arrived", "expected", "parent", "pc")

    def __init__(self, pc: int, expected: int, parent: ReconvergencePoint | None):
        self.pc, self.expected, self.parent = pc, expected, parent
        self.arrived = 0


class ActiveGroup:
    """Lanes of a warp that run together. An issuer is a pair (group, index of the instruction)."""

    __slots__ = (
        *("bits", "blocked", "cta", "grid", "issued", "pc", "reconvergence", "reduced", "registers", "waiting", "warp"),
    )

    def __init__(self, warp: Warp, bits: int, pc: int, reconvergence: ReconvergencePoint | None):
        self.warp, self.bits, self.pc, self.reconvergence = warp, bits, pc, reconvergence
        self.cta, self.grid, self.registers = warp.cta, warp.cta.grid, warp.registers
        self.blocked = False
        # While the group waits: (text, what it waits for, phase or generation).
        self.waiting: tuple | None = None
        self.reduced = 0  # generation of the named barrier on which the group executed bar.red last
        self.issued = 0  # warp instructions

    def origin(self, issuer: tuple[ActiveGroup, int]) -> tuple[tuple[int, int, int], int, int]:
        """(index of the CTA, index of the warp, index of the instruction), for messages of asynchronous operations."""
        return self.cta.index, self.warp.index, issuer[1]

    def clock(self) -> int:
        return self.cta.machine.clock()

    def wake(self) -> None:
        self.blocked = False
        self.cta.machine.enqueue(self.warp)

    def split(self, taken: int, target: int, following: int, join: int) -> int:
        """A branch to `target` that the lanes `taken` take; the others go on at `following`, both meet at `join`.

        Returns the next instruction if all lanes go the same way, else DONE.
        """
        if taken == self.bits:
            return target
        if not taken:
            return following
        point = ReconvergencePoint(join, self.bits, self.reconvergence)
        other = ActiveGroup(self.warp, self.bits & ~taken, following, point)
        groups = self.warp.groups
        groups.append(other)
        self.bits, self.pc, self.reconvergence = taken, target, point
        for group in (self, other):
            if group.pc == join:
                group.reconverge()
        return DONE

    def reconverge(self) -> None:
        """The group is at its reconvergence point: it ends, or goes on with all lanes if it is the last to come."""
        point = self.reconvergence
        point.arrived |= self.bits
        self.warp.groups.remove(self)
        self.warp.issued += self.issued
        self._resume(point)

    def _resume(self, point: ReconvergencePoint | None) -> None:
        """Continue behind a reconvergence point once all lanes that are still alive have come."""
        while point is not None and point.arrived == point.expected:
            if point.expected == 0:
                point = point.parent
                continue
            merged = ActiveGroup(self.warp, point.expected, point.pc, point.parent)
            self.warp.groups.append(merged)
            if point.parent is not None and point.parent.pc == point.pc:
                merged.reconverge()
            return

    def leave(self, lanes: int) -> int:
        """Lanes exit. Returns DONE: if lanes are left, `leave_some` says where they go on."""
        self.warp.exit(lanes)
        self.bits &= ~lanes
        point = self.reconvergence
        while point is not None:
            point.expected &= ~lanes
            point = point.parent
        if not self.bits:
            self.warp.groups.remove(self)
            self.warp.issued += self.issued
            point = self.reconvergence
            while point is not None and not point.expected:
                point = point.parent
            self._resume(point)
        return DONE

    def leave_some(self, lanes: int, following: int) -> int:
        """Lanes exit, the others go on at `following`. Returns `following` if no lane exits, else DONE."""
        if not lanes:
            return following
        self.leave(lanes)
        self.pc = following
        if self.bits and self.reconvergence is not None and self.reconvergence.pc == following:
            self.reconverge()
        return DONE


class Warp:
    """live: lanes that have not exited. queued: it is in the scheduler's list of warps that can run. pace: how often a
    random schedule gives it a turn, relative to the others.
    """

    def __init__(self, cta: Cta, index: int, threads: int):
        self.cta, self.index = cta, index
        self.registers = list(cta.grid.program.registers)
        self.live = (1 << threads) - 1
        self.groups = [ActiveGroup(self, self.live, 0, None)]
        self.queued = False
        self.pace = 1.0
        self.issued = 0
        self.cluster_arrived = 0
        self.cluster_generation = 0
        self.tensor = TensorUser()
        self.synced = -1  # time when the last of what it has waited for was there
        self.polled: dict = {}  # (mbarrier, lanes, parity) -> the phase that they have tested for in vain
        self.bulk_open: list = []  # (lanes, job): stores not yet in a group
        self.bulk_groups: list = []  # (lanes, [(lanes, job)]), oldest first
        self.lane_copies_open: list = []  # (lanes, cp_async.LaneCopies): not yet in a group
        self.lane_copy_groups: list = []  # (lanes, [cp_async.LaneCopies]), oldest first
        self.map_reads: list = []  # (lanes, job): loads whose tensor map may still be read
        self.key = (cta.grid.number, cta.cluster.number, cta.rank, index)
        self.local = LocalMemory(cta.grid.program.local_bytes)
        width, height, _ = cta.grid.config.block
        thread = np.arange(32, dtype=np.uint32) + np.uint32(32 * index)
        self.tid = (
            thread % np.uint32(width),
            thread // np.uint32(width) % np.uint32(height),
            thread // np.uint32(width * height),
        )
        self._barriers: dict[int, NamedBarrier] = {}
        self._preferred: ActiveGroup | None = None

    def barrier(self, membermask: int) -> NamedBarrier:
        """bar.warp.sync's barrier of those lanes."""
        if membermask not in self._barriers:
            self._barriers[membermask] = NamedBarrier(-1)
        return self._barriers[membermask]

    def exit(self, lanes: int) -> None:
        self.live &= ~lanes
        self.cta.machine.progress += 1
        self.cta.thread_exit(self, lanes)

    def run(self, quantum: int) -> bool:
        """Run up to `quantum` segments. Returns whether the warp can go on at once."""
        segments = self.cta.grid.program.segments
        while quantum > 0:
            group = self._next_group()
            if group is None:
                return False
            self._preferred = None
            pc = group.pc
            while quantum > 0:
                group.pc = pc
                pc = segments[pc](group)
                quantum -= 1
                if pc < 0:
                    break
                point = group.reconvergence
                if point is not None and pc == point.pc:
                    group.reconverge()
                    pc = DONE
                    break
            if pc >= 0:
                group.pc = pc
                self._preferred = group.reconvergence and self._another(group)
            elif pc != DONE:
                group.pc = ~pc
                group.blocked = True
        return bool(self._next_group())

    def _another(self, group: ActiveGroup) -> ActiveGroup | None:
        """The group whose turn it is after one that may be polling for what another group does."""
        groups = [other for other in self.groups if not other.blocked]
        return groups[(groups.index(group) + 1) % len(groups)]

    def _next_group(self) -> ActiveGroup | None:
        best = self._preferred
        if best is not None and not best.blocked and best in self.groups:
            return best
        best = None
        for group in self.groups:
            if not group.blocked and (best is None or group.pc < best.pc):
                best = group
        return best
