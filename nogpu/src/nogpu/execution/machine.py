"""What runs grids: resident clusters, warps that can run, asynchronous operations, and the errors of all of them.

A warp runs until it has to wait or has used its quantum. A waiting group is among the waiters of its barrier and costs
nothing. If no warp can run and no operation is outstanding, or all that can run repeat (`execution.spins`), the kernel
hangs (`execution.hang`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

from nogpu.errors import EmulatorError, Fault
from nogpu.execution import hang
from nogpu.execution.meter import Meter
from nogpu.execution.spins import LOOK_TURNS, Outlook, Spins
from nogpu.hardware.async_operations import AsyncOperation, Queues, Schedule
from nogpu.hardware.cluster import Cluster
from nogpu.hardware.grid import Grid
from nogpu.hardware.turns import DELAYED, OUTSTANDING, QUIET, STALE, TICKS, Turns
from nogpu.hardware.warp import ActiveGroup, Warp
from nogpu.ptx.ir import located

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
        self.queues = Queues(schedule, self.execute)
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
        self.quantum = QUANTUM
        self.allocations: tuple = ()  # version and whether they are observed, as compiled code knows them
        self.count_at = 0  # ticks at which the warp instructions are counted next
        self.warp_random = random.Random(schedule.seed)  # its own: the other choices must not depend on `postpones`
        self.finished: list[Cluster] = []

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
        """Compiled turns hear what a Python row has changed: quiet events, asynchronous operations, allocations."""
        words = turns.words
        words[QUIET], words[OUTSTANDING] = self.quiet, self.queues.outstanding
        if self.resident[0].grid.memory.version != self.allocations[0]:
            words[STALE] = 1

    def enqueue(self, warp: Warp) -> None:
        """Gives the warp a turn: one of its groups can run."""
        if self.ready is self.turns:
            self.ready.append(warp)
        elif not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Takes a cluster of the grid that has not started off those to run.

        Returns the index (x, y, z) of its first CTA, None if all clusters have started.
        """
        number = self.next_unstarted(grid)
        if grid.recorder is not None:
            assert self.running is not None  # only asynchronous operations cancel
            grid.recorder.cancelled(self.running, number)
        if number is None:
            return None
        self.meter.over(grid.config.ctas // grid.config.clusters, 0)
        return grid.cancel(number)

    def next_unstarted(self, grid: Grid) -> int | None:
        """The number of a cluster of the grid that has not started, and never will; None if all have."""
        raise NotImplementedError

    def start(self, cluster: Cluster, pace: float = 1.0) -> None:
        """Gives the warps of a new cluster their first turns. pace: of the cluster under a random schedule."""
        self.resident.append(cluster)
        cluster.grid.counters.ctas += cluster.size
        if cluster.grid.recorder is not None:
            cluster.grid.recorder.join(cluster)
        if cluster.grid.sanitizer is not None:
            cluster.grid.sanitizer.join(cluster)
        if self.ready is self.turns:
            warps = [warp for cta in cluster.ctas for warp in cta.warps]
            self.turns.join(warps, cluster.grid.program.starts.ctypes.data)
            for warp in warps:
                warp.offer()
        for cta in cluster.ctas:
            for warp in cta.warps:
                if self.schedule.is_random:
                    warp.pace = pace * PACES[self.random.randrange(len(PACES))]
                self.enqueue(warp)

    def pause(self, group: ActiveGroup) -> bool:
        """Ends the turn of a group after which another launch may start. Returns False if none can."""
        return False

    def postpones(self) -> bool:
        """Whether a warp's asynchronous work that only the warp itself sees is put off until it waits for it."""
        if self.schedule.kind == "random":
            return self.warp_random.random() < 0.5
        return self.schedule.kind in ("late", "last", "replay")

    def cluster_done(self, cluster: Cluster) -> None:
        self.finished.append(cluster)

    def turn(self) -> None:
        """Runs the warp that has waited longest for a turn; under a random schedule any, by their paces."""
        if isinstance(self.ready, deque) and self.schedule.is_random and len(self.ready) > 1:
            chosen = self.random.choices(range(len(self.ready)), [warp.pace for warp in self.ready])[0]
            self.ready.rotate(-chosen)
        self.run_warp(self.ready.popleft())

    def run_warp(self, warp: Warp) -> None:
        drains = self.schedule.kind == "random"
        warp.queued = False
        quantum = self.random.randrange(1, 9) if self.schedule.is_random else self.quantum
        words = self.turns.words
        words[TICKS] += 1
        if words[TICKS] > self.count_at:
            self.count()
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        if self.served(warp, partial(warp.run, quantum)):
            self.enqueue(warp)
        while drains and self.queues.outstanding and self.random.random() < 0.4:
            self.queues.run_one()

    def served(self, warp: Warp, turn: Callable[[], bool]) -> bool:
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
        if not self.finished:
            return self.finished
        finished, self.finished = self.finished, []
        self._spins.forget()
        for cluster in finished:
            self.resident.remove(cluster)
            if self.ready is self.turns:
                self.turns.leave(warp for cta in cluster.ctas for warp in cta.warps)
            issued = sum(warp.issued for cta in cluster.ctas for warp in cta.warps)
            if cluster.grid.recorder is not None:
                cluster.grid.recorder.leave(cluster)
            cluster.grid.counters.warp_instructions += issued
            self.meter.over(cluster.size, issued)
        return finished

    def spins_for_ever(self) -> bool:
        """Whether the warps that can run, while nothing is outstanding, are known to go round for ever."""
        self.turns.settle()
        words = self.turns.words
        outlook = self._spins.look(self.ready, self.progress - self.quiet, words[TICKS])
        if outlook is Outlook.CLOCK:
            words[TICKS] += self._spins.skip(words[TICKS])
        return outlook is Outlook.HANG

    def count(self) -> None:
        """Counts the warp instructions. Raises EmulatorError if they exceed the run's limit."""
        self.turns.settle()
        turns = self.meter.count(self.resident)
        if turns < 0:
            raise self._reported(f"stopped after {self.meter.tally.total} warp instructions (--max-instructions)")
        self.count_at = self.turns.words[TICKS] + turns

    # Errors

    def execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        """Calls the action of an asynchronous operation, its own or its first part, on its behalf."""
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
        """An error that says where each warp is, at the first warp that has not exited; or, if they have broken the
        order of accesses, which may be why, that.
        """
        self.turns.settle()
        for cluster in self.resident:
            for warp in (warp for cta in cluster.ctas for warp in cta.warps):
                try:
                    if cluster.causes is not None:
                        cluster.causes.settle(warp)
                except Fault as fault:
                    return self._located(warp, fault.reason)
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
