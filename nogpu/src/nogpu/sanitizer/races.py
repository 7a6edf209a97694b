"""Collects what might have happened in another order: steps of one run that conflict and that no event orders."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nogpu.execution.replay import Hold, Step
from nogpu.hardware.barriers import label
from nogpu.sanitizer.follow import ClusterCauses, Sanitizer
from nogpu.sanitizer.pairs import Access
from nogpu.sanitizer.report import Reporter
from nogpu.sanitizer.rules import Rule
from nogpu.sanitizer.scene import is_global, opcode, remnant, running

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.pairs import Conflict

DATA, WORD, ARRIVAL = range(3)


class Race(NamedTuple):
    """Two steps, the first of which happened first."""

    first: Step
    second: Step
    kind: int  # DATA: accesses to bytes; WORD: to a word, with an order; ARRIVAL: on an mbarrier
    where: tuple[int, int]  # their instructions
    text: str  # both, in words

    @property
    def reversal(self) -> Hold:
        """What makes the second happen first."""
        return Hold(self.first, self.second)


class _Event(NamedTuple):
    step: Step
    issuer: Issuer
    writes: bool


class _Collector(Reporter):
    """Takes note of accesses that nothing orders, and raises nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.races: dict[tuple[Step, Step], Race] = {}
        self.step: Step | None = None
        self.words: dict[Hashable, dict[str, _Event]] = {}  # of global memory, by address and agent

    def follows_scopes(self, kernel: str) -> bool:
        """No schedule shows a scope."""
        return False

    def allows(self, rule: Rule, *issuers: Issuer) -> bool:
        """Whatever is no conflict of two accesses is none of this."""
        return True

    def report(self, conflict: Conflict, now: Access, place: str, memory: str = "shared") -> None:
        """As `Reporter.report`. Whether an order or a fence stands between the two, no schedule shows either."""
        first, second = conflict.before.step, now.step
        if conflict.missing is None and first is not None and second is not None:
            self.add(first, second, DATA, conflict.before.issuer, now.issuer)

    def add(self, first: Step, second: Step, kind: int, before: Issuer, now: Issuer) -> None:
        """Two steps may have the other order."""
        if first.agent == second.agent or (first, second) in self.races:
            return
        text = f"{opcode(before)} of {label(before)} behind {opcode(now)} of {label(now)}"
        self.races[first, second] = Race(first, second, kind, (before[1], now[1]), text)


class _Anything:
    """In place of `Uninitialised`: what data is, no order decides."""

    def accessed(self, *_: object, **__: object) -> None:
        """As of `Uninitialised`, and the others, too."""

    heeded = loaded = landed = stores_tile = stores_bulk = fragment = accessed


class _Causes(ClusterCauses):
    """Of one cluster; also of words and mbarriers, which the memory model orders either way."""

    def __init__(self, cluster: Cluster, reporter: _Collector, *others: object) -> None:
        super().__init__(cluster, reporter, *others)  # type: ignore[arg-type]
        self._collector = reporter
        self._events: dict[Hashable, dict[str, _Event]] = {}
        self.told = partial(self._word, True, self.told)
        self.learned = partial(self._word, False, self.learned)

    def _data(self, cluster: Cluster, reporter: Reporter) -> _Anything:
        return _Anything()

    def _word(self, writes: bool, follow: object, warp: Warp, mask: int, key: int) -> None:
        if is_global(key):
            self._happens(self._collector.words, key, WORD, remnant(running(warp)), writes)
        else:
            self._happens(self._events, key, WORD, running(warp), writes)
        follow(warp, mask, key)  # type: ignore[operator]

    def heard(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        self._happens(self._events, barrier, ARRIVAL, issuer, True)
        super().heard(barrier, issuer, running)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        issuer = running(warp)
        if opcode(issuer).startswith("mbarrier.test_wait"):
            self._happens(self._events, barrier, ARRIVAL, issuer, False)
        super().passed(barrier, warp)

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
    """`hardware.causes.Sanitizer` of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._reporter: _Collector = _Collector()
        self.queues = None  # one launch is looked at

    def begins(self, step: object) -> None:
        """As `Sanitizer.begins`."""
        assert isinstance(step, Step)
        if self._accesses is not None:
            self._accesses.settle()
        Access.now = self._reporter.step = step

    def join(self, cluster: Cluster) -> None:
        """As `Sanitizer.join`."""
        assert self._accesses is not None  # clusters run inside of `following`
        cluster.causes = causes = _Causes(cluster, self._reporter, self._accesses)
        self._followed.add(causes)

    def found(self) -> list[Race]:
        """Those of the run."""
        Access.now = None
        return list(self._reporter.races.values())
