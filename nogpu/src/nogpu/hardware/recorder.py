"""The hardware's view of what records a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster


class Recorder(Protocol):
    """Records what the warps of one launch do."""

    values: bool
    """False leaves out the products of tcgen05.mma: accumulators stay as they are."""

    def join(self, cluster: Cluster) -> None:
        """The cluster is resident; its warps have executed nothing."""

    def leave(self, cluster: Cluster) -> None:
        """The CTAs of the cluster have exited."""

    def cancelled(self, request: AsyncOperation, number: int | None) -> None:
        """A clusterlaunchcontrol.try_cancel has taken over a cluster of the grid; None: there was none left."""
