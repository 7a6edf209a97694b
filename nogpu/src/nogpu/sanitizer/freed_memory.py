"""Memory that torch's allocator gives out again to its queue while other queues may still use it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable
from typing import TYPE_CHECKING, NamedTuple

from nogpu.sanitizer.queue_history import Conflict, Node, Past
from nogpu.sanitizer.spans import UNTAGGED

if TYPE_CHECKING:
    from nogpu.hardware.allocations import Allocation
    from nogpu.sanitizer.queue_clocks import Clock

_BLOCK, _SMALL = 512, 1 << 20  # bytes: the unit of a block's size; the largest block of the small pool


class _Freed(NamedTuple):
    allocation: Allocation
    users: list[Past]  # accesses that may not be over


class FreedMemory:
    """Freed memory of all queues, with the accesses to it that may not be over."""

    def __init__(self) -> None:
        self._noted: deque[tuple[Hashable, _Freed]] = deque()
        self._freed: dict[Hashable, list[_Freed]] = {}  # by the queue for which it was allocated

    def __bool__(self) -> bool:
        return bool(self._noted or self._freed)

    def note(self, queue: Hashable, allocation: Allocation, users: list[Past], recorded: Container[Hashable]) -> None:
        """Notes that memory of a queue is freed. users: accesses to it. recorded: queues for whose work the allocator
        waits (record_stream).
        """
        self._noted.append((queue, _Freed(allocation, [each for each in users if each.node.queue not in recorded])))

    def given(self, queue: Hashable, known: Clock, allocation: Allocation, handle: int) -> Conflict | None:
        """Conflict of a new allocation for a queue with accesses to freed memory whose block it may reuse; None if
        there is none. known: clock of the queue.
        """
        while self._noted:
            of, freed = self._noted.popleft()
            self._freed.setdefault(of, []).append(freed)
        kept, found = [], None
        for each in self._freed.pop(queue, ()):
            users = [user for user in each.users if not user.node.happens_before(known)]
            if users and found is None and _fits(allocation, each.allocation):
                found = _Freed(each.allocation, users)
            elif users:
                kept.append(each)
        if kept:
            self._freed[queue] = kept
        if found is None:
            return None
        before = found.users[0]
        first, end, tag = before.touched.spans[0].tolist()
        now = Node(queue, 0, known, f"the memory of {allocation}", handle)
        return Conflict(
            before.node, now, (before.touched.writes, True), (tag, UNTAGGED), first, end, found.allocation, True
        )


def _fits(new: Allocation, old: Allocation) -> bool:
    """True if torch's allocator may give new memory the block of an old one (c10/cuda/CUDACachingAllocator.cpp)."""
    sizes = [-(-(each.end - each.start) // _BLOCK) * _BLOCK for each in (new, old)]
    return sizes[0] <= sizes[1] and (sizes[0] <= _SMALL) == (sizes[1] <= _SMALL)
