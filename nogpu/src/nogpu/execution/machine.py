"""Machine that runs launches: a grid, or several that overlap, under a schedule.

A warp runs until it has to wait or has used its quantum. A waiting group is among the waiters of its barrier and costs
nothing. If no warp can run and no operation is outstanding, or all warps that can run repeat (`execution.spins`), the
kernel hangs (`execution.hang`).

Unless the schedule is random or launches overlap, compiled code chooses the warps (native/turns.c). Python gets control
when a warp needs it, when a round of turns had no effect, and after TURNS_AT_ONCE turns.

The schedules decide which of several launches is ahead. Under "late" the newest does all it can before an older one
goes on, so that work for which it should have waited has not happened; under "replay", too, except for held steps.
Under "eager" the oldest goes first, under "random" and "last" any, at paces that also differ by launch.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from nogpu.errors import EmulatorError, Fault, is_lenient
from nogpu.execution import hang
from nogpu.execution.admission import Admission
from nogpu.execution.kept_ctas import FEW, MANY, MOST_IN_VAIN, RESIDENT_SEATS, KeptCta
from nogpu.execution.meter import Meter
from nogpu.execution.spins import LOOK_TURNS, Outlook, Spins
from nogpu.execution.turns import (
    ARRIVALS,
    CONCLUDE,
    DELAYED,
    EFFECTS,
    IDLE,
    ISSUED,
    LANE_COPIES,
    LIMIT,
    LOOK,
    OUTSTANDING,
    PROGRESS,
    QUIET,
    SERVE,
    STALE,
    TICKS,
    Turns,
)
from nogpu.hardware.async_operations import AsyncOperation, Queues, Schedule
from nogpu.hardware.barriers import wake
from nogpu.hardware.chip import Sm
from nogpu.hardware.cluster import Cluster, next_cluster
from nogpu.hardware.grid import Grid
from nogpu.hardware.lane_copies import REFUSED, CompiledCopies
from nogpu.hardware.native import Barrier, library
from nogpu.hardware.tensor.work import BY_PYTHON, PendingArrival, TensorWork
from nogpu.hardware.tile_loads import Loads
from nogpu.hardware.warp import ActiveGroup, Warp
from nogpu.ops import copies, cp_async, tcgen05

QUANTUM = 256  # segments that a warp runs in a turn
SHORT_QUANTUM = 8  # quantum while lanes spin for lanes that wait for them, so that a lock soon changes hands
TURNS_AT_ONCE = 64  # largest number of turns in a call of compiled code: signals wait for its end
# Under a random schedule some warps get fewer turns: races often need one warp far ahead of another.
PACES = (1.0, 0.1, 0.01)
PATIENCE = 50  # turns per ready warp without an effect, after which a random schedule serves warps in order
OVERDUE_TURNS = 64  # turns of each warp that can run: warps that have effects for so long may spin, and starve others

_NEVER = (1 << 63) - 1  # number of an operation behind all others

WAITING = "no warp can run and no asynchronous work is outstanding"
SPINNING = "all warps that can run poll without an effect, and each is back in a state in which it was before"


class Machine:
    """Machine of resident clusters, warps that can run, and outstanding asynchronous operations."""

    def __init__(self, schedule: Schedule, grids: Sequence[Grid], meter: Meter | None = None) -> None:
        """grids: in launch order, each the predecessor of the next. meter: None counts without a report, up to the
        default limit.
        """
        self.schedule, self.grids = schedule, grids
        self.turns = Turns()
        self.queues = Queues(schedule, self.execute, self.turns.words[ISSUED : ISSUED + 1])
        self.random = self.queues.random
        self.ready: deque[Warp] | Turns = deque()  # warps that can run; `turns` where compiled code gives turns
        self.resident: list[Cluster] = []
        self.progress = 0  # time, which grows with every event that another warp may see
        self.quiet = 0  # number of these events that have changed nothing that a lane can read
        self.running: AsyncOperation | None = None
        self.meter = meter or Meter()
        self._spins = Spins()
        self.look_turns = LOOK_TURNS[schedule.kind]
        self.quantum = QUANTUM
        self.idle_turns = 1  # turns of each warp without an effect, after which an asynchronous operation happens
        self.allocations: tuple = ()  # version and observer of the allocations that compiled code has
        self.loads: Loads | None = None
        self.work: TensorWork | None = None
        self.count_at = self.meter.count(())  # ticks at which the warp instructions are counted next
        self.warp_random = random.Random(schedule.seed)  # separate source: other choices must not depend on `postpones`
        self.finished: list[Cluster] = []
        self._last_kept: KeptCta | None = None  # CTA that compiled code has kept last
        self._over: KeptCta | None = None  # CTA that compiled code has kept to the end of the grid
        self._free: list[KeptCta] = []  # CTAs that are over, of a grid whose CTAs are resident together
        self._seat: KeptCta | None = None  # CTA that is over, of which the one that starts takes the place
        self._taken_seats = 0  # places of resident CTAs of other launches for which the grid has asked
        self._ahead, self._in_vain = FEW, 0  # followers of the next CTA; CTAs in a row without a follower
        self._has_changed = False  # True if there may be room for clusters, or a grid may be over
        self._overlaps = len(grids) > 1
        self.always_postpones = None if schedule.kind == "random" else schedule.kind != "eager"
        self._admission = Admission(grids, schedule, self.random, self._next_cluster)
        self._paused: list[ActiveGroup] = []
        self._paces = {grid: self.random.choice(PACES) if self._overlaps else 1.0 for grid in grids}
        if not self._overlaps and schedule.kind in ("late", "eager"):
            self.ready = self.turns
            self._set_quantum(QUANTUM)

    def run(self) -> None:
        """Runs the grids to their end. Raises EmulatorError for an error of a kernel."""
        ready, words = self.ready, self.turns.words
        look = 0  # turns without an effect at which the next look is due
        has_run_one = False  # True if compiled code may go on behind an operation of Python's, though no warp can run
        seen = 0  # effects: events that could have changed what a lane reads
        is_one_ahead = self._overlaps and not self.schedule.is_random
        self._admit()
        while True:
            if self.finished:
                self._retire()
            if self._has_changed or self._overlaps:
                if self._end_grids():
                    self.meter.count(())
                    self._leave_seats(self.grids[0])
                    return
                self._admit()
            idle = words[IDLE]
            if idle and idle > len(ready) > 0 and not self.outstanding:
                if words[EFFECTS] != seen:
                    seen, look = words[EFFECTS], 0
                if idle >= look:
                    if look and self.spins_for_ever():
                        self._has_changed = self._part_lanes() or self._admission.widen()
                        if not self._has_changed:
                            raise self.hang(SPINNING)
                    look = idle + self._turns_to_look() * (len(ready) + 1)
            if is_one_ahead:
                self._run_ahead()
            elif ready or has_run_one:
                has_run_one = False
                self._run_turns()
                idle, delayed = words[IDLE], words[DELAYED]
                if idle:
                    is_due = idle > self.idle_turns * len(ready)  # the warps poll
                else:
                    is_due = delayed > OVERDUE_TURNS and delayed > OVERDUE_TURNS * len(ready)
                if is_due and self.outstanding:
                    self.run_one()
                    words[IDLE] = 0
            elif self.outstanding and self.run_one():
                has_run_one = ready is self.turns
            else:
                self.stuck()

    # Clusters

    def _admit(self) -> None:
        while (cluster := self._admission.next(len(self.resident))) is not None:
            self._start(cluster)
        self._has_changed = False

    def _next_cluster(self, grid: Grid, sms: list[Sm] | None) -> Cluster | None:
        """Result of `next_cluster`; a cluster takes the place of one of the grid that is over, or that of another
        launch's, if there is one: where CTAs run in turn, the first does.
        """
        self._seat = self._take_seat(grid) if grid.clusters_left else None
        if self._seat is None:
            return next_cluster(self, grid, sms)
        followers = grid.following(1 + MANY)[1:] if self._is_first(grid) else self._followers(grid)
        number = grid.take_cluster()
        assert number is not None  # some are left
        is_last = self._admission.is_in_turn and len(followers) == grid.clusters_left
        self._seat.move(self, grid, self._replaced, [number, *followers], is_last)
        return self._seat.cluster

    def _is_first(self, grid: Grid) -> bool:
        """True if the grid's CTAs run in turn, and none has started."""
        return self._admission.is_in_turn and grid.clusters_left == len(grid.numbers)

    def _take_seat(self, grid: Grid) -> KeptCta | None:
        if self._free:
            return self._free.pop()
        if grid.seats is None:
            return None
        if self._admission.is_in_turn:
            return grid.seats.take(self._seat_key(grid)) if self._is_first(grid) else None
        self._taken_seats += 1
        return grid.seats.take(self._resident_key(grid, self._taken_seats - 1))

    def _leave_seats(self, grid: Grid) -> None:
        """Leaves the places of the grid's CTAs to later launches."""
        if grid.seats is not None:
            if self._over is not None:
                grid.seats.put(self._seat_key(grid), self._over)
            for place, kept in enumerate(self._free[:RESIDENT_SEATS] if not self._admission.is_in_turn else ()):
                grid.seats.put(self._resident_key(grid, place), kept)

    def _seat_key(self, grid: Grid) -> object:
        return id(grid.program), grid.config, grid.properties, self.schedule.kind

    def _resident_key(self, grid: Grid, place: int) -> object:
        config = grid.config
        return id(grid.program), config.block, config.dynamic_shared_bytes, grid.properties, self.schedule.kind, place

    def _start(self, cluster: Cluster) -> None:
        """Gives the warps of a new cluster their first turns."""
        grid = cluster.grid
        if self.schedule.is_random and not self._overlaps and not self.resident:
            # A cluster's run under a seed must not depend on the clusters that this process has run before.
            self.random.seed(f"{self.schedule.seed}:{cluster.number}")
            self.warp_random.seed(f"{self.schedule.seed}:{cluster.number}")
        self.resident.append(cluster)
        grid.counters.ctas += cluster.size
        for observer in grid.observers:
            observer.join(cluster)
        if self.ready is self.turns:
            self._look_up(grid)
            if self._seat is not None:
                self._last_kept = self._seat
                self.turns.join_again(self._seat)
                return
            if not grid.observers and not grid.program.calls.watch:
                for cta in cluster.ctas:
                    cta.keep_copies(CompiledCopies(self.schedule.kind == "eager"))
            self.turns.join(cluster, partial(self._kept, cluster) if cluster.size == 1 else None)
            return
        for warp in cluster.warps:
            if self.schedule.is_random:
                warp.pace = self._paces[grid] * PACES[self.random.randrange(len(PACES))]
            self.enqueue(warp)

    def _followers(self, grid: Grid, starting: int = 1) -> Sequence[int]:
        """Numbers of the clusters that compiled code may start in the place of the next, if CTAs run in turn: none
        where Python had something to do for each of the last ones. starting: clusters to start ahead of them.
        """
        if not self._admission.is_in_turn:
            return ()
        if self._last_kept is not None:
            has_followed = self._last_kept.followed > 0
            self._in_vain = 0 if has_followed else self._in_vain + 1
            self._ahead = min(2 * self._ahead, MANY) if has_followed else FEW
        return grid.following(starting + self._ahead)[starting:] if self._in_vain < MOST_IN_VAIN else ()

    def _kept(self, cluster: Cluster) -> KeptCta | None:
        """Lets compiled code keep a cluster of one CTA, and start others in its place if the CTAs run in turn. Returns
        None if that is no use, or an observer cannot follow it.
        """
        followers, observers = self._followers(cluster.grid, 0), cluster.grid.observers
        observer = None
        if observers:
            observer = observers[0].keep(cluster) if followers and len(observers) == 1 else None
            if observer is None:
                return None
        is_last = self._admission.is_in_turn and len(followers) == cluster.grid.clusters_left
        self._last_kept = KeptCta(cluster, followers, self._replaced, observer, is_last)
        return self._last_kept

    def _leave_kept(self, kept: KeptCta) -> None:
        """Ends a CTA for which Python has had nothing to do: another one of its grid, or of a later launch, may run in
        its place.
        """
        self.turns.forget(kept)
        issued = kept.end()
        self.resident.remove(kept.cluster)
        self._has_changed = True
        self._spins.forget()
        self.meter.over(1, issued)
        if kept.is_untouched:
            if self._admission.is_in_turn and not kept.cluster.grid.clusters_left:
                self._over = kept
            else:
                self._free.append(kept)

    def _replaced(self, ctas: int, issued: int) -> None:
        self._spins.forget()
        self.meter.over(ctas, issued)

    def cancel(self, grid: Grid) -> tuple[int, int, int] | None:
        """Removes a cluster of the grid that has not started from those to run.

        Returns the index (x, y, z) of its first CTA, None if all clusters have started.
        """
        number = grid.take_cluster()
        assert self.running is not None  # only asynchronous operations cancel
        for observer in grid.observers:
            observer.cancelled(self.running, number)
        if number is None:
            return None
        self.meter.over(grid.cluster_size, 0)
        return grid.cancel(number)

    def _retire(self) -> None:
        """Removes the clusters whose CTAs have exited from the resident ones. If launches overlap, their stores may
        still be queued.
        """
        if not self._overlaps:
            if not self.ready:
                while self.outstanding:
                    self.run_one()
            if self.outstanding:
                return
        finished, self.finished = self.finished, []
        self._has_changed = True
        self._spins.forget()
        for cluster in finished:
            self.resident.remove(cluster)
            if self.ready is self.turns:
                self.turns.leave(cluster.warps)
            issued = sum([warp.issued for warp in cluster.warps])
            for observer in cluster.grid.observers:
                observer.leave(cluster)
            cluster.grid.counters.warp_instructions += issued
            self.meter.over(cluster.size, issued)
            self._admission.release(cluster)
            if not self._overlaps:
                self.queues.forget_tensor_queues((cluster.grid.number, cluster.number))
                cluster.events.end()

    def _end_grids(self) -> bool:
        """Ends the grids that are complete. Returns True if all have ended.

        Raises EmulatorError if a barrier still expected bytes.
        """
        for grid in self.grids:
            if grid.finished or not grid.complete:
                continue
            if grid.unfinished:
                barrier = grid.unfinished[0]
                assert barrier.initialiser is not None  # set for every barrier of a CTA
                group, index = barrier.initialiser
                text = f"the grid has ended, but {barrier} (PTX ISA, mbarrier)"
                raise hang.error_at(grid, group.cta.index, group.warp.index, index, text)
            if self.work is not None:
                self.work.settle(grid.counters)
            grid.finish()
            self.queues.forget_tensor_queues((grid.number,))
        return all([grid.finished for grid in self.grids])

    # Turns

    def enqueue(self, warp: Warp) -> None:
        """Gives the warp a turn: one of its groups can run."""
        if self.ready is self.turns:
            self.ready.append(warp)
        elif not warp.queued:
            warp.queued = True
            self.ready.append(warp)

    def pause(self, group: ActiveGroup) -> bool:
        """Ends the turn of a group, so that another launch may start first. Returns False if none can."""
        if self._overlaps:
            self._paused.append(group)
        return self._overlaps

    def postpones(self) -> bool:
        """True if a warp's asynchronous work that only the warp itself sees is delayed until the warp waits for it."""
        return self.warp_random.random() < 0.5 if self.always_postpones is None else self.always_postpones

    def _run_turns(self) -> None:
        """Gives turns to warps that can run: to many in compiled code, or to one."""
        turns, words = self.turns, self.turns.words
        if self.ready is not turns:
            if not self.turn() and not (self.outstanding and self.run_one()):
                self.stuck()
            self._note_effects()
            return
        grid = self.resident[0].grid
        self._look_up(grid)
        ticks = words[TICKS]
        if ticks >= self.count_at:
            self.count()
        words[LIMIT] = max(ticks + 1, min(ticks + TURNS_AT_ONCE, self.count_at))
        words[PROGRESS] = self.progress
        self._tell_outstanding()
        why = grid.program.run_turns(turns.address, turns.group)
        if why == LOOK:
            turns.catch_up()
            self.progress = words[PROGRESS]
            if self._last_kept is not None and self._last_kept.is_over:
                self._leave_kept(self._last_kept)
                self._last_kept = None
            return
        if why == SERVE and (ended := turns.ended) is not None and not self.outstanding:
            self.progress = words[PROGRESS]
            self._leave_kept(ended)
            self._note_effects()
            return
        warp = turns.current
        self.progress = words[PROGRESS]
        runnable = self.served(warp, warp.conclude if why == CONCLUDE else partial(warp.run, self.quantum))
        if warp.groups:
            warp.offer()
        if runnable:
            turns.append(warp)
        self._note_effects()

    def _look_up(self, grid: Grid) -> None:
        """Gives compiled code the present live allocations."""
        memory = grid.memory
        memory.traffic = grid.traffic
        known = memory.version, memory.observer
        if known != self.allocations:
            self.allocations, self.turns.words[STALE] = known, 0
            for warp in self.turns.warps:
                warp.registers.look_up(grid)
            if self.loads is not None:
                self.loads.forget_allocations()

    def _run_ahead(self) -> None:
        """Gives a warp a turn, or runs one asynchronous operation, of the grid that is ahead.

        No grid is ahead while warps poll, or have had effects for so long that they may spin.
        """
        warps = len(self.ready)
        in_order = self.turns.words[IDLE] > warps or self.delayed // (OVERDUE_TURNS * (warps + 1)) % 2 == 1
        order = self.grids if self.schedule.kind == "eager" else self.grids[::-1]
        of_one = any((not in_order and self.turn(grid)) or (grid.outstanding and self.run_one(grid)) for grid in order)
        if not of_one and not self.turn() and not (self.outstanding and self.run_one()):
            self.stuck()
        self._note_effects()

    def turn(self, grid: Grid | None = None) -> bool:
        """Runs the warp that has waited longest for a turn, of a grid or (None) of all; under a random schedule any, by
        the warps' paces. Returns False if no warp can run.
        """
        index = self.next_warp(grid)
        if index is None:
            return False
        assert isinstance(self.ready, deque)  # compiled code gives turns otherwise
        if grid is None:
            self.ready.rotate(-index)
            warp = self.ready.popleft()
        else:
            warp = self.ready[index]
            del self.ready[index]
        self.run_warp(warp)
        return True

    def next_warp(self, grid: Grid | None) -> int | None:
        """Index of the next warp among those that can run."""
        ready = self.ready
        if self.schedule.is_random and len(ready) > 1 and self.turns.words[IDLE] < PATIENCE * len(ready):
            return self.random.choices(range(len(ready)), [warp.pace for warp in ready])[0]
        return next((index for index, warp in enumerate(ready) if grid is None or warp.cta.grid is grid), None)

    def run_warp(self, warp: Warp) -> None:
        """Gives a warp its turn."""
        if self.run_segments(warp, self.random.randrange(1, 9) if self.schedule.is_random else self.quantum):
            self.enqueue(warp)
        while self.schedule.kind == "random" and self.queues.outstanding and self.random.random() < 0.4:
            self.queues.run_one()
        self.wake_paused()

    def wake_paused(self) -> None:
        """Wakes groups whose turn has ended so that another launch may start."""
        wake(self._paused)

    def run_segments(self, warp: Warp, quantum: int) -> bool:
        """Runs at most `quantum` segments of a warp. Returns True if it can run on."""
        warp.queued = False
        words = self.turns.words
        words[TICKS] += 1
        if words[TICKS] > self.count_at:
            self.count()
        grid = warp.cta.grid
        grid.memory.traffic = grid.traffic
        return self.served(warp, partial(warp.run, quantum))

    def served(self, warp: Warp, turn: Callable[[], bool]) -> bool:
        """Runs Python's part of a warp's turn. Returns True if the warp can run on."""
        try:
            return turn()
        except Fault as fault:
            raise hang.error_of(warp, fault) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise hang.error_of(warp, Fault(_unforeseen(error))) from error

    # Time

    def clock(self) -> int:
        """Count of cycles that only grows."""
        self.turns.words[TICKS] += 1
        return self.turns.words[TICKS]

    @property
    def delayed(self) -> int:
        """Number of turns with an effect since the last asynchronous operation."""
        return self.turns.words[DELAYED]

    def tell(self) -> None:
        """Passes a Python row's changes to compiled turns: quiet events, asynchronous operations, allocations."""
        words = self.turns.words
        self._tell_outstanding()
        if self.resident[0].grid.memory.version != self.allocations[0]:
            words[STALE] = 1

    def _tell_outstanding(self) -> None:
        words, queues = self.turns.words, self.queues
        words[QUIET], words[OUTSTANDING], words[ARRIVALS] = self.quiet, queues.outstanding, queues.arrival_count

    def _note_effects(self) -> None:
        """Counts the turns just run as one with an effect, or without."""
        words = self.turns.words
        effects = self.progress - self.quiet
        if effects == words[EFFECTS]:
            words[IDLE] += 1
        else:
            words[EFFECTS], words[IDLE] = effects, 0
            words[DELAYED] += self._overlaps or self.outstanding > 0

    def spins_for_ever(self) -> bool:
        """True if the warps that can run, while nothing is outstanding, are certain to repeat for ever."""
        self.turns.settle()
        words = self.turns.words
        outlook = self._spins.look(self.ready, self.progress - self.quiet, words[TICKS])
        if outlook is Outlook.CLOCK and not self._part_lanes():
            words[TICKS] += self._spins.skip(words[TICKS])
        return outlook is Outlook.HANG

    def _turns_to_look(self) -> int:
        """Turns of each warp until the next look: few, and short ones, if lanes wait for lanes that spin."""
        is_soon = any(warp.waited_at() for warp in self.ready)
        self._set_quantum(SHORT_QUANTUM if is_soon else QUANTUM)
        return 1 if is_soon else self.look_turns

    def _set_quantum(self, quantum: int) -> None:
        self.quantum = quantum
        if self.ready is self.turns:
            self.turns.set_limits(quantum, OVERDUE_TURNS)

    def _part_lanes(self) -> bool:
        """Lets lanes that wait for lanes of their warps go on alone. Returns False if there are none."""
        self.turns.settle()
        waiting = {warp.cta.grid: None for cluster in self.resident for warp in cluster.warps if warp.waited_at()}
        for grid in waiting:
            if grid.program.by_lane is not None:
                self._run_by_lane(grid)
        warps = [warp for cluster in self.resident for warp in cluster.warps if warp.part()]
        for warp in warps:
            if self.ready is self.turns:
                warp.offer()
            self.enqueue(warp)
        return bool(warps)

    def _run_by_lane(self, grid: Grid) -> None:
        """Makes a grid independent of the reconvergence of its lanes (`Grid.run_by_lane`)."""
        self.turns.take_over()
        self.turns.settle()
        self._free = []
        grid.run_by_lane(self.resident)
        if self.ready is self.turns:
            self.turns.change_program(grid)

    def count(self) -> None:
        """Counts the warp instructions. Raises EmulatorError if they exceed the run's limit."""
        self.turns.settle()
        turns = self.meter.count(self.resident)
        if turns < 0:
            raise self._reported(f"stopped after {self.meter.tally.total} warp instructions (--max-instructions)")
        self.count_at = self.turns.words[TICKS] + turns

    # Asynchronous operations

    @property
    def outstanding(self) -> int:
        """Number of outstanding asynchronous operations."""
        kept = self.loads, self.work
        lanes = self.turns.words[LANE_COPIES]
        return self.queues.outstanding + lanes + sum([len(each) for each in kept if each is not None])

    def repeated_loads(self) -> Loads | None:
        """Tile loads that compiled code repeats; None where it gives no turns, or work is not delayed."""
        if self.loads is None and self.ready is self.turns and self.schedule.kind == "late":
            self.loads = Loads()
            self.turns.use_loads(self.loads.address)
        return self.loads

    def compiled_work(self, grid: Grid) -> TensorWork | None:
        """The tensor core's work that compiled code issues and executes; None where it gives no turns, or work is not
        delayed, or somebody hears of it.
        """
        if self.work is None and self.ready is self.turns and self.schedule.kind == "late" and grid.multiplies:
            if grid.observers or grid.program.calls.watch or grid.properties.is_rubin:
                return None
            self.work = self.queues.work = TensorWork(grid.program.tensor_plans, self._revived)
            self.turns.use_work(self.work.address)
        return self.work

    def note_doubt(self, barrier: Barrier, pc: int) -> None:
        """Implements `hardware.machine.Machine.note_doubt`."""
        self.turns.note_doubt(barrier, pc)

    def _revived(self, arrival: PendingArrival) -> AsyncOperation:
        return tcgen05.pending_arrival(arrival, self.turns.warp_at(arrival.issuer))

    def run_one(self, grid: Grid | None = None) -> bool:
        """Runs an asynchronous operation, of a grid or (None) of all, chosen by the schedule. One must be outstanding.

        Returns False if none may happen.
        """
        loads = self.loads
        if self.work and self._run_tensor(self.work):
            return True
        if loads and not self.queues.outstanding_first:
            if self._repeats_load():
                return True
            load = loads.take()
            async_op = copies.pending_load(load, self.turns.warp_at(load.issuer))
            self.execute(async_op, async_op.action)
        elif grid is None:
            if not self._completes_copies():
                self.queues.run_one()
        else:
            self.queues.run_one_of(grid)
        return True

    def _run_tensor(self, work: TensorWork) -> bool:
        """Executes the first arrival of a commit in another CTA that compiled code has, or else the first work of the
        tensor core. Returns False if there is none, or arrivals that Python has come first.
        """
        turns = self.turns
        turns.words[PROGRESS], turns.words[ARRIVALS] = self.progress, self.queues.arrival_count
        done = library().run_tensor(turns.address)
        self.progress = turns.words[PROGRESS]
        if done >= 0:
            return bool(done)
        self.queues.take_arrivals()
        if self.queues.arrival_count:
            return False
        thread, entry = work.take()
        if entry.kind == BY_PYTHON:
            self.queues.run_tensor(thread)
        else:
            async_op = tcgen05.pending_work(entry, work.plans, turns.warp_at(entry.issuer))
            self.execute(async_op, async_op.action)
        return True

    def _repeats_load(self) -> bool:
        """Has compiled code execute the tile load that was issued first. Returns False if Python has to."""
        turns = self.turns
        self._look_up(self.resident[0].grid)
        turns.words[PROGRESS] = self.progress
        done = bool(library().run_load(turns.address))
        self.progress = turns.words[PROGRESS]
        return done

    def _completes_copies(self) -> bool:
        """Has compiled code complete the cp.async that is the next operation. Returns False if another operation is, or
        Python has to: then it has all of them.
        """
        turns, first = self.turns, self.queues.first_load
        if not turns.words[LANE_COPIES] or self.queues.outstanding_first:
            return False
        done = REFUSED
        if first is None or is_lenient() is not True:
            self._look_up(self.resident[0].grid)
            turns.words[PROGRESS] = self.progress
            done = library().run_copies(turns.address, _NEVER if first is None else first.number)
            self.progress = turns.words[PROGRESS]
        if done == REFUSED:
            turns.take_over()
            for warp in turns.warps:
                cp_async.take_over(warp)
        return done > 0

    def execute(self, async_op: AsyncOperation, action: Callable[[], None]) -> None:
        """Calls an action on behalf of an asynchronous operation: the operation's own, or its first part."""
        self.progress += 1
        self.turns.words[DELAYED] = 0
        memory = async_op.grid.memory
        outer, memory.traffic = memory.traffic, async_op.grid.traffic
        cause, self.running = self.running, async_op
        try:
            action()
        except Fault as fault:
            raise hang.error_at(async_op.grid, *(fault.place or async_op.origin), fault.reason) from fault
        except EmulatorError:
            raise
        except Exception as error:
            raise hang.error_at(async_op.grid, *async_op.origin, _unforeseen(error)) from error
        finally:
            memory.traffic, self.running = outer, cause

    # Errors

    def stuck(self) -> None:
        """Handles a state in which no warp can run, and no asynchronous operation can happen. Raises EmulatorError
        for a hang.
        """
        if not self._part_lanes():
            raise self.hang(WAITING)

    def hang(self, reason: str) -> EmulatorError:
        """Error of a hang, which says what the warps wait for."""
        return self._reported(f"the kernel hangs: {reason}")

    def _reported(self, headline: str) -> EmulatorError:
        """Error that says where each warp is, at the first warp that has not exited; or an error for accesses that the
        warps have not ordered, which may be the cause.
        """
        self.turns.take_over()
        self.turns.settle()
        for cluster in self.resident:
            for warp in cluster.warps:
                try:
                    cluster.events.settle(warp)
                except Fault as fault:
                    return hang.error_of(warp, fault)
        return hang.report(headline, self.resident, self._admission.notes())


def _unforeseen(error: Exception) -> str:
    return f"the emulator failed at this instruction: {type(error).__name__}: {error}"
