"""Runs grids: admits clusters, lets warps run in turns, and drains asynchronous work as the schedule says.

A warp runs until it has to wait or has used its quantum. Warps that wait are on the list of what they wait for and
cost nothing. When no warp can run and nothing is outstanding, the kernel hangs, and the report says who waits for what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from emulator.cluster import Cluster, Grid
from emulator.errors import EmulatorError, Fault
from emulator.instructions import located
from emulator.jobs import Job, Queues, Schedule
from emulator.warp import Group, Warp

if TYPE_CHECKING:
    from emulator.launch_counters import LaunchCounters
    from emulator.memory import GlobalMemory
    from emulator.properties import DeviceProperties, LaunchConfig
    from emulator.translate import Program

__all__ = ["Machine", "Schedule", "run"]

QUANTUM = 256  # segments that a warp runs before the next one's turn
# Under a random schedule warps differ in how often it is their turn: races often need one warp far ahead of another.
PACES = (1.0, 0.1, 0.01)
HANG_ROUNDS = 2000  # turns of every warp without any effect on memory or a barrier
REPORTED_WARPS = 40


class Machine:
    """The chip: resident clusters, warps that can run, and outstanding asynchronous work."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.queues = Queues(schedule, self._execute)
        self.random = self.queues.random
        self.ready: deque[Warp] = deque()
        self.resident: list[Cluster] = []
        self.progress = 0  # grows with every effect that another warp could see
        self._ticks = 0
        self._finished: list[Cluster] = []

    def clock(self) -> int:
        """Cycles, in the sense that they grow."""
        self._ticks += 1
        return self._ticks

    def enqueue(self, warp: Warp) -> None:
        if not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def admit(self, grid: Grid, number: int) -> None:
        if not self.resident:
            # What happens to a cluster under a seed must not depend on which clusters this process has run before.
            self.random.seed(f"{self.schedule.seed}:{number}")
        cluster = Cluster(self, grid, number)
        self.start(cluster)

    def start(self, cluster: Cluster, pace: float = 1.0) -> None:
        self.resident.append(cluster)
        cluster.grid.counters.ctas += cluster.size
        for cta in cluster.ctas:
            for warp in cta.warps:
                if self.schedule.kind == "random":
                    warp.pace = pace * PACES[self.random.randrange(len(PACES))]
                self.enqueue(warp)

    def pause(self, group: Group) -> bool:
        """Ends the turn of a group behind which another launch may start. False where none can."""
        return False

    def cluster_done(self, cluster: Cluster) -> None:
        self._finished.append(cluster)

    def run(self, admissions: Iterator[tuple[Grid, int]], limit: int) -> None:
        """Run clusters, at most `limit` resident at once, until there are no more."""
        idle = 0  # turns since anything had an effect
        seen = self.progress
        more = True
        while True:
            while more and len(self.resident) < limit:
                following = next(admissions, None)
                more = following is not None
                if more:
                    self.admit(*following)
            if not self.resident:
                return
            if self.ready:
                self.turn()
                if self.progress != seen:
                    seen, idle = self.progress, 0
                else:
                    idle += 1
                    if idle > len(self.ready) and self.queues.outstanding:
                        self.queues.run_one()
                        idle = 0
                    elif idle > HANG_ROUNDS * (len(self.ready) + 1):
                        raise self.hang("all warps that can run poll without an effect")
            elif self.queues.outstanding:
                self.queues.run_one()
            elif not self._finished:
                raise self.hang("no warp can run and no asynchronous work is outstanding")
            if self._finished and not self.queues.outstanding:
                self._retire()
            elif self._finished and not self.ready:
                while self.queues.outstanding:
                    self.queues.run_one()
                self._retire()

    def turn(self) -> None:
        """The turn of the warp that has waited longest, or under a random schedule of any."""
        random = self.schedule.kind == "random"
        if random and len(self.ready) > 1:
            chosen = self.random.choices(range(len(self.ready)), [warp.pace for warp in self.ready])[0]
            self.ready.rotate(-chosen)
        self.run_warp(self.ready.popleft())

    def run_warp(self, warp: Warp) -> None:
        random = self.schedule.kind == "random"
        warp.queued = False
        quantum = self.random.randrange(1, 9) if random else QUANTUM
        self._ticks += 1
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        try:
            runnable = warp.run(quantum)
        except Fault as fault:
            raise self._located(warp, fault) from fault
        if runnable:
            self.enqueue(warp)
        while random and self.queues.outstanding and self.random.random() < 0.4:
            self.queues.run_one()

    def take_finished(self) -> list[Cluster]:
        """Clusters whose CTAs have exited, no longer resident now."""
        if not self._finished:
            return self._finished
        finished, self._finished = self._finished, []
        for cluster in finished:
            self.resident.remove(cluster)
            cluster.grid.counters.warp_instructions += sum(warp.issued for cta in cluster.ctas for warp in cta.warps)
        return finished

    def _retire(self) -> None:
        for cluster in self.take_finished():
            self.queues.forget_streams((cluster.grid.number, cluster.number))

    # Errors

    def _execute(self, job: Job, action: Callable[[], None]) -> None:
        self.progress += 1
        memory = job.grid.memory
        outer, memory.traffic = memory.traffic, job.grid.traffic
        try:
            action()
        except Fault as fault:
            cta, warp, index = job.issuer
            raise self._error(job.grid, cta, warp, index, fault.reason) from fault
        finally:
            memory.traffic = outer

    def _located(self, warp: Warp, fault: Fault) -> EmulatorError:
        grid = warp.cta.grid
        index = grid.program.instruction_at(fault.__traceback__)
        return self._error(grid, warp.cta.index, warp.index, index, fault.reason)

    def _error(self, grid: Grid, cta: tuple, warp: int, index: int | None, reason: str) -> EmulatorError:
        instruction = grid.entry.instructions[index] if index is not None else None
        return located(reason, grid.entry, instruction, cta=cta, warp=warp)

    def notes(self) -> list[str]:
        """What else a report of a hang should say."""
        return []

    def hang(self, reason: str) -> EmulatorError:
        """The report of a hang: every warp that has not exited, and what it waits for."""
        lines_of, barriers, first = {}, {}, None
        for cluster in self.resident:
            for cta in cluster.ctas:
                for warp in cta.warps:
                    for group in warp.groups:
                        first = first or (cluster.grid, cta, warp, group)
                        line = _waiting_line(cluster.grid, cta, warp, group, barriers)
                        lines_of.setdefault(cluster.grid, []).append(line)
        lines = []
        for of_grid in lines_of.values():
            shown = REPORTED_WARPS // len(lines_of)
            more = [f"  ... and {len(of_grid) - shown} more"] if len(of_grid) > shown else []
            lines += [*of_grid[:shown], *more]
        lines += [f"  {barrier}" for barrier in barriers.values()]
        text = "\n".join([f"the kernel hangs: {reason}", *lines, *(f"  {note}" for note in self.notes())])
        if first is None:
            return EmulatorError(text)
        grid, cta, warp, group = first
        return self._error(grid, cta.index, warp.index, group.pc, text)


def _waiting_line(grid: Grid, cta, warp: Warp, group, barriers: dict) -> str:
    instruction = grid.entry.instructions[group.pc]
    place = f" ({instruction.source})" if instruction.source else ""
    lanes = "" if group.bits == warp.live else f" lanes {group.bits:#010x}"
    line = f"  {cta.label} warp {warp.index}{lanes} at PTX line {instruction.line}{place}: {instruction.text}"
    if group.waiting is None:
        return line + (" [waits for the other lanes]" if group.blocked else " [can run]")
    what, target, phase = group.waiting
    barriers[id(target)] = target
    name = getattr(target, "name", None) or str(target)
    return f"{line}\n      waits for {what + ' (phase ' + str(phase) + ') of ' if what else ''}{name}"


def run(
    program: Program,
    config: LaunchConfig,
    params: np.ndarray,
    memory: GlobalMemory,
    schedule: Schedule,
    clusters: Iterable[int] | None,
    counters: LaunchCounters,
    properties: DeviceProperties | None = None,
) -> None:
    """Run clusters of one grid. params: the packed parameters, uint8, 64-byte aligned and registered with `memory`.

    clusters: indices, x fastest; None for all. Raises EmulatorError.
    """
    grid = Grid(0, program, config, params, memory, counters, properties)
    machine = Machine(schedule)
    size = config.cluster[0] * config.cluster[1] * config.cluster[2]
    limit = max(1, grid.sm_count // size) if program.inter_cta else 1
    total = grid.clusters[0] * grid.clusters[1] * grid.clusters[2]
    numbers = range(total) if clusters is None else clusters
    with np.errstate(all="ignore"):
        machine.run(((grid, number) for number in numbers), limit)
    grid.finish()
