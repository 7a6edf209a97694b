"""Clocks of the host, of queues and of events: the work of queues that is ordered before what comes next there."""

from __future__ import annotations

from collections.abc import Hashable

LEGACY, LEGACY_HANDLE, PER_THREAD = 0, 1, 2  # the null queue, cudaStreamLegacy, cudaStreamPerThread
HOST = -1  # key of the host, beside those of queues
Clock = dict[Hashable, int]
"""Number of covered nodes, by queue."""


def join(clock: Clock, other: Clock) -> None:
    """Joins another clock to `clock`, in place."""
    for queue, count in other.items():
        if count > clock.get(queue, 0):
            clock[queue] = count


class Line:
    """Clock of a queue: the nodes that are ordered before its next one."""

    __slots__ = ("clock", "is_blocking")

    def __init__(self, is_blocking: bool, clock: Clock | None = None) -> None:
        self.is_blocking, self.clock = is_blocking, dict(clock or {})


class Order:
    """Clocks of queues and events, of the host or of one replay of a graph."""

    def __init__(self) -> None:
        self.lines: dict[Hashable, Line] = {LEGACY: Line(True)}
        self.events: dict[int, Clock] = {}
        self.host: Clock = {}

    def clock_of(self, queue: Hashable) -> Clock:
        """Clock of the node that a queue gets next. It is the queue's own, no copy."""
        line = self.lines.setdefault(queue, Line(True))
        join(line.clock, self.host)
        if queue == LEGACY:
            for other in self.lines.values():
                if other.is_blocking:
                    join(line.clock, other.clock)
        elif line.is_blocking:
            join(line.clock, self.lines[LEGACY].clock)
        return line.clock


class Replay(Order):
    """Clocks of a capture's queues, under one replay: all begin with the replay's clock."""

    def __init__(self, base: Clock) -> None:
        super().__init__()
        self.lines, self._base = {}, dict(base)

    def clock_of(self, queue: Hashable) -> Clock:
        """Clock of the node that a queue gets next: no queue of a capture waits for another by itself."""
        if queue not in self.lines:
            self.lines[queue] = Line(False, self._base)
        return self.lines[queue].clock
