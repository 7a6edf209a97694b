"""Runs one grid: admits its clusters, gives warps turns, and runs asynchronous operations as the schedule says.

Unless the schedule is random, compiled code chooses the warps (native/turns.c). Python gets control when a warp needs
it, when a round of turns had no effect, and after TURNS_AT_ONCE turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nogpu.execution.machine import OVERDUE_TURNS, SPINNING, WAITING, Machine
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.cluster import Cluster
from nogpu.hardware.grid import Grid
from nogpu.hardware.properties import ctas_per_sm
from nogpu.hardware.turns import (
    CONCLUDE,
    DELAYED,
    EFFECTS,
    IDLE,
    LIMIT,
    LOOK,
    OUTSTANDING,
    PROGRESS,
    QUIET,
    STALE,
    TICKS,
)
from nogpu.ops import copies

if TYPE_CHECKING:
    from nogpu.execution.meter import Meter
    from nogpu.hardware.causes import Sanitizer
    from nogpu.hardware.counters import LaunchCounters
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.program import Program
    from nogpu.hardware.properties import DeviceProperties, LaunchConfig
    from nogpu.hardware.recorder import Recorder

__all__ = ["GridMachine", "Schedule", "run"]

TURNS_AT_ONCE = 64  # of compiled code, at most: signals wait for its end


class GridMachine(Machine):
    """A machine that runs clusters of one grid."""

    def __init__(self, schedule: Schedule, meter: Meter | None = None) -> None:
        """meter: as of `Machine`."""
        super().__init__(schedule, meter)
        if schedule.kind in ("late", "eager"):
            self.ready = self.turns
            self.turns.set_limits(self.quantum, OVERDUE_TURNS)
        self._admissions: Iterator[tuple[Grid, int]] = iter(())

    @property
    def outstanding(self) -> int:
        """Asynchronous operations."""
        loads = self.turns.loads
        return self.queues.outstanding if loads is None else self.queues.outstanding + len(loads)

    def run_one(self) -> None:
        """Runs an asynchronous operation, chosen by the schedule. There must be one."""
        loads = self.turns.loads
        if not loads or self.queues.outstanding_first:
            self.queues.run_one()
            return
        load = loads.take()
        async_op = copies.pending_load(load, self.turns.warp_at(load.issuer))
        self.execute(async_op, async_op.action)

    def admit(self, grid: Grid, number: int) -> None:
        """Makes a cluster resident. number: its index in the grid."""
        if not self.resident:
            # A cluster's run under a seed must not depend on the clusters that this process has run before.
            self.random.seed(f"{self.schedule.seed}:{number}")
            self.warp_random.seed(f"{self.schedule.seed}:{number}")
        cluster = Cluster(self, grid, number)
        self.start(cluster)

    def next_unstarted(self, grid: Grid) -> int | None:
        following = next(self._admissions, None)
        return None if following is None else following[1]

    def run(self, admissions: Iterator[tuple[Grid, int]], limit: int, room: int = 0) -> None:
        """Runs clusters, at most `limit` resident at once, to the end of the last one.

        room: clusters that the device holds. More than the limit are resident once those that are wait for others.
        """
        self._admissions = admissions
        ready, words = self.ready, self.turns.words
        look = 0  # turns without an effect at which the next look is due
        seen = 0  # effects: events that could have changed what a lane reads
        more = True
        while True:
            while more and len(self.resident) < limit:
                following = next(admissions, None)
                more = following is not None
                if following is not None:
                    self.admit(*following)
            if not self.resident:
                self.meter.count(())
                return
            if ready:
                self._advance()
                if words[EFFECTS] != seen:
                    seen, look = words[EFFECTS], 0
                idle = words[IDLE]
                if not idle:
                    if self.outstanding and self.delayed > OVERDUE_TURNS * max(1, len(ready)):
                        self.run_one()
                elif idle > len(ready):
                    if self.outstanding:
                        self.run_one()
                        words[IDLE] = 0
                    elif idle >= look:
                        if look and self.spins_for_ever():
                            if not more or limit >= room:
                                raise self.hang(SPINNING)
                            limit = room
                        look = idle + self.look_turns * (len(ready) + 1)
            elif self.outstanding:
                self.run_one()
            elif not self.finished:
                raise self.hang(WAITING)
            if self.finished and not self.outstanding:
                self._retire()
            elif self.finished and not ready:
                while self.outstanding:
                    self.run_one()
                self._retire()

    def _advance(self) -> None:
        """Gives turns to warps that can run: one under a random schedule, else as many as compiled code can."""
        turns, words = self.turns, self.turns.words
        if self.ready is not turns:
            self.turn()
        else:
            grid = self.resident[0].grid
            self._look_up(grid)
            ticks = words[TICKS]
            if ticks >= self.count_at:
                self.count()
            words[LIMIT] = max(ticks + 1, min(ticks + TURNS_AT_ONCE, self.count_at))
            words[PROGRESS], words[QUIET], words[OUTSTANDING] = self.progress, self.quiet, self.queues.outstanding
            why = grid.program.run_turns(turns)
            self.progress = words[PROGRESS]
            if why == LOOK:
                return
            warp = turns.current
            runnable = self.served(warp, warp.conclude if why == CONCLUDE else partial(warp.run, self.quantum))
            if warp.groups:
                warp.offer()
            if runnable:
                turns.append(warp)
        effects = self.progress - self.quiet
        if effects == words[EFFECTS]:
            words[IDLE] += 1
        else:
            words[EFFECTS], words[IDLE] = effects, 0
            words[DELAYED] += self.outstanding > 0

    def _look_up(self, grid: Grid) -> None:
        """Compiled code sees the live allocations as they are."""
        memory = grid.memory
        memory.traffic = grid.traffic
        known = memory.version, memory.refuses_copies
        if known != self.allocations:
            self.allocations, self.turns.words[STALE] = known, 0
            for warp in self.turns.warps:
                warp.registers.look_up(grid)
            if self.turns.loads is not None:
                self.turns.loads.forget_allocations()

    def _retire(self) -> None:
        for cluster in self.take_finished():
            self.queues.forget_tensor_queues((cluster.grid.number, cluster.number))
            if cluster.causes is not None:
                cluster.causes.end()


def machine_of(kind: str) -> type[GridMachine]:
    """The machine that runs one grid under a kind of schedule."""
    if kind == "replay":
        from nogpu.execution.replay import ReplayMachine

        return ReplayMachine
    return GridMachine


def run(
    program: Program,
    config: LaunchConfig,
    params: np.ndarray,
    memory: GlobalMemory,
    schedule: Schedule,
    clusters: Iterable[int] | None,
    counters: LaunchCounters,
    properties: DeviceProperties | None = None,
    meter: Meter | None = None,
    recorder: Recorder | None = None,
    sanitizer: Sanitizer | None = None,
) -> None:
    """Runs clusters of one grid. Raises EmulatorError.

    params: uint8, the packed parameters, 64-byte aligned and registered with `memory`. clusters: indices, x fastest;
    None for all. recorder: clusters that take over others' work get equal turns, as all that fit are resident.
    sanitizer: follows the order of events.
    """
    grid = Grid(0, program, config, params, memory, counters, properties)
    grid.recorder, grid.sanitizer = recorder, sanitizer
    machine = machine_of(schedule.kind)(schedule, meter)
    size = config.cluster[0] * config.cluster[1] * config.cluster[2]
    limit, room = 1, 1
    if program.inter_cta or (recorder is not None and program.requests):
        limit = max(1, grid.sm_count // size)
        threads = config.block[0] * config.block[1] * config.block[2]
        room = grid.sm_count * ctas_per_sm(threads, grid.shared_bytes, grid.properties) // size
    total = grid.clusters[0] * grid.clusters[1] * grid.clusters[2]
    numbers = range(total) if clusters is None else clusters
    with np.errstate(all="ignore"), nullcontext() if sanitizer is None else sanitizer.following(memory):
        machine.run(((grid, number) for number in numbers), limit, room)
    machine.finish(grid)
