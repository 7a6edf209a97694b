"""Interface of the scheduler that runs the hardware: time, the warps' turns and asynchronous operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nogpu.hardware.barriers import Timed

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.native import Barrier
    from nogpu.hardware.tensor.work import TensorWork
    from nogpu.hardware.tile_loads import Loads
    from nogpu.hardware.warp import ActiveGroup, Warp


class Machine(Timed, Protocol):
    """Runs warps and asynchronous operations in the order of a schedule."""

    quiet: int  # number of events, of those that `progress` counts, that have changed nothing that a lane can read
    running: AsyncOperation | None  # asynchronous operation that happens at this moment
    finished: list[Cluster]  # clusters whose CTAs have all exited
    loads: Loads | None  # tile loads that compiled code repeats, once there are any
    work: TensorWork | None  # the tensor core's work that compiled code issues, once there is any

    def tell(self) -> None:
        """Passes a Python row's changes to compiled code."""

    def repeated_loads(self) -> Loads | None:
        """Tile loads that compiled code repeats; None where it may repeat none."""

    def compiled_work(self, grid: Grid) -> TensorWork | None:
        """The tensor core's work that compiled code issues and executes; None where it may not."""

    def note_doubt(self, barrier: Barrier, pc: int) -> None:
        """Lets compiled code perform later arrivals of an instruction at an mbarrier of its CTA whose initialisation
        the async proxy may not see: that has been reported.
        """

    def clock(self) -> int:
        """Count of cycles that only grows."""

    def enqueue(self, warp: Warp) -> None:
        """Gives the warp a turn, since one of its groups can run."""

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Cancels a cluster of the grid that has not started.

        Returns the index (x, y, z) of its first CTA, None if all clusters have started.
        """

    def pause(self, group: ActiveGroup) -> bool:
        """Ends the turn of a group, so that another launch may start first. Returns False if none can."""

    always_postpones: bool | None  # constant value of `postpones`; None: it is random

    def postpones(self) -> bool:
        """True if asynchronous work that only its own warp can observe is delayed until the warp waits for it."""
