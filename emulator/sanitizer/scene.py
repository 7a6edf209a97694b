"""What all that follows a cluster shares: its agents, what its warps know, where it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.sanitizer import orders
from emulator.sanitizer.clocks import LANES, Agents, WarpClock
from emulator.sanitizer.report import ORDER, SCOPE

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cluster
    from emulator.hardware.warp import Issuer, Warp
    from emulator.sanitizer.report import Reporter


class Scene:
    """Of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter) -> None:
        self.cluster, self.reporter, self.kernel = cluster, reporter, cluster.grid.entry.name
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self.agents = Agents(LANES * len(warps))
        self.warps = {warp: WarpClock(self.agents, LANES * i) for i, warp in enumerate(warps)}

    def releases(self, issuer: Issuer) -> bool:
        """Whether an arrival or a store releases what is before it, or is taken to do so."""
        return orders.releases(opcode(issuer)) or self.reporter.allows(ORDER, issuer)

    def learns(self, issuer: Issuer) -> bool:
        """Whether a wait or a load acquires, or is taken to do so."""
        return orders.learns(opcode(issuer)) or self.reporter.allows(ORDER, issuer)

    def is_wide(self, issuer: Issuer) -> bool:
        """Whether the scope of an arrival or a wait has other CTAs, or is taken to have them."""
        return orders.is_wide(opcode(issuer)) or self.reporter.allows(SCOPE, issuer)


def running_lanes(warp: Warp) -> int:
    """The mask of the lanes that run."""
    return warp.registers.context.mask & warp.live or 1


def opcode(issuer: Issuer) -> str:
    """That of an instruction."""
    group, index = issuer
    return group.grid.entry.instructions[index].opcode


def running(warp: Warp) -> Issuer:
    """The instruction that the warp executes."""
    return warp.first_group, warp.registers.context.pc
