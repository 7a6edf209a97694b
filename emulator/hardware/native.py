"""The structures that compiled code works on (native/engine.h): registers of a warp, live allocations, its context."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator import toolchain

if TYPE_CHECKING:
    from emulator.hardware.cluster import Grid
    from emulator.hardware.shared_memory import SharedMemory
    from emulator.hardware.warp import ActiveGroup

ALIGNMENT = 64  # bytes, of a register file and of the rows in it
LANES = 32
WARPS = 32  # of a CTA, at most
FAULT = -(1 << 30) + 1  # result of a turn: a Python row has raised an exception
WAITS = FAULT + 1  # the group has to wait for the mbarrier Context.waited
ANYTHING = 1  # Context.waited of a group that waits for no mbarrier
PARITIES = ("parity 0", "parity 1")  # what a group waits for
LEAVE, LEAVE_SOME, SPLIT = 1, 2, 3  # Context.action

_ROW_TYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


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
    for name in ("enqueue", "dequeue", "wake_listed", "run_turns"):
        getattr(compiled, name).argtypes = [ctypes.c_void_p]
    compiled.learn_route.argtypes = compiled.forget_routes.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    compiled.learn_route.restype = compiled.forget_routes.restype = None
    compiled.enqueue.restype = compiled.wake_listed.restype = None
    compiled.dequeue.restype = ctypes.c_void_p
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
        ("shared_plain", ctypes.c_uint32),
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
    ]


_TURN, _TURN_OFFSET = struct.Struct("<IIiiqqQqI"), Context.mask.offset
_LEFT, _LEFT_OFFSET = struct.Struct("<iqqQq4xii"), Context.quantum.offset


class Barrier(ctypes.Structure):
    """The part of an mbarrier that compiled code knows (`barriers.MBarrier`)."""

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


@dataclass(frozen=True)
class RegisterFile:
    """The register file of a program's warps."""

    initial: np.ndarray
    """uint8: every slot before the first instruction."""
    specials: list[tuple[int, int, bool, Callable[[ActiveGroup], Any]]]
    """(offset, bits, whether it is a row, value) of each special register that the program reads."""


class _Rows(dict):
    """(offset, bits of an element) -> the row there, uint[32], a view of the file."""

    def __init__(self, file: np.ndarray) -> None:
        self._file = file

    def __missing__(self, key: tuple[int, int]) -> np.ndarray:
        offset, width = key
        row = self[key] = self._file[offset : offset + LANES * width // 8].view(_ROW_TYPES[width])
        return row


class Registers:
    """A warp's register file, and its context."""

    __slots__ = ("_observed", "_table", "context", "context_address", "data", "rows", "words")

    def __init__(self, form: RegisterFile, group: ActiveGroup) -> None:
        """group: the warp's first."""
        size = len(form.initial)
        storage = np.empty(size + ALIGNMENT, np.uint8)
        address = storage.__array_interface__["data"][0]
        skipped = -address % ALIGNMENT
        self.data = storage[skipped : skipped + size]
        self.data[:] = form.initial
        self.words = self.data.data.cast("Q")
        """The file as 64-bit words."""
        self.rows = _Rows(self.data)
        for offset, width, is_row, value in form.specials:
            if is_row:
                self.rows[offset, width][:] = value(group)
            else:
                self.words[offset // 8] = value(group)
        self._table: AllocationTable | None = None
        self._observed = False  # the memory has an observer: the table is not used
        self.context = context = Context.from_buffer_copy(group.cta.context)
        context.file, context.warp = address + skipped, group.warp.index
        self.context_address = ctypes.addressof(context)

    def fill(self, slots: np.ndarray, mask: int, words: np.ndarray, start: int, places: np.ndarray) -> None:
        """Fills rows with a fragment of tensor memory, for the lanes in the mask.

        slots: int32[registers], negative for none. places: as `tensor.tmem.fragment`, relative to word `start`.
        """
        library().fragment_to_rows(
            self.context.file,
            slots.ctypes.data,
            len(slots),
            mask,
            words.ctypes.data + words.itemsize * start,
            places.ctypes.data,
            places.ndim == 3,
        )

    def enter(self, group: ActiveGroup, quantum: int) -> None:
        """A turn of a group begins. quantum: segments."""
        cta, point = group.cta, group.reconvergence
        waited, phase = _waited(group)
        stop, time, plain = -1 if point is None else point.pc, cta.machine.progress, cta.shared.plain
        # One call, since a field of a structure takes as long.
        _TURN.pack_into(
            self.context, _TURN_OFFSET, group.bits, group.warp.live, stop, quantum, time, 0, waited, phase, plain
        )
        self.look_up(group.grid)

    def look_up(self, grid: Grid) -> None:
        """Compiled code sees the live allocations as they are."""
        table, memory = grid.allocation_table, grid.memory
        if table is None or table.version != memory.version:
            table = grid.renew_allocation_table()
        if table is not self._table or (memory.observer is not None) != self._observed:
            self._use(table, memory.observer is not None)

    def hear_of_wait(self, group: ActiveGroup) -> None:
        """The group waits for what compiled code says."""
        context = self.context
        if not context.waited:
            group.waiting = None
        elif context.waited != ANYTHING:
            barrier = group.cta.shared.live_barriers.by_address.get(context.waited)
            group.waiting = (PARITIES[context.parity], barrier, context.waited_phase)

    def tell_of_wait(self, group: ActiveGroup) -> None:
        """Compiled code hears for what the group waits."""
        self.context.waited, self.context.waited_phase = _waited(group)

    def left(self) -> tuple[int, int, int, int, int, int, int]:
        """What a turn leaves, as in native/engine.h: (quantum, progress, issued, waited, waited_phase, parity, pc)."""
        return _LEFT.unpack_from(self.context, _LEFT_OFFSET)

    def _use(self, table: AllocationTable, observed: bool) -> None:
        context, self._table, self._observed = self.context, table, observed
        # An observed memory has no allocations for compiled code, only the empty entry behind the last.
        first = table.count if observed else 0
        context.allocations = ctypes.addressof(table.entries) + ctypes.sizeof(Allocation) * first
        context.recent, context.allocation_count = 0, table.count - first


def _waited(group: ActiveGroup) -> tuple[int, int]:
    """(Context.waited, Context.waited_phase) of a group."""
    waiting = group.waiting
    if waiting is None:
        return 0, 0
    return (waiting[1].address, waiting[2]) if isinstance(waiting[1], Barrier) else (ANYTHING, 0)
