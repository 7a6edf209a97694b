"""Launches that need not run again: the same launch has found the same bytes of memory before.

Benchmarks launch a kernel with the same arguments many times. A kernel's stores depend on its parameters and on the
bytes of global memory that it loads alone, unless it reads a clock, and the order of events under `late` and `eager`
is the same each time. So a launch that finds the bytes that it accesses as it has found them once stores what it has
stored then, whatever happens to others, and that is written in its place: nothing, if memory has it already.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from nogpu.execution.journal import Journal, Written
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
    "nogpu: launches that find memory as they have found it before do not run again, what they stored is written; "
    "--every-launch (NOGPU_EVERY_LAUNCH=1) runs them"
)
_OTHER_EFFECTS = re.compile(r"%clock|%globaltimer|%gridid|vprintf")
# Instructions whose accesses are not noted each time: what is known of tensor maps and textures outlives a launch.
_BY_DESCRIPTION = re.compile(r"\btensor|tensormap|^(@\S+ )?(tex|tld4|suld|sust|sured)\b")

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


class _Place(NamedTuple):
    """Bytes of an allocation that a launch accesses."""

    start: int
    """Address of the allocation."""
    size: int
    """Its number of bytes."""
    address: int
    nbytes: int


class _Bytes:
    """Bytes that a launch has found in an allocation, and what it has stored there."""

    def __init__(self, place: _Place, allocation: Allocation, is_steady: bool) -> None:
        """is_steady: nothing writes to the allocation, as far as is known, so that there need not be a copy."""
        self.place = place
        self._found = None if is_steady else allocation.bytes_at(place.address, place.nbytes).copy()
        self._seen = allocation.state()  # of the allocation when it last had these bytes
        self._in_vain = 0  # watches in a row that have saved no comparison
        self._pause = 1  # comparisons before a watch begins
        self._stores: list[Written] = []  # none if the allocation has these bytes behind the launch, too

    @property
    def copied(self) -> int:
        """Number of bytes in copies."""
        stores = sum(each.data.nbytes + (0 if each.mask is None else each.mask.size) for each in self._stores)
        return stores + (0 if self._found is None else self._found.size)

    def are_in(self, allocation: Allocation) -> bool:
        """True if the allocation at the place has the bytes that the launch has found."""
        state = allocation.state()
        if state is not None and state == self._seen:
            self._in_vain = 0
            return True
        if self._found is None:
            return False
        begins = not self._pause
        state = allocation.state(begins)  # a watch begins ahead of the comparison: it notices writes since then
        if _compare(self.place.address, self._found.ctypes.data, self._found.size):
            return False
        self._seen = state
        self._in_vain += begins
        self._pause = (1 << self._in_vain) - 1 if begins else self._pause - 1
        return True

    def settle(self, allocation: Allocation, stores: list[Written]) -> bool:
        """Takes what the launch has stored. Returns False if others have changed the bytes meanwhile."""
        if self.are_in(allocation):
            return True
        if self._found is None:
            return False
        after, self._stores = self._found.copy(), stores
        for written in stores:
            written.put(after, self.place.address - self.place.start)
        return not _compare(self.place.address, after.ctypes.data, after.size)

    def store(self, allocation: Allocation) -> None:
        """Writes what the launch has stored."""
        for written in self._stores:
            written.put(allocation.data, 0)
        allocation.writes += bool(self._stores)


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
    reached: dict[_Place, int | None] = field(default_factory=dict)
    """Places that it accessed when it ran last -> `Allocation.state` before that."""
    kept: list[_Bytes] | None = None
    """Bytes that it found in memory and stored, if they are known."""
    counters: list[LaunchCounters] = field(default_factory=list)
    """Its counters, if that is known."""

    @property
    def copied(self) -> int:
        return sum(each.copied for each in self.kept or ())

    def forget(self) -> None:
        """Forgets the copies: memory is not as it was. After each of them in vain some twice as many launches run
        before the next.
        """
        self.kept, self.pause = None, max(0, (1 << self.in_vain) // 2 - 1)


class Repeats:
    """Launches that have run, with copies of what they have found and stored."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._known: dict[object, _Known] = {}
        self._seconds = 0.0  # that copies and comparisons may still take
        self.skipped = 0  # number of launches that have not run again

    def run(
        self, launch: Launch, properties: DeviceProperties, run: Callable[[], list[LaunchCounters]]
    ) -> list[LaunchCounters]:
        """Counters of a launch that no other overlaps, which `run` runs unless what it stores is known."""
        if not STEADY.issuperset(launch.schedules):
            return run()
        found = self.found(launch.key, properties)
        if found is not None:
            return found
        key = launch.key, properties
        known = self._known.get(key)
        if known is None:
            if len(self._known) == LAUNCHES:
                del self._known[next(iter(self._known))]
            like = next((each for each in reversed(self._known.values()) if each.program is launch.program), None)
            traits = _traits(launch.program) if like is None else (like.may_repeat, like.notes_accesses)
            known = self._known[key] = _Known(launch.program, *traits)
            return self._timed(known, launch, run)
        if not known.may_repeat:
            return self._timed(known, launch, run)
        began = time.perf_counter()
        kept = self._copies(known) if known.kept is None else None
        self._seconds -= time.perf_counter() - began
        launch.notes_stores = kept is not None
        counters = self._timed(known, launch, run)
        if kept is not None:
            began = time.perf_counter()
            self._settle(known, kept, launch.stores)
            known.counters = counters
            self._seconds -= time.perf_counter() - began
        return counters

    def found(self, key: object, properties: DeviceProperties) -> list[LaunchCounters] | None:
        """Counters of a launch that finds memory as it has found it before: what it has stored is written. None for one
        that has to run. key: `Launch.key`.
        """
        known = self._known.get((key, properties))
        if known is None or known.kept is None or self._seconds < 0:
            return None
        began = time.perf_counter()
        is_stored = self._stored(known.kept)
        seconds = time.perf_counter() - began
        if not is_stored:
            self._seconds -= seconds
            known.forget()
            return None
        self.skipped += 1
        if self.skipped == 1:
            print(SKIPPED, file=sys.stderr)
        known.in_vain = 0
        self._seconds += SHARE * known.seconds + min(0.0, known.seconds - seconds)
        return known.counters

    def _stored(self, kept: list[_Bytes]) -> bool:
        """True if memory is as a launch has found it: what it has stored is written then."""
        found = self._allocations(each.place for each in kept)
        if found is None or not all(map(_Bytes.are_in, kept, found)):
            return False
        for each, allocation in zip(kept, found):
            each.store(allocation)
        return True

    def _copies(self, known: _Known) -> list[_Bytes] | None:
        """Copies of what a launch that is about to run accesses, None if it is not the time for them."""
        if known.pause:
            known.pause -= 1
            return None
        found = self._allocations(known.reached)
        if found is None:
            return None
        # Memory that nothing has written to since the launch has run is not copied, nor that which it only reads.
        steady = [None is not each.state() == state for each, state in zip(found, known.reached.values())]
        size = sum(place.nbytes for place, is_steady in zip(known.reached, steady) if not is_steady)
        if size > min(BYTES, max(0.0, self._seconds * BYTES_PER_SECOND)):
            return None
        self._make_room(size)
        known.in_vain += 1
        return [_Bytes(*each) for each in zip(known.reached, found, steady)]

    def _settle(self, known: _Known, kept: list[_Bytes], journals: list[Journal]) -> None:
        """Keeps what a launch has found and stored, unless others have changed it meanwhile."""
        places = [each.place for each in kept]
        found = self._allocations(places)
        if found is not None and known.reached.keys() == set(places):
            assert set().union(*journals) <= {place.start for place in places}
            stores = [[each[place.start] for each in journals if place.start in each] for place in places]
            if all(each.settle(allocation, own) for each, allocation, own in zip(kept, found, stores)):
                size = sum(each.copied for each in kept)
                if size <= BYTES:
                    self._make_room(size)
                    known.kept = kept
                    return
        known.forget()

    def _timed(self, known: _Known, launch: Launch, run: Callable[[], list[LaunchCounters]]) -> list[LaunchCounters]:
        is_looked_at = known.may_repeat and not known.pause  # the next one may be copied for
        live = self._memory.snapshot()[1] if is_looked_at else ()
        before = {each.start: (each.end - each.start, each.state()) for each in live}
        start = time.perf_counter()
        counters = run()
        known.seconds = time.perf_counter() - start
        self._seconds += SHARE * known.seconds
        if is_looked_at:
            before.pop(launch.parameters.ctypes.data, None)
            known.reached = {}
            for at in before.keys() & set().union(*launch.reached) if known.notes_accesses else before:
                size, state = before[at]
                ends = [each[at] for each in launch.reached if at in each] if known.notes_accesses else [(0, size)]
                first, end = min(ends)[0], max(end for _, end in ends)
                known.reached[_Place(at, size, at + first, end - first)] = state
        return counters

    def _allocations(self, places: Iterable[_Place]) -> list[Allocation] | None:
        """Live allocations of places, None if one is not live."""
        found = []
        for place in places:
            allocation = self._memory.starting_at(place.start)
            if allocation is None or allocation.end - allocation.start != place.size:
                return None
            found.append(allocation)
        return found

    def _make_room(self, size: int) -> None:
        """Forgets the copies of other launches if there are too many."""
        if size + sum(known.copied for known in self._known.values()) > BYTES:
            for known in self._known.values():
                known.kept = None


def _traits(program: Program) -> tuple[bool, bool]:
    """(True if a kernel's results are stores, and depend on its parameters and global memory alone; True if what it
    accesses is noted each time).
    """
    texts = [instruction.text for instruction in program.entry.instructions]
    return not any(map(_OTHER_EFFECTS.search, texts)), not any(map(_BY_DESCRIPTION.search, texts))
