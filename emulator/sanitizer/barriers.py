"""Follows barriers and words: what those know who have arrived on them, or stored them, and who learns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.sanitizer.clocks import KNOWN, UNSCOPED, Clock
from emulator.sanitizer.scene import Scene, opcode, running, running_lanes

if TYPE_CHECKING:
    from emulator.hardware.async_operations import AsyncOperation
    from emulator.hardware.mbarriers import MBarrier
    from emulator.hardware.warp import Issuer, Warp

KEPT = 32  # uses of a barrier for which a warp may still wait

_Source = tuple[int | None, bool]
"""Who has arrived: threads of a CTA of this rank, with a scope that is wider than the CTA; None: an operation."""
_OPERATION: _Source = None, True


class _MbarrierState:
    """What those knew who have arrived on an mbarrier."""

    def __init__(self, phase: int) -> None:
        self.clocks: dict[_Source, Clock] = {}  # in this phase
        self.over: dict[_Source, Clock] = {}  # in those that are over
        self.phase = phase


def _add(clocks: dict[_Source, Clock], source: _Source, clock: Clock) -> None:
    if source in clocks:
        clocks[source].join(clock)
    else:
        clocks[source] = clock.copy()


class Barriers:
    """The barriers of a cluster, and the words that order."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._warps = scene, scene.warps
        self._mbarriers: dict[MBarrier, _MbarrierState] = {}
        self._uses: dict[object, dict[int, Clock]] = {}
        self._words: dict[int, dict[_Source, Clock]] = {}

    def heard(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """As `Causes.heard`."""
        source = self._source(issuer) if opcode(issuer).startswith("mbarrier.arrive") else _OPERATION
        if running is not None and running.cause is not None:
            clock = running.cause.clock
        else:
            clock = self._released(issuer, running_lanes(issuer[0].warp))
        _add(self._state(barrier).clocks, source, clock)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """As `Causes.passed`."""
        self._learn(running(warp), running_lanes(warp), self._state(barrier).over)

    def _source(self, issuer: Issuer) -> _Source:
        return issuer[0].cta.rank, self._scene.is_wide(issuer)

    def _first_row(self, issuer: Issuer, source: _Source) -> int:
        """Of a clock that somebody has released, the first row that a waiting or loading instruction learns."""
        (rank, is_wide), scene = source, self._scene
        if rank is None or rank == issuer[0].cta.rank or not scene.reporter.follows_scopes(scene.kernel):
            return KNOWN
        return KNOWN if is_wide and scene.is_wide(issuer) else UNSCOPED

    def _state(self, barrier: MBarrier) -> _MbarrierState:
        state = self._mbarriers.get(barrier)
        if state is None:
            state = self._mbarriers[barrier] = _MbarrierState(barrier.phase)
        if barrier.phase > state.phase:
            for source, clock in state.clocks.items():
                _add(state.over, source, clock)
            state.clocks, state.phase = {}, barrier.phase
        return state

    def _released(self, issuer: Issuer, mask: int) -> Clock:
        """What lanes release by an instruction."""
        clock = self._warps[issuer[0].warp]
        return clock.release(mask) if self._scene.releases(issuer) else clock.release_relaxed(mask)

    def _learn(self, issuer: Issuer, mask: int, clocks: dict[_Source, Clock]) -> None:
        """Lanes acquire by an instruction."""
        of = self._warps[issuer[0].warp]
        learn = of.acquire if self._scene.learns(issuer) else of.hear
        for source, clock in clocks.items():
            learn(mask, clock, self._first_row(issuer, source))

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.arrived`."""
        uses = self._uses.setdefault(barrier, {})
        clock = self._released(running(warp), mask)
        if generation in uses:
            uses[generation].join(clock)
        else:
            uses[generation] = clock
            uses.pop(generation - KEPT, None)

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.met`."""
        clock = self._uses.get(barrier, {}).get(generation)
        if clock is not None:
            self._warps[warp].acquire(mask, clock)

    def joined(self, warp: Warp, mask: int) -> None:
        """As `Causes.joined`."""
        clock = self._warps[warp]
        clock.acquire(mask, clock.release(mask))

    def fenced(self, warp: Warp) -> None:
        """As `Causes.fenced`."""
        self._warps[warp].fence_proxy(running_lanes(warp))

    def fenced_threads(self, warp: Warp) -> None:
        """As `Causes.fenced_threads`."""
        self._warps[warp].fence(running_lanes(warp))

    def told(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.told`."""
        issuer = running(warp)
        _add(self._words.setdefault(key, {}), self._source(issuer), self._released(issuer, mask))

    def learned(self, warp: Warp, mask: int, key: int) -> None:
        """As `Causes.learned`."""
        self._learn(running(warp), mask, self._words.get(key, {}))
