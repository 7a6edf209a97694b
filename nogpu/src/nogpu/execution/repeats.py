"""Launches that need not run again: the same launch has changed no byte of the same memory.

Benchmarks launch a kernel with the same arguments many times. A kernel's stores depend on its parameters and on the
bytes of global memory that it loads alone, unless it reads a clock, and the order of events under `late` and `eager`
is the same each time. So a launch that has left the bytes that it accesses as it found them does so again, as long as
these are the same, whatever happens to others.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nogpu.execution.launch import Launch
from nogpu.hardware.allocations import Allocation
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

STEADY = {"late", "eager"}  # schedules whose order of events is the same each time
BYTES = 1 << 30  # most bytes that are copied, of all launches
SHARE = 0.1  # of the seconds of launches that have run, or need not have: what copies and comparisons may take
BYTES_PER_SECOND = 1e9  # at least, of a copy or a comparison
LAUNCHES = 1024  # number of launches that are remembered
SKIPPED = (
    "nogpu: launches that are known to change no byte of memory do not run again; --every-launch "
    "(NOGPU_EVERY_LAUNCH=1) runs them"
)
_OTHER_EFFECTS = re.compile(r"%clock|%globaltimer|%gridid|vprintf")
# Instructions whose accesses are not noted each time: what is known of tensor maps and textures outlives a launch.
_BY_DESCRIPTION = re.compile(r"\btensor|tensormap|^(@\S+ )?(tex|tld4|suld|sust|sured)\b")

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


Places = list[tuple[int, int]]
"""(address, number of bytes) of each range of memory."""


class _Copy:
    """Copy of bytes of an allocation."""

    def __init__(self, allocation: Allocation, address: int, nbytes: int) -> None:
        self.address = address
        self.data = allocation.bytes_at(address, nbytes).copy()
        self._same: tuple[Allocation | None, int] = None, 0  # allocation, and number of writes to it, last seen alike

    def is_current(self, allocation: Allocation) -> bool:
        """True if the allocation at the address is known to have these bytes: nothing has written to it since."""
        same, writes = self._same
        return allocation.is_guarded and allocation is same and allocation.writes == writes

    def is_of(self, allocation: Allocation) -> bool:
        """True if the allocation at the address has these bytes."""
        if self.is_current(allocation):
            return True
        if _compare(self.address, self.data.ctypes.data, self.data.size):
            return False
        self._same = allocation, allocation.writes
        return True


@dataclass
class _Known:
    """A launch that has run."""

    program: Program  # kept, since the key has its id
    may_repeat: bool
    """False if the kernel reads a clock or prints."""
    notes_accesses: bool
    """False if all of memory counts as accessed."""
    seconds: float = 0.0
    in_vain: int = 0
    """Copies of memory in a row that have saved no launch."""
    pause: int = 0
    """Launches that run before memory is copied again."""
    reached: tuple[Places, Places] = ([], [])
    """Allocations that it has accessed when it ran last, and the bytes of them."""
    kept: tuple[Places, Places] = ([], [])
    """Allocations and bytes, as in `reached`, of which there are copies."""
    copies: list[_Copy] | None = None
    """These bytes, which the launch leaves as they are."""
    counters: list[LaunchCounters] = field(default_factory=list)
    """Its counters, if there are copies."""

    @property
    def copied(self) -> int:
        return sum(copy.data.size for copy in self.copies or ())

    def forget(self) -> None:
        """Forgets the copies: memory is not as it was. After each of them in vain some twice as many launches run
        before the next.
        """
        self.copies, self.pause = None, max(0, (1 << self.in_vain) // 2 - 1)


class Repeats:
    """Launches that have run, and copies of what they have left as it was."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._known: dict[object, _Known] = {}
        self._seconds = 0.0  # that copies and comparisons may still take
        self.skipped = 0  # number of launches that have not run again

    def run(
        self, launch: Launch, properties: DeviceProperties, run: Callable[[], list[LaunchCounters]]
    ) -> list[LaunchCounters]:
        """Counters of a launch that no other overlaps, which `run` runs unless it is known to change nothing."""
        config = launch.config
        if not STEADY.issuperset(launch.schedules) or config.cooperative:
            return run()
        order = launch.schedules, launch.lenient
        key = id(launch.program), config, launch.parameters.tobytes(), order, properties
        known = self._known.get(key)
        if known is None:
            if len(self._known) == LAUNCHES:
                del self._known[next(iter(self._known))]
            known = self._known[key] = _Known(launch.program, *_traits(launch.program))
            return self._timed(known, launch, run)
        if not known.may_repeat:
            return self._timed(known, launch, run)
        began = time.perf_counter()
        live = self._live(launch)
        if self._is_as_kept(known, live):
            known.in_vain = 0
            self.skipped += 1
            if self.skipped == 1:
                print(SKIPPED, file=sys.stderr)
            self._seconds += SHARE * known.seconds - (time.perf_counter() - began)
            return known.counters
        if known.copies is not None:
            known.forget()
        if known.pause:
            known.pause -= 1
            return self._timed(known, launch, run)
        size = sum(nbytes for _, nbytes in known.reached[1])
        if not self._is_afforded(size) or not live.issuperset(known.reached[0]):
            self._seconds -= time.perf_counter() - began
            return self._timed(known, launch, run)
        self._make_room(size)
        known.in_vain += 1
        known.kept = known.reached
        copies = [_Copy(self._memory.at(*place, "load"), *place) for place in known.kept[1]]
        self._seconds -= time.perf_counter() - began
        known.counters = self._timed(known, launch, run)
        began = time.perf_counter()
        known.copies = copies if known.reached == known.kept else None
        if not self._is_as_kept(known, self._live(launch)):
            known.forget()
        self._seconds -= time.perf_counter() - began
        return known.counters

    def _is_afforded(self, nbytes: int) -> bool:
        """True if so many bytes may be copied or compared."""
        return nbytes <= BYTES and (not nbytes or nbytes <= self._seconds * BYTES_PER_SECOND)

    def _is_as_kept(self, known: _Known, live: set[tuple[int, int]]) -> bool:
        """True if there are copies of what a launch accesses, and memory is the same. live: all allocations."""
        if known.copies is None or not live.issuperset(known.kept[0]):
            return False
        found = [self._memory.holding(copy.address) for copy in known.copies]
        return all(copy.is_of(allocation) for copy, allocation in zip(known.copies, found))

    def _timed(self, known: _Known, launch: Launch, run: Callable[[], list[LaunchCounters]]) -> list[LaunchCounters]:
        start = time.perf_counter()
        counters = run()
        known.seconds = time.perf_counter() - start
        self._seconds += SHARE * known.seconds
        live = sorted(self._live(launch))
        if known.notes_accesses:
            found = [
                ((at, nbytes), (at + min(first for first, _ in ends), max(end for _, end in ends) - min(ends)[0]))
                for at, nbytes in live
                if (ends := [each[at] for each in launch.reached if at in each])
            ]
            known.reached = [whole for whole, _ in found], [part for _, part in found]
        else:
            known.reached = live, live
        return counters

    def _live(self, launch: Launch) -> set[tuple[int, int]]:
        """(address, bytes) of each live allocation, without the launch's parameters."""
        own = launch.parameters.ctypes.data
        return {(each.start, each.end - each.start) for each in self._memory.snapshot()[1] if each.start != own}

    def _make_room(self, size: int) -> None:
        """Forgets the copies of other launches if there are too many."""
        if size + sum(known.copied for known in self._known.values()) > BYTES:
            for known in self._known.values():
                known.copies = None


def _traits(program: Program) -> tuple[bool, bool]:
    """(True if a kernel's results are stores, and depend on its parameters and global memory alone; True if what it
    accesses is noted each time).
    """
    texts = [instruction.text for instruction in program.entry.instructions]
    return not any(map(_OTHER_EFFECTS.search, texts)), not any(map(_BY_DESCRIPTION.search, texts))
