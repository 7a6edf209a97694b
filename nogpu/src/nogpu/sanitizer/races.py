"""Collects what might have happened in another order: the trace of a run, and accesses to bytes that nothing orders."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from nogpu.execution.replay import Hold, Step
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.barriers import label
from nogpu.sanitizer.cluster_state import opcode
from nogpu.sanitizer.conflicts import Access
from nogpu.sanitizer.observer import ClusterSanitizer, Sanitizer
from nogpu.sanitizer.report import Reporter
from nogpu.sanitizer.reversals import Traced
from nogpu.sanitizer.rules import Rule
from nogpu.sanitizer.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.conflicts import Conflict
    from nogpu.sanitizer.global_accesses import GlobalAccesses


class Race(NamedTuple):
    """Two steps that access the same bytes, the first of which happened first."""

    first: Step
    second: Step
    where: tuple[int, int]  # their instructions
    text: str  # both, in words

    @property
    def reversal(self) -> Hold:
        """Hold that makes the second step happen first."""
        return Hold(self.first, self.second)


class Found(NamedTuple):
    """Findings of a run."""

    races: list[Race]
    trace: Traced
    complains: bool = False  # True if a sanitizer would report something


class _Collector(Reporter):
    """Collector of unordered accesses, which checks rules if `checks`. It raises nothing."""

    def __init__(self, allowed: Iterable[str], checks: bool) -> None:
        super().__init__(allowed)
        self.checks, self.complains = checks, False
        self.races: dict[tuple[Step, Step], Race] = {}

    def _fail(self, rule: Rule, text: str, *issuers: Issuer, how: Callable[[], None] | None = None) -> None:
        self.complains = True

    def follows_scopes(self, kernel: str) -> bool:
        """True if scopes matter to the rules; no schedule shows a scope."""
        return self.checks and super().follows_scopes(kernel)

    def allows(self, rule: Rule, *issuers: Issuer) -> bool:
        """True if no rule is checked, so that only conflicts of two accesses are collected, or as `Reporter.allows`."""
        return not self.checks or super().allows(rule, *issuers)

    def report(self, conflict: Conflict, now: Access, place: str, memory: str = "shared") -> None:
        """Collects a conflict (`Reporter.report`), unless an order or a fence would be enough: no schedule shows those
        either.
        """
        first, second = conflict.before.step, now.step
        if conflict.missing is None and first is not None and second is not None:
            before, after = conflict.before.issuer, now.issuer
            if first.agent != second.agent and (first, second) not in self.races:
                text = f"{opcode(before)} of {label(before)} behind {opcode(after)} of {label(after)}"
                self.races[first, second] = Race(first, second, (before[1], after[1]), text)
        if self.checks:
            super().report(conflict, now, place, memory)


class Races(Sanitizer):
    """Sanitizer that collects the findings of one run."""

    def __init__(self, allowed: Iterable[str] = (), checks: bool = False) -> None:
        """checks: True to find out if a sanitizer that allows these rules would complain."""
        super().__init__(kept_reads=None)
        self._reporter: _Collector = _Collector(allowed, checks)
        self._trace = Trace()
        self._actor: Warp | AsyncOperation | None = None  # of the present step
        self.queues = None  # Only one launch is explored.

    @contextmanager
    def following(self, memory: GlobalMemory) -> Iterator[None]:
        """Follows the launches that run inside (`GridObserver.following`)."""
        try:
            with super().following(memory):
                yield
        finally:
            Access.now = None

    def begins(self, step: object, actor: Warp | AsyncOperation) -> None:
        """Sets the step of the events that follow (`GridObserver.begins`)."""
        assert isinstance(step, Step)
        self._settle()
        Access.now, self._actor = step, actor
        self._trace.begins(step, actor)

    def _settle(self) -> None:
        """Checks what compiled code has noted in the step that is over: accesses of the warp that has run."""
        actor = self._actor
        if self._accesses is None or actor is None or isinstance(actor, AsyncOperation):
            return
        state = self._accesses.states.get(actor.cta.cluster)
        if state is not None:
            state.warps[actor].settle()

    def repeats(self, step: object) -> None:
        """Takes back the turns of a warp that polls again (`GridObserver.repeats`)."""
        assert isinstance(step, Step)
        self._trace.repeats(step)

    def keep(self, cluster: Cluster) -> None:
        """Follows no CTA that compiled code keeps (`GridObserver.keep`): each of its steps counts."""

    def dropped(self) -> None:
        """Counts a hold whose order is impossible (`GridObserver.dropped`)."""
        self._trace.dropped += 1

    def cancelled(self, request: AsyncOperation, number: int | None) -> None:
        """Follows a request for a cluster (`GridObserver.cancelled`)."""
        self._trace.cancelled(request)

    def _follow(self, cluster: Cluster, accesses: GlobalAccesses) -> ClusterSanitizer:
        # Uninitialised data do not depend on the order: these are no races.
        return ClusterSanitizer(cluster, self._reporter, accesses, self._trace, data=self._reporter.checks)

    def found(self) -> Found:
        """Findings of the run, at its end."""
        return Found(list(self._reporter.races.values()), self._trace.traced(), self._reporter.complains)
