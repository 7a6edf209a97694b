"""Accesses of queues' work, by allocation, and those that are not ordered before a later access."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.sanitizer.queue_clocks import HOST, LEGACY, LEGACY_HANDLE, PER_THREAD, Clock
from nogpu.sanitizer.sites import call_site
from nogpu.sanitizer.spans import UNTAGGED, common, merged, of_box, without

if TYPE_CHECKING:
    from nogpu.hardware.allocations import Allocation, Allocations
    from nogpu.ptx.ir import Entry, Instruction

Box = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Bytes of memory: address, shape, strides in bytes, none negative."""


class Touched(NamedTuple):
    """Bytes of one allocation that a node accesses in one way."""

    start: int  # start address of the allocation
    writes: bool
    is_strong: bool  # accesses that race with no other strong ones: atomics, relaxed, volatile
    spans: np.ndarray  # as in `spans`; the tag is 1 + the index of an instruction, or UNTAGGED


class Node:
    """Work that the host has submitted to a queue."""

    __slots__ = ("clock", "count", "entry", "handle", "queue", "what", "where")

    def __init__(self, queue: Hashable, count: int, clock: Clock, what: str, handle: int) -> None:
        self.queue, self.count, self.clock, self.what = queue, count, clock, what
        self.handle = LEGACY if handle == LEGACY_HANDLE else handle
        self.entry: Entry | None = None  # of a launch
        self.where = call_site()

    @property
    def place(self) -> str:
        """Queue, in words."""
        names = {LEGACY: "the legacy default queue", PER_THREAD: "the thread's default queue", HOST: "the host"}
        return names.get(self.handle) or f"queue {self.handle:#x}"

    @property
    def name(self) -> str:
        """Name of the kernel, or the kind of work in words."""
        return self.what if self.entry is None else self.entry.name

    def happens_before(self, clock: Clock) -> bool:
        """True if this node happens before the holder of the clock."""
        return clock.get(self.queue, 0) >= self.count


Access = Touched | tuple[Box, bool]
"""Accesses of a launch, or of other work: a box, and True if it is written."""


class Conflict(NamedTuple):
    """Two nodes that nothing orders, and bytes that both access."""

    before: Node
    now: Node
    writes: tuple[bool, bool]
    tags: tuple[int, int]
    first: int  # addresses
    end: int
    allocation: Allocation
    reuses: bool = False  # True if the second is given memory that has been freed while the first may still use it

    @property
    def offsets(self) -> tuple[int, int]:
        """Offsets in the allocation: of the first byte, and behind the last."""
        return self.first - self.allocation.start, self.end - self.allocation.start

    @property
    def instructions(self) -> list[Instruction | None]:
        """Instructions by which the two access the bytes; None for a node that is no launch, or names none."""
        return [
            node.entry.instructions[tag - 1] if node.entry is not None and tag > 0 else None
            for node, tag in zip((self.before, self.now), self.tags)
        ]

    def described(self) -> list[str]:
        """The two nodes in words."""
        found = []
        for node, writes, instruction in zip((self.before, self.now), self.writes, self.instructions):
            where, by = f" ({node.where})" if node.where else "", ""
            if instruction is not None:
                source = f", {instruction.source}" if instruction.source else ""
                by = f" by {instruction.opcode} at PTX line {instruction.line}{source}"
            how = "writes" if writes else "reads"
            found.append(f"{node.what} on {node.place}{where}, which {how}{by}")
        return found


class Past(NamedTuple):
    """Node, and bytes that it has accessed in one way."""

    node: Node
    touched: Touched


class QueueHistory:
    """Recorded accesses to all allocations."""

    def __init__(self) -> None:
        self._past: dict[Allocation, list[Past]] = {}

    def access(
        self, memory: Allocations, node: Node, host: Clock, accesses: list[tuple[Allocation, Access]]
    ) -> Iterator[Conflict]:
        """Records accesses of a node. Yields its conflicts. host: clock of the host."""
        for allocation, access in accesses:
            if memory.allocation(allocation.start) is not allocation:
                continue
            yield from self.conflicts(memory, node, host, [(allocation, access)])
            each = access if isinstance(access, Touched) else _of_box(allocation, *access)
            past = self.of(memory, allocation, host)
            self._past[allocation] = [*_kept(past, node, each), Past(node, each)]

    def conflicts(
        self, memory: Allocations, node: Node, host: Clock, accesses: list[tuple[Allocation, Access]]
    ) -> Iterator[Conflict]:
        """Conflicts of a node's accesses, which are not recorded. host: clock of the host."""
        for allocation, access in accesses:
            each = access if isinstance(access, Touched) else _of_box(allocation, *access)
            for before in self.of(memory, allocation, host):
                conflict = _conflict(before, Past(node, each), allocation)
                if conflict is not None:
                    yield conflict

    def of(self, memory: Allocations, allocation: Allocation, host: Clock) -> list[Past]:
        """Accesses to an allocation, but for those that the host has waited for."""
        if allocation not in self._past:  # the program allocates: freed allocations can be forgotten
            self._past = {each: past for each, past in self._past.items() if memory.allocation(each.start) is each}
        return [each for each in self._past.get(allocation, ()) if not each.node.happens_before(host)]

    def users(self, allocation: Allocation) -> list[Past]:
        """Accesses to an allocation that are still recorded. The call changes nothing."""
        return self._past.get(allocation, [])

    def clear(self) -> None:
        """Forgets all accesses: later ones are ordered behind them."""
        self._past.clear()


def _conflict(before: Past, now: Past, allocation: Allocation) -> Conflict | None:
    one, other = before.touched, now.touched
    if before.node is now.node or not (one.writes or other.writes) or (one.is_strong and other.is_strong):
        return None
    if before.node.happens_before(now.node.clock):
        return None
    both = common(one.spans, other.spans)
    if both is None:
        return None
    first, end, *tags = both
    return Conflict(before.node, now.node, (one.writes, other.writes), (tags[0], tags[1]), first, end, allocation)


def _of_box(allocation: Allocation, box: Box, is_write: bool) -> Touched:
    starts, ends = of_box(*box)
    return Touched(allocation.start, is_write, False, merged(starts, ends, UNTAGGED))


def _kept(past: list[Past], node: Node, touched: Touched) -> list[Past]:
    """Accesses to keep beside a new one. Bytes of an earlier one are dropped where every later access that races with
    it also races with the new one.
    """
    found = []
    for each in past:
        hides = touched.writes or not each.touched.writes
        weak = each.touched.is_strong or not touched.is_strong
        if hides and weak and (each.node is node or each.node.happens_before(node.clock)):
            spans = without(each.touched.spans, touched.spans)
            if not len(spans):
                continue
            each = each._replace(touched=each.touched._replace(spans=spans))
        found.append(each)
    return found
