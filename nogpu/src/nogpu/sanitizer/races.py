"""Collects what might have happened in another order: steps of one run that conflict and that no event orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nogpu.execution.replay import Hold, Step
from nogpu.hardware.barriers import label
from nogpu.sanitizer.cluster_state import is_global, opcode, remnant, running
from nogpu.sanitizer.conflicts import Access
from nogpu.sanitizer.observer import ClusterSanitizer, Sanitizer
from nogpu.sanitizer.report import Reporter
from nogpu.sanitizer.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.conflicts import Conflict
    from nogpu.sanitizer.global_accesses import GlobalAccesses

DATA, WORD, ARRIVAL = range(3)


class Race(NamedTuple):
    """Two conflicting steps, the first of which happened first."""

    first: Step
    second: Step
    kind: int  # DATA: accesses to bytes; WORD: to a word, with an order; ARRIVAL: on an mbarrier
    where: tuple[int, int]  # their instructions
    text: str  # both, in words

    @property
    def reversal(self) -> Hold:
        """Hold that makes the second step happen first."""
        return Hold(self.first, self.second)


class _Event(NamedTuple):
    step: Step
    issuer: Issuer
    writes: bool


class _Collector(Reporter):
    """Collector of unordered accesses. It raises nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.races: dict[tuple[Step, Step], Race] = {}
        self.step: Step | None = None
        self.words: dict[Hashable, dict[str, _Event]] = {}  # words of global memory, by address and agent

    def follows_scopes(self, kernel: str) -> bool:
        """False: no schedule shows a scope."""
        return False

    def allows(self, rule: Rule, *issuers: Issuer) -> bool:
        """True: only conflicts of two accesses are collected."""
        return True

    def report(self, conflict: Conflict, now: Access, place: str, memory: str = "shared") -> None:
        """Collects a conflict (`Reporter.report`), unless an order or a fence would be enough: no schedule shows those
        either.
        """
        first, second = conflict.before.step, now.step
        if conflict.missing is None and first is not None and second is not None:
            self.add(first, second, DATA, conflict.before.issuer, now.issuer)

    def add(self, first: Step, second: Step, kind: int, before: Issuer, now: Issuer) -> None:
        """Adds two steps that may have the other order."""
        if first.agent == second.agent or (first, second) in self.races:
            return
        text = f"{opcode(before)} of {label(before)} behind {opcode(now)} of {label(now)}"
        self.races[first, second] = Race(first, second, kind, (before[1], now[1]), text)


class _Orders:
    """Handles words and mbarriers of one cluster, which the memory model orders either way."""

    def __init__(self, collector: _Collector) -> None:
        self._collector = collector
        self._events: dict[Hashable, dict[str, _Event]] = {}

    def word_stored(self, warp: Warp, mask: int, key: int) -> None:
        """Handler of `Events.word_stored`."""
        self._word(True, warp, key)

    def word_loaded(self, warp: Warp, mask: int, key: int) -> None:
        """Handler of `Events.word_loaded`."""
        self._word(False, warp, key)

    def _word(self, writes: bool, warp: Warp, key: int) -> None:
        if is_global(key):
            self._happens(self._collector.words, key, WORD, remnant(running(warp)), writes)
        else:
            self._happens(self._events, key, WORD, running(warp), writes)

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Handler of `Events.mbarrier_arrived`."""
        self._happens(self._events, barrier, ARRIVAL, issuer, True)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """Handler of `Events.passed`."""
        issuer = running(warp)
        if opcode(issuer).startswith("mbarrier.test_wait"):
            self._happens(self._events, barrier, ARRIVAL, issuer, False)

    def _happens(
        self, of: dict[Hashable, dict[str, _Event]], key: Hashable, kind: int, issuer: Issuer, writes: bool
    ) -> None:
        step = self._collector.step
        if step is None:
            return
        events = of.setdefault(key, {})
        for event in events.values():
            if writes or event.writes:
                self._collector.add(event.step, step, kind, event.issuer, issuer)
        events[step.agent] = _Event(step, issuer, writes)


class Races(Sanitizer):
    """Collector of the races of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._reporter: _Collector = _Collector()
        self.queues = None  # Only one launch is explored.

    def begins(self, step: object, actor: object) -> None:
        """Sets the step of the events that follow (`GridObserver.begins`)."""
        assert isinstance(step, Step)
        if self._accesses is not None:
            self._accesses.settle()
        Access.now = self._reporter.step = step

    def _follow(self, cluster: Cluster, accesses: GlobalAccesses) -> ClusterSanitizer:
        # Uninitialised data do not depend on the order.
        return ClusterSanitizer(cluster, self._reporter, accesses, _Orders(self._reporter), data=False)

    def found(self) -> list[Race]:
        """Races of the run."""
        Access.now = None
        return list(self._reporter.races.values())
