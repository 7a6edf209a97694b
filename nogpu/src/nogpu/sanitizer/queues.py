"""Follows the order of queues (CUDA C++ Programming Guide, "Asynchronous Concurrent Execution"; CUDA Runtime API,
"Stream synchronization behavior").

The device runs the host's submissions in the order of the calls. The program orders fewer of them: each launch, copy,
fill or operation of torch is a node with a clock, which covers

| covered nodes | by |
|---|---|
| the earlier nodes of its queue | the queue |
| those of all blocking queues and what they cover, if its queue is the legacy default one | implicit synchronisation |
| those that an event covered when it was recorded | its queue has waited for the event |
| what the host has waited for before it submitted the node | synchronisation of a queue, an event, the device |

and the nodes that those cover. A replay of a graph is a node of its queue; inside, the clock of each launch covers what
its queue, the events and the waits of the capture order before it. Of two nodes that access a byte, one of them to
write it, one must happen before the other.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nogpu.sanitizer.freed_memory import FreedMemory
from nogpu.sanitizer.queue_clocks import HOST, LEGACY, LEGACY_HANDLE, PER_THREAD, Clock, Line, Order, Replay, join
from nogpu.sanitizer.queue_history import Access, Box, Node, QueueHistory, Touched

if TYPE_CHECKING:
    from nogpu.hardware.allocations import Allocation, Allocations
    from nogpu.ptx.ir import Entry
    from nogpu.sanitizer.report import Reporter

LATER = 1 << 16  # spans and boxes that are kept while there is one queue only


class _Replayed(threading.local):
    """Graph that a thread of the host replays."""

    now: tuple[Hashable, Replay] | None = None


class Queues:
    """Order of the queues of a process."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.are_several = False
        """True if there is, or was, any queue beside the legacy default queue."""
        self._order = Order()
        self._replayed = _Replayed()
        self._counts: dict[Hashable, itertools.count[int]] = {}
        self._history, self._pinned, self._freed = QueueHistory(), QueueHistory(), FreedMemory()
        self._later: deque[tuple[Allocations, Node, list[tuple[Allocation, Access]]]] = deque()
        self._held = 0  # number of spans and boxes in `_later`
        self._ends: dict[Hashable, Clock] = {}  # by graph: clock behind its last replay
        self._asked: dict[Hashable, Clock] = {}  # by queue or event: its clock at the last query
        self._lock = threading.RLock()

    # Calls of the host

    def created(self, queue: int, is_blocking: bool) -> None:
        """Adds a queue. is_blocking: it waits for the legacy default queue, and that one for it."""
        with self._lock:
            self.are_several = True
            self._order.lines[queue] = Line(is_blocking)

    def submitted(self, queue: int, what: str, entry: Entry | None = None) -> Node:
        """Adds a node to a queue, ordered behind what the queue waits for. what: work in words. entry: of a launch."""
        with self._lock:
            key = self._key(queue)
            order, agent = self._place(key)
            clock = order.clock_of(key)
            count = next(self._counts.setdefault(agent, itertools.count(1)))
            node = Node(agent, count, dict(clock), what, queue)
            node.entry = entry
            clock[agent] = count
            return node

    def recorded(self, event: int, queue: int) -> None:
        """Records an event behind the nodes of a queue."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            order.events[event] = dict(order.clock_of(key))

    def forgotten(self, event: int) -> None:
        """Forgets an event that is destroyed."""
        self._order.events.pop(event, None)

    def waits(self, queue: int, event: int) -> None:
        """Lets a queue wait for an event; an event that has not been recorded orders nothing."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            join(order.clock_of(key), order.events.get(event, {}))

    def joins(self, queue: int, other: int) -> None:
        """Lets a queue wait for the nodes of another."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            join(order.clock_of(key), order.clock_of(self._key(other)))

    def host_waits(self, queue: int) -> None:
        """Lets the host wait for the nodes of a queue."""
        with self._lock:
            key = self._key(queue)
            join(self._order.host, self._order.clock_of(key))
            if not self.are_several:
                self._forget_later()

    def host_waits_for(self, event: int) -> None:
        """Lets the host wait for an event."""
        with self._lock:
            join(self._order.host, self._order.events.get(event, {}))

    def answers(self, queue: int | None = None, event: int | None = None) -> bool:
        """True if a query of a queue or an event says that it is over. The first query behind new work does not:
        a GPU may answer so, and programs have to ask again.
        """
        with self._lock:
            key = ("event", event) if queue is None else self._key(queue)
            clock = self._order.events.get(event, {}) if event is not None else self._order.clock_of(key)
            if all(count <= self._order.host.get(agent, 0) for agent, count in clock.items()):
                return True
            found, self._asked[key] = self._asked.get(key) == clock, dict(clock)
            return found

    def host_waits_for_all(self) -> None:
        """Lets the host wait for the device."""
        with self._lock:
            for line in self._order.lines.values():
                join(self._order.host, line.clock)
            self._history.clear()
            self._pinned.clear()
            self._forget_later()

    def _forget_later(self) -> None:
        self._later.clear()
        self._held = 0

    def _key(self, queue: int) -> Hashable:
        if queue == LEGACY_HANDLE:
            return LEGACY
        if queue == PER_THREAD:
            self.are_several = True
            return PER_THREAD, threading.get_ident()
        return queue

    def _place(self, key: Hashable) -> tuple[Order, Hashable]:
        """Clocks and key of a queue's work: the host's queues, or those of the graph that is replayed."""
        if self._replayed.now is None:
            return self._order, key
        graph, order = self._replayed.now
        return order, (graph, key)

    # Accesses

    def accessed(self, memory: Allocations, node: Node, touched: Sequence[Touched]) -> None:
        """Records the accesses of a node. Raises EmulatorError for a conflict that nothing orders."""
        live = ((memory.allocation(each.start), each) for each in touched if len(each.spans))
        self._accessed(memory, node, [(allocation, each) for allocation, each in live if allocation is not None])

    def touches(self, memory: Allocations, node: Node, reads: Iterable[Box], writes: Iterable[Box]) -> None:
        """Records the accesses of a node to boxes, as far as they are in device memory. Raises EmulatorError as
        `accessed`.
        """
        found: list[tuple[Allocation, Access]] = []
        for is_write, boxes in ((False, reads), (True, writes)):
            for box in boxes:
                allocation = memory.allocation(box[0]) if all(box[1]) else None
                if allocation is not None:
                    found.append((allocation, (box, is_write)))
        self._accessed(memory, node, found)

    def touches_pinned(self, memory: Allocations, node: Node, accesses: list[tuple[Allocation, Access]]) -> None:
        """Records the accesses of a node to pinned memory of the host. Raises EmulatorError as `accessed`."""
        with self._lock:
            for conflict in self._pinned.access(memory, node, self._order.host, accesses):
                self._reporter.report_queues(conflict)

    def touched_by_host(self, memory: Allocations, what: str, accesses: list[tuple[Allocation, Access]]) -> None:
        """Checks accesses of the host itself to its pinned memory. What it submits later is ordered behind them. what:
        the accesses in words. Raises EmulatorError as `accessed`.
        """
        with self._lock:
            node = Node(HOST, 0, self._order.host, what, HOST)
            for conflict in self._pinned.conflicts(memory, node, self._order.host, accesses):
                self._reporter.report_queues(conflict)

    def _accessed(self, memory: Allocations, node: Node, accesses: list[tuple[Allocation, Access]]) -> None:
        with self._lock:
            self._later.append((memory, node, accesses))
            self._held += _size(accesses)
            while self._later and (self.are_several or self._held > LATER):
                first = self._later.popleft()
                self._held -= _size(first[2])
                if self.are_several:  # one queue orders all its work
                    memory_of, of, what = first
                    for conflict in self._history.access(memory_of, of, self._order.host, what):
                        self._reporter.report_queues(conflict)

    @contextmanager
    def replaying(self, graph: Hashable, queue: int) -> Iterator[None]:
        """Adds what is submitted inside to a graph that a queue replays. A graph's replays follow each other."""
        with self._lock:
            clock = self._order.clock_of(self._key(queue))
            join(clock, self._ends.get(graph, {}))
            replay = Replay(clock)
        self._replayed.now = graph, replay
        try:
            yield
        finally:
            self._replayed.now = None
            with self._lock:
                for line in replay.lines.values():
                    join(clock, line.clock)
                self._ends[graph] = dict(clock)

    def forget_graph(self, graph: Hashable) -> None:
        """Forgets a graph that is destroyed."""
        self._ends.pop(graph, None)

    def accesses_of(self, memory: Allocations, address: int) -> list[Touched]:
        """Recorded accesses to the memory at an address."""
        self._accessed(memory, self.submitted(LEGACY, "nothing"), [])
        allocation = memory.allocation(address)
        return (
            []
            if allocation is None
            else [each.touched for each in self._history.of(memory, allocation, self._order.host)]
        )

    def freed(self, memory: Allocations, queue: int, address: int, others: Iterable[int]) -> None:
        """Notes that memory of a queue is freed. others: queues whose work torch's allocator waits for (record_stream).

        A finalizer may call this in the middle of anything else, so that it only takes note.
        """
        allocation = memory.allocation(address)
        users = [] if allocation is None else self._history.users(allocation)
        if allocation is not None and users:
            self._freed.note(self._key(queue), allocation, users, {self._key(other) for other in others})

    def given(self, memory: Allocations, queue: int, address: int) -> None:
        """Checks memory that is allocated for a queue. Raises EmulatorError if other queues may still use it."""
        allocation = memory.allocation(address) if self._freed else None
        if allocation is None:
            return
        with self._lock:
            key = self._key(queue)
            conflict = self._freed.given(key, self._order.clock_of(key), allocation, queue)
            if conflict is not None:
                self._reporter.report_queues(conflict)


def _size(accesses: list[tuple[Allocation, Access]]) -> int:
    return sum(len(access.spans) if isinstance(access, Touched) else 1 for _, access in accesses)
