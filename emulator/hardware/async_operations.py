"""Asynchronous work: the queues it waits in, and the schedules that decide when it happens.

A job is what an asynchronous instruction leaves behind: a bulk copy, or an operation of the tensor core. Jobs of one
stream of the tensor core (one issuing thread) run in order; copies are not ordered among each other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

AT_ISSUE = 0.25  # chance that the random schedule runs a job when one is issued


@dataclass(frozen=True)
class Schedule:
    """When asynchronous work happens, and in which order warps run.

    eager: at issue. late: only when no warp can go on, arrivals in other CTAs first, then the tensor core, loads last. random: at any time and in
    any order that the hardware might choose, warps in any order, from a seed.
    """

    kind: str
    seed: int = 0

    @staticmethod
    def parse(text: str) -> Schedule:
        """ "eager", "late" or "random:SEED". Raises ValueError."""
        kind, colon, seed = text.partition(":")
        if kind in ("eager", "late") and not colon:
            return Schedule(kind)
        if kind == "random" and seed.isdecimal():
            return Schedule(kind, int(seed))
        raise ValueError(f"schedule {text!r}: must be eager, late or random:SEED")


class Job:
    """One piece of asynchronous work. issuer: (group label, CTA index, warp, instruction index) for messages."""

    __slots__ = ("action", "done", "grid", "issuer", "prepare")

    def __init__(self, grid, issuer: tuple, action: Callable[[], None], prepare: Callable[[], None] | None = None):
        self.grid = grid
        self.issuer = issuer
        self.action = action
        self.prepare = prepare  # the part that is over before the whole is: reading the tensor map, or a store's source
        self.done = False


class Queues:
    """All asynchronous work that is outstanding, and the choice of what is next."""

    def __init__(self, schedule: Schedule, execute: Callable[[Job, Callable[[], None]], None]):
        self.schedule = schedule
        self.random = random.Random(schedule.seed)
        self._execute = execute
        self._arrivals: deque[Job] = deque()
        self._loads: deque[Job] = deque()
        self._stores: deque[Job] = deque()
        self._streams: dict[tuple, deque[Job]] = {}
        self.outstanding = 0

    def _submit(self, queue: deque[Job], job: Job) -> None:
        self.outstanding += 1
        job.grid.jobs += 1
        queue.append(job)
        if self.schedule.kind == "eager":
            self._run(queue, len(queue) - 1)
        elif self.schedule.kind == "random" and self.random.random() < AT_ISSUE:
            self.run_one()

    def arrival(self, job: Job) -> None:
        self._submit(self._arrivals, job)

    def load(self, job: Job) -> None:
        self._submit(self._loads, job)

    def store(self, job: Job) -> None:
        self._submit(self._stores, job)

    def tensor(self, stream: tuple, job: Job) -> None:
        queue = self._streams.get(stream)
        if queue is None:
            queue = self._streams[stream] = deque()
        self._submit(queue, job)

    def _run(self, queue: deque[Job], index: int) -> None:
        job = queue[index]
        del queue[index]
        self.outstanding -= 1
        job.done = True
        self._execute(job, job.action)
        job.grid.jobs -= 1

    def prepare(self, jobs: list[Job]) -> None:
        """Do the first part of these jobs now: somebody has waited for it."""
        for job in jobs:
            if not job.done:
                self._execute(job, job.prepare)

    def force(self, jobs: list[Job]) -> None:
        """Run these loads or stores now: somebody has waited for them."""
        for job in jobs:
            if not job.done:
                queue = self._stores if job in self._stores else self._loads
                self._run(queue, queue.index(job))

    def _queues(self) -> tuple[deque[Job], ...]:
        """In the order of the schedule "late"."""
        return self._arrivals, *self._streams.values(), self._stores, self._loads

    def run_one(self) -> None:
        """Run one job, chosen by the schedule. There must be one."""
        if self.schedule.kind == "random":
            queue = self.random.choice([queue for queue in self._queues() if queue])
            ordered = queue is not self._stores and queue is not self._loads and queue is not self._arrivals
            self._run(queue, 0 if ordered else self.random.randrange(len(queue)))
            return
        for queue in self._queues():
            if queue:
                self._run(queue, 0)
                return

    def run_one_of(self, grid) -> None:
        """Run the first job of a grid, in the order of the schedule "late". There must be one."""
        for queue in self._queues():
            for index, job in enumerate(queue):
                if job.grid is grid:
                    self._run(queue, index)
                    return

    def jobs(self) -> list[Job]:
        return [job for queue in self._queues() for job in queue]

    def forget_streams(self, prefix: tuple) -> None:
        """Drop the empty streams of a cluster or a grid that is over."""
        for stream in [stream for stream, queue in self._streams.items() if stream[: len(prefix)] == prefix]:
            del self._streams[stream]
