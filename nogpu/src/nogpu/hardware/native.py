"""Structures that Python shares with compiled code (native/engine.h), and the functions that either calls."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from nogpu import headers, toolchain

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.traffic import Traffic

ALIGNMENT = 64  # bytes, of a register file and of the rows in it
LANES, WARPS, RANKS_OF_CLUSTER = headers.constants("native/engine.h", "LANES", "WARPS", "RANKS_OF_CLUSTER")
FAULT, WAITS = headers.constants("native/engine.h", "FAULT", "WAITS")  # results of a turn
(NAMED_BARRIERS,) = headers.constants("native/engine.h", "NAMED_BARRIERS")  # of a CTA
LEAVE, LEAVE_SOME, SPLIT = headers.constants("native/engine.h", "LEAVE", "LEAVE_SOME", "SPLIT")  # Context.action
HEARD, TOLD = headers.constants("native/engine.h", "HEARD", "TOLD")  # bits of Context.observed
UNINITIALISED, ARRIVES, SHARES = headers.constants("native/engine.h", "UNINITIALISED", "ARRIVES", "SHARES")
ANYTHING = 1  # Context.waited of a group that waits for no mbarrier
PARITIES = ("parity 0", "parity 1")  # texts of the phase that a group waits for


_POINTER, _WORD, _LONG, _INT, _MASK = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32
_BYTES = ctypes.c_char_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "append_words": (None, _POINTER, _POINTER, _LONG),
    "awaits_load": (_INT, _POINTER, _POINTER),
    "awaits_work": (_INT, _POINTER, _POINTER),
    "complete_fragment": (None, _POINTER, _POINTER),
    "copy_lanes": (_LONG, _POINTER, _INT, _POINTER, _MASK, _LONG),
    "copy_to_tensor_memory": (None, _POINTER, _POINTER, _POINTER),
    "dequeue": (_POINTER, _POINTER),
    "enqueue": (None, _POINTER),
    "fence_stores": (None, _POINTER, _POINTER, _LONG),
    "first_queue": (_POINTER, _POINTER),
    "forget_allocations": (None, _POINTER),
    "forget_copies": (None, _POINTER),
    "fragment_to_rows": (None, _POINTER, _POINTER, _INT, _MASK, _POINTER, _POINTER, _INT),
    "free_trace": (None, _POINTER),
    "hide": (None, _POINTER, _POINTER),
    "keep_copies": (_INT, _POINTER, _INT, _POINTER),
    "learn_plan": (_INT, _POINTER, _POINTER),
    "learn_route": (None, _POINTER, _POINTER),
    "leave_ring": (None, _POINTER),
    "load_bulk": (_LONG, _POINTER, _POINTER, _WORD, _WORD, _WORD),
    "load_tile": (_LONG, _POINTER, _POINTER, _POINTER, _WORD, _POINTER, _INT),
    "mma": (_INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
    "move_registers": (None, _POINTER, _POINTER, _POINTER, _LONG),
    "note_doubt": (None, _POINTER, _POINTER, _LONG),
    "number_of_stores": (_LONG, _POINTER, _POINTER, _LONG, _LONG),
    "order_access": (_INT, _POINTER, _POINTER, _POINTER, _LONG, _LONG, _INT, _BYTES, _BYTES, _INT),
    "order_forget": (_LONG, _POINTER, _BYTES, _LONG),
    "publish": (None, _POINTER, _LONG, _LONG, _INT),
    "read_bulk": (_LONG, _POINTER, _WORD, _WORD, _POINTER),
    "read_tile": (_LONG, _POINTER, _POINTER, _WORD, _INT, _POINTER),
    "record_executed": (None, _POINTER, _POINTER, _INT, _MASK),
    "run_copies": (_LONG, _POINTER, _LONG),
    "run_load": (_INT, _POINTER),
    "run_ops": (_INT, _POINTER, _POINTER),
    "run_tensor": (_INT, _POINTER),
    "run_turns": (_INT, _POINTER),
    "start_again": (None, _POINTER, _POINTER),
    "stores_place": (_INT, _POINTER, _LONG),
    "unlist_hidden": (None, _POINTER, _POINTER),
    "use_amx": (_INT, _INT),
    "wake_listed": (None, _POINTER),
    "write_bulk": (_LONG, _POINTER, _WORD, _POINTER, _WORD),
    "write_tile": (_LONG, _POINTER, _POINTER, _POINTER, _INT, _POINTER),
}
"""Compiled function -> types of its result and of its arguments."""


@cache
def library() -> ctypes.CDLL:
    """Compiled functions. Raises RuntimeError if there is no C compiler."""
    compiled = toolchain.load("native")
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(compiled, name)
        function.restype, function.argtypes = result, arguments
    return compiled


@headers.mirrors("native/engine.h")
class Allocation(ctypes.Structure):
    """Live allocation."""


PythonRow = ctypes.PYFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint32)
"""Executes the instruction (index, mask of lanes). Context.answer: 0, ~index if the group has to wait, or FAULT."""


Wake = ctypes.PYFUNCTYPE(None, ctypes.c_int32)
"""Wakes the groups that wait for an mbarrier (offset in the CTA's shared memory). Context.answer: 0."""


@headers.mirrors("native/engine.h", python=PythonRow, wake=Wake)
class Context(ctypes.Structure):
    """Context of a warp and of its group that runs, for compiled code."""


@headers.mirrors("native/engine.h")
class Move(ctypes.Structure):
    """Register in two layouts of a program's register file, of which the second is by lane."""


@headers.mirrors("native/engine.h")
class WaitingWarps(ctypes.Structure):
    """Warps that compiled code lets wait at a named barrier of a CTA that Python keeps."""


@headers.mirrors("native/engine.h", at=WaitingWarps * NAMED_BARRIERS)
class NamedBarriers(ctypes.Structure):
    """Named barriers of a CTA."""


@headers.mirrors("native/engine.h")
class Parted(ctypes.Structure):
    """Groups into which compiled code has parted a warp."""


@headers.mirrors("native/engine.h")
class Doubts(ctypes.Structure):
    """Doubts that have been reported in a run."""


@headers.mirrors("native/engine.h")
class Barrier(ctypes.Structure):
    """Part of an mbarrier that compiled code shares (`mbarriers.MBarrier`)."""

    address: int  # address in this process
    pending: int
    bytes: int
    phase: int
    rank_phases: Any
    rank_warps: Any


class AllocationTable:
    """Table of a memory's live allocations, with the marks of a launch's stores."""

    def __init__(self, memory: GlobalMemory, traffic: Traffic | None) -> None:
        self._memory, self._traffic = memory, traffic
        self.version, live = memory.snapshot()
        self.entries = (Allocation * (len(live) + 1))()
        self.count = len(live)
        self._stored = []
        for entry, allocation in zip(self.entries, live, strict=False):
            entry.start, entry.end, entry.writable = allocation.start, allocation.end, allocation.writable
            entry.first = entry.low = allocation.end - allocation.start
            if traffic is not None and allocation.writable:
                if traffic.notes_stores:
                    entry.marks = traffic.prepared(allocation).marks.ctypes.data
                self._stored.append((entry, allocation))

    def settle(self) -> None:
        """Adds the stores that compiled code has counted to the launch's traffic, and tells what it has accessed."""
        for entry in self.entries:
            if entry.is_whole:
                self._memory.reach(entry.start, 0, entry.end - entry.start)
            elif entry.first < entry.last:
                self._memory.reach(entry.start, entry.first, entry.last)
        for entry, allocation in self._stored:
            if entry.requested and self._traffic is not None:
                marks = self._traffic.stored(allocation)
                marks.requested += entry.requested
                marks.low, marks.high = min(marks.low, entry.low), max(marks.high, entry.high)
                entry.requested = 0


@dataclass(frozen=True)
class Calls:
    """Functions that compiled code calls."""

    python: Any
    """A `PythonRow`."""
    wake: Any
    """A `Wake`."""
    watch: int = 0
    """Address of a function (native/engine.h, Context.watch) that programs translated to be watched call; 0: none."""
    watcher: int = 0
    """First argument of `watch`."""

    def tell(self, context: Context) -> None:
        """Makes compiled code call them for a warp."""
        context.python, context.wake = self.python, self.wake
        context.watch, context.watcher = self.watch, self.watcher
