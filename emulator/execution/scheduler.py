"""Runs grids: admits clusters, gives warps turns, and runs asynchronous operations as the schedule says.

A warp runs until it has to wait or has used its quantum. A waiting group is among the waiters of its barrier and costs
nothing. If no warp can run and no operation is outstanding, or all that can run repeat (`execution.spins`), the kernel
hangs (`execution.hang`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import EmulatorError, Fault
from emulator.execution import hang
from emulator.execution.meter import Meter
from emulator.execution.spins import LOOK_TURNS, Outlook, Spins
from emulator.hardware.async_operations import AsyncOperation, Queues, Schedule
from emulator.hardware.cluster import Cluster, Grid
from emulator.hardware.properties import ctas_per_sm
from emulator.hardware.turns import (
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
    Turns,
)
from emulator.hardware.warp import ActiveGroup, Warp
from emulator.ops import copies
from emulator.ptx.ir import located

if TYPE_CHECKING:
    from emulator.hardware.counters import LaunchCounters
    from emulator.hardware.memory import GlobalMemory
    from emulator.hardware.program import Program
    from emulator.hardware.properties import DeviceProperties, LaunchConfig

__all__ = ["Machine", "Schedule", "run"]

QUANTUM = 256  # segments that a warp runs in a turn
TURNS_AT_ONCE = 64  # of compiled code, at most: signals wait for its end
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
        self.turns = Turns()
        self.ready: deque[Warp] | Turns = deque()  # `turns` where compiled code gives warps their turns
        self.resident: list[Cluster] = []
        self.progress = 0  # the time: grows with every event that another warp may see
        self.quiet = 0  # events among them that have changed nothing that a lane can read
        self.running: AsyncOperation | None = None
        self.meter = meter or Meter()
        self._spins = Spins()
        self.look_turns = LOOK_TURNS[schedule.kind]
        self._allocations: tuple = ()  # version and whether they are observed, as compiled code knows them
        self._count_at = 0  # ticks at which the warp instructions are counted next
        self._warp_random = random.Random(schedule.seed)  # its own: the other choices must not depend on `postpones`
        self._finished: list[Cluster] = []
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
        self._execute(async_op, async_op.action)

    def clock(self) -> int:
        """A count of cycles that only grows."""
        self.turns.words[TICKS] += 1
        return self.turns.words[TICKS]

    @property
    def delayed(self) -> int:
        """Turns with an effect, since an asynchronous operation has happened last."""
        return self.turns.words[DELAYED]

    @delayed.setter
    def delayed(self, count: int) -> None:
        self.turns.words[DELAYED] = count

    def tell(self, turns: Turns) -> None:
        words = turns.words
        words[QUIET], words[OUTSTANDING] = self.quiet, self.queues.outstanding
        if self.resident[0].grid.memory.version != self._allocations[0]:
            words[STALE] = 1

    def enqueue(self, warp: Warp) -> None:
        """Gives the warp a turn: one of its groups can run."""
        if self.ready is self.turns:
            self.ready.append(warp)
        elif not warp.queued:
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
        if self.ready is self.turns:
            warps = [warp for cta in cluster.ctas for warp in cta.warps]
            self.turns.join(warps, cluster.grid.program.starts.ctypes.data)
            for warp in warps:
                warp.offer()
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
        if self.schedule.kind != "random":
            self.ready = self.turns
            self.turns.set_limits(QUANTUM, OVERDUE_TURNS)
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
            elif not self._finished:
                raise self.hang(WAITING)
            if self._finished and not self.outstanding:
                self._retire()
            elif self._finished and not ready:
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
            if ticks >= self._count_at:
                self._count()
            words[LIMIT] = max(ticks + 1, min(ticks + TURNS_AT_ONCE, self._count_at))
            words[PROGRESS], words[QUIET], words[OUTSTANDING] = self.progress, self.quiet, self.outstanding
            why = grid.program.run_turns(turns)
            self.progress = words[PROGRESS]
            if why == LOOK:
                return
            warp = turns.current
            runnable = self._served(warp, warp.conclude if why == CONCLUDE else partial(warp.run, QUANTUM))
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
        known = memory.version, memory.observer is not None
        if known != self._allocations:
            self._allocations, self.turns.words[STALE] = known, 0
            for warp in self.turns.warps:
                warp.registers.look_up(grid)

    def turn(self) -> None:
        """Runs the warp that has waited longest for a turn; under a random schedule any, by their paces."""
        if isinstance(self.ready, deque) and self.schedule.kind == "random" and len(self.ready) > 1:
            chosen = self.random.choices(range(len(self.ready)), [warp.pace for warp in self.ready])[0]
            self.ready.rotate(-chosen)
        self.run_warp(self.ready.popleft())

    def run_warp(self, warp: Warp) -> None:
        at_random = self.schedule.kind == "random"
        warp.queued = False
        quantum = self.random.randrange(1, 9) if at_random else QUANTUM
        words = self.turns.words
        words[TICKS] += 1
        if words[TICKS] > self._count_at:
            self._count()
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        if self._served(warp, partial(warp.run, quantum)):
            self.enqueue(warp)
        while at_random and self.queues.outstanding and self.random.random() < 0.4:
            self.queues.run_one()

    def _served(self, warp: Warp, turn: Callable[[], bool]) -> bool:
        """Python's part of a warp's turn. Returns whether the warp can run on."""
        try:
            return turn()
        except Fault as fault:
            raise self._located(warp, fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise self._located(warp, _unforeseen(error)) from error

    def take_finished(self) -> list[Cluster]:
        """Removes the clusters whose CTAs have exited from the resident ones, and returns them."""
        if not self._finished:
            return self._finished
        finished, self._finished = self._finished, []
        self._spins.forget()
        for cluster in finished:
            self.resident.remove(cluster)
            if self.ready is self.turns:
                self.turns.leave(warp for cta in cluster.ctas for warp in cta.warps)
            issued = sum(warp.issued for cta in cluster.ctas for warp in cta.warps)
            cluster.grid.counters.warp_instructions += issued
            self.meter.over(cluster.size, issued)
        return finished

    def _retire(self) -> None:
        for cluster in self.take_finished():
            self.queues.forget_tensor_queues((cluster.grid.number, cluster.number))

    def spins_for_ever(self) -> bool:
        """Whether the warps that can run, while nothing is outstanding, are known to go round for ever."""
        self.turns.settle()
        words = self.turns.words
        outlook = self._spins.look(self.ready, self.progress - self.quiet, words[TICKS])
        if outlook is Outlook.CLOCK:
            words[TICKS] += self._spins.skip(words[TICKS])
        return outlook is Outlook.HANG

    def _count(self) -> None:
        """Counts the warp instructions. Raises EmulatorError if they exceed the run's limit."""
        self.turns.settle()
        turns = self.meter.count(self.resident)
        if turns < 0:
            raise self._reported(f"stopped after {self.meter.tally.total} warp instructions (--max-instructions)")
        self._count_at = self.turns.words[TICKS] + turns

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
        self.turns.settle()
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
