"""Structures that compiled code works on (native/engine.h): registers of a warp, live allocations, its context."""

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
LANES, WARPS = headers.constants("native/engine.h", "LANES", "WARPS")
FAULT, WAITS = headers.constants("native/engine.h", "FAULT", "WAITS")  # results of a turn
LEAVE, LEAVE_SOME, SPLIT = headers.constants("native/engine.h", "LEAVE", "LEAVE_SOME", "SPLIT")  # Context.action
(UNINITIALISED,) = headers.constants("native/engine.h", "UNINITIALISED")
ANYTHING = 1  # Context.waited of a group that waits for no mbarrier
PARITIES = ("parity 0", "parity 1")  # texts of the phase that a group waits for


@cache
def library() -> ctypes.CDLL:
    """Compiled functions. Raises RuntimeError if there is no C compiler."""
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


@headers.mirrors("native/engine.h")
class Allocation(ctypes.Structure):
    """Live allocation."""


PythonRow = ctypes.PYFUNCTYPE(None, ctypes.c_int32, ctypes.c_uint32)
"""(index of the instruction, mask): executes it. Context.answer: 0, ~index if the group has to wait, or FAULT."""


Wake = ctypes.PYFUNCTYPE(None, ctypes.c_int32)
"""(offset of an mbarrier in the CTA's shared memory): the groups that wait for it run again. Context.answer: 0."""


@headers.mirrors("native/engine.h", python=PythonRow, wake=Wake)
class Context(ctypes.Structure):
    """Context of a warp and of its group that runs, for compiled code."""


@headers.mirrors("native/engine.h")
class Barrier(ctypes.Structure):
    """Part of an mbarrier that compiled code shares (`mbarriers.MBarrier`)."""

    address: int  # address in this process
    pending: int
    bytes: int
    phase: int


class AllocationTable:
    """Table of a memory's live allocations, with the marks of a launch's stores."""

    def __init__(self, memory: GlobalMemory, traffic: Traffic | None) -> None:
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
    """Functions that compiled code calls."""

    python: Any
    """`PythonRow`."""
    wake: Any
    """`Wake`."""
    watch: int = 0
    """Address of a function (native/engine.h, Context.watch) that programs translated to be watched call; 0: none."""
    watcher: int = 0
    """Its first argument."""
