"""Runs grids: admits clusters, gives warps turns, and runs asynchronous operations as the schedule says.

A warp runs until it has to wait or has used its quantum. A waiting group is among the waiters of its barrier and costs
nothing. If no warp can run and no operation is outstanding, or all that can run repeat (`execution.spins`), the kernel
hangs (`execution.hang`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import EmulatorError, Fault
from emulator.execution import hang
from emulator.execution.meter import Meter
from emulator.execution.spins import LOOK_TURNS, Outlook, Spins
from emulator.hardware.async_operations import AsyncOperation, Queues, Schedule
from emulator.hardware.cluster import Cluster, Grid
from emulator.hardware.properties import ctas_per_sm
from emulator.hardware.warp import ActiveGroup, Warp
from emulator.ptx.ir import located

if TYPE_CHECKING:
    from emulator.hardware.counters import LaunchCounters
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.program import Program
    from emulator.hardware.properties import DeviceProperties, LaunchConfig

__all__ = ["Machine", "Schedule", "run"]

QUANTUM = 256  # segments that a warp runs in a turn
# Under a random schedule some warps get fewer turns: races often need one warp far ahead of another.
PACES = (1.0, 0.1, 0.01)
OVERDUE_TURNS = 64  # turns of each warp that can run: warps that have effects for so long may spin, and starve others

WAITING = "no warp can run and no asynchronous work is outstanding"
SPINNING = "all warps that can run poll without an effect, and each is back in a state in which it was before"


class Machine:
    """Resident clusters, warps that can run, and outstanding asynchronous operations."""

    def __init__(self, schedule: Schedule, meter: Meter | None = None) -> None:
        """meter: None counts without a report, up to the default limit."""
        self.schedule = schedule
        self.queues = Queues(schedule, self._execute)
        self.random = self.queues.random
        self.ready: deque[Warp] = deque()
        self.resident: list[Cluster] = []
        self.progress = 0  # the time: grows with every event that another warp may see
        self.quiet = 0  # events among them that have changed nothing that a lane can read
        self.running: AsyncOperation | None = None
        self.meter = meter or Meter()
        self._spins = Spins()
        self.look_turns = LOOK_TURNS[schedule.kind]
        self._ticks = 0
        self.delayed = 0  # turns with an effect, since an asynchronous operation has happened last
        self._count_at = 0  # ticks at which the warp instructions are counted next
        self._warp_random = random.Random(schedule.seed)  # its own: the other choices must not depend on `postpones`
        self._finished: list[Cluster] = []
        self._admissions: Iterator[tuple[Grid, int]] = iter(())

    def clock(self) -> int:
        """A count of cycles that only grows."""
        self._ticks += 1
        return self._ticks

    def enqueue(self, warp: Warp) -> None:
        """Gives the warp a turn: one of its groups can run."""
        if not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def admit(self, grid: Grid, number: int) -> None:
        """Makes a cluster resident. number: its index in the grid."""
        if not self.resident:
            # A cluster's run under a seed must not depend on the clusters that this process has run before.
            self.random.seed(f"{self.schedule.seed}:{number}")
            self._warp_random.seed(f"{self.schedule.seed}:{number}")
        cluster = Cluster(self, grid, number)
        self.start(cluster)

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Takes a cluster of the grid that has not started off those to run.

        Returns the index (x, y, z) of its first CTA, None if all clusters have started.
        """
        number = self._next_unstarted(grid)
        if number is None:
            return None
        self.meter.over(grid.config.ctas // grid.config.clusters, 0)
        return grid.cancel(number)

    def _next_unstarted(self, grid: Grid) -> int | None:
        following = next(self._admissions, None)
        return None if following is None else following[1]

    def start(self, cluster: Cluster, pace: float = 1.0) -> None:
        """Gives the warps of a new cluster their first turns. pace: of the cluster under a random schedule."""
        self.resident.append(cluster)
        cluster.grid.counters.ctas += cluster.size
        for cta in cluster.ctas:
            for warp in cta.warps:
                if self.schedule.kind == "random":
                    warp.pace = pace * PACES[self.random.randrange(len(PACES))]
                self.enqueue(warp)

    def pause(self, group: ActiveGroup) -> bool:
        """Ends the turn of a group after which another launch may start. Returns False if none can."""
        return False

    def postpones(self) -> bool:
        """Whether a warp's asynchronous work that only the warp itself sees is put off until it waits for it."""
        if self.schedule.kind == "random":
            return self._warp_random.random() < 0.5
        return self.schedule.kind == "late"

    def cluster_done(self, cluster: Cluster) -> None:
        self._finished.append(cluster)

    def run(self, admissions: Iterator[tuple[Grid, int]], limit: int, room: int = 0) -> None:
        """Runs clusters, at most `limit` resident at once, to the end of the last one.

        room: clusters that the device holds. More than the limit are resident once those that are wait for others.
        """
        self._admissions = admissions
        idle = look = 0  # turns without an effect; those at which the next look is due
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
            if self.ready:
                self.turn()
                effects = self.progress - self.quiet
                if effects != seen:
                    seen, idle, look = effects, 0, 0
                    if self.queues.outstanding:
                        self.delayed += 1
                        if self.delayed > OVERDUE_TURNS and self.delayed > OVERDUE_TURNS * len(self.ready):
                            self.queues.run_one()
                else:
                    idle += 1
                    if idle > len(self.ready):
                        if self.queues.outstanding:
                            self.queues.run_one()
                            idle = 0
                        elif idle >= look:
                            if look and self.spins_for_ever():
                                if not more or limit >= room:
                                    raise self.hang(SPINNING)
                                limit = room
                            look = idle + self.look_turns * (len(self.ready) + 1)
            elif self.queues.outstanding:
                self.queues.run_one()
            elif not self._finished:
                raise self.hang(WAITING)
            if self._finished and not self.queues.outstanding:
                self._retire()
            elif self._finished and not self.ready:
                while self.queues.outstanding:
                    self.queues.run_one()
                self._retire()

    def turn(self) -> None:
        """Runs the warp that has waited longest for a turn; under a random schedule any, by their paces."""
        if self.schedule.kind == "random" and len(self.ready) > 1:
            chosen = self.random.choices(range(len(self.ready)), [warp.pace for warp in self.ready])[0]
            self.ready.rotate(-chosen)
        self.run_warp(self.ready.popleft())

    def run_warp(self, warp: Warp) -> None:
        at_random = self.schedule.kind == "random"
        warp.queued = False
        quantum = self.random.randrange(1, 9) if at_random else QUANTUM
        self._ticks += 1
        if self._ticks > self._count_at:
            self._count()
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        try:
            runnable = warp.run(quantum)
        except Fault as fault:
            raise self._located(warp, fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise self._located(warp, _unforeseen(error)) from error
        if runnable:
            self.enqueue(warp)
        while at_random and self.queues.outstanding and self.random.random() < 0.4:
            self.queues.run_one()

    def take_finished(self) -> list[Cluster]:
        """Removes the clusters whose CTAs have exited from the resident ones, and returns them."""
        if not self._finished:
            return self._finished
        finished, self._finished = self._finished, []
        self._spins.forget()
        for cluster in finished:
            self.resident.remove(cluster)
            issued = sum(warp.issued for cta in cluster.ctas for warp in cta.warps)
            cluster.grid.counters.warp_instructions += issued
            self.meter.over(cluster.size, issued)
        return finished

    def _retire(self) -> None:
        for cluster in self.take_finished():
            self.queues.forget_tensor_queues((cluster.grid.number, cluster.number))

    def spins_for_ever(self) -> bool:
        """Whether the warps that can run, while nothing is outstanding, are known to go round for ever."""
        outlook = self._spins.look(self.ready, self.progress - self.quiet, self._ticks)
        if outlook is Outlook.CLOCK:
            self._ticks += self._spins.skip(self._ticks)
        return outlook is Outlook.HANG

    def _count(self) -> None:
        """Counts the warp instructions. Raises EmulatorError if they exceed the run's limit."""
        turns = self.meter.count(self.resident)
        if turns < 0:
            raise self._reported(f"stopped after {self.meter.tally.total} warp instructions (--max-instructions)")
        self._count_at = self._ticks + turns

    # Errors

    def _execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        self.progress += 1
        self.delayed = 0
        memory = async_op.grid.memory
        outer, memory.traffic = memory.traffic, async_op.grid.traffic
        cause, self.running = self.running, async_op
        try:
            action()
        except Fault as fault:
            cta, warp, index = async_op.origin
            raise self._error(async_op.grid, cta, warp, index, fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            cta, warp, index = async_op.origin
            raise self._error(async_op.grid, cta, warp, index, _unforeseen(error)) from error
        finally:
            memory.traffic, self.running = outer, cause

    def _located(self, warp: Warp, reason: str) -> EmulatorError:
        return self._error(warp.cta.grid, warp.cta.index, warp.index, warp.registers.context.pc, reason)

    def _error(self, grid: Grid, cta: tuple, warp: int, index: int | None, reason: str) -> EmulatorError:
        instruction = grid.entry.instructions[index] if index is not None else None
        return located(reason, grid.entry, instruction, cta=cta, warp=warp)

    def notes(self) -> list[str]:
        """Further lines for the report of a hang."""
        return []

    def hang(self, reason: str) -> EmulatorError:
        """The error for a hang."""
        return self._reported(f"the kernel hangs: {reason}")

    def _reported(self, headline: str) -> EmulatorError:
        """An error that says where each warp is, at the first warp that has not exited."""
        text, first = hang.report(headline, self.resident, self.notes())
        if first is None:
            return EmulatorError(text)
        grid, cta, warp, group = first
        return self._error(grid, cta.index, warp.index, group.pc, text)

    def finish(self, grid: Grid) -> None:
        """Ends a grid. Raises EmulatorError if a barrier still expected bytes."""
        if grid.unfinished:
            barrier = grid.unfinished[0]
            assert barrier.initialiser is not None  # of every barrier of a CTA
            group, index = barrier.initialiser
            text = f"the grid has ended, but {barrier} (PTX ISA, mbarrier)"
            raise self._error(grid, group.cta.index, group.warp.index, index, text)
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
    meter: Meter | None = None,
) -> None:
    """Runs clusters of one grid. Raises EmulatorError.

    params: uint8, the packed parameters, 64-byte aligned and registered with `memory`. clusters: indices, x fastest;
    None for all.
    """
    grid = Grid(0, program, config, params, memory, counters, properties)
    machine = Machine(schedule, meter)
    size = config.cluster[0] * config.cluster[1] * config.cluster[2]
    limit, room = 1, 1
    if program.inter_cta:
        limit = max(1, grid.sm_count // size)
        threads = config.block[0] * config.block[1] * config.block[2]
        room = grid.sm_count * ctas_per_sm(threads, grid.shared_bytes, grid.properties) // size
    total = grid.clusters[0] * grid.clusters[1] * grid.clusters[2]
    numbers = range(total) if clusters is None else clusters
    with np.errstate(all="ignore"):
        machine.run(((grid, number) for number in numbers), limit, room)
    machine.finish(grid)
