"""Runs of launches under every schedule, in this process or in forked ones, and their effect on memory.

Launches that overlap run together. A run of one launch may be split over workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nogpu.errors import EmulatorError, leniency
from nogpu.execution.journal import Journal, journal, settle
from nogpu.execution.kept_ctas import Seats
from nogpu.execution.launch import Launch
from nogpu.execution.machine import Machine
from nogpu.execution.meter import Meter, Tally
from nogpu.execution.replay import ReplayMachine
from nogpu.execution.workers import Report, Task, run_forked
from nogpu.hardware.allocations import Reached
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.grid import Grid
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.properties import DeviceProperties, clusters_per_wave, with_preferred_clusters
from nogpu.hardware.traffic import PackedLoads, Traffic

SNAPSHOT_BYTES = 1 << 24  # largest memory, in bytes, that is copied and restored: two milliseconds
SPLIT_SECONDS = 0.3  # CPU seconds; a run that is expected to take less is not split: forks and journals cost as much

Progress = Callable[[int, int, int], None]
"""Function called with (CTAs done, CTAs in all, warp instructions)."""


def run_grids(grids: Sequence[Grid], schedule: Schedule, meter: Meter | None = None) -> None:
    """Runs grids, in launch order, each beside its predecessor as far as that one allows.

    meter: as for `Machine`. Raises EmulatorError if a grid fails.
    """
    for before, grid in zip(grids, grids[1:]):
        grid.predecessors = [before]
    machine = (ReplayMachine if schedule.kind == "replay" else Machine)(schedule, grids, meter)
    with np.errstate(all="ignore"), ExitStack() as stack:
        for observer in grids[0].observers:
            stack.enter_context(observer.following(grids[0].memory))
        machine.run()


@contextmanager
def _named(schedule: str) -> Iterator[None]:
    """Context that adds the schedule to the errors inside."""
    try:
        yield
    except EmulatorError as error:
        error.schedule = schedule
        raise


def _unreported(units: int) -> None:
    """Ignores the progress of a run."""


@dataclass
class Ran:
    """Launch that has run under a schedule, or the part of it that a worker has run."""

    counters: LaunchCounters
    traffic: Traffic
    seconds: float
    """Equal share of the CPU time of all launches that have run together: other work of the machine does not count."""
    records: Any
    """`PartRecorder.part`, or None."""
    touched: Any
    """Accesses, as `Launch.touched`."""
    reached: Reached
    """Bytes of global memory that the launches which have run together may have accessed."""

    @property
    def stores(self) -> Journal:
        """Bytes that it has stored, which memory still has."""
        return journal(self.traffic)


@dataclass
class _Sent:
    """`Ran` as a worker sends it."""

    counters: LaunchCounters
    loads: PackedLoads
    stores: Journal
    seconds: float
    records: Any
    touched: Any
    reached: Reached


@dataclass
class Spare:
    """Further schedules, under which launches run while there is time."""

    schedules: tuple[str, ...]
    seconds: float
    """Time that is left."""

    def take(self, each: float) -> tuple[str, ...]:
        """Schedules that fit the time. each: seconds of the runs under one."""
        return self.schedules[: max(0, int(self.seconds / each))]


@dataclass
class Runner:
    """Runner of launches on a memory; the attributes are those of `device.Device`."""

    memory: GlobalMemory
    properties: DeviceProperties
    schedules: tuple[str, ...]
    workers: int
    max_instructions: int
    progress: Progress | None
    cluster_seconds: dict[int, float]
    """id of a program -> CPU seconds that a cluster of it took last."""
    seats: Seats | None = None
    """CTAs of launches that are over."""
    spare: Spare | None = None
    """Further schedules, which a run appends to `schedules`."""

    def run(self, chain: list[Launch]) -> list[LaunchCounters]:
        """Runs launches, each of which may overlap the one before it. Raises EmulatorError if one fails."""
        try:
            with leniency(chain[0].lenient):
                return self._run(chain)
        except EmulatorError as error:
            for allocation in self.memory.snapshot()[1]:
                allocation.writes += 1  # it may have written anything
            if error.schedule in self.schedules:
                error.passed = self.schedules[: self.schedules.index(error.schedule)]
            raise

    def _run(self, chain: list[Launch]) -> list[LaunchCounters]:
        shares = self._shares(chain)
        if len(self.schedules) == 1 and shares == 1 and self.spare is None:
            schedule = self.schedules[0]
            tally = Tally(self.max_instructions)
            ran = self.execute(chain, schedule, Meter(tally, 0, self._reporter(chain, [tally])), is_alone=True)
            for launch, run in zip(chain, ran):
                self._end(launch, [run], [run])
                run.traffic.give_back()
            return [run.counters for run in ran]
        runs = self._run_apart(chain, shares)
        found = []
        for place, launch in enumerate(chain):
            parts = [run[place] for run in runs[self.schedules[0]]]
            counters, traffic = parts[0].counters, Traffic()
            for part in parts[1:]:
                counters.merge(part.counters)
            for part in parts:
                traffic.add_loads(self.memory, part.loads)
            counters.account(traffic)
            self._end(launch, parts, [run[place] for of in runs.values() for run in of])
            found.append(counters)
        return found

    def _run_apart(self, chain: list[Launch], shares: int) -> dict[str, list[list[_Sent]]]:
        """Runs launches in parts under every schedule. Returns, by schedule and part, the result of each launch.

        The memory gets their stores. Raises EmulatorError if schedules disagree.
        """
        kernels = " overlapped by ".join(launch.kernel for launch in chain)
        began = time.perf_counter()
        runs = self._run_under(self.schedules, chain, kernels, shares)
        if self.spare is not None:
            now = time.perf_counter()
            more = self.spare.take(now - began)
            self.schedules += more
            runs |= self._run_under(more, chain, kernels, shares)
            self.spare.seconds -= time.perf_counter() - now
        stores = {schedule: [sent.stores for run in of for sent in run] for schedule, of in runs.items()}
        settle(self.memory, stores, kernels)
        return runs

    def _run_under(
        self, schedules: Sequence[str], chain: list[Launch], kernels: str, shares: int
    ) -> dict[str, list[list[_Sent]]]:
        """Results as `_run_apart` returns them; the memory is unchanged. kernels: names, for errors."""
        tallies = [Tally(self.max_instructions, shares) for _ in schedules]
        report = self._reporter(chain, tallies)

        def sent(report: Report, schedule: str, tally: Tally, part: int) -> list[_Sent]:
            return [
                _Sent(
                    r.counters, r.traffic.packed_loads(), journal(r.traffic), r.seconds, r.records, r.touched, r.reached
                )
                for r in self.execute(chain, schedule, Meter(tally, part, report), (part, shares))
            ]

        tasks = []
        for schedule, tally in zip(schedules, tallies):
            for part in range(shares):
                name = f"{kernels} under schedule {schedule}" + (f", part {part} of {shares}" if shares > 1 else "")
                tasks.append((name, partial(sent, schedule=schedule, tally=tally, part=part)))
        parts = self.run_apart(tasks, report)
        return {schedule: parts[i * shares : (i + 1) * shares] for i, schedule in enumerate(schedules)}

    def _end(self, launch: Launch, parts: Sequence[Ran | _Sent], every: Sequence[Ran | _Sent]) -> None:
        """Ends a launch that has run in these parts. every: those under further schedules, too."""
        launch.touched = next((each.touched for each in every if each.touched is not None), None)
        launch.reached = [each.reached for each in every]
        if launch.notes_stores:
            launch.stores = [part.stores for part in parts]
        self.cluster_seconds[id(launch.program)] = sum(part.seconds for part in parts) / launch.config.clusters
        if launch.recording is not None:
            launch.recording.end(launch, [part.records for part in parts])

    def run_apart(self, tasks: Sequence[tuple[str, Task]], report: Report | None) -> list[Any]:
        """Runs tasks by `workers.run_forked`: each task sees the present memory, and leaves it unchanged.

        One worker restores the memory's bytes after each task if there are few: that is faster than a fork.
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

    def execute(
        self,
        chain: Sequence[Launch],
        schedule: str,
        meter: Meter,
        share: tuple[int, int] = (0, 1),
        is_alone: bool = False,
    ) -> list[Ran]:
        """Runs launches together under one schedule. share: (part, number of parts) of each launch's clusters.

        is_alone: the run's stores stay in memory, and are compared with no other's.
        """
        grids, traffics, recorders = [], [], []
        for number, launch in enumerate(chain):
            config = launch.config
            if Schedule.parse(schedule).prefers_clusters:
                config = with_preferred_clusters(config, self.properties)
            counters = LaunchCounters(launch.kernel, config.grid, config.cluster, schedule)
            grid = Grid(launch.program, config, launch.parameters, self.memory, counters, self.properties)
            grid.number, grid.traffic = number, (traffic := Traffic(launch.notes_stores or not is_alone))
            grid.keep_part(*share)
            grid.title = f"launch {number} ({launch.kernel})" if len(chain) > 1 else ""
            recorder = None if launch.recording is None else launch.recording.begin(launch)
            if recorder is not None:
                grid.multiplies, grid.shares_work = recorder.values, bool(launch.program.requests)
            grid.observers = [each for each in (recorder, launch.followed_by(schedule)) if each is not None]
            if len(chain) == 1 and share[1] == 1 and not grid.observers and not config.cooperative:
                grid.seats = self.seats
            grids.append(grid)
            traffics.append(traffic)
            recorders.append(recorder)
        self.memory.forget_reached()
        start = time.process_time()  # other processes' work must not make launches look long enough to be split
        try:
            with _named(schedule):
                run_grids(grids, Schedule.parse(schedule), meter)
        finally:
            self.memory.traffic = None
            for recorder in recorders:
                if recorder is not None:
                    recorder.close()
        seconds = (time.process_time() - start) / len(chain)
        for traffic in traffics:
            for allocation in traffic.stores:
                allocation.writes += 1
        sanitizer = chain[0].followed_by(schedule)
        touched = {} if sanitizer is None else sanitizer.take_touched()
        ran = []
        for grid, traffic, recorder in zip(grids, traffics, recorders):
            records = None if recorder is None else recorder.part
            ran.append(Ran(grid.counters, traffic, seconds, records, touched.get(grid.number), self.memory.reached))
        return ran

    def _shares(self, chain: list[Launch]) -> int:
        """Number of parts into which the clusters of one run are dealt."""
        launch = chain[0]
        config = with_preferred_clusters(launch.config, self.properties)  # the fewest clusters
        program, clusters = launch.program, config.clusters
        together = len(chain) > 1 or program.inter_cta or (launch.recording is not None and program.requests)
        # The order between clusters is followed only where all of them run.
        if together or self.workers == 1 or launch.sanitizer is not None:
            return 1
        seconds = self.cluster_seconds.get(id(program))
        if seconds is not None and seconds * clusters < SPLIT_SECONDS:
            return 1
        return min(self.workers, clusters, clusters_per_wave(config, self.properties))

    def _reporter(self, chain: list[Launch], tallies: list[Tally]) -> Report | None:
        """Report that counts the CTAs that are done, and passes the state of the runs to `progress`. tallies: one for
        each schedule.
        """
        progress, done = self.progress, 0
        if progress is None:
            return None
        total = sum(launch.config.ctas for launch in chain) * len(tallies)

        def report(ctas: int) -> None:
            nonlocal done
            done += ctas
            progress(done, total, sum(tally.total for tally in tallies))

        return report
