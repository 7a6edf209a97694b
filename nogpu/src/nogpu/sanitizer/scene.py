"""What all that follows a cluster shares: its agents, what its warps know, where it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nogpu.sanitizer import orders
from nogpu.sanitizer.clocks import LANES, Agents, Home
from nogpu.sanitizer.rules import ORDER
from nogpu.sanitizer.warp_clocks import WarpClock

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.conflicts import Access
    from nogpu.sanitizer.report import Reporter
    from nogpu.sanitizer.words import Words


class _Place:
    """What a report says of a CTA, or of a warp."""

    __slots__ = ("index", "label")

    def __init__(self, label: str, index: tuple[int, int, int] | int) -> None:
        self.label, self.index = label, index


class _Group:
    """What a report says of an active group."""

    __slots__ = ("cta", "grid", "warp")

    def __init__(self, group: ActiveGroup) -> None:
        self.grid = group.grid
        self.cta, self.warp = _Place(group.cta.label, group.cta.index), _Place("", group.warp.index)


def remnant(issuer: Issuer) -> tuple[Any, int]:
    """An issuer, as far as reports name it: nothing of a CTA that has exited is kept."""
    return _Group(issuer[0]), issuer[1]


class Scene:
    """Of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter, words: Words) -> None:
        """words: those of global memory that pass clocks on."""
        self.reporter, self.kernel = reporter, cluster.grid.entry.name
        self.words = words
        self.global_accesses: dict[tuple, Access] = {}
        self.home = Home(cluster.grid.number)
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self.agents = Agents(LANES * len(warps))
        self.warps = {warp: WarpClock(self.agents, LANES * i) for i, warp in enumerate(warps)}

    def releases(self, issuer: Issuer) -> bool:
        """Whether an arrival or a store releases what is before it, or is taken to do so."""
        return orders.releases(opcode(issuer)) or self.reporter.allows(ORDER, issuer)

    def learns(self, issuer: Issuer) -> bool:
        """Whether a wait or a load acquires, or is taken to do so."""
        return orders.learns(opcode(issuer)) or self.reporter.allows(ORDER, issuer)


def is_global(key: int) -> bool:
    """Whether a word's address is one of global memory: those of shared memory have 32 bits."""
    return key >> 32 != 0


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
