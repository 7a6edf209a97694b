"""Register file of a warp, as arrays, and its context, which compiled code works on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu import headers
from nogpu.hardware.native import (
    ALIGNMENT,
    ANYTHING,
    LANES,
    PARITIES,
    Allocation,
    AllocationTable,
    Barrier,
    Context,
    Move,
    library,
)

if TYPE_CHECKING:
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup

_ROW_TYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_TURN = headers.packer("native/engine.h", "Context", "mask", "waited_phase")
_TURN_OFFSET = Context.mask.offset


@dataclass(frozen=True)
class RegisterFile:
    """Layout of the register file of a program's warps."""

    initial: np.ndarray
    """uint8: contents before the first instruction."""
    specials: list[tuple[int, int, bool, Callable[[ActiveGroup], Any]]]
    """(offset, bits, True for a row, value) of each special register that the program reads."""
    by_cta: list[tuple[int, Callable[[ActiveGroup], int]]]
    """(offset, value) of those of them that differ between CTAs."""

    def lay_out(self, data: np.ndarray, group: ActiveGroup) -> None:
        """Fills the file uint8[bytes] of the group's warp as the warp starts with it."""
        data[:] = self.initial
        for offset, width, is_row, value in self.specials:
            if is_row:
                data[offset : offset + LANES * width // 8].view(_ROW_TYPES[width])[:] = value(group)
            else:
                data[offset : offset + 8].view(np.uint64)[0] = value(group)

    def room(self, warps: int) -> np.ndarray:
        """Room for the files of warps, uint8[warps, bytes], each `ALIGNMENT` bytes aligned."""
        size = len(self.initial)
        stride = size + -size % ALIGNMENT
        storage = np.empty(warps * stride + ALIGNMENT, np.uint8)
        first = -storage.ctypes.data % ALIGNMENT
        return storage[first : first + warps * stride].reshape(warps, stride)[:, :size]


class _Rows(dict):
    """(offset, bits of an element) -> the row there, uint[32], a view of the file."""

    def __init__(self, file: np.ndarray) -> None:
        self._file = file

    def __missing__(self, key: tuple[int, int]) -> np.ndarray:
        offset, width = key
        row = self[key] = self._file[offset : offset + LANES * width // 8].view(_ROW_TYPES[width])
        return row


class Registers:
    """Register file of a warp, and its context."""

    __slots__ = ("_observed", "_table", "context", "context_address", "data", "rows", "words")

    def __init__(self, data: np.ndarray, address: int, group: ActiveGroup) -> None:
        """data: uint8[bytes], the file, at this address. group: the warp's first group."""
        self._use_file(data)
        self._table: AllocationTable | None = None
        self._observed = False  # True while the memory has an observer: the table is not used
        self.context = context = Context.from_buffer_copy(group.cta.context)
        context.file, context.warp = address, group.warp.index
        self.context_address = ctypes.addressof(context)

    def _use_file(self, data: np.ndarray) -> None:
        self.data = data
        self.words = data.data.cast("Q")
        """The file as 64-bit words."""
        self.rows = _Rows(data)

    def move(self, form: RegisterFile, moves: ctypes.Array[Move], group: ActiveGroup) -> None:
        """Moves the registers to a file of another form."""
        old, (data,) = self.data, form.room(1)
        form.lay_out(data, group)
        library().move_registers(data.ctypes.data, old.ctypes.data, moves, len(moves))
        self._use_file(data)
        self.context.file = data.ctypes.data

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
        """Begins a turn of a group. quantum: number of segments."""
        cta, point = group.cta, group.reconvergence
        waited, phase = _waited(group)
        stop, time = -1 if point is None else point.pc, cta.machine.progress
        # One call for all fields, since an assignment to one field of a structure takes as long.
        _TURN.pack_into(self.context, _TURN_OFFSET, group.bits, group.warp.live, stop, quantum, time, 0, waited, phase)
        self.look_up(group.grid)

    def look_up(self, grid: Grid) -> None:
        """Gives compiled code the present live allocations."""
        table, memory = grid.allocation_table, grid.memory
        if table is None or table.version != memory.version:
            table = grid.renew_allocation_table()
        if table is not self._table or memory.refuses_copies != self._observed:
            self._use(table, memory.refuses_copies)

    def forget_allocations(self) -> None:
        """Forgets the live allocations."""
        self._table = None

    def hear_of_wait(self, group: ActiveGroup) -> None:
        """Copies the wait state from C."""
        context = self.context
        if not context.waited:
            group.waiting = None
        elif context.waited != ANYTHING:
            barrier = group.cta.shared.live_barriers.by_address.get(context.waited)
            if barrier is None:  # an mbarrier invalidated in the meantime
                group.waiting = None
                return
            # A wait that Python has begun keeps Python's own text.
            if group.waiting is None or group.waiting[1:] != (barrier, context.waited_phase):
                group.waiting = (PARITIES[context.parity], barrier, context.waited_phase)

    def tell_of_wait(self, group: ActiveGroup) -> None:
        """Copies the wait state to C."""
        self.context.waited, self.context.waited_phase = _waited(group)

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
