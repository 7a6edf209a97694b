"""Follows the events of clusters: who hears of which."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emulator.execution import device, status
from emulator.sanitizer.accesses import Accesses
from emulator.sanitizer.barriers import Barriers
from emulator.sanitizer.columns import Columns
from emulator.sanitizer.global_accesses import GlobalAccesses
from emulator.sanitizer.operations import Operations
from emulator.sanitizer.report import Reporter
from emulator.sanitizer.scene import Scene
from emulator.sanitizer.shadow import Shadow
from emulator.sanitizer.words import Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emulator.hardware.cluster import Cluster, Cta
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.warp import Issuer
    from emulator.ptx.module import Entry


class ClusterCauses:
    """`hardware.causes.Causes` of one cluster."""

    def __init__(self, cluster: Cluster, reporter: Reporter, words: Words) -> None:
        self.scene = scene = Scene(cluster, reporter, words)
        self._columns = columns = Columns(scene.agents, scene.warps, reporter)
        operations, barriers, accesses = Operations(scene), Barriers(scene), Accesses(scene)

        self.issued = operations.issued
        self.committed, self.completed = operations.committed, operations.completed
        self.lane_copies_committed = operations.lane_copies_committed
        self.lane_copies_completed = operations.lane_copies_completed
        self.heard, self.passed = barriers.heard, barriers.passed
        self.arrived, self.met, self.joined = barriers.arrived, barriers.met, barriers.joined
        self.fenced, self.fenced_maps = barriers.fenced, barriers.fenced_maps
        self.fenced_threads, self.waited_for = barriers.fenced_threads, barriers.waited_for
        self.told, self.learned = barriers.told, barriers.learned
        self.allocated, self.freed = columns.allocated, columns.freed
        self.fragments_completed, self.fragments_used = columns.completed, columns.used

        self._nothing: list[np.ndarray] = []
        for cta in cluster.ctas:
            cta.shared.marks = None  # its rule is one of these
            cta.shared.notes_only = True
            cta.shared.observer = partial(accesses.access, cta, Shadow(len(cta.shared.data)))
            nothing = np.zeros(len(cta.shared.live_barriers.addresses), np.uint64)
            cta.tmem.observer = partial(self.touched, cta)
            for warp in cta.warps:  # compiled code leaves all operations on mbarriers to Python
                warp.registers.context.barriers = nothing.ctypes.data
            self._nothing.append(nothing)

    def touched(self, cta: Cta, issuer: Issuer, reads: int, writes: int) -> None:
        """As `Causes.touched`."""
        running = cta.machine.running
        self._columns.touched(cta, issuer, None if running is None else running.cause, reads, writes)


class Sanitizer:
    """`hardware.causes.Sanitizer`."""

    def __init__(self, allowed: Iterable[str] = (), schedules: Iterable[str] = ()) -> None:
        """allowed: as `waivers.parse` takes each. schedules: under which launches are followed; none: under all.
        Raises ValueError.
        """
        self._reporter, self._schedules = Reporter(allowed), tuple(schedules)
        self._words = Words()
        self._has_followed = False

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
        accesses = GlobalAccesses(memory, self._reporter)
        self._words, memory.observer, memory.notes_only = accesses.words, accesses.observe, True
        try:
            yield
        finally:
            memory.observer, memory.notes_only = None, False

    def join(self, cluster: Cluster) -> None:
        """As `Sanitizer.join`."""
        cluster.causes = ClusterCauses(cluster, self._reporter, self._words)


def install() -> None:
    """Launches of this process are followed (EMULATOR_SANITIZE)."""

    def listed(variable: str) -> list[str]:
        return [text for text in os.environ.get(variable, "").split(",") if text]

    device.sanitizer = sanitizer = Sanitizer(listed("EMULATOR_SANITIZE_ALLOW"), listed("EMULATOR_SANITIZE_SCHEDULE"))
    if status.is_first():
        atexit.register(sanitizer.list_waivers)
