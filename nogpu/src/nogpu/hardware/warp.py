"""Warps: the registers of 32 lanes, and the active groups into which the lanes have parted.

A warp starts as one active group. At a branch that not all lanes take, the group parts into two. Both may run; the one
whose next instruction comes first in the text goes first. They become one group again at the reconvergence point, the
first instruction to which all paths from the branch lead, once all lanes that have not exited have arrived. NVIDIA's
compilers place the same points in structured code. Lanes that wait there go on alone if nothing else can: every thread
makes progress (CUDA C++ Programming Guide, "Independent Thread Scheduling"), so that a lane may hold a lock for which
the others spin.
"""

from __future__ import annotations

import ctypes
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from nogpu.hardware.barriers import NamedBarrier
from nogpu.hardware.local_memory import LocalMemory
from nogpu.hardware.native import Move, Parted
from nogpu.hardware.program import DONE
from nogpu.hardware.properties import WARP_THREADS
from nogpu.hardware.register_file import Registers
from nogpu.hardware.tensor.order import TensorUser

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.mbarriers import MBarrier


class ReconvergencePoint:
    """Instruction at which the lanes of a group that has parted become one group again."""

    __slots__ = ("arrived", "expected", "parent", "pc")

    def __init__(self, pc: int, expected: int, parent: ReconvergencePoint | None):
        self.pc = pc  # index of the instruction
        self.expected = expected  # lanes of the group that parted, less those that have exited
        self.parent = parent  # point of the group that parted
        self.arrived = 0  # lanes that wait here


class ActiveGroup:
    """Lanes of a warp that run together."""

    __slots__ = (*("bits", "blocked", "cta", "grid", "issued", "pc", "reconvergence", "reduced", "waiting", "warp"),)
    grid: Grid

    def __init__(self, warp: Warp, bits: int, pc: int, reconvergence: ReconvergencePoint | None):
        self.warp = warp
        self.bits: int = bits  # mask of the lanes
        self.pc = pc  # index of the next instruction
        self.reconvergence = reconvergence  # point where the group ends; None: there is none
        self.cta, self.grid = warp.cta, warp.cta.grid
        self.blocked: bool = False
        self.waiting: tuple | None = None  # while the group waits: (text, object waited for, phase or generation)
        self.reduced = 0  # generation of the named barrier on which the group executed bar.red last
        self.issued: int = 0  # number of warp instructions

    def origin(self, issuer: Issuer) -> tuple[tuple[int, int, int], int, int]:
        """(index of the CTA, of the warp, of the instruction), for messages of asynchronous operations."""
        return self.cta.index, self.warp.index, issuer[1]

    def clock(self) -> int:
        """Count of cycles that only grows."""
        self.warp.registers.context.clock_reads += 1
        return self.cta.machine.clock()

    def wake(self) -> None:
        """Lets the group run again."""
        self.blocked = False
        self.cta.machine.enqueue(self.warp)

    def split(self, taken: int, target: int, following: int, join: int) -> int:
        """Parts the group at a branch to `target` that the lanes `taken` take, some but not all; the others continue at
        `following`.

        join: index of the instruction where both reconverge. Returns DONE.
        """
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
        """Ends the group at its reconvergence point. If it is the last to arrive, a group of all lanes starts there."""
        point = self.reconvergence
        if point is None:
            raise ValueError("a group that has no reconvergence point cannot arrive at it")
        point.arrived |= self.bits
        self.warp.groups.remove(self)
        self.warp.issued += self.issued
        self._resume(point)

    def _resume(self, point: ReconvergencePoint | None) -> None:
        """Starts the group that continues at a reconvergence point, once all its live lanes have arrived."""
        while point is not None and point.arrived == point.expected:
            if point.expected == 0:
                point = point.parent
                continue
            merged = ActiveGroup(self.warp, point.expected, point.pc, point.parent)
            self.warp.groups.append(merged)
            if point.parent is not None and point.parent.pc == point.pc:
                merged.reconverge()
            return
        opened = self.grid.open_points
        if point is not None and point.arrived and opened is not None and opened[point.pc]:
            self.warp.let_go(point)

    def leave(self, lanes: int) -> int:
        """Handles the exit of lanes. Returns DONE: the group ends, or `leave_some` lets its other lanes continue."""
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
        """Lets lanes exit and the others continue at `following`. Returns DONE."""
        self.leave(lanes)
        self.pc = following
        if self.bits and self.reconvergence is not None and self.reconvergence.pc == following:
            self.reconverge()
        return DONE


@lru_cache(maxsize=256)
def _tid(warp: int, width: int, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    thread = np.arange(WARP_THREADS, dtype=np.uint32) + np.uint32(WARP_THREADS * warp)
    row = thread // np.uint32(width)
    return thread % np.uint32(width), row % np.uint32(height), row // np.uint32(height)


Issuer = tuple[ActiveGroup, int]
"""(active group, index of the instruction that it executes)."""


class Warp:
    """Warp of a CTA."""

    def __init__(self, cta: Cta, index: int, threads: int, file: np.ndarray, address: int):
        """threads: number of live lanes. file: room for its registers, uint8[bytes], at this address."""
        self.cta, self.index = cta, index
        self.live: int = (1 << threads) - 1  # lanes that have not exited
        self.groups = [ActiveGroup(self, self.live, 0, None)]
        self.queued = False  # True while the scheduler's list of warps that can run has it
        self.pace = 1.0  # frequency of its turns under a random schedule, relative to the others
        self.issued: int = 0  # number of warp instructions of groups that have ended
        self.cluster_arrived = 0  # lanes that have arrived at the cluster's barrier and not waited yet
        self.cluster_generation = 0  # generation of that barrier when they arrived
        self._polled: dict[tuple[MBarrier, int, int], int] = {}
        # Asynchronous copies for which the warp may wait, each with the mask of lanes that issued or committed them.
        self.bulk_open: list = []  # (lanes, operation): stores not yet committed to a group
        self.bulk_groups: list = []  # (lanes, [(lanes, operation)]), oldest first
        self.lane_copies_open: list = []  # (lanes, cp_async.Copies): not yet committed to a group
        self.lane_copy_groups: list = []  # (lanes, [cp_async.Copies]), oldest first
        self.map_reads: list = []  # (lanes, operation): loads whose tensor map may still be read
        self.local: LocalMemory = LocalMemory(cta.grid.program.local_bytes)
        self.first_group: ActiveGroup = self.groups[0]  # group that stands for the warp in messages
        self.registers: Registers = Registers(file, address, self.first_group)
        self.local.tell(self.registers.context)
        self._barriers: dict[int, NamedBarrier] = {}
        self._running: ActiveGroup | None = None  # group that compiled code runs, of several
        self._preferred: ActiveGroup | None = None
        self._served = 0  # lowest lane, as a mask, of the group that was preferred last

    @cached_property
    def tensor(self) -> TensorUser:
        """The warp as a user of tensor memory."""
        return TensorUser(self.registers.context)

    @property
    def has_touched_tensor_memory(self) -> bool:
        """Value of `TensorUser.touched`."""
        return bool(self.registers.context.touched)

    @cached_property
    def key(self) -> tuple[int, int, int, int]:
        """Start of its threads' keys in Queues."""
        return self.cta.grid.number, self.cta.cluster.number, self.cta.rank, self.index

    @property
    def tid(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values of %tid.x, .y and .z, uint32[32] each."""
        return _tid(self.index, *self.cta.grid.config.block[:2])

    @property
    def clock_reads(self) -> int:
        """Number of times that its lanes have read the clock, modulo 2^32."""
        return self.registers.context.clock_reads

    @property
    def synced(self) -> int:
        """Time of the latest event that the warp has waited for, -1 before the first."""
        return self.registers.context.synced

    @synced.setter
    def synced(self, time: int) -> None:
        self.registers.context.synced = time

    @property
    def known(self) -> int:
        """Mask of the ranks whose CTAs have started before an event that is ordered before this warp."""
        return self.registers.context.known

    @known.setter
    def known(self, ranks: int) -> None:
        self.registers.context.known = ranks

    @property
    def polled(self) -> dict[tuple[MBarrier, int, int], int]:
        """(mbarrier, lanes, parity) -> the phase that they have tested for in vain. `Context.polled` is its length."""
        self.keep_polls()
        return self._polled

    def keep_polls(self) -> None:
        """Makes Python keep the tests in vain that compiled code has kept."""
        context = self.registers.context
        if context.poll_count:
            for poll in context.polls[: context.poll_count]:
                barrier = cast("MBarrier", self.cta.shared.live_barriers.by_address[poll.barrier])
                self._polled[barrier, poll.lanes, poll.parity] = poll.phase
            context.poll_count, context.polled = 0, len(self._polled)

    def barrier(self, membermask: int) -> NamedBarrier:
        """Barrier of bar.warp.sync for a mask of lanes."""
        if membermask not in self._barriers:
            self._barriers[membermask] = NamedBarrier(-1)
        return self._barriers[membermask]

    def exit(self, lanes: int) -> None:
        """Handles the exit of lanes."""
        self.cta.live_warps -= self.live != 0 and not self.live & ~lanes
        self.live &= ~lanes
        self.cta.machine.progress += 1
        for membermask, barrier in self._barriers.items():
            if barrier.arrived and membermask & lanes:
                self.cta.cluster.events.excused(barrier, barrier.generation, self, membermask & lanes)
                barrier.settle((membermask & self.live).bit_count())
        self.cta.thread_exit(self, lanes)

    def run(self, quantum: int) -> bool:
        """Runs up to `quantum` segments. Returns True if a group can run on without waiting."""
        run = self.cta.grid.program.run
        while quantum > 0:
            group = self.next_group()
            if group is None:
                return False
            self._preferred = None
            while quantum > 0:
                spent, pc = run(group, quantum)
                quantum -= spent
                if not self._goes_on(group, pc):
                    break
        if len(self.groups) > 1:
            self._preferred = self._another()
        return self.next_group() is not None

    def waited_at(self) -> list[ReconvergencePoint]:
        """Reconvergence points at which lanes wait for others, the inner ones first."""
        points = []
        for group in self.groups:
            point = group.reconvergence
            while point is not None and point not in points:
                points.append(point)
                point = point.parent
        return [point for point in points if point.arrived]

    def part(self) -> bool:
        """Lets lanes that wait for others at a reconvergence point go on alone. Returns False if there are none.

        If the others can run, they spin: no lane waits there any more, since they may spin again, for lanes that wait.
        """
        found, opened = self.waited_at(), self.cta.grid.open_points
        for point in found:
            if opened is not None and any(not group.blocked for group in self.groups):
                opened[point.pc] = 1
            self.let_go(point)
        return bool(found)

    def let_go(self, point: ReconvergencePoint) -> None:
        """Lets lanes that wait at a reconvergence point go on alone, ahead of the others."""
        lanes, point.arrived, pc = point.arrived, 0, point.pc
        point.expected &= ~lanes
        while (outer := point.parent) is not None and outer.pc == pc:
            outer.expected &= ~lanes
            point = outer
        self._preferred = ActiveGroup(self, lanes, pc, outer)
        self.groups.append(self._preferred)

    def change_program(self, moves: ctypes.Array[Move]) -> None:
        """Makes the warp go on with its grid's new program. moves: of its registers. Loads and stores of tensor memory
        complete: they name registers by the old program.
        """
        queue = self.tensor.queue
        for pending in queue:
            pending.complete()
            self.cta.machine.progress += pending.stores
        self.tensor.drop(len(queue))
        program = self.cta.grid.program
        program.calls.tell(self.registers.context)
        self.registers.move(program.registers, moves, self.first_group)

    def conclude(self) -> bool:
        """Ends a turn that compiled code has begun. Returns the value of `run`."""
        group, self._running = self.settle(), None
        left, pc = self.cta.grid.program.conclude(group)
        self._goes_on(group, pc)
        return self.run(left)

    def running(self) -> ActiveGroup:
        """Group that compiled code runs in the warp's turn. Python has the warp's groups from now on."""
        context = self.registers.context
        if context.parted:
            self._take_groups(Parted.from_address(context.parted))
            context.parted = None
        return self._running or self.groups[0]

    def _take_groups(self, parted: Parted) -> None:
        """Copies the groups into which compiled code has parted the only one."""
        points: dict[int, ReconvergencePoint] = {}

        def point(place: int) -> ReconvergencePoint | None:
            if place >= 0 and place not in points:
                outer = point(parted.parents[place])
                points[place] = ReconvergencePoint(parted.joins[place], parted.expected[place], outer)
                points[place].arrived = parted.arrived[place]
            return points.get(place)

        (first,) = self.groups
        self.issued += first.issued
        self.groups = [
            ActiveGroup(self, parted.lanes[each], parted.pcs[each], point(parted.ends[each]))
            for each in range(parted.groups)
        ]
        self._running = self.groups[parted.running]

    def settle(self) -> ActiveGroup:
        """Copies the state of the group that runs, or has run last, from C. Returns the group."""
        group = self.running()
        context = self.registers.context
        if context.moved:
            context.moved = 0
            group.pc, group.blocked = context.at, bool(context.blocked)
            group.issued += context.issued
            context.issued = 0
            self.registers.hear_of_wait(group)
        return group

    def offer(self) -> None:
        """Lets compiled code give the warp its next turns, if it has one group."""
        context, groups = self.registers.context, self.groups
        context.is_single = len(groups) == 1
        if context.is_single:
            group = groups[0]
            self.registers.enter(group, 0)
            context.at, context.blocked = group.pc, group.blocked
            context.resume = self.cta.grid.program.starts[group.pc].item()

    def _goes_on(self, group: ActiveGroup, pc: int) -> bool:
        """True if a group can run on in this turn. pc: the group's result of `Program.run`."""
        if pc == DONE:
            return False
        group.pc, group.blocked = (pc, False) if pc >= 0 else (~pc, True)
        if group.blocked:
            return False
        point = group.reconvergence
        if point is not None and pc == point.pc:
            group.reconverge()
            return False
        return True

    def _another(self) -> ActiveGroup | None:
        """Group that goes first in the next turn: the other groups may have polled for an effect of it.

        Groups take turns by their lowest lane. Lanes stay while groups part and merge: in turns by group, a loop that
        parts and merges them might serve the same ones for ever.
        """
        groups = sorted((group.bits & -group.bits, group) for group in self.groups if not group.blocked)
        if not groups:
            return None
        self._served, chosen = next((pair for pair in groups if pair[0] > self._served), groups[0])
        return chosen

    def next_group(self) -> ActiveGroup | None:
        """Group that runs first in the next turn; None if all have to wait."""
        groups = self.groups
        if len(groups) == 1:
            return None if groups[0].blocked else groups[0]
        best = self._preferred
        if best is not None and not best.blocked and best in groups:
            return best
        best = None
        for group in groups:
            if not group.blocked and (best is None or group.pc < best.pc):
                best = group
        return best
