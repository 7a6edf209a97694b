"""Clusters and CTAs, with their memories and barriers."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.barriers import ClusterBarrier, NamedBarrier, label, wake
from nogpu.hardware.chip import Sm
from nogpu.hardware.events import Events
from nogpu.hardware.grid import Grid, cta_index, unravel
from nogpu.hardware.mbarriers import MBarrier
from nogpu.hardware.memory import RANK_SHIFT, SHARED_BASE
from nogpu.hardware.native import HEARD, TOLD, Context, Move, NamedBarriers
from nogpu.hardware.properties import WARP_THREADS
from nogpu.hardware.setmaxnreg import check_requests
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.store_marks import StoreMarks
from nogpu.hardware.tensor.tmem import TensorMemory
from nogpu.hardware.warp import ActiveGroup, Warp

if TYPE_CHECKING:
    from nogpu.hardware.lane_copies import CompiledCopies
    from nogpu.hardware.machine import Machine
    from nogpu.hardware.properties import Dim3
    from nogpu.hardware.warp import Issuer


class PairedAllocation:
    """Allocation by tcgen05.alloc with cta_group::2: the CTAs of a pair perform it together (PTX ISA, "Issue
    Granularity").

    Both get columns at the same address, since cta_group::2 instructions take one address for both. The odd CTA waits
    for the even one. The even CTA does not wait: the ISA only says that the CTAs may block.
    """

    def __init__(self) -> None:
        self._for_odd: deque[tuple[int, int]] = deque()  # (columns, base) that the even CTA has allocated for both
        self.waiters: list[ActiveGroup] = []

    def take(self, rank: int, columns: int, exclusive: bool, memories: list[TensorMemory]) -> int | None:
        """First column for the CTA of `rank` in the pair, None while that CTA has to wait. memories: (even, odd)."""
        if rank == 0:
            base = memories[0].alloc_with(memories[1], columns, exclusive)
            if base is not None:
                self._for_odd.append((columns, base))
                wake(self.waiters)
            return base
        if not self._for_odd:
            return None
        of_even, base = self._for_odd.popleft()
        if of_even != columns:
            raise Fault(f"tcgen05.alloc of a CTA pair: {of_even} columns in the even CTA, {columns} in the odd")
        return base

    def __str__(self) -> str:
        return (
            "tcgen05.alloc of a CTA pair: the even CTA has not issued it, or that many columns are not free in both at "
            "one address"
        )


class Cta:
    """CTA: its warps, shared and tensor memory, and barriers."""

    def __init__(self, cluster: Cluster, rank: int, index: Dim3, cluster_index: Dim3, sm: Sm):
        self.cluster = cluster
        self.rank = rank  # rank in the cluster
        self.index = index  # (x, y, z) in the grid
        self.cluster_index = cluster_index  # (x, y, z) in the cluster
        self.grid, self.machine = cluster.grid, cluster.machine
        self.sm = sm.index
        config = self.grid.config
        self.shared = SharedMemory(self.grid.shared_bytes, rank)
        self.shared_base = rank << RANK_SHIFT | SHARED_BASE
        self.sm_tensor_memory = sm.tensor_memory
        self.tmem = TensorMemory(self.sm_tensor_memory.allocator)
        if self.grid.program.traits.async_reads:
            self.shared.marks = StoreMarks(self)
        self.mbarriers: dict[int, MBarrier] = {}  # by offset
        self.compiled_copies: CompiledCopies | None = None  # cp.async of compiled code; None: Python has it all
        self.register_requests: dict[int, list[int]] = {}  # warp -> counts of its setmaxnreg
        self.register_increases: set[int] = set()  # warps that have executed setmaxnreg.inc
        self._named: dict[int, NamedBarrier] = {}
        self._compiled_barriers = NamedBarriers()
        self._cta_group: int | None = None  # .cta_group of the tcgen05 instructions so far
        self.allows_dependents = False
        self.exited = False
        x, y, z = config.block
        self.live_threads = x * y * z
        self.context = self._shared_context()
        cluster.windows[rank] = self.shared.window
        self.warps = self._start_warps()
        self.live_warps = self._compiled_barriers.warps = len(self.warps)  # number of warps that have not exited

    @property
    def label(self) -> str:
        """Name in messages."""
        return f"CTA {self.index}" + (f" of {self.grid.title}" if self.grid.title else "")

    def _start_warps(self) -> list[Warp]:
        """The warps, their registers as at the start: those of the grid's other CTAs of this rank, but for `by_cta`."""
        form, known = self.grid.program.registers, self.grid.files.get(self.rank)
        files = form.room(-(-self.live_threads // WARP_THREADS))
        address, stride = files.ctypes.data, files.strides[0]
        warps = [
            Warp(self, i, min(WARP_THREADS, self.live_threads - WARP_THREADS * i), file, address + stride * i)
            for i, file in enumerate(files)
        ]
        if known is None:
            for warp, file in zip(warps, files):
                form.lay_out(file, warp.first_group)
            self.grid.files[self.rank] = files.copy()
        else:
            files[:] = known
            words = files.view(np.uint64)
            for offset, value in form.by_cta:
                words[:, offset // 8] = value(warps[0].first_group)
        return warps

    def _shared_context(self) -> Context:
        """Context with the fields that all warps of the CTA share."""
        shared, calls, context = self.shared, self.grid.program.calls, Context()
        context.shared, context.shared_end = shared.address, len(shared.data)
        context.named = ctypes.addressof(self._compiled_barriers)
        context.guarded = shared.live_barriers.guarded.ctypes.data
        context.barriers = shared.live_barriers.addresses.ctypes.data
        context.rank, context.known, context.synced = self.rank, 1 << self.rank, -1
        calls.tell(context)
        context.windows, context.cluster_size = ctypes.addressof(self.cluster.windows), self.cluster.size
        context.observed = (HEARD if self.grid.observers else 0) | (TOLD if self.cluster.size > 1 else 0)
        return context

    def keep_copies(self, copies: CompiledCopies) -> None:
        """Lets compiled code keep cp.async of the warps."""
        self.compiled_copies = copies
        for warp in self.warps:
            warp.registers.context.lane_queue = copies.address

    def mbarrier(self, offset: int) -> MBarrier:
        """mbarrier at an offset of shared memory. Raises Fault if there is none, or the CTA has exited; in a lenient
        run the mbarrier of an exited CTA stays as it was.
        """
        if self.exited:
            reason = f"mbarrier at shared offset {offset:#x} of {self.label}, which has exited"
            ordering_fault(reason, (self.grid.entry.name, "exited", "mbarrier", self.rank))
        barrier = self.mbarriers.get(offset)
        if barrier is None:
            raise Fault(
                f"there is no mbarrier at shared offset {offset:#x} of {self.label}: it was not initialised "
                "(PTX ISA, mbarrier.init)"
            )
        return barrier

    def named_barrier(self, number: int) -> NamedBarrier:
        """Named barrier `number`, made at its first use. Python keeps it from now on, up to its completion."""
        compiled = self._compiled_barriers.at[number]
        if number not in self._named:
            self._named[number] = NamedBarrier(number, self.machine, compiled)
        compiled.in_python = 1
        if compiled.arrived:
            self._compiled_barriers.waiting -= compiled.arrived
            warps = {warp.registers.context_address: warp for warp in self.warps}
            groups = [warps[address].settle() for address in compiled.waiting[: compiled.arrived]]
            self._named[number].take_over(groups, self.counted_threads())
            for group in groups:
                group.warp.registers.tell_of_wait(group)
        return self._named[number]

    def take_over_barriers(self) -> None:
        """Makes Python keep the named barriers at which compiled code lets warps wait."""
        if self._compiled_barriers.waiting:
            for number, compiled in enumerate(self._compiled_barriers.at):
                if compiled.arrived:
                    self.named_barrier(number)

    @property
    def named_barriers(self) -> list[NamedBarrier]:
        """Named barriers that Python has used."""
        return list(self._named.values())

    def counted_threads(self) -> int:
        """Number of threads that a named barrier without a count waits for: 32 for each warp that has not exited."""
        return WARP_THREADS * self.live_warps

    def operands(self) -> tuple[SharedMemory, TensorMemory]:
        """Memories of a tensor core operation. Raises Fault if the CTA has exited."""
        self.alive("a tensor core operation")
        return self.shared, self.tmem

    def alive(self, user: str, issuer: Issuer | None = None) -> None:
        """Raises Fault, naming the user, if the CTA has exited.

        issuer: issuer of a copy, a commit or an arrival. An operation of the CTA's own is only a doubt: shipped kernels
        leave some behind, though no document promises that hardware keeps the shared memory for them. An operation of
        another CTA is a warning in a lenient run, in which the shared memory is put to no other use in the launch.
        """
        if not self.exited:
            return
        reason = f"{user} reaches {self.label}, which has exited"
        if issuer is None:
            raise Fault(reason)
        if issuer[0].cta is not self:
            ordering_fault(reason, (self.grid.entry.name, issuer[1], "exited", self.rank))
            return
        doubt(
            f"{reason} without waiting for what its {label(issuer)} has issued",
            (self.grid.entry.name, issuer[1], "exit"),
        )

    def use_cta_group(self, cta_group: int) -> None:
        """Sets the .cta_group of the CTA's tcgen05 instructions. Raises Fault if an earlier one had another.

        All tcgen05 instructions of a kernel must have the same .cta_group (PTX ISA, "tcgen05 instructions:
        .cta_group").
        """
        if self._cta_group is None:
            self._cta_group = cta_group
        elif self._cta_group != cta_group:
            raise Fault(
                f"tcgen05 instruction with cta_group::{cta_group} in a CTA that has used cta_group::{self._cta_group}"
            )

    def allow_dependents(self) -> None:
        """Handles griddepcontrol.launch_dependents of one of the CTA's threads, or the CTA's exit."""
        if not self.allows_dependents:
            self.allows_dependents = True
            self.grid.allowing += 1
            self.machine.progress += 1

    def thread_exit(self, warp: Warp, lanes: int) -> None:
        """Handles the exit of lanes of a warp."""
        self.live_threads -= lanes.bit_count()
        self.take_over_barriers()
        if self.cluster.events.is_observed:
            barriers: list[ClusterBarrier | NamedBarrier] = [self.cluster.barrier]
            barriers += [barrier for barrier in self._named.values() if barrier.count is None]
            for awaited in barriers:
                self.cluster.events.excused(awaited, awaited.generation, warp, lanes)
        for barrier in self._named.values():
            if barrier.parted:
                barrier.leave(warp, self.counted_threads())
        if warp.live == 0:
            self._compiled_barriers.warps = self.live_warps
            for barrier in self._named.values():
                if barrier.count is None:
                    barrier.settle(self.counted_threads())
        arrived = lanes & warp.cluster_arrived
        self.cluster.barrier.leave((lanes & ~arrived).bit_count(), arrived.bit_count())
        if self.live_threads == 0:
            self.exited = True
            self.shared.close()
            self._check_exit()
            self.allow_dependents()
            self.grid.exited += 1
            self.cluster.cta_exit()

    def _check_exit(self) -> None:
        check_requests(self)
        self.cluster.events.exited(self)
        # Producers of CuTe DSL 4.5.2 end with expect_tx for copies that they do not issue; no warp waits for those.
        barriers = self.mbarriers.values()
        self.grid.unfinished += [barrier for barrier in barriers if barrier.bytes and barrier.delivered]
        if self.tmem.allocations:
            columns = ", ".join(f"{width} at {base:#x}" for base, width in self.tmem.allocations.items())
            raise Fault(
                f"{self.label} exits with tensor memory allocated: {columns} columns (PTX ISA, tcgen05.dealloc)"
            )


class Cluster:
    """CTAs that are resident together. number: index of the cluster in the grid, x fastest.

    sms: the CTAs' SMs, by rank; None if each CTA is alone on an SM.
    """

    def __init__(self, machine: Machine, grid: Grid, number: int, sms: list[Sm] | None = None):
        self.machine, self.grid, self.number = machine, grid, number
        shape = grid.config.cluster
        self.size = shape[0] * shape[1] * shape[2]
        self.index = unravel(number, grid.clusters)
        x, y, z = grid.config.block
        self.barrier = ClusterBarrier(x * y * z * self.size, machine)
        self.live = self.size  # number of CTAs that have not exited
        self.events = Events()
        self.told: dict[int, int] = {}  # address of a word by which warps signal -> join of their `Warp.known`
        self.allocations = [PairedAllocation() for _ in range(self.size // 2)]
        self.sms = sms or [Sm(self._sm(rank), grid.properties) for rank in range(self.size)]
        self.ctas: list[Cta] = []
        self.windows = (ctypes.c_void_p * self.size)()  # CTAs' shared memory, for compiled code
        for rank in range(self.size):
            within = unravel(rank, shape)
            self.ctas.append(Cta(self, rank, cta_index(self.index, shape, within), within, self.sms[rank]))
        self.warps = [warp for cta in self.ctas for warp in cta.warps]

    def _sm(self, rank: int) -> int:
        return (self.number % self.grid.wave * self.size + rank) % self.grid.sm_count

    def become(self, number: int) -> None:
        """Makes a cluster of one CTA, to which nothing has happened yet, the one of a number."""
        self.number = number
        self.index = unravel(number, self.grid.clusters)
        (cta,) = self.ctas
        cta.index = cta_index(self.index, self.grid.config.cluster, cta.cluster_index)
        cta.sm = self.sms[0].index = self._sm(0)

    def move(self, machine: Machine, grid: Grid, number: int) -> None:
        """Makes a cluster of one CTA, to which nothing has happened yet, one of a grid of equal program and shape."""
        self.machine = self.barrier.machine = machine
        self.grid = grid
        (cta,) = self.ctas
        cta.machine, cta.grid = machine, grid
        for warp in self.warps:
            warp.first_group.grid = grid
        self.become(number)

    def leave_grid(self) -> None:
        """Forgets what only the grid's launch has needed."""
        self.grid.traffic = self.grid.allocation_table = None
        for warp in self.warps:
            warp.registers.forget_allocations()

    def change_program(self, moves: ctypes.Array[Move]) -> None:
        """Makes the warps go on with the grid's new program. moves: of their registers."""
        for warp in self.warps:
            warp.change_program(moves)

    def cta(self, rank: int, asking: Cta) -> Cta:
        """CTA of a rank. Raises Fault if it has exited, unless it is the one that asks, or the run is lenient."""
        if rank >= self.size:
            raise Fault(f"CTA rank {rank} in a cluster of {self.size}")
        found = self.ctas[rank]
        if found.exited and found is not asking:
            ordering_fault(
                f"shared memory of {found.label} (rank {rank}) is used by {asking.label} after that CTA has exited",
                (found.grid.entry.name, "exited", "cluster", rank, asking.rank),
            )
        return found

    def peer(self, address: int) -> Cta:
        """CTA that a shared memory address names. Raises Fault if it has exited."""
        rank = address >> RANK_SHIFT
        if rank >= self.size:
            raise Fault(
                f"shared address {address:#x} names CTA rank {rank} of a cluster of {self.size}, so that it is not in "
                "shared memory"
            )
        found = self.ctas[rank]
        found.alive("a shared memory access")
        return found

    def cta_exit(self) -> None:
        """Handles the exit of one of the CTAs."""
        self.live -= 1
        if self.live == 0:
            self.machine.finished.append(self)


def next_cluster(machine: Machine, grid: Grid, sms: list[Sm] | None) -> Cluster | None:
    """Makes the grid's next cluster resident; None if none is left. sms: as for `Cluster`."""
    number = grid.take_cluster()
    return None if number is None else Cluster(machine, grid, number, sms)
