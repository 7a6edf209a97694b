"""Async operations: the queues they wait in, and the schedules that decide when they happen.

Bulk copies, tensor copies, remote arrivals and tensor core operations are asynchronous. The tensor core operations of
one issuing thread run in order (PTX ISA, "tcgen05 Memory Consistency Model"); copies are not ordered among each other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from nogpu.errors import is_lenient

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

AT_ISSUE = 0.25  # chance that the random schedule runs an operation when one is issued


@dataclass(frozen=True)
class Schedule:
    """Order of asynchronous operations and of warps.

    | kind | asynchronous operations happen |
    |---|---|
    | eager | when they are issued |
    | late | when no warp can run: arrivals in other CTAs first, then the tensor core's, stores, and loads last |
    | random | at any time and in any order that the hardware might choose; warps run in any order |
    | last | when no warp can run, in any order; warps run in any order |
    | replay | as under "late", except for held steps (`execution.replay`) |
    """

    kind: str
    seed: int = 0  # seed of "random" and "last"
    holds: str = ""  # holds of "replay"

    @property
    def is_random(self) -> bool:
        """True if warps run in any order."""
        return self.kind in ("random", "last")

    @property
    def prefers_clusters(self) -> bool:
        """True if a launch consists of clusters of its preferred shape, if it has one; else of the regular one."""
        return self.kind == "eager" or (self.is_random and self.seed % 2 == 1)

    @staticmethod
    @cache
    def parse(text: str) -> Schedule:
        """Schedule "eager", "late", "random:SEED", "last:SEED" or "replay:HOLDS". Raises ValueError for others."""
        kind, colon, seed = text.partition(":")
        if kind in ("eager", "late") and not colon:
            return Schedule(kind)
        if kind in ("random", "last") and seed.isdecimal():
            return Schedule(kind, int(seed))
        if kind == "replay" and seed:
            return Schedule(kind, holds=seed)
        raise ValueError(f"schedule {text!r}: must be eager, late, random:SEED, last:SEED or replay:HOLDS")


class AsyncOperation:
    """Work that an asynchronous instruction leaves behind."""

    __slots__ = ("_group", "_issuer", "action", "cause", "done", "grid", "known", "lanes", "number", "prepare", "waits")

    def __init__(
        self,
        g: ActiveGroup,
        issuer: Issuer,
        action: Callable[[], None],
        prepare: Callable[[], None] | None = None,
        waits: Callable[[], bool] | None = None,
    ):
        self.grid = g.grid
        self._group, self._issuer = g, issuer
        running = g.cta.machine.running
        self.known: int = g.warp.known if running is None else running.known  # `Warp.known` at the issue
        self.cause: Any = None  # set by an observer: the clock of the operation
        g.cta.cluster.events.issued(self, g, issuer, running)
        self.action = action
        # The first part, for which a thread may wait separately: reading the tensor map, or a store's source.
        self.prepare = prepare
        self.waits = waits  # returns True while the operation can't happen
        self.done = False
        self.number = 0  # index in the order of issue
        self.lanes = 0  # mask of the lanes that the operation is for, if not all that have issued it

    @property
    def cta(self) -> Cta:
        """CTA that has issued the operation."""
        return self._group.cta

    @property
    def warp(self) -> Warp:
        """Warp that has issued the operation."""
        return self._group.warp

    @property
    def origin(self) -> tuple[tuple[int, int, int], int, int]:
        """(index of the CTA, of the warp, of the instruction), for messages."""
        return self._group.origin(self._issuer)


class CompiledWork(Protocol):
    """The tensor core's operations in order, some of which compiled code keeps (`tensor.work.TensorWork`)."""

    def add(self, key: tuple) -> None:
        """Notes an operation of a thread that Python keeps. key: the thread's."""

    def take_arrivals(self) -> list[AsyncOperation]:
        """Removes the arrivals that are pending. Returns operations in their place."""

    def forget(self, prefix: tuple) -> None:
        """Drops the threads of a cluster or grid that is over. prefix: start of their keys."""


class Queues:
    """Outstanding asynchronous operations, and the choice of the next one.

    execute(operation, action) calls the action, an operation's own or its first part, on the operation's behalf.
    """

    def __init__(
        self, schedule: Schedule, execute: Callable[[AsyncOperation, Callable[[], None]], None], issued: memoryview
    ):
        """issued: one integer, the number of operations issued so far, compiled code's cp.async among them."""
        self.schedule = schedule
        self.random = random.Random(schedule.seed)
        self._execute = execute
        self._arrivals: deque[AsyncOperation] = deque()
        self._loads: deque[AsyncOperation] = deque()
        self._stores: deque[AsyncOperation] = deque()
        self._tensor: dict[tuple, deque[AsyncOperation]] = {}  # by issuing thread
        self.outstanding = 0
        self._issued = issued
        self.issued: list[AsyncOperation] | None = None  # the operations issued, if they are collected
        self.work: CompiledWork | None = None  # where compiled code executes some of them
        self._prompt = is_lenient() is True  # latencies are in proportion, as hardware's are

    def _submit(self, queue: deque[AsyncOperation], async_op: AsyncOperation) -> None:
        self.outstanding += 1
        self._issued[0] += 1
        async_op.number = self._issued[0]
        async_op.grid.outstanding += 1
        queue.append(async_op)
        if self.issued is not None:
            self.issued.append(async_op)
        if self.schedule.kind == "eager":
            if async_op.waits is None or not async_op.waits():
                self._run(queue, len(queue) - 1)
        elif self.schedule.kind == "random" and self.random.random() < AT_ISSUE:
            self.run_one()

    @property
    def outstanding_first(self) -> int:
        """Number of operations that the schedule "late" runs before any load."""
        return self.outstanding - len(self._loads)

    def arrival(self, async_op: AsyncOperation) -> None:
        """Enqueues an arrival on an mbarrier of another CTA."""
        self._submit(self._arrivals, async_op)

    def load(self, async_op: AsyncOperation) -> None:
        """Enqueues a copy to shared memory."""
        self._submit(self._loads, async_op)

    def insert_load(self, async_op: AsyncOperation, number: int) -> None:
        """Enqueues a copy to shared memory that compiled code has issued. number: its index in the order of issue."""
        self.outstanding += 1
        async_op.number = number
        async_op.grid.outstanding += 1
        self._loads.insert(sum(load.number < number for load in self._loads), async_op)

    @property
    def first_load(self) -> AsyncOperation | None:
        """The outstanding load that was issued first."""
        return self._loads[0] if self._loads else None

    def store(self, async_op: AsyncOperation) -> None:
        """Enqueues a copy from shared memory."""
        self._submit(self._stores, async_op)

    def tensor(self, thread: tuple, async_op: AsyncOperation) -> None:
        """Enqueues an operation of the tensor core. thread: key of the issuing thread."""
        queue = self._tensor.get(thread)
        if queue is None:
            queue = self._tensor[thread] = deque()
        if self.work is not None:
            self.work.add(thread)
        self._submit(queue, async_op)

    def run_tensor(self, thread: tuple) -> None:
        """Runs the first operation of a thread's that is kept here."""
        self._run(self._tensor[thread], 0)

    @property
    def arrival_count(self) -> int:
        """Number of outstanding arrivals that are kept here."""
        return len(self._arrivals)

    def take_arrivals(self) -> None:
        """Takes over the arrivals that compiled code has not performed. They were issued before all others."""
        if self.work is not None and (taken := self.work.take_arrivals()):
            later, self._arrivals = self._arrivals, deque()
            for async_op in taken:
                self._submit(self._arrivals, async_op)
            self._arrivals += later

    def _run(self, queue: deque[AsyncOperation], index: int) -> None:
        async_op = queue[index]
        del queue[index]
        self.outstanding -= 1
        async_op.done = True
        self._execute(async_op, async_op.action)
        async_op.grid.outstanding -= 1

    def _run_load(self, index: int) -> None:
        """Runs a load, or none if all loads have to wait.

        In a lenient run the load is the first of its CTA, after the CTA's tensor core operations that were issued
        before it: on hardware, a load takes about a microsecond and an MMA a tenth of that.
        """
        if not self._prompt:
            self._run(self._loads, index)
            return
        cta = self._loads[index].cta
        ordered = [load for load in self._loads if load.cta is cta] + [x for x in self._loads if x.cta is not cta]
        load = next((load for load in ordered if load.waits is None or not load.waits()), None)
        if load is None:
            return
        for queue in list(self._tensor.values()):
            while queue and queue[0].number < load.number and queue[0].cta is load.cta:
                self._run(queue, 0)
        if not load.done:
            self._run(self._loads, self._loads.index(load))

    def prepare(self, async_ops: list[AsyncOperation]) -> None:
        """Runs the first part of these operations now: a thread has waited for it."""
        for async_op in async_ops:
            if not async_op.done and async_op.prepare is not None:
                self._execute(async_op, async_op.prepare)

    def force(self, async_ops: Iterable[AsyncOperation]) -> None:
        """Runs these arrivals, loads or stores now: a thread has waited for them."""
        for async_op in async_ops:
            if not async_op.done:
                queue = next(each for each in (self._arrivals, self._stores, self._loads) if async_op in each)
                self._run(queue, queue.index(async_op))

    def arrivals_of(self, warp: Warp) -> list[AsyncOperation]:
        """Outstanding arrivals that a warp has executed on mbarriers of other CTAs."""
        self.take_arrivals()
        return [async_op for async_op in self._arrivals if async_op.warp is warp]

    def _queues(self) -> tuple[deque[AsyncOperation], ...]:
        """Queues in the order of the schedule "late"."""
        return self._arrivals, *self._tensor.values(), self._stores, self._loads

    def heads(self) -> list[tuple[deque[AsyncOperation], int]]:
        """Operations that may happen next, as (queue, index), in the order of the schedule "late"."""
        found = []
        for queue in self._queues():
            ordered = queue is not self._stores and queue is not self._arrivals and queue is not self._loads
            found += [(queue, index) for index in range(min(1, len(queue)) if ordered else len(queue))]
        return found

    def run_at(self, queue: deque[AsyncOperation], index: int) -> None:
        """Runs an operation of `heads`."""
        self._run(queue, index)

    def run_one(self) -> None:
        """Runs one operation, chosen by the schedule. At least one must be outstanding."""
        if self.schedule.is_random:
            queue = self.random.choice([queue for queue in self._queues() if queue])
            if queue is self._loads:
                self._run_load(self.random.randrange(len(queue)))
                return
            ordered = queue is not self._stores and queue is not self._arrivals
            self._run(queue, 0 if ordered else self.random.randrange(len(queue)))
            return
        queue = self._arrivals or self._first_tensor() or self._stores
        if queue:
            self._run(queue, 0)
        else:
            self._run_load(0)

    def _first_tensor(self) -> deque[AsyncOperation] | None:
        for queue in self._tensor.values():
            if queue:
                return queue
        return None

    def run_one_of(self, grid: Grid) -> None:
        """Runs the first operation of a grid, in the order of the schedule "late". The grid must have one."""
        for queue in self._queues():
            for index, async_op in enumerate(queue):
                if async_op.grid is grid:
                    self._run(queue, index)
                    return

    def forget_tensor_queues(self, prefix: tuple) -> None:
        """Drops the empty tensor core queues of a cluster or grid that is over. prefix: start of its threads' keys."""
        for thread in [thread for thread in self._tensor if thread[: len(prefix)] == prefix]:
            del self._tensor[thread]
        if self.work is not None:
            self.work.forget(prefix)
