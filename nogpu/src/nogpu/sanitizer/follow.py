"""Follows the events of clusters: who hears of which."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.execution import device, status
from nogpu.sanitizer.access_log import AccessLog, SharedLog
from nogpu.sanitizer.accesses import Accesses
from nogpu.sanitizer.barriers import Barriers
from nogpu.sanitizer.columns import Columns
from nogpu.sanitizer.global_accesses import GlobalAccesses
from nogpu.sanitizer.initialisations import Initialisations
from nogpu.sanitizer.left_behind import LeftBehind
from nogpu.sanitizer.operations import Operations
from nogpu.sanitizer.queues import Queues
from nogpu.sanitizer.report import Reporter
from nogpu.sanitizer.scene import Scene, running_lanes
from nogpu.sanitizer.scene import running as executed
from nogpu.sanitizer.shadow import Shadow
from nogpu.sanitizer.uninitialised import Uninitialised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.ptx.module import Entry
    from nogpu.sanitizer.clocks import Cause
    from nogpu.sanitizer.queue_history import Touched

YOUNG = 50_000  # new objects among which Python looks for garbage


class ClusterCauses:
    """`hardware.causes.Causes` of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter, accesses: GlobalAccesses) -> None:
        self._cluster = cluster
        self.scene = scene = Scene(cluster, reporter, accesses.words)
        self._columns = columns = Columns(scene.agents, scene.warps, reporter)
        self._operations, self._barriers, self._accesses = Operations(scene), Barriers(scene), Accesses(scene)
        operations, barriers = self._operations, self._barriers
        barriers.started()
        self._left = LeftBehind(cluster, scene)
        self._uninitialised = followed = self._data(cluster, reporter)
        self.heeded, self.loaded = followed.heeded, followed.loaded
        self.landed, self.stores_tile, self.stores_bulk = followed.landed, followed.stores_tile, followed.stores_bulk
        self.fragment = followed.fragment
        self._initialisations = initialisations = Initialisations(scene)
        self.initialised = initialisations.initialised

        self.committed, self.completed = operations.committed, operations.completed
        self.lane_copies_committed = operations.lane_copies_committed
        self.lane_copies_completed = operations.lane_copies_completed
        self.joined, self.stored = barriers.joined, self._accesses.stored
        self.fenced = barriers.fenced
        self.released_maps, self.acquired_map = barriers.released_maps, barriers.acquired_map
        self.fenced_threads, self.waited_for = barriers.fenced_threads, barriers.waited_for
        self.told, self.learned, self.triggered = barriers.told, barriers.learned, barriers.triggered
        self.allocated, self.freed = columns.allocated, columns.freed
        self.fragments_completed, self.fragments_used = columns.completed, columns.used

        self._nothing: list[np.ndarray] = []
        for cta in cluster.ctas:
            cta.shared.marks = None  # its rule is one of these
            cta.shared.notes_only = True
            shadow = Shadow(len(cta.shared.data))
            log = SharedLog(cta, shadow, self._accesses)
            cta.shared.observer = partial(self._access, cta, shadow, log)
            nothing = np.zeros(len(cta.shared.live_barriers.addresses), np.uint64)
            cta.tmem.observer = partial(self.touched, cta)
            for warp in cta.warps:  # compiled code leaves all operations on mbarriers to Python
                warp.registers.context.barriers = nothing.ctypes.data
                scene.warps[warp].log = AccessLog(scene, warp, accesses, log)
            self._nothing.append(nothing)

    def settle(self, warp: Warp) -> None:
        """As `Causes.settle`."""
        self.scene.warps[warp].settle()

    def end(self) -> None:
        """As `Causes.end`. The cluster and what follows it forget each other, so that both are freed at once."""
        self._cluster.causes = None
        for cta in self._cluster.ctas:
            cta.shared.observer = cta.tmem.observer = cta.tmem.values = None
        for clock in self.scene.warps.values():
            clock.log = None

    def _data(self, cluster: Cluster, reporter: Reporter) -> Any:
        """What follows data that nobody has written."""
        return Uninitialised(cluster, reporter)

    def exited(self, cta: Cta) -> None:
        """As `Causes.exited`."""
        for warp in cta.warps:
            log = self.scene.warps[warp].log
            assert log is not None  # until here
            log.end()
        self._left.exited(cta)

    def issued(self, g: ActiveGroup, issuer: Issuer, cause: AsyncOperation | None) -> Cause:
        """As `Causes.issued`."""
        found = self._operations.issued(g, issuer, cause)
        if cause is None:
            self._left.issued(found)
        return found

    def heard(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """As `Causes.heard`."""
        if running is not None and running.cause is not None:
            self._initialisations.used_by_operation(barrier, issuer, running.cause.clock)
        else:
            self._initialisations.used_by_threads(barrier, issuer, running_lanes(issuer[0].warp))
        self._barriers.heard(barrier, issuer, running)
        self._left.heard(barrier, issuer, running)

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """As `Causes.passed`."""
        self._initialisations.used_by_threads(barrier, executed(warp), running_lanes(warp))
        self._barriers.passed(barrier, warp)

    def fenced_initialisation(self, warp: Warp) -> None:
        """As `Causes.fenced_initialisation`."""
        self._initialisations.fenced(warp, running_lanes(warp))

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.arrived`."""
        self._barriers.arrived(barrier, generation, warp, mask)
        self._left.arrived(barrier, generation, warp)

    def excused(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.excused`."""
        self._barriers.excused(barrier, generation, warp, mask)

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """As `Causes.met`."""
        self._barriers.met(barrier, generation, warp, mask)
        self._left.met(barrier, generation)

    def _access(
        self,
        cta: Cta,
        shadow: Shadow,
        log: SharedLog,
        kind: str,
        proxy: str,
        place: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        """The observer of a CTA's shared memory."""
        assert issuer is not None  # every access of a launch has one
        if log.head[0]:
            log.settle()
        self._accesses.access(cta, shadow, kind, proxy, place, shape[0], issuer)
        if kind == "store":
            self._left.landed(cta, place)
        self._uninitialised.accessed(cta, kind, place, shape[0], issuer, cta.machine.running)

    def touched(self, cta: Cta, issuer: Issuer, reads: int, writes: int) -> None:
        """As `Causes.touched`."""
        running = cta.machine.running
        self._columns.touched(cta, issuer, None if running is None else running.cause, reads, writes)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Python looks for garbage among new objects less often: those that follow a cluster live as long as it does."""
    young, *older = gc.get_threshold()
    if young:  # else it never looks
        gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


class Sanitizer:
    """`hardware.causes.Sanitizer`."""

    def __init__(self, allowed: Iterable[str] = (), schedules: Iterable[str] = ()) -> None:
        """allowed: as `waivers.parse` takes each. schedules: under which launches are followed; none: under all.
        Raises ValueError.
        """
        self._reporter, self._schedules = Reporter(allowed), tuple(schedules)
        self.queues: Queues | None = Queues(self._reporter)
        self._touched: dict[int, list[Touched]] = {}  # by those launches that have run last
        self._accesses: GlobalAccesses | None = None  # of the launches that run
        self._has_followed = False
        self._followed: weakref.WeakSet[ClusterCauses] = weakref.WeakSet()  # clusters that are resident

    def list_waivers(self) -> None:
        """Says on standard error which rules this process's launches were allowed to break."""
        if self._has_followed and str(self._reporter.waivers):
            text = f"sanitizer: rules that were allowed to be broken: {self._reporter.waivers}"
            print(text, file=sys.stderr, flush=True)

    def follows(self, schedule: str) -> bool:
        """As `Sanitizer.follows`."""
        return not self._schedules or schedule in self._schedules

    def read(self, entry: Entry) -> None:
        """As `Sanitizer.read`."""
        self._has_followed = True
        self._reporter.waivers.read(entry)

    @contextmanager
    def following(self, memory: GlobalMemory) -> Iterator[None]:
        """As `Sanitizer.following`."""
        self._accesses = GlobalAccesses(memory, self._reporter)
        memory.observer, memory.notes_only = self._accesses.observe, True
        try:
            with _seldom_collected():
                yield
            if self.queues is not None:
                self._touched = self._accesses.touched(self.queues.are_several)
        finally:
            self._accesses, memory.observer, memory.notes_only = None, None, False
            for causes in list(self._followed):
                causes.end()

    def take_touched(self) -> dict[int, list[Touched]]:
        """As `Sanitizer.take_touched`."""
        found, self._touched = self._touched, {}
        return found

    def begins(self, step: object) -> None:
        """As `Sanitizer.begins`: the order of events is all that matters."""

    def join(self, cluster: Cluster) -> None:
        """As `Sanitizer.join`."""
        assert self._accesses is not None  # clusters run inside of `following`
        self._accesses.launches.add(cluster.grid.number)
        cluster.causes = causes = ClusterCauses(cluster, self._reporter, self._accesses)
        self._followed.add(causes)


def install() -> None:
    """Launches of this process are followed (NOGPU_SANITIZE)."""

    def listed(variable: str) -> list[str]:
        return [text for text in os.environ.get(variable, "").split(",") if text]

    device.sanitizer = sanitizer = Sanitizer(listed("NOGPU_SANITIZE_ALLOW"), listed("NOGPU_SANITIZE_SCHEDULE"))
    if status.is_first():
        atexit.register(sanitizer.list_waivers)
