"""Runs grids: admits clusters, lets warps run in turns, and drains asynchronous work as the schedule says.

A warp runs until it has to wait or has used its quantum. Warps that wait are on the list of what they wait for and
cost nothing. When no warp can run and nothing is outstanding, the kernel hangs, and the report says who waits for what.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import EmulatorError, Fault
from emulator.execution import hang
from emulator.hardware.async_operations import AsyncOperation, Queues, Schedule
from emulator.hardware.cluster import Cluster, Grid
from emulator.hardware.warp import ActiveGroup, Warp
from emulator.ptx.ir import located

if TYPE_CHECKING:
    from emulator.hardware.counters import LaunchCounters
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.program import Program
    from emulator.hardware.properties import DeviceProperties, LaunchConfig

__all__ = ["Machine", "Schedule", "run"]

QUANTUM = 256  # segments that a warp runs before the next one's turn
# Under a random schedule warps differ in how often it is their turn: races often need one warp far ahead of another.
PACES = (1.0, 0.1, 0.01)
HANG_ROUNDS = 2000  # turns of every warp without any effect on memory or a barrier


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
        self._warp_random = random.Random(schedule.seed)  # apart, so that other choices do not depend on these
        self._finished: list[Cluster] = []
        self._admissions: Iterator[tuple[Grid, int]] = iter(())

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
            self._warp_random.seed(f"{self.schedule.seed}:{number}")
        cluster = Cluster(self, grid, number)
        self.start(cluster)

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Takes a cluster of the grid that has not started off those to run. Index of its first CTA; None: there is none."""
        number = self._next_unstarted(grid)
        return None if number is None else grid.cancel(number)

    def _next_unstarted(self, grid: Grid) -> int | None:
        following = next(self._admissions, None)
        return None if following is None else following[1]

    def start(self, cluster: Cluster, pace: float = 1.0) -> None:
        self.resident.append(cluster)
        cluster.grid.counters.ctas += cluster.size
        for cta in cluster.ctas:
            for warp in cta.warps:
                if self.schedule.kind == "random":
                    warp.pace = pace * PACES[self.random.randrange(len(PACES))]
                self.enqueue(warp)

    def pause(self, group: ActiveGroup) -> bool:
        """Ends the turn of a group behind which another launch may start. False where none can."""
        return False

    def postpones(self) -> bool:
        """Whether asynchronous work of a warp, which nobody sees before the warp waits for it, is put off until then."""
        if self.schedule.kind == "random":
            return self._warp_random.random() < 0.5
        return self.schedule.kind == "late"

    def cluster_done(self, cluster: Cluster) -> None:
        self._finished.append(cluster)

    def run(self, admissions: Iterator[tuple[Grid, int]], limit: int) -> None:
        """Run clusters, at most `limit` resident at once, until there are no more."""
        self._admissions = admissions
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
        if self.schedule.kind == "random" and len(self.ready) > 1:
            chosen = self.random.choices(range(len(self.ready)), [warp.pace for warp in self.ready])[0]
            self.ready.rotate(-chosen)
        self.run_warp(self.ready.popleft())

    def run_warp(self, warp: Warp) -> None:
        at_random = self.schedule.kind == "random"
        warp.queued = False
        quantum = self.random.randrange(1, 9) if at_random else QUANTUM
        self._ticks += 1
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        try:
            runnable = warp.run(quantum)
        except Fault as fault:
            raise self._located(warp, fault, fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise self._located(warp, error, _unforeseen(error)) from error
        if runnable:
            self.enqueue(warp)
        while at_random and self.queues.outstanding and self.random.random() < 0.4:
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
            self.queues.forget_tensor_queues((cluster.grid.number, cluster.number))

    # Errors

    def _execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        self.progress += 1
        memory = async_op.grid.memory
        outer, memory.traffic = memory.traffic, async_op.grid.traffic
        try:
            action()
        except Fault as fault:
            cta, warp, index = async_op.origin
            raise self._error(async_op.grid, cta, warp, index, fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise self._error(async_op.grid, *async_op.origin, _unforeseen(error)) from error
        finally:
            memory.traffic = outer

    def _located(self, warp: Warp, error: Exception, reason: str) -> EmulatorError:
        grid = warp.cta.grid
        index = grid.program.instruction_at(error.__traceback__)
        return self._error(grid, warp.cta.index, warp.index, index, reason)

    def _error(self, grid: Grid, cta: tuple, warp: int, index: int | None, reason: str) -> EmulatorError:
        instruction = grid.entry.instructions[index] if index is not None else None
        return located(reason, grid.entry, instruction, cta=cta, warp=warp)

    def notes(self) -> list[str]:
        """What else a report of a hang should say."""
        return []

    def hang(self, reason: str) -> EmulatorError:
        """The error for a hang, at the first warp that has not exited."""
        text, first = hang.report(reason, self.resident, self.notes())
        if first is None:
            return EmulatorError(text)
        grid, cta, warp, group = first
        return self._error(grid, cta.index, warp.index, group.pc, text)

    def finish(self, grid: Grid) -> None:
        """The grid is over: nothing may be left that was still to come."""
        if grid.unfinished:
            barrier = grid.unfinished[0]
            (group, index), text = barrier.initialiser, f"the grid has ended, but {barrier}"
            raise self._error(grid, group.cta.index, group.warp.index, index, f"{text} (PTX ISA, mbarrier)")
        grid.finish()


def _unforeseen(error: Exception) -> str:
    return f"the emulator failed at this instruction: {type(error).__name__}: {error}"


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
    machine.finish(grid)
