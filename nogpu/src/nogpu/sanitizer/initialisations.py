"""Follows mbarrier.init: it must happen before every use of the object.

| user | needs |
|---|---|
| a thread of the CTA | a chain of events behind it |
| a thread of another CTA | a chain with orders and scopes that reach it; any behind `fence.mbarrier_init` |
| a copy or a commit of another CTA | a chain with orders behind `fence.proxy.async`; any behind `fence.mbarrier_init` |

An object that others have used must be initialised anew, or invalidated, behind all of their uses.

The fence is the initialising thread's. Copies and commits of the CTA itself are left to a rule that needs no sanitizer
(`MBarrier.hidden`): everything that Triton compiles breaks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.sanitizer.clocks import ANYWAY, FENCED, ORDERED, Clock, lanes_of
from nogpu.sanitizer.cluster_state import ClusterState, opcode, running_lanes
from nogpu.sanitizer.cluster_state import running as executed
from nogpu.sanitizer.orders import releases

if TYPE_CHECKING:
    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import Issuer, Warp


class _Initialisation:
    """Initialisation of one mbarrier."""

    __slots__ = ("agents", "count", "issuer", "mask", "published", "warp")

    def __init__(self, warp: Warp, mask: int, agents: list[int], count: int) -> None:
        self.warp, self.mask, self.issuer = warp, mask, (warp.first_group, warp.registers.context.pc)
        self.agents, self.count = agents, count  # components and count of its lanes
        self.published: int | None = None  # count at fence.mbarrier_init


class Initialisations:
    """Initialisations of a cluster's mbarriers."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._of: dict[MBarrier, _Initialisation] = {}
        self._open: list[_Initialisation] = []  # initialisations that no fence has followed
        self._seen: set[tuple[MBarrier, Warp, int]] = set()  # (barrier, warp, lanes) that need no further check
        # by barrier: (warp, lanes) that have arrived or waited -> their count, and the instruction
        self._uses: dict[MBarrier, dict[tuple[Warp, int], tuple[int, Issuer]]] = {}

    def initialised(self, barrier: MBarrier, warp: Warp, mask: int) -> None:
        """Notes an initialisation (`Events.initialised`)."""
        clock = self._state.warps[warp]
        found = _Initialisation(warp, mask, [clock.base + lane for lane in lanes_of(mask)], clock.now)
        self._of[barrier] = found
        self._open.append(found)

    def invalidated(self, barrier: MBarrier, warp: Warp, mask: int) -> None:
        """Reports uses by others that are not ordered before the end of an mbarrier (`Events.invalidated`)."""
        clock = self._state.warps[warp]
        for (user, lanes), (count, issuer) in self._uses.pop(barrier, {}).items():
            others = lanes & ~mask if user is warp else lanes
            base = self._state.warps[user].base
            for _, part in clock.parts(mask):
                if any(part.table.item(ANYWAY, base + lane) < count for lane in lanes_of(others)):
                    self._state.reporter.report_reuse(barrier, executed(warp), issuer)

    def polled(self, barrier: MBarrier, warp: Warp) -> None:
        """Checks lanes that poll an mbarrier (`Events.polled`)."""
        self._used_by_threads(barrier, executed(warp))

    def fenced_initialisation(self, warp: Warp) -> None:
        """Notes that a fence has followed initialisations of the lanes (`Events.fenced_initialisation`)."""
        mask = running_lanes(warp)
        published = [each for each in self._open if each.warp is warp and not each.mask & ~mask]
        for each in published:
            each.published = self._state.warps[warp].now
        self._open = [each for each in self._open if each not in published]

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Checks an arrival by threads, or by an operation of another CTA (`Events.mbarrier_arrived`)."""
        if running is None or running.cause is None:
            self._used_by_threads(barrier, issuer)
        elif issuer[0].cta is not barrier.home:
            name = opcode(issuer)
            by_thread = name.startswith("mbarrier.")
            # The clock that a relaxed arrival releases is not its thread's.
            row = FENCED if not by_thread else ORDERED if releases(name) else ANYWAY
            self._check(barrier, issuer, running.cause.clock, row, by_thread)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """Checks lanes that have waited (`Events.passed`)."""
        self._used_by_threads(barrier, executed(warp))

    def _used_by_threads(self, barrier: MBarrier, issuer: Issuer) -> None:
        """Checks lanes of a warp that arrive, or have waited."""
        found = self._of.get(barrier)
        warp = issuer[0].warp
        mask = running_lanes(warp)
        self._uses.setdefault(barrier, {})[warp, mask] = self._state.warps[warp].now, issuer
        if found is None or (found.warp is warp and not mask & ~found.mask) or (barrier, warp, mask) in self._seen:
            return
        for _, clock in self._state.warps[warp].parts(mask):
            self._check(barrier, issuer, clock, ORDERED, True)
        self._seen.add((barrier, warp, mask))

    def _check(self, barrier: MBarrier, issuer: Issuer, clock: Clock, row: int, by_thread: bool) -> None:
        found = self._of.get(barrier)
        if found is None:
            return
        self._state.agents.fit(clock)
        agents, own = found.agents, issuer[0].cta is barrier.home
        if _is_covered(clock, row, agents, found.count):
            return
        if found.published is not None and _is_covered(clock, ANYWAY, agents, found.published):
            return
        if own and _is_covered(clock, ANYWAY, agents, found.count):
            return
        self._state.reporter.report_initialisation(barrier, issuer, found.issuer, by_thread)


def _is_covered(clock: Clock, row: int, agents: list[int], count: int) -> bool:
    """True if a clock covers the count of one of these agents."""
    table = clock.table
    return any(table.item(row, agent) >= count for agent in agents)
