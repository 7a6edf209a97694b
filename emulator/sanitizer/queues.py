"""Follows the order of queues (CUDA C++ Programming Guide, "Asynchronous Concurrent Execution"; CUDA Runtime API,
"Stream synchronization behavior").

The device runs what the host submits in the order of the calls. What is ordered is less: each launch, copy, fill or
operation of torch is a node that knows

| it knows | by |
|---|---|
| the earlier nodes of its queue | the queue |
| those of all blocking queues, if its queue is the legacy default queue, and they know it | implicit synchronisation |
| what an event knew when it was recorded | its queue has waited for the event |
| what the host has waited for before it submitted the node | synchronisation of a queue, an event, the device |

and what those know. A replay of a graph is a node of its queue; inside, each launch knows what its queue, the events
and the waits of the capture give it. Two nodes that access a byte, one of them to write it, must know of each other.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.sanitizer.queue_clocks import LEGACY, LEGACY_HANDLE, PER_THREAD, Clock, Line, Order, Replay, join
from emulator.sanitizer.sites import call_site
from emulator.sanitizer.spans import UNTAGGED, common, merged, without

if TYPE_CHECKING:
    from emulator.hardware.allocations import Allocation, Allocations
    from emulator.ptx.ir import Entry
    from emulator.sanitizer.report import Reporter

_BLOCK, _SMALL = 512, 1 << 20  # bytes: of which blocks are multiples; that a block of the small pool has at most
Range = tuple["int | np.ndarray", int]
"""(address, bytes), or several of so many bytes each: int64[n]."""


class Touched(NamedTuple):
    """Bytes of one allocation that a node accesses in one way."""

    start: int  # where the allocation starts
    writes: bool
    is_strong: bool  # by accesses that race with no other strong ones: atomics, relaxed, volatile
    spans: np.ndarray  # as of `spans`; the tag is 1 + the index of an instruction, or UNTAGGED


class Node:
    """What the host has submitted to a queue."""

    __slots__ = ("clock", "count", "entry", "handle", "queue", "what", "where")

    def __init__(self, queue: Hashable, count: int, clock: Clock, what: str, handle: int) -> None:
        self.queue, self.count, self.clock, self.what = queue, count, clock, what
        self.handle = LEGACY if handle == LEGACY_HANDLE else handle
        self.entry: Entry | None = None  # of a launch
        self.where = call_site()

    @property
    def place(self) -> str:
        """The queue, in words."""
        names = {LEGACY: "the legacy default queue", PER_THREAD: "the thread's default queue"}
        return names.get(self.handle) or f"queue {self.handle:#x}"

    def is_known_to(self, clock: Clock) -> bool:
        """Whether whoever has the clock is behind this node."""
        return clock.get(self.queue, 0) >= self.count


class Conflict(NamedTuple):
    """Two nodes that nothing orders, and bytes that both access."""

    before: Node
    now: Node
    writes: tuple[bool, bool]
    tags: tuple[int, int]
    first: int  # addresses
    end: int
    allocation: Allocation
    reuses: bool = False  # the second is given memory that has been freed while the first may still use it


class _Past(NamedTuple):
    """What a node has accessed."""

    node: Node
    touched: Touched


class _Freed(NamedTuple):
    """Memory that torch's allocator may give out again, and who may still use it."""

    allocation: Allocation
    users: list[_Past]


class Queues:
    """Of a process."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.are_several = False
        """Whether there is, or was, any queue beside the legacy default queue."""
        self._order = Order()
        self._replay: tuple[Hashable, Replay] | None = None
        self._counts: dict[Hashable, itertools.count[int]] = {}
        self._past: dict[Allocation, list[_Past]] = {}
        self._ends: dict[Hashable, Clock] = {}  # by graph: what is known behind its last replay
        self._releases: deque[tuple[Hashable, _Freed]] = deque()  # that have been noted, by the queue of the memory
        self._freed: dict[Hashable, list[_Freed]] = {}  # by the queue for which it was allocated
        self._lock = threading.RLock()

    # What the host does

    def created(self, queue: int, is_blocking: bool) -> None:
        """A queue is there. is_blocking: it waits for the legacy default queue, and that one for it."""
        with self._lock:
            self.are_several = True
            self._order.lines[queue] = Line(is_blocking)

    def submitted(self, queue: int, what: str, entry: Entry | None = None) -> Node:
        """A node of a queue, which knows what it has to be behind. what: in words. entry: of a launch."""
        with self._lock:
            key = self._key(queue)
            order, agent = self._place(key)
            clock = order.knows(key)
            count = next(self._counts.setdefault(agent, itertools.count(1)))
            node = Node(agent, count, dict(clock), what, queue)
            node.entry = entry
            clock[agent] = count
            return node

    def recorded(self, event: int, queue: int) -> None:
        """An event is recorded behind what a queue has."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            order.events[event] = dict(order.knows(key))

    def forgotten(self, event: int) -> None:
        """An event is no more."""
        self._order.events.pop(event, None)

    def waits(self, queue: int, event: int) -> None:
        """A queue waits for an event: nothing, if that has not been recorded."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            join(order.knows(key), order.events.get(event, {}))

    def joins(self, queue: int, other: int) -> None:
        """A queue waits for what another has."""
        with self._lock:
            key = self._key(queue)
            order, _ = self._place(key)
            join(order.knows(key), order.knows(self._key(other)))

    def host_waits(self, queue: int) -> None:
        """The host waits for what a queue has."""
        with self._lock:
            join(self._order.host, self._order.knows(self._key(queue)))

    def host_waits_for(self, event: int) -> None:
        """The host waits for an event."""
        with self._lock:
            join(self._order.host, self._order.events.get(event, {}))

    def host_waits_for_all(self) -> None:
        """The host waits for the device."""
        with self._lock:
            for line in self._order.lines.values():
                join(self._order.host, line.clock)
            self._past.clear()  # whatever comes is behind it

    def _key(self, queue: int) -> Hashable:
        if queue == LEGACY_HANDLE:
            return LEGACY
        if queue == PER_THREAD:
            self.are_several = True
            return PER_THREAD, threading.get_ident()
        return queue

    def _place(self, key: Hashable) -> tuple[Order, Hashable]:
        """Where a queue's work belongs: the host's queues, or those of the graph that is replayed."""
        if self._replay is None:
            return self._order, key
        graph, order = self._replay
        return order, (graph, key)

    # Accesses

    def accessed(self, memory: Allocations, node: Node, touched: Sequence[Touched]) -> None:
        """A node accesses memory. Raises EmulatorError for what is not ordered behind what others have accessed."""
        with self._lock:
            for each in touched:
                allocation = memory.allocation(each.start)
                if allocation is None or not len(each.spans):
                    continue
                past = self._of(memory, allocation)
                for before in past:
                    conflict = self._conflict(before, _Past(node, each), allocation)
                    if conflict is not None:
                        self._reporter.report_queues(conflict)
                self._past[allocation] = [*_kept(past, node, each), _Past(node, each)]

    def touches(self, memory: Allocations, node: Node, reads: Iterable[Range], writes: Iterable[Range]) -> None:
        """As `accessed`. Of the ranges those in device memory count."""
        found = []
        for is_write, ranges in ((False, reads), (True, writes)):
            for place, nbytes in ranges:
                starts = np.atleast_1d(np.asarray(place, np.int64))
                allocation = memory.allocation(int(starts.min())) if nbytes and len(starts) else None
                if allocation is not None:
                    found.append(Touched(allocation.start, is_write, False, merged(starts, starts + nbytes, UNTAGGED)))
        self.accessed(memory, node, found)

    @contextmanager
    def replaying(self, graph: Hashable, queue: int) -> Iterator[None]:
        """What is submitted inside is a graph's, which a queue replays. A graph's replays follow each other."""
        with self._lock:
            clock = self._order.knows(self._key(queue))
            join(clock, self._ends.get(graph, {}))
            before, self._replay = self._replay, (graph, Replay(clock))
            try:
                yield
            finally:
                for line in self._replay[1].lines.values():
                    join(clock, line.clock)
                self._ends[graph], self._replay = dict(clock), before

    def forget_graph(self, graph: Hashable) -> None:
        """A graph is no more."""
        self._ends.pop(graph, None)

    def accesses_of(self, memory: Allocations, address: int) -> list[Touched]:
        """What is still to be known of the memory at an address."""
        allocation = memory.allocation(address)
        return [] if allocation is None else [each.touched for each in self._of(memory, allocation)]

    # Memory of torch's allocator, which gives it out again to the queue for which it was allocated, without a wait

    def freed(self, memory: Allocations, queue: int, address: int, others: Iterable[int]) -> None:
        """Memory of a queue is no longer used. others: queues whose work the allocator waits for (record_stream).

        A finalizer calls this, in the middle of anything else: it only takes note.
        """
        allocation = memory.allocation(address)
        past = None if allocation is None else self._past.get(allocation)
        if allocation is not None and past:
            recorded = {self._key(other) for other in others}
            users = [each for each in past if each.node.queue not in recorded]
            self._releases.append((self._key(queue), _Freed(allocation, users)))

    def given(self, memory: Allocations, queue: int, address: int) -> None:
        """Memory is allocated for a queue. Raises EmulatorError if it can be what others may still use."""
        with self._lock:
            while self._releases:
                of, freed = self._releases.popleft()
                self._freed.setdefault(of, []).append(freed)
            key = self._key(queue)
            known, allocation = self._order.knows(key), memory.allocation(address)
            kept, found = [], None
            for each in self._freed.pop(key, ()):
                users = [user for user in each.users if not user.node.is_known_to(known)]
                if users and allocation is not None and found is None and _fits(allocation, each.allocation):
                    found = _Freed(each.allocation, users)
                elif users:
                    kept.append(each)
            if kept:
                self._freed[key] = kept
            if found is not None:
                before, (first, end, tag) = found.users[0], found.users[0].touched.spans[0].tolist()
                now = Node(key, 0, known, f"the memory of {allocation}", queue)
                writes = before.touched.writes, True
                self._reporter.report_queues(
                    Conflict(before.node, now, writes, (tag, UNTAGGED), first, end, found.allocation, True)
                )

    def _of(self, memory: Allocations, allocation: Allocation) -> list[_Past]:
        """What others have done to an allocation, but for what the host has seen end."""
        if allocation not in self._past:  # the program allocates: what is no more can be forgotten
            self._past = {each: past for each, past in self._past.items() if memory.allocation(each.start) is each}
        return [each for each in self._past.get(allocation, ()) if not each.node.is_known_to(self._order.host)]

    @staticmethod
    def _conflict(before: _Past, now: _Past, allocation: Allocation) -> Conflict | None:
        one, other = before.touched, now.touched
        if before.node is now.node or not (one.writes or other.writes) or (one.is_strong and other.is_strong):
            return None
        if before.node.is_known_to(now.node.clock):
            return None
        both = common(one.spans, other.spans)
        if both is None:
            return None
        first, end, *tags = both
        return Conflict(before.node, now.node, (one.writes, other.writes), (tags[0], tags[1]), first, end, allocation)


def _fits(new: Allocation, old: Allocation) -> bool:
    """Whether torch's allocator may give new memory the block of an old one (c10/cuda/CUDACachingAllocator.cpp)."""
    sizes = [-(-(each.end - each.start) // _BLOCK) * _BLOCK for each in (new, old)]
    return sizes[0] <= sizes[1] and (sizes[0] <= _SMALL) == (sizes[1] <= _SMALL)


def _kept(past: list[_Past], node: Node, touched: Touched) -> list[_Past]:
    """What is still to be known beside a new access: who races with what that one hides, races with it, too."""
    found = []
    for each in past:
        hides = touched.writes or not each.touched.writes
        weak = each.touched.is_strong or not touched.is_strong
        if hides and weak and (each.node is node or each.node.is_known_to(node.clock)):
            spans = without(each.touched.spans, touched.spans)
            if not len(spans):
                continue
            each = each._replace(touched=each.touched._replace(spans=spans))
        found.append(each)
    return found
