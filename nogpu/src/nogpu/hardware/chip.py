"""Streaming multiprocessors of the chip: the free resources of each, and the placement of clusters on them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nogpu.errors import EmulatorError
from nogpu.hardware.barriers import wake
from nogpu.hardware.properties import WARP_THREADS, DeviceProperties
from nogpu.hardware.tensor.tmem import ColumnAllocator

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup

TPC_SMS = 2  # SMs of a texture processing cluster; the CTAs of a pair are on one (PTX ISA, "CTA Pair")


class SmTensorMemory:
    """Tensor memory of an SM, which its CTAs share."""

    def __init__(self, columns: int) -> None:
        self.allocator = ColumnAllocator(columns)
        self.ctas: list[Cta] = []  # CTAs on the SM
        self.waiters: list[ActiveGroup] = []  # groups that wait for columns

    def wake(self) -> None:
        """Wakes the groups that wait: columns have been freed."""
        wake(self.waiters)

    def __str__(self) -> str:
        held = [f"{sum(cta.tmem.allocations.values())} by {cta.label}" for cta in self.ctas if cta.tmem.allocations]
        return f"tensor memory columns of the SM, none of that size are free; held are {', '.join(held) or 'none'}"


class Sm:
    """SM and its free resources."""

    def __init__(self, index: int, properties: DeviceProperties):
        self.index = index
        self.tensor_memory = SmTensorMemory(properties.tensor_memory_columns)
        self.shared = properties.shared_memory_per_sm  # free bytes
        self.threads = properties.max_threads_per_sm  # free threads
        self.blocks = properties.max_blocks_per_sm  # number of further CTAs that fit


class Chip:
    """All SMs. A cluster gets adjacent SMs, one for each CTA.

    policy, a schedule's kind: "late" takes the fullest SMs that have room, so that CTAs compete for shared resources,
    "eager" the emptiest, "random" any, by `source`.
    """

    def __init__(self, properties: DeviceProperties, policy: str, source: random.Random):
        self.properties, self.policy, self.random = properties, policy, source
        self.sms = [Sm(index, properties) for index in range(properties.sm_count)]

    def _needs(self, grid: Grid) -> tuple[int, int]:
        """(bytes of shared memory, number of threads) that a CTA occupies."""
        x, y, z = grid.config.block
        threads = -(-x * y * z // WARP_THREADS) * WARP_THREADS
        return grid.shared_bytes + self.properties.shared_memory_reserved_per_block, threads

    def place(self, grid: Grid) -> list[Sm] | None:
        """SMs for another cluster of the grid, None while there is no room.

        Raises EmulatorError for a cluster of more CTAs than the chip has SMs.
        """
        x, y, z = grid.config.cluster
        size = x * y * z
        shared, threads = self._needs(grid)
        step = TPC_SMS if size > 1 else 1
        windows = [self.sms[first : first + size] for first in range(0, len(self.sms) - size + 1, step)]
        if not windows:
            raise EmulatorError(
                f"a cluster of {size} CTAs does not fit on {len(self.sms)} SM(s)", kernel=grid.entry.name
            )
        room = [
            window
            for window in windows
            if all(sm.shared >= shared and sm.threads >= threads and sm.blocks for sm in window)
        ]
        if not room:
            return None
        if self.policy == "random":
            return self.random.choice(room)
        choose = min if self.policy == "late" else max
        return choose(room, key=lambda window: sum(sm.blocks for sm in window))

    def occupy(self, cluster: Cluster) -> None:
        """Makes a cluster resident on its SMs."""
        self._change(cluster, 1)
        for cta in cluster.ctas:
            cta.sm_tensor_memory.ctas.append(cta)

    def release(self, cluster: Cluster) -> None:
        """Frees the SMs of a cluster."""
        self._change(cluster, -1)
        for cta in cluster.ctas:
            cta.sm_tensor_memory.ctas.remove(cta)

    def _change(self, cluster: Cluster, sign: int) -> None:
        shared, threads = self._needs(cluster.grid)
        for sm in cluster.sms:
            sm.shared -= sign * shared
            sm.threads -= sign * threads
            sm.blocks -= sign
