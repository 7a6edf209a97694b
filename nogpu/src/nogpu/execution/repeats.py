"""Launches that need not run again: the same launch has changed no byte of the same memory.

Benchmarks launch a kernel with the same arguments many times. A kernel's stores depend on its parameters and on global
memory alone, unless it reads a clock, and the order of events that `late` and `eager` take is the same each time. So a
launch that has left global memory as it found it does so again, as long as memory is the same.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nogpu.execution.launch import Launch
from nogpu.hardware.allocations import Allocation
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

STEADY = {"late", "eager"}  # schedules whose order of events is the same each time
BYTES = 1 << 30  # largest memory that is copied
SHARE = 0.1  # of the seconds of launches that have run, or need not have: what copies and comparisons may take
BYTES_PER_SECOND = 1e9  # at least, of a copy or a comparison
ATTEMPTS = 3  # copies of memory in a row that have saved no launch, after which a launch is always run
LAUNCHES = 1024  # number of launches that are remembered
SKIPPED = (
    "nogpu: launches that are known to change no byte of memory do not run again; --every-launch "
    "(NOGPU_EVERY_LAUNCH=1) runs them"
)
_OTHER_EFFECTS = re.compile(r"%clock|%globaltimer|%gridid|vprintf")

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


@dataclass
class _Known:
    """A launch that has run."""

    program: Program  # kept, since the key has its id
    may_repeat: bool
    """False if the kernel reads a clock or prints."""
    seconds: float = 0.0
    attempts: int = 0
    counters: list[LaunchCounters] | None = None
    """Its counters, if it changes nothing of the memory that is kept."""


class _Copy:
    """The bytes of an allocation, and the state in which it has had them."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.data = allocation.data.copy()
        self.state: tuple[int, int] | None = None
        """Numbers of launches and of other writes, with which a guarded allocation has not changed since."""

    @property
    def place(self) -> tuple[int, int]:
        """First address and end."""
        return self.allocation.start, self.allocation.end

    def of(self, allocation: Allocation) -> None:
        """Goes over to an allocation at the same place."""
        if allocation is not self.allocation:
            self.allocation, self.state = allocation, None

    def is_current(self, launches: int) -> bool:
        """True if the allocation is known to have these bytes."""
        return self.allocation.is_guarded and self.state == (launches, self.allocation.writes)

    def has_same(self, launches: int) -> bool:
        """True if the allocation has these bytes."""
        if self.is_current(launches):
            return True
        if _compare(self.allocation.start, self.data.ctypes.data, self.data.size):
            return False
        self.state = launches, self.allocation.writes
        return True


class Repeats:
    """Copy of a memory, and the launches that leave it as it is."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._copies: list[_Copy] = []
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
            known = self._known[key] = _Known(launch.program, _only_stores(launch.program))
            return self._timed(known, run)
        if not known.may_repeat or known.attempts == ATTEMPTS:
            return self._timed(known, run)
        start = time.perf_counter()
        live = self._live(launch)
        are_there = self._are_at(live)
        pending = [copy.place for copy in self._copies if not copy.is_current(self._memory.launches)]
        nbytes = sum(end - first for first, end in (pending if are_there else ((x.start, x.end) for x in live)))
        if nbytes > min(BYTES, self._seconds * BYTES_PER_SECOND):
            return self._timed(known, run)
        if not are_there or not self._is_as_kept():
            self._keep(live)
        elif known.counters is not None:
            known.attempts = 0
            self.skipped += 1
            if self.skipped == 1:
                print(SKIPPED, file=sys.stderr)
            self._seconds += SHARE * known.seconds - (time.perf_counter() - start)
            return known.counters
        known.attempts += 1
        self._seconds -= time.perf_counter() - start
        counters = self._timed(known, run)
        start = time.perf_counter()
        if self._are_at(self._live(launch)) and self._is_as_kept():
            known.counters = counters
        else:
            self._copies = []
        self._seconds -= time.perf_counter() - start
        return counters

    def _timed(self, known: _Known, run: Callable[[], list[LaunchCounters]]) -> list[LaunchCounters]:
        start = time.perf_counter()
        counters = run()
        known.seconds = time.perf_counter() - start
        self._seconds += SHARE * known.seconds
        return counters

    def _live(self, launch: Launch) -> list[Allocation]:
        """The live allocations, without the launch's parameters."""
        own = launch.parameters.ctypes.data
        return [each for each in self._memory.snapshot()[1] if each.start != own]

    def _are_at(self, live: list[Allocation]) -> bool:
        """True if the copies are of allocations at the same places. They go over to these."""
        if [copy.place for copy in self._copies] != [(each.start, each.end) for each in live]:
            return False
        for copy, allocation in zip(self._copies, live):
            copy.of(allocation)
        return True

    def _is_as_kept(self) -> bool:
        return all(copy.has_same(self._memory.launches) for copy in self._copies)

    def _keep(self, live: list[Allocation]) -> None:
        """Copies the memory. No launch is known to leave it as it is."""
        for known in self._known.values():
            known.counters = None
        self._copies = [_Copy(each) for each in live]


def _only_stores(program: Program) -> bool:
    """True if a kernel's results are stores, and depend on its parameters and global memory alone."""
    return not any(_OTHER_EFFECTS.search(instruction.text) for instruction in program.entry.instructions)
