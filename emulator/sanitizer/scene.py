"""What all that follows a cluster shares: its agents, what its warps know, where it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.sanitizer.clocks import LANES, Agents, WarpClock

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cluster
    from emulator.hardware.warp import Warp
    from emulator.sanitizer.report import Reporter


class Scene:
    """Of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter) -> None:
        self.cluster, self.reporter, self.kernel = cluster, reporter, cluster.grid.entry.name
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self.agents = Agents(LANES * len(warps))
        self.warps = {warp: WarpClock(self.agents, LANES * i) for i, warp in enumerate(warps)}


def running_lanes(warp: Warp) -> int:
    """The mask of the lanes that run."""
    return warp.registers.context.mask & warp.live or 1


def opcode_of(warp: Warp) -> str:
    """That of the instruction that the warp executes."""
    return warp.cta.grid.entry.instructions[warp.registers.context.pc].opcode
