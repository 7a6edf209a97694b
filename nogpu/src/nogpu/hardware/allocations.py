"""Live allocations of global memory: ranges of this process's memory that a kernel may access."""

from __future__ import annotations

import ctypes
import itertools
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.words import Words

_LIKE_SHARED = range(0x400, 1 << 28)  # addresses in the shared memory of a cluster's CTAs
NULL_PAGE = 0x1000  # bytes from address 0 on, which a null pointer and small offsets from it reach
FREED_LIMIT = 256  # number of freed allocations that are remembered
NEAR = 1 << 16  # bytes by which an index may miss an allocation; farther off, an address may be the host's
FOUND_LIMIT = 4096  # number of addresses whose allocation is remembered
_ALLOCATIONS = itertools.count()
_HOST_FIRST = 0x10000
_HOST_END = 1 << 47
_HOST = np.ctypeslib.as_array((ctypes.c_uint8 * (_HOST_END - _HOST_FIRST)).from_address(_HOST_FIRST))


Reached = dict[int, tuple[int, int]]
"""Address of an allocation -> offsets of the first byte that may have been accessed, and behind the last one."""


Watch = Callable[[int, bool], int]
"""Function of an allocation's address: the number of the watch that is under way, 0 if something has written since it
began. True: begins one, if it can.
"""


class Allocation:
    """Range of host addresses that a kernel may read and, if the range is `writable`, write."""

    __slots__ = (
        "data",
        "end",
        "filled",
        "frozen",
        "is_compared",
        "is_guarded",
        "name",
        "spare_marks",
        "start",
        "view",
        "watch",
        "words",
        "writable",
        "writes",
    )

    def __init__(self, start: int, nbytes: int, name: str, writable: bool):
        self.start = start
        self.end = start + nbytes
        self.name = name
        self.writable = writable
        data = _HOST[start - _HOST_FIRST : start - _HOST_FIRST + nbytes]
        self.frozen = data.data.toreadonly()
        self.view = data.data if writable else self.frozen
        self.data = data if writable else np.frombuffer(self.view, np.uint8)
        self.words: dict[tuple[int, int], Words] = {}
        self.spare_marks: Any = None  # `traffic.Marks` of no launch, all clear
        self.is_compared = True  # all schedules must leave the same bytes
        self.is_guarded = False  # neither the host's code nor another process reaches the bytes
        self.watch: Watch | None = None  # of bytes that the host's code reaches
        self.writes = next(_ALLOCATIONS) << 32
        """Number that differs for each allocation, and after each launch, copy, fill and library call that may have
        written to a guarded one.
        """
        self.filled: object = None  # the last fill, and `writes` behind it

    def state(self, begins: bool = False) -> int | None:
        """Number that is the same again only if nothing has written to the allocation since; None if writes would go
        unnoticed. begins: where a watch can notice them, it begins.
        """
        if self.is_guarded:
            return self.writes
        return None if self.watch is None else self.watch(self.start, begins) or None

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        """View uint8[nbytes] of bytes in the allocation."""
        return self.data[address - self.start :][:nbytes]

    def lanes(self, nbytes: int, count: int) -> Words:
        """Words of `count` elements of `nbytes` bytes in the allocation, for lanes' addresses (uint64)."""
        words = self.words.get((nbytes, count))
        if words is None:
            words = self.words[nbytes, count] = Words(self.data, self.start, nbytes, count, np.uint64)
        return words

    def __str__(self) -> str:
        return f"{self.name or 'allocation'} at {self.start:#x} ({self.end - self.start} bytes)"


NO_ALLOCATION = Allocation(_HOST_FIRST, 0, "", False)


class Allocations:
    """Live allocations by address; they do not overlap."""

    def __init__(self) -> None:
        self._live: dict[int, Allocation] = {}
        self._changes = itertools.count(1)
        self.version = 0  # number that differs after each change
        self._index: tuple[int, list[int], list[Allocation]] = (0, [], [])
        self._found: tuple[int, dict[int, Allocation]] = (0, {})  # version, and allocations by address
        self._recent = NO_ALLOCATION
        self.reached: Reached = {}
        """Bytes that kernels have accessed since `forget_reached`."""
        self._freed: deque[tuple[int, int, str, str]] = deque(maxlen=FREED_LIMIT)  # start, end, text, freeing line
        self._reserved: dict[int, int] = {}  # first address -> end, of addresses that may get memory

    def register(self, address: int, nbytes: int, name: str = "", writable: bool = True) -> None:
        """Makes `nbytes` >= 1 bytes from `address` accessible.

        Raises ValueError for bytes that no allocation can have, and for those that overlap a live one.
        """
        if nbytes < 1 or address < _HOST_FIRST or address + nbytes > _HOST_END:
            raise ValueError(f"no allocation can be {nbytes} bytes at {address:#x}")
        before, after = self.neighbours(address)
        for other in (before, after):
            if other is not None and address < other.end and other.start < address + nbytes:
                raise ValueError(f"{nbytes} bytes at {address:#x} overlap the live {other}")
        self._live[address] = Allocation(address, nbytes, name, writable)
        self.version = next(self._changes)

    def release(self, address: int) -> None:
        """Ends the life of the allocation that starts at `address`. Raises KeyError if there is none."""
        allocation = self._live.pop(address)
        self.version = next(self._changes)
        if allocation.writable:
            self._freed.append((allocation.start, allocation.end, str(allocation), _caller()))
        if self._recent is allocation:
            self._recent = NO_ALLOCATION

    def reach(self, start: int, first: int, end: int) -> None:
        """Notes that bytes between two offsets of the allocation at `start` may have been accessed."""
        known_first, known_end = self.reached.get(start, (first, end))
        self.reached[start] = min(first, known_first), max(end, known_end)

    def forget_reached(self) -> None:
        """Begins to note anew what is accessed."""
        self.reached, self._recent, self._found = {}, NO_ALLOCATION, (0, {})

    def reserved(self, address: int, nbytes: int) -> None:
        """Notes addresses that have no memory unless an allocation is there, for messages; 0 bytes end that."""
        self._reserved.pop(address, None)
        if nbytes:
            self._reserved[address] = address + nbytes

    def snapshot(self) -> tuple[int, list[Allocation]]:
        """(version, live allocations in order of their addresses)."""
        # Finalizers of host tensors release allocations at any moment, also while the dictionary is copied: the version
        # is taken before the list, and a copy that such a release has spoilt raises RuntimeError.
        while True:
            version = self.version
            try:
                return version, [allocation for _, allocation in sorted(self._live.copy().items())]
            except RuntimeError:
                continue

    @property
    def writable_bytes(self) -> int:
        """Bytes of all writable allocations."""
        return sum(allocation.end - allocation.start for allocation in self.snapshot()[1] if allocation.writable)

    def contents(self) -> dict[Allocation, np.ndarray]:
        """Copy of the bytes of every writable allocation."""
        return {allocation: allocation.data.copy() for allocation in self.snapshot()[1] if allocation.writable}

    def put_back(self, contents: dict[Allocation, np.ndarray]) -> None:
        """Restores the bytes of those allocations in `contents` that are still live."""
        for allocation, data in contents.items():
            if self._live.get(allocation.start) is allocation:
                allocation.data[:] = data

    def neighbours(self, address: int) -> tuple[Allocation | None, Allocation | None]:
        """Last live allocation that starts at or before `address`, and the first that starts after it."""
        version, starts, allocations = self._index
        while version != self.version:
            version, allocations = self.snapshot()
            starts = [allocation.start for allocation in allocations]
            self._index = (version, starts, allocations)
        i = bisect_right(starts, address)
        return allocations[i - 1] if i else None, allocations[i] if i < len(allocations) else None

    def starting_at(self, address: int) -> Allocation | None:
        """Live allocation that starts at `address`, or None."""
        return self._live.get(address)

    def allocation(self, address: int) -> Allocation | None:
        """Live allocation that contains `address`, or None."""
        before, _ = self.neighbours(address)
        return before if before is not None and address < before.end else None

    def holding(self, address: int) -> Allocation:
        """Live allocation that contains `address`, or NO_ALLOCATION, from a cache of addresses."""
        version, found = self._found
        if version != self.version:
            found = {}
            self._found = self.version, found
        allocation = found.get(address)
        if allocation is None:
            if len(found) >= FOUND_LIMIT:
                found.clear()
            allocation = found[address] = self.allocation(address) or NO_ALLOCATION
            if allocation is not NO_ALLOCATION:
                self.reach(allocation.start, 0, allocation.end - allocation.start)
        return allocation

    def at(self, address: int, nbytes: int, kind: str) -> Allocation:
        """Live allocation that holds `nbytes` bytes at `address`. kind: "load" or "store".

        Raises Fault if there is none, or if it is read-only and the access a store.
        """
        recent = self._recent
        if recent.start <= address and address + nbytes <= recent.end and (recent.writable or kind == "load"):
            return recent
        before, after = self.neighbours(address)
        if before is None or address + nbytes > before.end:
            raise Fault(f"{kind} of {nbytes} bytes at {address:#x}: {self._miss(address, nbytes, before, after)}")
        if kind == "store" and not before.writable:
            raise Fault(f"store of {nbytes} bytes at {address:#x}: {before} is read-only")
        self._recent = before
        self.reach(before.start, 0, before.end - before.start)
        return before

    def _miss(self, address: int, nbytes: int, before: Allocation | None, after: Allocation | None) -> str:
        end = address + nbytes
        shared = "an address in shared memory, which instructions with .shared take"
        if 0 <= address < NULL_PAGE:
            what = "null pointer" + (f" and an offset of {address} bytes" if address else "")
            return f"{what}, or {shared}" if address in _LIKE_SHARED else what
        if before is not None and address < before.end:
            return f"the last {end - before.end} bytes are past the end of {before}"
        if after is not None and end > after.start:
            return f"the first {after.start - address} bytes are before {after}"
        if any(start <= address < last for start, last in self._reserved.items()):
            return "no live allocation: the address is reserved, and has no memory or no access (cuMemSetAccess)"
        distances = []
        if before is not None:
            distances.append((address - before.end, f"byte(s) past the end of {before}"))
        if after is not None:
            distances.append((after.start - end, f"byte(s) before {after}"))
        distance, where = min(distances, default=(NEAR, ""))
        freed = next(
            (
                f"{text} was there, freed{by}"
                for first, last, text, by in reversed(self._freed)
                if first <= address and end <= last
            ),
            "",
        )
        parts = ["outside every live allocation" if where or freed else "there is no live allocation"]
        # A live allocation nearby may have been overrun, even into the place of a freed one.
        if where and (distance < NEAR or not freed):
            parts.append(f"it lies {distance} {where}")
        if freed:
            parts.append(freed)
        elif distance >= NEAR and address in _LIKE_SHARED:
            parts.append(f"it may be {shared}")
        elif distance >= NEAR and _is_mapped(address):
            parts.append("the host has memory there: a host pointer, or one that is far off")
        return "; ".join(parts)


def _caller() -> str:
    """Line of the program that is running, as " at file.py:3"; "" if there is none."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _INNER:
            return f" at {frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


_INNER = ("nogpu", "torch", "weakref", "cuda", "triton", "cutlass")
"""Packages whose frames do not belong to the program."""


def _is_mapped(address: int) -> bool:
    """True if the process has memory at an address."""
    with open("/proc/self/maps") as file:
        ranges = [line.split(None, 2)[:2] for line in file]
    return any(
        int(first, 16) <= address < int(last, 16)
        for place, access in ranges
        if access[0] == "r"
        for first, last in [place.split("-")]
    )
