"""Warps that have parted at named barriers: their lanes wait for each other, and go on together.

The thread that executes a barrier waits for all threads of its warp that have not exited (PTX ISA, "barrier{.cta}");
ptxas puts a WARPSYNC before each BAR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, ReconvergencePoint, Warp


class PartedArrival:
    """Lanes of a warp that have arrived on a named barrier before the warp's others."""

    __slots__ = ("count", "lanes", "waiters")

    def __init__(self, count: int | None):
        self.count = count  # count of the barrier
        self.lanes = 0
        self.waiters: list[ActiveGroup] = []  # groups that wait for the barrier

    def unite(self, warp: Warp, last: ActiveGroup | None = None, pc: int = -1) -> bool:
        """Unites all lanes of the warp in one group, the first that has waited, if they all wait at one instruction.

        last: a group that has just come to `pc`. Returns True if that group has ended so.
        """
        groups = [*self.waiters, *([last] if last else [])]
        places = {group.pc for group in self.waiters} | ({pc} if last else set())
        present = {group for group in warp.groups if group.bits & warp.live}
        if len(places) > 1 or len(groups) < 2 or set(groups) != present:
            return False
        kept = groups[0]
        kept.reconvergence = _common(groups)
        for group in groups[1:]:
            kept.bits |= group.bits
            group.bits = 0
            warp.groups.remove(group)
            warp.issued += group.issued
        return last is not None


def _common(groups: list[ActiveGroup]) -> ReconvergencePoint | None:
    """Innermost reconvergence point that lies ahead of all groups. No lane waits at those inside of it."""
    chains = [_chain(group.reconvergence) for group in groups]
    return next((point for point in chains[0] if all(point in chain for chain in chains)), None)


def _chain(point: ReconvergencePoint | None) -> list[ReconvergencePoint]:
    chain = []
    while point is not None:
        chain.append(point)
        point = point.parent
    return chain
