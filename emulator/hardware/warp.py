"""Warps: the registers of 32 lanes, and the groups into which the lanes have parted.

A warp starts as one group. At a branch that not all lanes take, it parts into two; both may run (the one that is
behind first, the other one where it has to wait), and they become one group again at the first place that all ways from
the branch lead to, once all lanes that have not exited are there. This is what NVIDIA's compilers make of structured code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.arithmetic.lanes import UINTS, lane_list
from emulator.errors import Fault
from emulator.hardware.barriers import NamedBarrier
from emulator.hardware.program import DONE
from emulator.hardware.tensor.order import TensorUser

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cta


class Join:
    """Where the lanes of a group that has parted meet. expected: lanes that have not exited; arrived: those that
    wait.
    """

    __slots__ = ("arrived", "expected", "parent", "pc")

    def __init__(self, pc: int, expected: int, parent: Join | None):
        self.pc, self.expected, self.parent = pc, expected, parent
        self.arrived = 0


class Group:
    """Lanes that run together. waiting: (text, what it waits for, phase or generation) while it has to wait. reduced:
    generation of the named barrier at which it has executed bar.red.
    """

    __slots__ = ("bits", "blocked", "cta", "grid", "issued", "join", "pc", "reduced", "registers", "waiting", "warp")

    def __init__(self, warp: Warp, bits: int, pc: int, join: Join | None):
        self.warp, self.bits, self.pc, self.join = warp, bits, pc, join
        self.cta, self.grid, self.registers = warp.cta, warp.cta.grid, warp.registers
        self.blocked = False
        self.waiting: tuple | None = None
        self.issued = 0  # warp instructions

    def issuer(self, who: tuple) -> tuple:
        return self.cta.index, self.warp.index, who[1]

    def clock(self) -> int:
        return self.cta.machine.clock()

    def wake(self) -> None:
        self.blocked = False
        self.cta.machine.enqueue(self.warp)

    def split(self, taken: int, target: int, following: int, join: int) -> int:
        """A branch that lanes `taken` take. Returns where to go on if all or none do."""
        if taken == self.bits:
            return target
        if not taken:
            return following
        meeting = Join(join, self.bits, self.join)
        other = Group(self.warp, self.bits & ~taken, following, meeting)
        groups = self.warp.groups
        groups.append(other)
        self.bits, self.pc, self.join = taken, target, meeting
        for group in (self, other):
            if group.pc == join:
                group.meet()
        return DONE

    def meet(self) -> None:
        """The group is at its meeting point: it ends, or goes on with all lanes if it is the last to come."""
        join = self.join
        join.arrived |= self.bits
        self.warp.groups.remove(self)
        self.warp.issued += self.issued
        self._resume(join)

    def _resume(self, join: Join | None) -> None:
        """Continue behind a meeting point once all lanes that are still alive have come."""
        while join is not None and join.arrived == join.expected:
            if join.expected == 0:
                join = join.parent
                continue
            merged = Group(self.warp, join.expected, join.pc, join.parent)
            self.warp.groups.append(merged)
            if join.parent is not None and join.parent.pc == join.pc:
                merged.meet()
            return

    def leave(self, lanes: int) -> int:
        """Lanes exit. Returns DONE: the group goes on, if at all, from where `leave_some` says."""
        self.warp.exit(lanes)
        self.bits &= ~lanes
        join = self.join
        while join is not None:
            join.expected &= ~lanes
            join = join.parent
        if not self.bits:
            self.warp.groups.remove(self)
            self.warp.issued += self.issued
            join = self.join
            while join is not None and not join.expected:
                join = join.parent
            self._resume(join)
        return DONE

    def leave_some(self, lanes: int, following: int) -> int:
        if not lanes:
            return following
        self.leave(lanes)
        self.pc = following
        if self.bits and self.join is not None and self.join.pc == following:
            self.meet()
        return DONE


class LocalMemory:
    """Local memory of the lanes of a warp: uint8[32, size], poisoned."""

    def __init__(self, size: int):
        self.data = np.full((32, size), 0xFF, np.uint8)

    def _places(self, mask: int, address: np.ndarray, width: int) -> list[tuple[int, int]]:
        places = []
        for lane in lane_list(mask):
            offset = int(address[lane]) & 0xFFFFFFFF
            if offset % width or offset + width > self.data.shape[1]:
                raise Fault(
                    f"access of {width} bytes at local address {offset:#x}: misaligned, or past {self.data.shape[1]:#x}"
                )
            places.append((lane, offset))
        return places

    def load(self, mask: int, address: np.ndarray, nbytes: int, count: int) -> np.ndarray:
        values = np.zeros((count, 32), UINTS[8 * nbytes])
        for lane, offset in self._places(mask, address, nbytes * count):
            values[:, lane] = self.data[lane, offset : offset + nbytes * count].view(UINTS[8 * nbytes])
        return values

    def store(self, mask: int, address: np.ndarray, values: np.ndarray) -> None:
        width = values.itemsize * len(values)
        for lane, offset in self._places(mask, address, width):
            self.data[lane, offset : offset + width] = np.ascontiguousarray(values[:, lane]).view(np.uint8)


class Warp:
    """live: lanes that have not exited. queued: it is in the scheduler's list of warps that can run. pace: how often a
    random schedule gives it a turn, relative to the others.
    """

    def __init__(self, cta: Cta, index: int, threads: int):
        self.cta, self.index = cta, index
        self.registers = list(cta.grid.program.registers)
        self.live = (1 << threads) - 1
        self.groups = [Group(self, self.live, 0, None)]
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
        self._preferred: Group | None = None

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
                join = group.join
                if join is not None and pc == join.pc:
                    group.meet()
                    pc = DONE
                    break
            if pc >= 0:
                group.pc = pc
                self._preferred = group.join and self._another(group)
            elif pc != DONE:
                group.pc = ~pc
                group.blocked = True
        return bool(self._next_group())

    def _another(self, group: Group) -> Group | None:
        """The group whose turn it is after one that may be polling for what another group does."""
        groups = [other for other in self.groups if not other.blocked]
        return groups[(groups.index(group) + 1) % len(groups)]

    def _next_group(self) -> Group | None:
        best = self._preferred
        if best is not None and not best.blocked and best in self.groups:
            return best
        best = None
        for group in self.groups:
            if not group.blocked and (best is None or group.pc < best.pc):
                best = group
        return best
