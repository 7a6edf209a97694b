"""Grids: launches, with the state that their CTAs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.hardware.barriers import wake
from nogpu.hardware.mbarriers import MBarrier
from nogpu.hardware.native import AllocationTable
from nogpu.hardware.properties import DeviceProperties, clusters_per_wave
from nogpu.hardware.warp import ActiveGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.counters import LaunchCounters
    from nogpu.hardware.events import GridObserver
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.program import Program
    from nogpu.hardware.properties import Dim3, LaunchConfig
    from nogpu.hardware.traffic import Traffic


class Grid:
    """Launch in progress."""

    def __init__(
        self,
        program: Program,
        config: LaunchConfig,
        parameters: np.ndarray,
        memory: GlobalMemory,
        counters: LaunchCounters,
        properties: DeviceProperties | None = None,
    ):
        """parameters: uint8, packed, 64-byte aligned and registered with the memory."""
        self.number = 0  # place among launches that may overlap
        self.title = ""  # name in messages where launches overlap
        self.program, self.config, self.memory, self.counters = program, config, memory, counters
        self.entry = program.entry
        self.parameters = parameters  # uint8, as the kernel reads them
        self.param_address = parameters.ctypes.data
        self.properties = properties or DeviceProperties()
        self.sm_count = self.properties.sm_count
        self.traffic: Traffic | None = memory.traffic  # traffic to and from global memory; None if it is not counted
        self.observers: list[GridObserver] = []
        self.seats: Any = None  # `execution.kept_ctas.Seats`, or None
        self.multiplies = True  # False if accumulators of tcgen05.mma stay as they are
        self.shares_work = False  # clusters that take over others' work get equal turns: all that fit are resident
        self.allocation_table: AllocationTable | None = None  # for compiled code
        # uint8[warps, bytes] by rank: register files of a CTA at its start; special registers by CTA are any CTA's.
        self.files: dict[int, np.ndarray] = {}
        # uint8 by instruction: 1 for reconvergence points at which lanes do not wait; None while the grid has none.
        self.open_points: np.ndarray | None = None
        self.clusters: Dim3 = (
            config.grid[0] // config.cluster[0],
            config.grid[1] // config.cluster[1],
            config.grid[2] // config.cluster[2],
        )
        self.cluster_size = config.cluster[0] * config.cluster[1] * config.cluster[2]
        self.wave = clusters_per_wave(config, self.properties)
        self.numbers: Sequence[int] = range(config.clusters)  # clusters that run, x fastest
        self.predecessors: list[Grid] = []  # grids that griddepcontrol.wait waits for
        self.waiters: list[ActiveGroup] = []  # groups that wait for the end of this grid
        # mbarriers of exited CTAs with a nonzero tx-count in a phase that has received bytes.
        self.unfinished: list[MBarrier] = []
        self._taken = 0  # number of clusters that have started, or have been cancelled
        self.allowing = 0  # number of CTAs that have allowed dependents to start, or have exited
        self.exited = 0  # number of CTAs that have exited, or were cancelled
        self.outstanding = 0  # number of asynchronous operations that have not happened
        self.finished = False

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a CTA."""
        return self.program.dynamic_shared_offset + self.config.dynamic_shared_bytes

    @property
    def allows_dependents(self) -> bool:
        """True if the next launch may start: every CTA has allowed it or has exited (PTX ISA, griddepcontrol)."""
        return self.allowing == self.config.ctas

    @property
    def complete(self) -> bool:
        """True if all CTAs have exited and all asynchronous work is done."""
        return self.exited == len(self.numbers) * self.cluster_size and not self.outstanding

    @property
    def clusters_left(self) -> int:
        """Number of clusters that have not started."""
        return len(self.numbers) - self._taken

    def run_by_lane(self, clusters: Iterable[Cluster]) -> None:
        """Makes lanes that do not wait for others at reconvergence points independent of them: the grid goes on with
        its program by lane (`compiler.flow`), which is slower. clusters: those that are resident.
        """
        old = self.program
        if old.by_lane is None:
            return
        self.program, moves = old.by_lane()
        self.files = {}
        self.open_points = np.zeros(len(self.program.starts), np.uint8)
        self.program.printing_schedule = old.printing_schedule
        for cluster in clusters:
            if cluster.grid is self:
                cluster.change_program(moves)

    def keep_part(self, part: int, parts: int) -> None:
        """Keeps the clusters of part `part` of `parts`; those that take turns on an SM are in one part."""
        if parts > 1:
            self.numbers = [number for number in self.numbers if number % self.wave % parts == part]

    def take_cluster(self) -> int | None:
        """Number of the next cluster to start, or to be cancelled; None if there is none left."""
        if not self.clusters_left:
            return None
        self._taken += 1
        return self.numbers[self._taken - 1]

    def following(self, count: int) -> Sequence[int]:
        """Numbers of the next clusters to start, `count` at most."""
        return self.numbers[self._taken : self._taken + count]

    def replaced(self, count: int, issued: int) -> None:
        """Counts clusters of one CTA that have ended, with their warp instructions, and as many that have started."""
        self._taken += count
        self.exited += count
        self.allowing += count
        self.counters.ctas += count
        self.counters.warp_instructions += issued

    def renew_allocation_table(self) -> AllocationTable:
        """Table of the memory's live allocations, made anew."""
        self.settle_stores()
        self.allocation_table = AllocationTable(self.memory, self.traffic)
        return self.allocation_table

    def settle_stores(self) -> None:
        """Adds the stores of compiled code so far to the launch's traffic."""
        if self.allocation_table is not None:
            self.allocation_table.settle()

    def is_parameter(self, address: int) -> bool:
        """True if a host address is one of the parameters' bytes."""
        return self.param_address <= address < self.param_address + len(self.parameters)

    def cancel(self, number: int) -> Dim3:
        """Cancels cluster `number`, which has not started. Returns the index (x, y, z) of its first CTA."""
        self.exited += self.cluster_size
        self.allowing += self.cluster_size
        return cta_index(unravel(number, self.clusters), self.config.cluster, (0, 0, 0))

    def finish(self) -> None:
        """Ends the grid, which is complete and whose results are visible."""
        self.finished = True
        self.settle_stores()
        if self.traffic is not None:
            self.counters.account(self.traffic)
            self.counters.stored_bytes = self.traffic.stored_bytes
        wake(self.waiters)

    def __str__(self) -> str:
        left = f"{self.config.ctas - self.exited} of {self.config.ctas} CTAs have not exited"
        operations = f"{self.outstanding} asynchronous operations are outstanding"
        return f"the end of {self.title or 'the launch'}: {left}, {operations}"


def cta_index(cluster: Dim3, shape: Dim3, within: Dim3) -> Dim3:
    """Index (x, y, z) in the grid of the CTA at index `within` in a cluster of `shape` CTAs."""
    (a, b, c), (x, y, z), (u, v, w) = cluster, shape, within
    return a * x + u, b * y + v, c * z + w


def unravel(number: int, shape: Dim3) -> Dim3:
    """Index (x, y, z) of element `number` of a grid of `shape`, x fastest."""
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])
