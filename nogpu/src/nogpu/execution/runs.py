"""Runs of launches under every schedule, in this process or in forked ones, and their effect on memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nogpu.errors import EmulatorError, leniency
from nogpu.execution import overlap, scheduler
from nogpu.execution.journal import Journal, journal, settle
from nogpu.execution.meter import Meter, Tally
from nogpu.execution.recording import Recording
from nogpu.execution.trials import Explorer, Trial
from nogpu.execution.workers import Report, Task, run_forked
from nogpu.hardware.causes import Sanitizer
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.grid import Grid
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties, LaunchConfig
from nogpu.hardware.traffic import PackedLoads, Traffic

SNAPSHOT_BYTES = 1 << 24  # of memory that is copied and put back at most: two milliseconds
SPLIT_SECONDS = 0.1  # a run that is expected to be shorter is not split: a second fork costs more


@contextmanager
def _named(schedule: str) -> Iterator[None]:
    """Errors inside say under which schedule they happened."""
    try:
        yield
    except EmulatorError as error:
        error.schedule = schedule
        raise


def _touched_by(chain: Sequence[Launch], schedule: str) -> list[Any]:
    """`Launch.touched` of launches that have run together under a schedule."""
    sanitizer = chain[0].followed_by(schedule)
    found = {} if sanitizer is None else sanitizer.take_touched()
    return [found.get(number) for number in range(len(chain))]


def _touched(launch: Launch, schedule: str) -> Any:
    return _touched_by([launch], schedule)[0]


def _unreported(units: int) -> None:
    """Nobody wants to know what is done."""


Progress = Callable[[int, int, int], None]
"""Called with (CTAs done, CTAs in all, warp instructions)."""


@dataclass
class Launch:
    """A launch that the device has accepted."""

    program: Program
    config: LaunchConfig
    parameters: np.ndarray
    """uint8: the packed parameters, aligned and registered with the memory."""
    kernel: str
    schedules: tuple[str, ...]
    """Those of the device, or the launch's own."""
    lenient: bool | None = None
    """As `errors.leniency` takes it."""
    recording: Recording | None = None
    sanitizer: Sanitizer | None = None
    explorer: Explorer | None = None
    queue: int = 0
    """Its handle."""
    node: Any = None
    """As `causes.Queues.submitted`."""
    touched: Any = None
    """What it has accessed, as `causes.Queues.accessed` takes it."""

    def followed_by(self, schedule: str) -> Sanitizer | None:
        """What follows it under a schedule."""
        return self.sanitizer if self.sanitizer is not None and self.sanitizer.follows(schedule) else None


@dataclass
class _Part:
    """The results of one worker."""

    counters: LaunchCounters
    loads: PackedLoads
    stores: Journal
    seconds: float = 0.0
    records: Any = None
    """As `PartRecorder.part`."""
    touched: Any = None
    """As `Launch.touched`."""


@dataclass
class Runner:
    """Runs launches on a memory; the attributes are those of `device.Device`."""

    memory: GlobalMemory
    properties: DeviceProperties
    schedules: tuple[str, ...]
    workers: int
    max_instructions: int
    progress: Progress | None
    cluster_seconds: dict[int, float]
    """id of a program -> seconds that a cluster of it took last."""

    def run(self, chain: list[Launch]) -> list[LaunchCounters]:
        """Run launches; each may overlap the one before it."""
        for launch in chain:
            launch.program.printing_schedule = self.schedules[0]
        try:
            with leniency(chain[0].lenient):
                return [self._run(chain[0])] if len(chain) == 1 else self._run_together(chain)
        except EmulatorError as error:
            if error.schedule in self.schedules:
                error.passed = self.schedules[: self.schedules.index(error.schedule)]
            raise

    def _run(self, launch: Launch) -> LaunchCounters:
        if launch.explorer is not None and launch.recording is None:
            launch.explorer.explore(Trial(self, [launch], launch.explorer))
        clusters = launch.config.clusters
        shares = self._shares(launch, clusters)
        is_here = len(self.schedules) == 1 and shares == 1
        tallies = {schedule: Tally(self.max_instructions, 0 if is_here else shares) for schedule in self.schedules}
        report = self._reporter([launch], tallies)
        if is_here:
            schedule = self.schedules[0]
            meter = Meter(tallies[schedule], 0, report)
            counters, traffic, seconds, records = self.execute(launch, schedule, range(clusters), meter)
            counters.account(traffic)
            launch.touched = _touched(launch, schedule)
            if launch.recording is not None:
                launch.recording.end(launch, [records])
            self.cluster_seconds[id(launch.program)] = seconds / clusters
            return counters

        tasks = []
        for schedule, tally in tallies.items():
            for part in range(shares):
                part_of = f", part {part} of {shares}" if shares > 1 else ""
                name = f"{launch.kernel} under schedule {schedule}{part_of}"
                tasks.append((name, partial(self._part, launch, schedule, range(part, clusters, shares), tally, part)))
        parts = self.run_apart(tasks, report)
        runs = {s: parts[i * shares : (i + 1) * shares] for i, s in enumerate(self.schedules)}
        settle(self.memory, {s: [part.stores for part in of] for s, of in runs.items()}, launch.kernel)
        shown = runs[self.schedules[0]]
        launch.touched = next((part.touched for part in parts if part.touched is not None), None)
        self.cluster_seconds[id(launch.program)] = sum(part.seconds for part in shown) / clusters
        counters, traffic = shown[0].counters, Traffic()
        for part in shown[1:]:
            counters.merge(part.counters)
        for part in shown:
            traffic.add_loads(self.memory, part.loads)
        counters.account(traffic)
        if launch.recording is not None:
            launch.recording.end(launch, [part.records for part in shown])
        return counters

    def _run_together(self, chain: list[Launch]) -> list[LaunchCounters]:
        """Runs overlapping launches. A run of them is not split over workers."""
        explorer = chain[0].explorer
        if explorer is not None:
            explorer.explore(Trial(self, chain, explorer))
        kernels = " overlapped by ".join(launch.kernel for launch in chain)
        is_here = len(self.schedules) == 1
        tallies = {schedule: Tally(self.max_instructions, 0 if is_here else 1) for schedule in self.schedules}
        report = self._reporter(chain, tallies)
        if is_here:
            schedule = self.schedules[0]
            measured = self.overlap(chain, schedule, Meter(tallies[schedule], 0, report))
            for counters, traffic in measured:
                counters.account(traffic)
            for launch, touched in zip(chain, _touched_by(chain, schedule)):
                launch.touched = touched
            return [counters for counters, _ in measured]

        def parts(report: Report, schedule: str) -> list[_Part]:
            runs = self.overlap(chain, schedule, Meter(tallies[schedule], 0, report))
            touched = _touched_by(chain, schedule)
            return [
                _Part(counters, traffic.packed_loads(), journal(traffic), touched=found)
                for (counters, traffic), found in zip(runs, touched)
            ]

        tasks = [(f"{kernels} under schedule {s}", partial(parts, schedule=s)) for s in self.schedules]
        runs: dict[str, list[_Part]] = dict(zip(self.schedules, self.run_apart(tasks, report), strict=True))
        settle(self.memory, {s: [part.stores for part in of] for s, of in runs.items()}, kernels)
        for launch, *parts_of in zip(chain, *runs.values()):
            launch.touched = next((part.touched for part in parts_of if part.touched is not None), None)
        for part in runs[self.schedules[0]]:
            traffic = Traffic()
            traffic.add_loads(self.memory, part.loads)
            part.counters.account(traffic)
        return [part.counters for part in runs[self.schedules[0]]]

    def run_apart(self, tasks: Sequence[tuple[str, Task]], report: Report | None) -> list[Any]:
        """As `workers.run_forked`: each task sees the memory as it is now, and leaves it so.

        One worker takes the memory's bytes back after each task if there are few: that is faster than a fork.
        """
        if self.workers > 1 or self.memory.writable_bytes > SNAPSHOT_BYTES:
            return run_forked(tasks, self.workers, report)
        before, results = self.memory.contents(), []
        for _, task in tasks:
            try:
                results.append(task(report or _unreported))
            finally:
                self.memory.put_back(before)
        return results

    def overlap(self, chain: list[Launch], schedule: str, meter: Meter) -> list[tuple[LaunchCounters, Traffic]]:
        """(counters, traffic) of each launch, run together under one schedule."""
        grids = []
        for number, launch in enumerate(chain):
            config = launch.config
            counters = LaunchCounters(launch.kernel, config.grid, config.cluster, schedule)
            title = f"launch {number} ({launch.kernel})"
            grid = Grid(
                number, launch.program, config, launch.parameters, self.memory, counters, self.properties, title
            )
            grid.traffic, grid.sanitizer = Traffic(), launch.followed_by(schedule)
            grids.append((grid, grid.traffic))
        try:
            with _named(schedule):
                overlap.run([grid for grid, _ in grids], scheduler.Schedule.parse(schedule), meter)
        finally:
            self.memory.traffic = None
        for grid, traffic in grids:
            grid.counters.stored_bytes = traffic.stored_bytes
        return [(grid.counters, traffic) for grid, traffic in grids]

    def _shares(self, launch: Launch, clusters: int) -> int:
        """Number of parts into which the clusters of one run are dealt."""
        program = launch.program
        together = program.inter_cta or (launch.recording is not None and program.requests)
        # Whether accesses of several clusters are ordered is seen where all of them run.
        if together or self.workers == 1 or launch.sanitizer is not None:
            return 1
        seconds = self.cluster_seconds.get(id(launch.program))
        if seconds is not None and seconds * clusters < SPLIT_SECONDS:
            return 1
        return min(self.workers, clusters)

    def _reporter(self, chain: list[Launch], tallies: dict[str, Tally]) -> Report | None:
        """Adds CTAs to those that are done, and passes the state of the runs on. tallies: of each schedule's run."""
        progress, done = self.progress, 0
        if progress is None:
            return None
        total = sum(launch.config.ctas for launch in chain) * len(tallies)

        def report(ctas: int) -> None:
            nonlocal done
            done += ctas
            progress(done, total, sum(tally.total for tally in tallies.values()))

        return report

    def _part(self, launch: Launch, schedule: str, clusters: range, tally: Tally, part: int, report: Report) -> _Part:
        """Runs a part of a launch in a worker."""
        counters, traffic, seconds, records = self.execute(launch, schedule, clusters, Meter(tally, part, report))
        touched = _touched(launch, schedule)
        return _Part(counters, traffic.packed_loads(), journal(traffic), seconds, records, touched)

    def execute(
        self, launch: Launch, schedule: str, clusters: range, meter: Meter
    ) -> tuple[LaunchCounters, Traffic, float, Any]:
        """Runs clusters of a launch. Returns (counters, traffic, seconds, what is recorded)."""
        config = launch.config
        recorder = None if launch.recording is None else launch.recording.begin(launch)
        counters = LaunchCounters(launch.kernel, config.grid, config.cluster, schedule)
        traffic = self.memory.traffic = Traffic()
        start = time.perf_counter()
        try:
            with _named(schedule):
                scheduler.run(
                    launch.program,
                    config,
                    launch.parameters,
                    self.memory,
                    scheduler.Schedule.parse(schedule),
                    clusters,
                    counters,
                    self.properties,
                    meter,
                    recorder,
                    launch.followed_by(schedule),
                )
        finally:
            self.memory.traffic = None
            if recorder is not None:
                recorder.close()
        counters.stored_bytes = traffic.stored_bytes
        return counters, traffic, time.perf_counter() - start, None if recorder is None else recorder.part
