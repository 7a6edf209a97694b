"""The hardware's view of the machine that runs it: time, the warps' turns and asynchronous work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from emulator.hardware.async_operations import Queues, Schedule
    from emulator.hardware.cluster import Cluster, Grid
    from emulator.hardware.warp import ActiveGroup, Warp


class Machine(Protocol):
    """Runs warps and asynchronous operations in the order of a schedule.

    progress: the time; it grows with every effect that another warp could see.
    """

    schedule: Schedule
    queues: Queues
    progress: int

    def clock(self) -> int:
        """A count of cycles that only grows."""

    def enqueue(self, warp: Warp) -> None:
        """Give the warp a turn: one of its groups can run."""

    def cluster_done(self, cluster: Cluster) -> None:
        """All CTAs of the cluster have exited."""

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Take a cluster of the grid that has not started off those to run.

        Returns the index (x, y, z) of its first CTA, None if all clusters have started.
        """

    def pause(self, group: ActiveGroup) -> bool:
        """End the turn of a group behind which another launch may start. Returns False where none can."""

    def postpones(self) -> bool:
        """Whether a warp's asynchronous work that only the warp itself sees is put off until it waits for it."""
