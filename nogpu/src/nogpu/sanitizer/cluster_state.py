"""State that the parts of a cluster's sanitizer share: its agents, the clocks of its warps, its reporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nogpu.ops.memory import SHARED_TAG, TAG_SHIFT
from nogpu.sanitizer import orders
from nogpu.sanitizer.clocks import LANES, Agents, Home
from nogpu.sanitizer.rules import ORDER
from nogpu.sanitizer.warp_clocks import WarpClock

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.clocks import Clock
    from nogpu.sanitizer.conflicts import Access
    from nogpu.sanitizer.report import Reporter
    from nogpu.sanitizer.words import Words


class _Place:
    """Identity of a CTA, or of a warp, in reports."""

    __slots__ = ("index", "label")

    def __init__(self, label: str, index: tuple[int, int, int] | int) -> None:
        self.label, self.index = label, index


class _Group:
    """Identity of an active group in reports."""

    __slots__ = ("cta", "grid", "warp")

    def __init__(self, group: ActiveGroup) -> None:
        self.grid = group.grid
        self.cta, self.warp = _Place(group.cta.label, group.cta.index), _Place("", group.warp.index)


def remnant(issuer: Issuer) -> tuple[Any, int]:
    """Copy of an issuer with its identity in reports only: it keeps nothing of a CTA that has exited."""
    return _Group(issuer[0]), issuer[1]


class ClusterState:
    """State that the parts of one cluster's sanitizer share."""

    def __init__(self, cluster: Cluster, reporter: Reporter, words: Words) -> None:
        """words: those of global memory that release clocks to other clusters."""
        self.reporter, self.kernel = reporter, cluster.grid.entry.name
        self.words = words
        self.global_accesses: dict[tuple, Access] = {}
        self.home = Home(cluster.grid.number)
        self.started: Clock | None = None  # clock that the start of its launch acquires (`Words.start`)
        warps = [warp for cta in cluster.ctas for warp in cta.warps]
        self.agents = Agents(LANES * len(warps))
        self.warps = {warp: WarpClock(self.agents, LANES * i) for i, warp in enumerate(warps)}

    def releases(self, issuer: Issuer) -> bool:
        """True if an arrival or a store releases, by itself or by a waiver."""
        return orders.releases(opcode(issuer)) or self.reporter.allows(ORDER, issuer)

    def acquires(self, issuer: Issuer) -> bool:
        """True if a wait or a load acquires, by itself or by a waiver."""
        return orders.acquires(opcode(issuer)) or self.reporter.allows(ORDER, issuer)


def is_global(key: int) -> bool:
    """True if a word's generic address is not in shared memory."""
    return key >> TAG_SHIFT != SHARED_TAG


def place_of(key: int) -> int:
    """Address of a word in its own memory."""
    return key if is_global(key) else key & 0xFFFFFFFF


def running_lanes(warp: Warp) -> int:
    """Mask of the lanes that run."""
    return warp.registers.context.mask & warp.live or 1


def opcode(issuer: Issuer) -> str:
    """Opcode of an instruction."""
    group, index = issuer
    return group.grid.entry.instructions[index].opcode


def running(warp: Warp) -> Issuer:
    """Instruction that the warp executes."""
    return warp.first_group, warp.registers.context.pc
