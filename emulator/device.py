"""The device: launches, under one or several schedules, in this process or in forked ones.

A launch runs once per schedule, each time from the same memory, and its clusters may be dealt to several workers. One
schedule and one worker run in process; every other run happens in forked children, which see this process's memory
copy-on-write and send back what they wrote. All schedules must leave the same bytes, or the launch raises.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from emulator import scheduler, translate
from emulator.journal import Journal, journal, settle
from emulator.launch_counters import LaunchCounters
from emulator.memory import GlobalMemory
from emulator.properties import DeviceProperties, LaunchConfig, check_launch
from emulator.ptx import Entry
from emulator.traffic import PackedLoads, Traffic
from emulator.workers import Report, run_forked

__all__ = ["Device", "DeviceProperties", "LaunchConfig"]

PARAMETER_ALIGNMENT = 128  # of the parameter buffer: a tensor map in it must be 64-byte aligned
SPLIT_SECONDS = 0.1  # a run expected to be shorter is not worth its share of a second fork

_current: Device | None = None


@dataclass
class _Launch:
    """One launch on its way: what every run of it needs."""

    program: translate.Program
    config: LaunchConfig
    parameters: np.ndarray
    kernel: str


@dataclass
class _Part:
    """What one worker sends back."""

    counters: LaunchCounters
    loads: PackedLoads
    stores: Journal
    seconds: float


class Device:
    """One B200. `launch` returns when the kernel is done; the environment is read by `current` only.

    schedules: names as scheduler.Schedule.parse takes them. workers: how many processes a launch may use at once.
    progress: called with (clusters done, clusters in all) of the launch that runs, all of its schedules together.
    """

    def __init__(self, schedules: tuple[str, ...] = ("late",), workers: int = 1):
        if not schedules or len(set(schedules)) < len(schedules):
            raise ValueError(f"schedules must be at least one and differ: {schedules}")
        if workers < 1:
            raise ValueError(f"workers must be at least 1: {workers}")
        for schedule in schedules:
            scheduler.Schedule.parse(schedule)
        self.properties = DeviceProperties()
        self.memory = GlobalMemory()
        self.schedules = schedules
        self.workers = workers
        self.progress: Callable[[int, int], None] | None = None
        self._counters: list[LaunchCounters] = []
        self._programs: dict[int, tuple[Entry, translate.Program]] = {}
        self._cluster_seconds: dict[int, float] = {}
        # Reentrant: a garbage collection inside of a launch may unload a module, which synchronizes.
        self._lock = threading.RLock()

    @staticmethod
    def current() -> Device:
        """The process's device, made at the first call from EMULATOR_SCHEDULE (default "late") and EMULATOR_WORKERS
        (default: the cores that this process may use)."""
        global _current
        if _current is None:
            schedules = os.environ.get("EMULATOR_SCHEDULE", "late").split(",")
            workers = os.environ.get("EMULATOR_WORKERS") or str(len(os.sched_getaffinity(0)))
            if not workers.isdecimal():
                raise ValueError(f"EMULATOR_WORKERS must be a positive integer: {workers!r}")
            _current = Device(tuple(schedule.strip() for schedule in schedules), int(workers))
        return _current

    def synchronize(self) -> None:
        """Returns when no launch is running."""
        with self._lock:
            pass

    def counters(self) -> list[LaunchCounters]:
        """One entry per launch since the last reset, oldest first."""
        return list(self._counters)

    def reset_counters(self) -> None:
        self._counters.clear()

    def launch(self, entry: Entry, config: LaunchConfig, params: list[bytes]) -> None:
        """Runs a kernel. params: the bytes of each parameter, in the entry's order.

        Raises EmulatorError for a launch that the device refuses and for a rule that the kernel breaks. What a failing
        kernel has written stays in memory if it ran in this process, and is lost if it ran in others.
        """
        check_launch(entry, config, self.properties)
        program = self._program(entry)
        packed = np.frombuffer(entry.pack(params), np.uint8)
        storage = np.zeros(len(packed) + 2 * PARAMETER_ALIGNMENT, np.uint8)
        parameters = storage[-storage.ctypes.data % PARAMETER_ALIGNMENT :][: len(packed)]
        parameters[:] = packed
        launch = _Launch(program, config, parameters, entry.name)
        with self._lock:
            if len(packed):
                self.memory.register(parameters.ctypes.data, len(packed), "kernel parameters", writable=False)
            try:
                self._counters.append(self._run(launch))
            finally:
                if len(packed):
                    self.memory.release(parameters.ctypes.data)

    def _program(self, entry: Entry) -> translate.Program:
        known = self._programs.get(id(entry))
        if known is None:
            known = self._programs[id(entry)] = (entry, translate.translate(entry))
        return known[1]

    def _run(self, launch: _Launch) -> LaunchCounters:
        clusters = launch.config.clusters
        shares = self._shares(launch, clusters)
        if len(self.schedules) == 1 and shares == 1:
            report = self._reporter(clusters)
            counters, traffic, seconds = self._execute(launch, self.schedules[0], range(clusters), report)
            counters.account(traffic)
            self._cluster_seconds[id(launch.program)] = seconds / clusters
            return counters

        tasks = []
        for schedule in self.schedules:
            for first in range(shares):
                name = f"{launch.kernel} under schedule {schedule}" + (
                    f", part {first} of {shares}" if shares > 1 else ""
                )
                share = range(first, clusters, shares)
                tasks.append((name, lambda report, s=schedule, c=share: self._part(launch, s, c, report)))
        parts = run_forked(tasks, self.workers, self._reporter(clusters * len(self.schedules)))
        runs = {s: parts[i * shares : (i + 1) * shares] for i, s in enumerate(self.schedules)}
        settle(self.memory, {s: [part.stores for part in of] for s, of in runs.items()}, launch.kernel)
        first = runs[self.schedules[0]]
        self._cluster_seconds[id(launch.program)] = sum(part.seconds for part in first) / clusters
        counters, traffic = first[0].counters, Traffic()
        for part in first[1:]:
            counters.merge(part.counters)
        for part in first:
            traffic.add_loads(self.memory, part.loads)
        counters.account(traffic)
        return counters

    def _shares(self, launch: _Launch, clusters: int) -> int:
        """Parts into which the clusters of one run are dealt."""
        if launch.program.inter_cta or self.workers == 1:
            return 1
        seconds = self._cluster_seconds.get(id(launch.program))
        if seconds is not None and seconds * clusters < SPLIT_SECONDS:
            return 1
        return min(self.workers, clusters)

    def _reporter(self, total: int) -> Report | None:
        progress, done = self.progress, 0
        if progress is None:
            return None

        def report(units: int) -> None:
            nonlocal done
            done += units
            progress(done, total)

        return report

    def _part(self, launch: _Launch, schedule: str, clusters: range, report: Report) -> _Part:
        counters, traffic, seconds = self._execute(launch, schedule, clusters, report)
        return _Part(counters, traffic.packed_loads(), journal(traffic), seconds)

    def _execute(
        self, launch: _Launch, schedule: str, clusters: range, report: Report | None
    ) -> tuple[LaunchCounters, Traffic, float]:
        config = launch.config
        counters = LaunchCounters(launch.kernel, config.grid, config.cluster, schedule)
        traffic = self.memory.traffic = Traffic()
        start = time.perf_counter()
        try:
            scheduler.run(
                launch.program,
                config,
                launch.parameters,
                self.memory,
                scheduler.Schedule.parse(schedule),
                clusters if report is None else _reported(clusters, report),
                counters,
            )
        finally:
            self.memory.traffic = None
        counters.stored_bytes = traffic.stored_bytes
        return counters, traffic, time.perf_counter() - start


def _reported(clusters: range, report: Report) -> Iterator[int]:
    """The clusters; each counts as done when the next one is asked for."""
    for cluster in clusters:
        yield cluster
        report(1)
