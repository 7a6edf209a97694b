"""What is resident on the chip: grids, clusters and CTAs with their memories and barriers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from emulator.errors import Fault
from emulator.hardware.barriers import ClusterBarrier, MBarrier, NamedBarrier, wake
from emulator.hardware.chip import Sm
from emulator.hardware.memory import RANK_SHIFT, SHARED_BASE, SharedMemory
from emulator.hardware.properties import WARP_THREADS, DeviceProperties
from emulator.hardware.registers import check_requests
from emulator.hardware.store_marks import StoreMarks
from emulator.hardware.tensor.tmem import TensorMemory
from emulator.hardware.warp import ActiveGroup, Warp

if TYPE_CHECKING:
    import numpy as np

    from emulator.hardware.counters import LaunchCounters
    from emulator.hardware.machine import Machine
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.program import Program
    from emulator.hardware.properties import LaunchConfig


class Grid:
    """One launch. number: its place among launches that may overlap; title: names it in messages where several do.

    predecessors: grids that `griddepcontrol.wait` waits for; waiters: groups that wait for this one.
    admitted: clusters; allowing: CTAs that have allowed dependents to start, or have exited; jobs: asynchronous work
    that is outstanding. unfinished: barriers of CTAs that have exited on which bytes had still to come, or to be
    expected. traffic: what it moves to and from global memory, None if nobody counts.
    """

    def __init__(
        self,
        number: int,
        program: Program,
        config: LaunchConfig,
        parameters: np.ndarray,
        memory: GlobalMemory,
        counters: LaunchCounters,
        properties: DeviceProperties | None = None,
        title: str = "",
    ):
        self.number, self.program, self.config, self.memory, self.counters = number, program, config, memory, counters
        self.entry = program.entry
        self.parameters = parameters
        self.param_address = parameters.ctypes.data
        self.properties = properties or DeviceProperties()
        self.sm_count = self.properties.sm_count
        self.title = title
        self.traffic = memory.traffic
        self.clusters = tuple(grid // cluster for grid, cluster in zip(config.grid, config.cluster, strict=True))
        self.predecessors: list[Grid] = []
        self.waiters: list[ActiveGroup] = []
        self.unfinished: list[MBarrier] = []
        self.admitted = self.allowing = self.exited = self.outstanding = 0
        self.finished = False

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA."""
        return self.program.dynamic_shared_offset + self.config.dynamic_shared_bytes

    @property
    def allows_dependents(self) -> bool:
        """Whether a launch behind this one may start: every CTA has said so or has exited (PTX ISA, griddepcontrol)."""
        return self.allowing == self.config.ctas

    @property
    def complete(self) -> bool:
        """Whether all CTAs have exited and all asynchronous work is done."""
        return self.exited == self.config.ctas and not self.outstanding

    def is_parameter(self, address: int) -> bool:
        return self.param_address <= address < self.param_address + len(self.parameters)

    def cancel(self, number: int) -> tuple[int, int, int]:
        """A cluster that has not started does not run. Returns the index of its first CTA."""
        size = self.config.ctas // self.config.clusters
        self.exited += size
        self.allowing += size
        return tuple(c * s for c, s in zip(_unravel(number, self.clusters), self.config.cluster, strict=True))

    def finish(self) -> None:
        self.finished = True
        wake(self.waiters)

    def __str__(self) -> str:
        left = f"{self.config.ctas - self.exited} of {self.config.ctas} CTAs have not exited"
        return f"the end of {self.title or 'the launch'}: {left}, {self.outstanding} asynchronous operations are outstanding"


class PairedAllocation:
    """tcgen05.alloc with cta_group::2: the CTAs of a pair perform it together (PTX ISA, "Issue Granularity").

    Both get columns at the same address: cta_group::2 instructions take one for both. The odd CTA waits for the even
    one, which need not wait: the ISA only says that they may block.
    """

    def __init__(self) -> None:
        self._for_odd: deque[tuple[int, int]] = deque()  # (columns, base) that the even CTA has allocated for both
        self.waiters: list[ActiveGroup] = []

    def take(self, rank: int, columns: int, memories: list[TensorMemory]) -> int | None:
        """The address for the CTA of that rank in the pair; None while it has to wait."""
        if rank == 0:
            base = memories[0].alloc_with(memories[1], columns)
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
    """index: (x, y, z) in the grid; rank: in the cluster; label: for messages."""

    def __init__(
        self, cluster: Cluster, rank: int, index: tuple[int, int, int], cluster_index: tuple[int, int, int], sm: Sm
    ):
        self.cluster, self.rank, self.index, self.cluster_index = cluster, rank, index, cluster_index
        self.grid, self.machine = cluster.grid, cluster.machine
        self.label = f"CTA {index}" + (f" of {self.grid.title}" if self.grid.title else "")
        self.sm = sm.index
        config = self.grid.config
        self.shared = SharedMemory(self.grid.shared_bytes, rank)
        self.shared_base = rank << RANK_SHIFT | SHARED_BASE
        self.sm_tensor_memory = sm.tensor_memory
        self.tmem = TensorMemory(self.sm_tensor_memory.allocator)
        if self.grid.program.traits.async_reads:
            self.shared.marks = StoreMarks(self.shared)
        self.mbarriers: dict[int, MBarrier] = {}
        self.register_requests: dict[int, list[int]] = {}  # of setmaxnreg, by warp
        self.hidden_barriers: list[MBarrier] = []  # whose initialisation somebody may not see yet
        self._named: dict[int, NamedBarrier] = {}
        self._cta_group: int | None = None
        self.met: int | None = None  # time since when it has known that the other CTAs of the cluster have started
        self.allows_dependents = False
        self.exited = False
        x, y, z = config.block
        self.live_threads = x * y * z
        count = -(-self.live_threads // WARP_THREADS)
        self.warps = [Warp(self, i, min(WARP_THREADS, self.live_threads - WARP_THREADS * i)) for i in range(count)]

    def mbarrier(self, offset: int) -> MBarrier:
        if self.exited:
            raise Fault(f"mbarrier at shared offset {offset:#x} of {self.label}, which has exited")
        barrier = self.mbarriers.get(offset)
        if barrier is None:
            raise Fault(
                f"there is no mbarrier at shared offset {offset:#x} of {self.label}: it was not initialised (PTX ISA, mbarrier.init)"
            )
        return barrier

    def named_barrier(self, number: int) -> NamedBarrier:
        if number not in self._named:
            self._named[number] = NamedBarrier(number, self.machine)
        return self._named[number]

    def counted_threads(self) -> int:
        """Threads that a named barrier without a count waits for: whole warps that have not exited."""
        return WARP_THREADS * sum(warp.live != 0 for warp in self.warps)

    def operands(self) -> tuple[SharedMemory, TensorMemory]:
        self.alive("a tensor core operation")
        return self.shared, self.tmem

    def alive(self, user: str) -> None:
        if self.exited:
            raise Fault(f"{user} reaches {self.label}, which has exited")

    def use_cta_group(self, cta_group: int) -> None:
        """All tcgen05 instructions of a kernel must have the same .cta_group (PTX ISA, "tcgen05 instructions:
        .cta_group").
        """
        if self._cta_group is None:
            self._cta_group = cta_group
        elif self._cta_group != cta_group:
            raise Fault(
                f"tcgen05 instruction with cta_group::{cta_group} in a CTA that has used cta_group::{self._cta_group}"
            )

    def allow_dependents(self) -> None:
        if not self.allows_dependents:
            self.allows_dependents = True
            self.grid.allowing += 1
            self.machine.progress += 1

    def thread_exit(self, warp: Warp, lanes: int) -> None:
        self.live_threads -= lanes.bit_count()
        if warp.live == 0:
            for barrier in self._named.values():
                if barrier.count is None:
                    barrier.settle(self.counted_threads())
        arrived = lanes & warp.cluster_arrived
        self.cluster.barrier.leave((lanes & ~arrived).bit_count(), arrived.bit_count())
        if self.live_threads == 0:
            self.exited = True
            self._check_exit()
            self.allow_dependents()
            self.grid.exited += 1
            self.cluster.cta_exit()

    def _check_exit(self) -> None:
        check_requests(self)
        # Producers of CuTe DSL 4.5.2 end with bytes expected of copies that they do not issue: nobody waits for those.
        barriers = self.mbarriers.values()
        self.grid.unfinished += [barrier for barrier in barriers if barrier.bytes and barrier.delivered]
        if self.tmem.allocations:
            columns = ", ".join(f"{width} at {base:#x}" for base, width in self.tmem.allocations.items())
            raise Fault(
                f"{self.label} exits with tensor memory allocated: {columns} columns (PTX ISA, tcgen05.dealloc)"
            )


class Cluster:
    """CTAs that are resident together. number: index of the cluster in the grid, x fastest.

    sms: where the CTAs are, by rank; None: each alone on an SM.
    """

    def __init__(self, machine: Machine, grid: Grid, number: int, sms: list[Sm] | None = None):
        self.machine, self.grid, self.number = machine, grid, number
        shape = grid.config.cluster
        self.size = shape[0] * shape[1] * shape[2]
        self.index = _unravel(number, grid.clusters)
        x, y, z = grid.config.block
        self.barrier = ClusterBarrier(x * y * z * self.size, machine)
        self.live = self.size
        self.allocations = [PairedAllocation() for _ in range(self.size // 2)]
        first = number * self.size
        self.sms = sms or [Sm((first + rank) % grid.sm_count, grid.properties) for rank in range(self.size)]
        self.ctas: list[Cta] = []
        for rank in range(self.size):
            within = _unravel(rank, shape)
            index = tuple(c * s + w for c, s, w in zip(self.index, shape, within, strict=True))
            self.ctas.append(Cta(self, rank, index, within, self.sms[rank]))

    def cta(self, rank: int, asking: Cta) -> Cta:
        """The CTA of a rank, which must be alive unless it is the one that asks."""
        if rank >= self.size:
            raise Fault(f"CTA rank {rank} in a cluster of {self.size}")
        found = self.ctas[rank]
        if found.exited and found is not asking:
            raise Fault(
                f"shared memory of {found.label} (rank {rank}) is used by {asking.label} after that CTA has exited"
            )
        return found

    def peer(self, rank: int) -> Cta:
        if rank >= self.size:
            raise Fault(f"shared address names CTA rank {rank} of a cluster of {self.size}")
        found = self.ctas[rank]
        found.alive("a shared memory access")
        return found

    def cta_exit(self) -> None:
        self.live -= 1
        if self.live == 0:
            self.machine.cluster_done(self)


def _unravel(number: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])
