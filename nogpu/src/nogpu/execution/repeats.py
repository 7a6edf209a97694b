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

import numpy as np

from nogpu.execution.launch import Launch
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.program import Program
from nogpu.hardware.properties import DeviceProperties

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

STEADY = {"late", "eager"}  # schedules whose order of events is the same each time
BYTES = 1 << 30  # largest memory that is copied
BYTES_PER_SECOND = 5e8  # a launch has to take so long by memory's size: comparing it takes a tenth of that
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


class Repeats:
    """Copy of a memory, and the launches that leave it as it is."""

    def __init__(self, memory: GlobalMemory) -> None:
        self._memory = memory
        self._copies: list[tuple[int, np.ndarray]] = []  # address and bytes of each allocation
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
            known = self._known[key] = _Known(launch.program, _only_stores(launch.program))
            return self._timed(known, run)
        live = self._live(launch)
        size = sum(nbytes for _, nbytes in live)
        if not known.may_repeat or known.attempts == ATTEMPTS or size > min(BYTES, known.seconds * BYTES_PER_SECOND):
            return self._timed(known, run)
        if not self._is_as_kept(live):
            self._keep(live)
        elif known.counters is not None:
            known.attempts = 0
            self.skipped += 1
            if self.skipped == 1:
                print(SKIPPED, file=sys.stderr)
            return known.counters
        known.attempts += 1
        counters = self._timed(known, run)
        if self._is_as_kept(live):
            known.counters = counters
        else:
            self._copies = []
        return counters

    def _timed(self, known: _Known, run: Callable[[], list[LaunchCounters]]) -> list[LaunchCounters]:
        start = time.perf_counter()
        counters = run()
        known.seconds = time.perf_counter() - start
        return counters

    def _live(self, launch: Launch) -> list[tuple[int, int]]:
        """(address, bytes) of each live allocation, without the launch's parameters."""
        own = launch.parameters.ctypes.data
        return [(each.start, each.end - each.start) for each in self._memory.snapshot()[1] if each.start != own]

    def _is_as_kept(self, live: list[tuple[int, int]]) -> bool:
        if live != [(start, copy.size) for start, copy in self._copies]:
            return False
        return not any(_compare(start, copy.ctypes.data, copy.size) for start, copy in self._copies)

    def _keep(self, live: list[tuple[int, int]]) -> None:
        """Copies the memory. No launch is known to leave it as it is."""
        for known in self._known.values():
            known.counters = None
        self._copies = [(start, self._memory.at(start, nbytes, "load").data.copy()) for start, nbytes in live]


def _only_stores(program: Program) -> bool:
    """True if a kernel's results are stores, and depend on its parameters and global memory alone."""
    return not any(_OTHER_EFFECTS.search(instruction.text) for instruction in program.entry.instructions)
