"""Sanitizer of launches: it passes the events of their clusters on to the parts that handle them."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nogpu.execution import device, launch, status
from nogpu.sanitizer.access_log import NOTE, AccessLog, Log, SharedLog
from nogpu.sanitizer.accesses import Accesses
from nogpu.sanitizer.apart import compact
from nogpu.sanitizer.barriers import Barriers
from nogpu.sanitizer.cluster_state import ClusterState
from nogpu.sanitizer.columns import Columns
from nogpu.sanitizer.global_accesses import READS, GlobalAccesses
from nogpu.sanitizer.initialisations import Initialisations
from nogpu.sanitizer.left_behind import LeftBehind
from nogpu.sanitizer.operations import Operations
from nogpu.sanitizer.queues import Queues
from nogpu.sanitizer.relaxed import Relaxed
from nogpu.sanitizer.report import Reporter
from nogpu.sanitizer.shadow import Shadow
from nogpu.sanitizer.uninitialised import Uninitialised

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nogpu.hardware.cluster import Cluster, Cta
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.ptx.module import Entry
    from nogpu.sanitizer.queue_history import Touched

KEPT_ROOM = 8192  # accesses of CTAs that compiled code keeps: twice those of the turns that it takes at once
YOUNG = 50_000  # number of new objects at which Python looks for garbage


class KeptLog:
    """Log of the accesses to global memory by CTAs that compiled code keeps, one after another in a cluster's place."""

    def __init__(self, accesses: GlobalAccesses) -> None:
        self._accesses = accesses
        self._log = log = Log(KEPT_ROOM, 1 + NOTE)
        self.address = log.address

    def begin(self, cluster: Cluster) -> None:
        """Begins to follow a cluster that is about to be kept."""
        self._cluster = cluster
        self._accesses.follow(cluster)

    def hear(self, numbers: Sequence[int], current: int, of_all: bool) -> None:
        """Handles what CTAs have done (`Follower.hear`)."""
        head, records = self._log.head, self._log.records
        count = head[0]
        if count <= (0 if of_all else KEPT_ROOM // 2):
            return
        over = int(np.searchsorted(records[:count, 0], current))
        if count - over > KEPT_ROOM // 2:  # a CTA with so many accesses is kept in parts
            over = count
        notes = compact(records[:over])
        records[: count - over], head[0] = records[over:count], count - over
        notes[:, 0] = np.array(numbers, np.uint64)[notes[:, 0]]
        self._accesses.keep(self._cluster, notes)

    def renew(self) -> None:
        """Handles that the cluster is another one (`Follower.renew`)."""
        self._accesses.renew(self._cluster)

    def end(self) -> None:
        """Checks the accesses of the CTA that runs (`Follower.end`)."""
        count, self._log.head[0] = self._log.head[0], 0
        self._accesses.check_kept(self._cluster, self._log.records[:count])


def hide_barriers(cluster: Cluster) -> list[np.ndarray]:
    """Makes compiled code leave all operations on a cluster's mbarriers to Python, as long as the result is kept."""
    hidden = [np.zeros(len(cta.shared.live_barriers.addresses), np.uint64) for cta in cluster.ctas]
    for cta, nothing in zip(cluster.ctas, hidden, strict=True):
        for warp in cta.warps:
            warp.registers.context.barriers = nothing.ctypes.data
    return hidden


class ClusterSanitizer:
    """Sanitizer of one cluster: its parts handle the cluster's events, in order."""

    def __init__(
        self, cluster: Cluster, reporter: Reporter, accesses: GlobalAccesses, first: object = None, data: bool = True
    ) -> None:
        """first: a handler of events that comes before the others. data: True to follow uninitialised data, too."""
        self._cluster = cluster
        self.state = state = accesses.states[cluster] = ClusterState(cluster, reporter, accesses.words)
        self._accesses, self._global_accesses = Accesses(state), accesses
        barriers = Barriers(state)
        barriers.started()
        columns = Columns(state.agents, state.warps, reporter)
        self._left = LeftBehind(cluster, state)
        self._uninitialised = Uninitialised(cluster, reporter) if data else None
        parts = Initialisations(state), Operations(state), barriers, columns, self._accesses, self._left
        unwritten = self._uninitialised.observers if self._uninitialised is not None else ()

        self._hidden = hide_barriers(cluster)
        for cta in cluster.ctas:
            shadow = Shadow(len(cta.shared.data))
            log = SharedLog(cta, shadow, self._accesses)
            cta.tmem.observer = partial(columns.touched, cta)
            for warp in cta.warps:
                state.warps[warp].log = AccessLog(state, warp, accesses, log)
            cta.shared.follow(partial(self._access, log))  # `Initialisations` has the rule that marks would check
        cluster.events.observe(first, self, *parts, *unwritten)

    def settle(self, warp: Warp) -> None:
        """Checks a warp's accesses so far (`Events.settle`)."""
        self.state.warps[warp].settle()

    def end(self) -> None:
        """Makes the cluster and its sanitizer forget each other, so that both are freed at once (`Events.end`)."""
        self._cluster.events.forget()
        self._global_accesses.states.pop(self._cluster, None)
        for cta in self._cluster.ctas:
            cta.shared.observer = cta.tmem.observer = cta.tmem.values = None
            for warp in cta.warps:
                warp.local.observer = None
        for clock in self.state.warps.values():
            clock.log = None

    def exited(self, cta: Cta) -> None:
        """Closes the logs of a CTA's warps (`Events.exited`)."""
        for warp in cta.warps:
            log = self.state.warps[warp].log
            assert log is not None  # set until here
            log.end()

    def _access(
        self,
        log: SharedLog,
        kind: str,
        proxy: str,
        place: int | np.ndarray,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None,
    ) -> None:
        """Passes an access to a CTA's shared memory on to the parts that follow it."""
        assert issuer is not None  # every access of a launch has one
        if log.head[0]:
            log.settle()
        self._accesses.access(log.cta, log.shadow, kind, proxy, place, shape[0], issuer)
        if kind == "store":
            self._left.written(log.cta, place)
        if self._uninitialised is not None:
            self._uninitialised.accessed(log.cta, kind, place, shape[0], issuer, log.cta.machine.running)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Lets Python look for garbage among new objects less often: a cluster's shadow objects live as long as it does."""
    young, *older = gc.get_threshold()
    if young:  # 0: it never looks
        gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)


class Sanitizer(launch.Sanitizer):
    """Sanitizer of launches."""

    def __init__(
        self, allowed: Iterable[str] = (), schedules: Iterable[str] = (), kept_reads: int | None = READS
    ) -> None:
        """allowed: as `waivers.parse` takes each. schedules: those whose launches are followed; none: all. kept_reads:
        as in `GlobalAccesses`. Raises ValueError for an unknown rule.
        """
        self._kept_reads = kept_reads
        self._reporter, self._schedules = Reporter(allowed), tuple(schedules)
        self.queues: Queues | None = Queues(self._reporter)
        self._touched: dict[int, list[Touched]] = {}  # by number of the launches that have run last
        self._accesses: GlobalAccesses | None = None  # of the launches that run
        self._has_followed = False
        self._kept: KeptLog | None = None  # of the launch that runs, once a CTA has been kept
        self._followed: weakref.WeakSet[ClusterSanitizer] = weakref.WeakSet()  # clusters that are resident

    def list_waivers(self) -> None:
        """Prints on standard error which rules this process's launches were allowed to break."""
        if self._has_followed and str(self._reporter.waivers):
            text = f"sanitizer: rules that were allowed to be broken: {self._reporter.waivers}"
            print(text, file=sys.stderr, flush=True)

    def follows(self, schedule: str) -> bool:
        """True if launches under a schedule are followed (`launch.Sanitizer.follows`)."""
        return not self._schedules or schedule in self._schedules

    def read(self, entry: Entry) -> None:
        """Reads the waivers of a kernel (`launch.Sanitizer.read`)."""
        self._has_followed = True
        self._reporter.waivers.read(entry)

    @contextmanager
    def following(self, memory: GlobalMemory) -> Iterator[None]:
        """Follows the launches that run inside (`GridObserver.following`)."""
        self._accesses = GlobalAccesses(memory, self._reporter, self._kept_reads)
        self._reporter.relaxed = Relaxed()
        memory.observer, memory.notes_only = self._accesses.observe, True
        try:
            with _seldom_collected():
                yield
            if self.queues is not None:
                self._touched = self._accesses.touched(self.queues.are_several)
        finally:
            self._accesses, self._kept, memory.observer, memory.notes_only = None, None, None, False
            for cluster in list(self._followed):
                cluster.end()

    def take_touched(self) -> dict[int, list[Touched]]:
        """Returns the accesses of the launches that have run last, and forgets them."""
        found, self._touched = self._touched, {}
        return found

    def join(self, cluster: Cluster) -> None:
        """Begins to follow a cluster (`GridObserver.join`)."""
        assert self._accesses is not None  # clusters run inside of `following`
        self._accesses.launches.add(cluster.grid.number)
        self._followed.add(self._follow(cluster, self._accesses))

    def keep(self, cluster: Cluster) -> KeptLog | None:
        """Follows CTAs that compiled code keeps (`GridObserver.keep`)."""
        assert self._accesses is not None  # clusters run inside of `following`
        self._kept = self._kept or KeptLog(self._accesses)
        self._kept.begin(cluster)
        return self._kept

    def _follow(self, cluster: Cluster, accesses: GlobalAccesses) -> ClusterSanitizer:
        return ClusterSanitizer(cluster, self._reporter, accesses)


def listed(variable: str) -> list[str]:
    """Texts of an environment variable, which commas separate."""
    return [text for text in os.environ.get(variable, "").split(",") if text]


def install() -> None:
    """Makes this process sanitize its launches (NOGPU_SANITIZE)."""
    replays = any(schedule.startswith("replay:") for schedule in listed("NOGPU_SCHEDULE"))
    kept_reads = None if replays else READS  # a replay shows what exploring has found, which keeps all
    allowed, schedules = listed("NOGPU_SANITIZE_ALLOW"), listed("NOGPU_SANITIZE_SCHEDULE")
    device.sanitizer = sanitizer = Sanitizer(allowed, schedules, kept_reads)
    if status.is_first():
        atexit.register(sanitizer.list_waivers)
