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

import numpy as np

from nogpu.execution.launch import Launch
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

STEADY = {"late", "eager"}  # schedules whose order of events is the same each time
BYTES = 1 << 30  # most bytes that are copied, of all launches
BYTES_PER_SECOND = 5e8  # a launch has to take so long by memory's size: comparing it takes a tenth of that
ATTEMPTS = 3  # copies of memory in a row that have saved no launch, after which a launch is always run
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


@dataclass
class _Known:
    """A launch that has run."""

    program: Program  # kept, since the key has its id
    may_repeat: bool
    """False if the kernel reads a clock or prints."""
    notes_accesses: bool
    """False if all of memory counts as accessed."""
    seconds: float = 0.0
    attempts: int = 0
    reached: tuple[Places, Places] = ([], [])
    """Allocations that it has accessed when it ran last, and the bytes of them."""
    kept: tuple[Places, Places] = ([], [])
    """The same, for which there are copies."""
    copies: list[np.ndarray] | None = None
    """These bytes, which the launch leaves as they are."""
    counters: list[LaunchCounters] = field(default_factory=list)
    """Its counters, if there are copies."""

    @property
    def copied(self) -> int:
        return sum(copy.size for copy in self.copies or ())

    def is_as_kept(self, live: set[tuple[int, int]]) -> bool:
        """True if there are copies, and memory is the same. live: all allocations."""
        if self.copies is None or not live.issuperset(self.kept[0]):
            return False
        return not any(_compare(at, copy.ctypes.data, n) for (at, n), copy in zip(self.kept[1], self.copies))


class Repeats:
    """Launches that have run, and copies of what they have left as it was."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._known: dict[object, _Known] = {}
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
        live = self._live(launch)
        if known.is_as_kept(live):
            known.attempts = 0
            self.skipped += 1
            if self.skipped == 1:
                print(SKIPPED, file=sys.stderr)
            return known.counters
        known.copies = None
        size = sum(nbytes for _, nbytes in known.reached[1])
        most = min(BYTES, known.seconds * BYTES_PER_SECOND)
        if not known.may_repeat or known.attempts == ATTEMPTS or size > most or not live.issuperset(known.reached[0]):
            return self._timed(known, launch, run)
        known.attempts += 1
        self._make_room(size)
        known.kept = known.reached
        copies = [self._memory.at(at, nbytes, "load").bytes_at(at, nbytes).copy() for at, nbytes in known.kept[1]]
        known.counters = self._timed(known, launch, run)
        known.copies = copies if known.reached == known.kept else None
        if not known.is_as_kept(self._live(launch)):
            known.copies = None
        return known.counters

    def _timed(self, known: _Known, launch: Launch, run: Callable[[], list[LaunchCounters]]) -> list[LaunchCounters]:
        start = time.perf_counter()
        counters = run()
        known.seconds = time.perf_counter() - start
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
