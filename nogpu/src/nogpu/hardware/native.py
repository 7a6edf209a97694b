"""The structures that compiled code works on (native/engine.h): registers of a warp, live allocations, its context."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from nogpu import toolchain

if TYPE_CHECKING:
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.shared_memory import SharedMemory

ALIGNMENT = 64  # bytes, of a register file and of the rows in it
LANES = 32
WARPS = 32  # of a CTA, at most
FAULT = -(1 << 30) + 1  # result of a turn: a Python row has raised an exception
WAITS = FAULT + 1  # the group has to wait for the mbarrier Context.waited
ANYTHING = 1  # Context.waited of a group that waits for no mbarrier
PARITIES = ("parity 0", "parity 1")  # what a group waits for
LEAVE, LEAVE_SOME, SPLIT = 1, 2, 3  # Context.action
HEED = -(1 << 28)  # less an instruction's index: an argument of `PythonRow` (native/engine.h)


@cache
def library() -> ctypes.CDLL:
    """The compiled code. RuntimeError if there is no C compiler."""
    compiled = toolchain.load("native")
    compiled.run_ops.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    compiled.fragment_to_rows.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p),
        ctypes.c_int32,
    ]
    compiled.fragment_to_rows.restype = None
    for name in ("enqueue", "dequeue", "wake_listed", "run_turns", "forget_allocations"):
        getattr(compiled, name).argtypes = [ctypes.c_void_p]
    for name in ("learn_route", "forget_routes", "forget_barrier"):
        getattr(compiled, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    compiled.learn_route.restype = compiled.forget_routes.restype = compiled.forget_allocations.restype = None
    compiled.enqueue.restype = compiled.wake_listed.restype = None
    compiled.dequeue.restype = ctypes.c_void_p
    compiled.record_executed.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32]
    compiled.append_words.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    compiled.free_trace.argtypes = [ctypes.c_void_p]
    compiled.record_executed.restype = compiled.append_words.restype = compiled.free_trace.restype = None
    return compiled


class Allocation(ctypes.Structure):
    """A live allocation."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("marks", ctypes.c_void_p),
        ("requested", ctypes.c_int64),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("writable", ctypes.c_int64),
    ]


PythonRow = ctypes.PYFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint32)
"""(index of the instruction, mask): executes it. Context.answer: 0, ~index if the group has to wait, or FAULT."""


Wake = ctypes.PYFUNCTYPE(None, ctypes.c_int32)
"""(offset of an mbarrier in the CTA's shared memory): the groups that wait for it run again. Context.answer: 0."""


class Context(ctypes.Structure):
    """What compiled code knows of a warp and of the group that runs."""

    _fields_ = [
        ("file", ctypes.c_void_p),
        ("mask", ctypes.c_uint32),
        ("live", ctypes.c_uint32),
        ("stop", ctypes.c_int32),
        ("quantum", ctypes.c_int32),
        ("progress", ctypes.c_int64),
        ("issued", ctypes.c_int64),
        ("waited", ctypes.c_void_p),
        ("waited_phase", ctypes.c_int64),
        ("clock_reads", ctypes.c_uint32),
        ("parity", ctypes.c_int32),
        ("pc", ctypes.c_int32),
        ("result", ctypes.c_int32),
        ("shared", ctypes.c_void_p),
        ("shared_end", ctypes.c_uint64),
        ("guarded", ctypes.c_void_p),
        ("rank", ctypes.c_uint32),
        ("allocations", ctypes.c_void_p),
        ("allocation_count", ctypes.c_int64),
        ("recent", ctypes.c_int64),
        ("python", PythonRow),
        ("answer", ctypes.c_int64),
        ("action", ctypes.c_int32),
        ("target", ctypes.c_int32),
        ("following", ctypes.c_int32),
        ("join", ctypes.c_int32),
        ("lanes", ctypes.c_uint32),
        ("warp", ctypes.c_int32),
        ("known", ctypes.c_uint64),
        ("synced", ctypes.c_int64),
        ("barriers", ctypes.c_void_p),
        ("wake", Wake),
        ("polled", ctypes.c_int32),
        ("touched", ctypes.c_int32),
        ("watch", ctypes.c_void_p),
        ("watcher", ctypes.c_void_p),
        ("turns", ctypes.c_void_p),
        ("resume", ctypes.c_void_p),
        ("at", ctypes.c_int32),
        ("is_single", ctypes.c_int32),
        ("blocked", ctypes.c_int32),
        ("queued", ctypes.c_int32),
        ("moved", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("next", ctypes.c_void_p),
        ("listed", ctypes.c_void_p),
        ("trace", ctypes.c_void_p),
        ("heeded", ctypes.c_void_p),
        ("outer", ctypes.c_uint32),
        ("cluster_size", ctypes.c_uint32),
        ("log", ctypes.c_void_p),
        ("shared_log", ctypes.c_void_p),
        ("unwritten", ctypes.c_void_p),
        ("windows", ctypes.c_void_p),
    ]


class Barrier(ctypes.Structure):
    """The part of an mbarrier that compiled code knows (`mbarriers.MBarrier`)."""

    address: int  # in this process
    pending: int
    bytes: int
    phase: int

    _fields_ = [
        ("expected", ctypes.c_int32),
        ("pending", ctypes.c_int32),
        ("bytes", ctypes.c_int64),
        ("phase", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("heard", ctypes.c_uint64),
        ("news", ctypes.c_uint64),
        ("delivered", ctypes.c_int32),
        ("waiting", ctypes.c_int32),
        ("last_warp", ctypes.c_int32),
        ("last_pc", ctypes.c_int32),
        ("offset", ctypes.c_int32),
        ("last_kind", ctypes.c_int32),
        ("hides", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("warp_phases", ctypes.c_int64 * WARPS),
        ("first", ctypes.c_void_p),
        ("last_listed", ctypes.c_void_p),
    ]


class TurnState(ctypes.Structure):
    """What compiled code knows of the turns of a machine's warps (`turns.Turns`)."""

    _fields_ = [
        ("ready", ctypes.c_void_p),
        ("room", ctypes.c_int64),
        ("head", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("starts", ctypes.c_void_p),
        ("progress", ctypes.c_int64),
        ("quiet", ctypes.c_int64),
        ("quantum", ctypes.c_int64),
        ("ticks", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("effects", ctypes.c_int64),
        ("idle", ctypes.c_int64),
        ("delayed", ctypes.c_int64),
        ("overdue", ctypes.c_int64),
        ("outstanding", ctypes.c_int64),
        ("stale", ctypes.c_int64),
        ("current", ctypes.c_void_p),
        ("loads", ctypes.c_void_p),
    ]


class AllocationTable:
    """The live allocations of a launch's memory, with the marks of its stores."""

    def __init__(self, grid: Grid) -> None:
        memory, traffic = grid.memory, grid.traffic
        self._traffic = traffic
        self.version, live = memory.snapshot()
        self.entries = (Allocation * (len(live) + 1))()
        self.count = len(live)
        self._stored = []
        for entry, allocation in zip(self.entries, live, strict=False):
            entry.start, entry.end, entry.writable = allocation.start, allocation.end, allocation.writable
            if traffic is not None and allocation.writable:
                marks = traffic.prepared(allocation).marks
                entry.marks, entry.low = marks.ctypes.data, len(marks)
                self._stored.append((entry, allocation))

    def settle(self) -> None:
        """Adds the stores so far to the launch's traffic."""
        for entry, allocation in self._stored:
            if entry.requested and self._traffic is not None:
                marks = self._traffic.stored(allocation)
                marks.requested += entry.requested
                marks.low, marks.high = min(marks.low, entry.low), max(marks.high, entry.high)
                entry.requested = 0


@dataclass(frozen=True)
class Calls:
    """What compiled code calls."""

    python: Any
    """`PythonRow`."""
    wake: Any
    """`Wake`."""
    watch: int = 0
    """Address of a function (native/engine.h, Context.watch) that programs translated to be watched call; 0: none."""
    watcher: int = 0
    """Its first argument."""


def context_of(shared: SharedMemory, calls: Calls) -> Context:
    """What the contexts of a CTA's warps have in common."""
    context = Context()
    context.shared, context.shared_end = shared.address, len(shared.data)
    context.guarded = shared.live_barriers.guarded.ctypes.data
    context.barriers = shared.live_barriers.addresses.ctypes.data
    context.rank, context.known, context.synced = shared.rank, 1 << shared.rank, -1
    context.python, context.wake = calls.python, calls.wake
    context.watch, context.watcher = calls.watch, calls.watcher
    return context
