"""Tensor memory: allocation of columns, and tcgen05.ld and tcgen05.st between it and the registers of a warp.

The tensor memory of a CTA has 128 lanes (rows) of 512 columns of 32 bits, on Rubin of 576. An address holds the lane in
bits 16-31 and the column in bits 0-15 (PTX ISA, "Tensor Memory Addressing"). A warp reaches only the 32 lanes of its
quadrant, from 32 * (warp index % 4) on.

On Rubin a CTA gets more than 512 columns only if it takes all of them, by tcgen05.alloc.exclusive (nvidia-cutlass-dsl
4.8.1, cute/arch/tmem.py).
"""

from __future__ import annotations

import ctypes
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nogpu import headers
from nogpu.errors import Fault
from nogpu.hardware.tensor.order import COLUMNS, HALF, IssuedAccess, TensorOrder, columns_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nogpu.hardware.warp import Issuer

LANES, QUADRANT = headers.constants("native/tensor_memory.h", "TMEM_LANES", "QUADRANT")
ALLOCATION_UNIT = 32
SHARED_COLUMNS = 512  # columns that CTAs of an SM share; those behind need an exclusive allocation
POISON = 0xFFFFFFFF

Form = tuple[str, int, bool, int]
"""Form of tcgen05.ld or .st: (shape, .num, packing, immHalfSplitoff). With packing, by .pack::16b or .unpack::16b, a
register has the low halves of two columns. immHalfSplitoff is the distance in columns of the second half of 16x32bx2,
0 for the other shapes.
"""

Place = tuple[int, Form]
"""A warp's access: index of the addressed word, and its form."""


def split_address(taddr: int) -> tuple[int, int]:
    """(lane, column) of a tensor memory address."""
    return taddr >> 16 & 0xFFFF, taddr & 0xFFFF


class TensorValues(Protocol):
    """Observer of the words that the tensor core writes to tensor memory."""

    def poisoned(self, tmem: TensorMemory, base: int, columns: int) -> None:
        """Columns are allocated: their words are poison."""

    def multiplied(self, mma: Any, memories: Sequence[TensorMemory], issuer: Issuer) -> None:
        """An MMA (`core.Mma`) has written D. memories: those of its CTAs."""

    def copied(self, copy: Any, tmem: TensorMemory, issuer: Issuer) -> None:
        """A tcgen05.cp (`copy.Copy`) has written its columns in one CTA."""


class ColumnAllocator:
    """Free columns of an SM, which its CTAs share. Counts are multiples of 32."""

    def __init__(self, columns: int = SHARED_COLUMNS) -> None:
        self.columns = columns
        self._free = bytearray(b"\1" * (columns // ALLOCATION_UNIT))

    def find(self, columns: int, other: ColumnAllocator | None = None) -> int | None:
        """Lowest base of `columns` adjacent columns that are free here, and on the other SM if one is given."""
        free = self._free if other is None else bytes(map(min, self._free, other._free))
        limit = max(columns, SHARED_COLUMNS) // ALLOCATION_UNIT
        first = free.find(b"\1" * (columns // ALLOCATION_UNIT), 0, limit)
        return None if first < 0 else first * ALLOCATION_UNIT

    def take(self, base: int, columns: int) -> None:
        """Marks columns as allocated."""
        first, units = base // ALLOCATION_UNIT, columns // ALLOCATION_UNIT
        self._free[first : first + units] = bytes(units)

    def give_back(self, base: int, columns: int) -> None:
        """Marks columns as free."""
        first, units = base // ALLOCATION_UNIT, columns // ALLOCATION_UNIT
        self._free[first : first + units] = b"\1" * units


@headers.mirrors("native/tensor_work.h", "TensorMemory")
class TensorMemoryState(ctypes.Structure):
    """Tensor memory of a CTA that compiled code shares."""


class TensorMemory:
    """Tensor memory of one CTA. It may use only the columns that it has allocated, at first full of 0xFF."""

    def __init__(self, allocator: ColumnAllocator | None = None) -> None:
        self.allocations: dict[int, int] = {}  # base -> columns
        self._allocator = allocator or ColumnAllocator()
        self._owned = bytearray(COLUMNS)  # 1 for each allocated column
        self.owned = 0  # the allocated columns as a mask, in every lane (`order.columns_mask`)
        self._may_allocate = True
        self.order = TensorOrder()
        self.b_collected: dict[str, tuple[tuple, dict]] = {}  # collector -> identity and items of the B that it keeps
        self.legal: dict[
            tuple, Any
        ] = {}  # form and operands -> `core.Mma` that the CTA may issue while it has these columns
        self.issued: IssuedAccess | None = None  # tensor core operation that runs now
        self.values: TensorValues | None = None  # observer of the words
        self.observer: Callable[[Issuer, int, int], None] | None = None  # called by `touch`, with the masks

    # Arrays are made when they are first used: thousands of CTAs that use no tensor memory may be resident at once.

    @cached_property
    def words(self) -> np.ndarray:
        """Words of the memory, uint32[LANES, COLUMNS]."""
        return np.full((LANES, COLUMNS), POISON, np.uint32)

    @cached_property
    def address(self) -> int:
        """Address of the words in this process."""
        return self.words.ctypes.data

    @cached_property
    def owned_address(self) -> int:
        """Address of a byte for each column, not 0 if it is allocated."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._owned))

    @cached_property
    def state(self) -> TensorMemoryState:
        """The part that compiled code shares, for the work of the tensor core."""
        return TensorMemoryState(self.address, self.order.address, self.owned_address)

    @cached_property
    def _flat(self) -> np.ndarray:
        return self.words.reshape(-1)

    def alloc(self, columns: int, exclusive: bool = False) -> int | None:
        """Executes tcgen05.alloc. Returns the address of the columns, or None if the instruction would block."""
        self._check_alloc(columns, exclusive)
        base = self._allocator.find(columns)
        if base is not None:
            self._own(base, columns)
        return base

    def alloc_with(self, other: TensorMemory, columns: int, exclusive: bool = False) -> int | None:
        """Executes tcgen05.alloc of a CTA pair, at one address in both CTAs, since the pair's instructions name one for
        both.
        """
        for memory in (self, other):
            memory._check_alloc(columns, exclusive)
        base = self._allocator.find(columns, other._allocator)
        if base is not None:
            self._own(base, columns)
            other._own(base, columns)
        return base

    def _check_alloc(self, columns: int, exclusive: bool) -> None:
        self._check_exclusive("alloc", columns, exclusive)
        if not exclusive and columns not in (32, 64, 128, 256, 512):
            raise Fault(
                f"tcgen05.alloc of {columns} columns; must be a power of two from 32 to 512 (PTX ISA, tcgen05.alloc)"
            )
        if not self._may_allocate:
            raise Fault("tcgen05.alloc after tcgen05.relinquish_alloc_permit of the same CTA (PTX ISA, tcgen05.alloc)")

    def _own(self, base: int, columns: int) -> None:
        self._allocator.take(base, columns)
        self.allocations[base] = columns
        self._owned[base : base + columns] = b"\1" * columns
        self.owned |= columns_mask(base, columns)
        self.legal.clear()
        self.words[:, base : base + columns] = POISON
        if self.values is not None:
            self.values.poisoned(self, base, columns)

    def _check_exclusive(self, name: str, columns: int, exclusive: bool) -> None:
        """Raises Fault for .exclusive of anything but all columns of a chip that has more than 512."""
        most = self._allocator.columns
        if exclusive and most == SHARED_COLUMNS:
            raise Fault(f"tcgen05.{name}.exclusive needs sm_107: this chip has {most} columns")
        if exclusive and columns != most:
            raise Fault(
                f"tcgen05.{name}.exclusive of {columns} columns is not modelled: nvidia-cutlass-dsl uses it for all "
                f"{most} columns only"
            )

    def dealloc(self, taddr: int, columns: int, exclusive: bool = False) -> None:
        """Executes tcgen05.dealloc. Raises Fault for anything but a whole allocation."""
        self._check_exclusive("dealloc", columns, exclusive)
        if columns > SHARED_COLUMNS and not exclusive:
            raise Fault(
                f"tcgen05.dealloc of {columns} columns; more than {SHARED_COLUMNS} need .exclusive (ptxas 13.5)"
            )
        if self.allocations.get(taddr) != columns:
            live = ", ".join(f"{width} at {base:#x}" for base, width in self.allocations.items()) or "none"
            raise Fault(
                f"tcgen05.dealloc of {columns} columns at {taddr:#x} is not an allocation of this CTA; it has {live} "
                "(PTX ISA, tcgen05.dealloc)"
            )
        del self.allocations[taddr]
        self._owned[taddr : taddr + columns] = bytes(columns)
        self.owned &= ~columns_mask(taddr, columns)
        self.legal.clear()
        self._allocator.give_back(taddr, columns)

    def relinquish(self) -> None:
        """Executes tcgen05.relinquish_alloc_permit: this CTA may not allocate any more."""
        self._may_allocate = False

    def check_columns(self, column: int, count: int, user: str) -> None:
        """Raises Fault, naming `user`, unless this CTA has allocated `count` columns from `column` on."""
        limit = self._allocator.columns
        if column + count > limit:
            raise Fault(f"{user}: tensor memory columns {column} to {column + count - 1}; limit {limit - 1}")
        missing = self._owned.find(b"\0", column, column + count)
        if missing >= 0:
            live = ", ".join(f"{base} to {base + width - 1}" for base, width in self.allocations.items()) or "none"
            raise Fault(
                f"{user}: tensor memory column {missing} (of {column} to {column + count - 1}) is not allocated; "
                f"allocated: {live} (PTX ISA, Tensor Memory Allocation)"
            )

    def touch(self, reads: int, writes: int) -> None:
        """Records that the tensor core operation that runs, if one does, accesses columns (masks,
        `order.columns_mask`).

        Raises Fault for a conflict with another warp's access.
        """
        if self.issued is not None:
            self.issued.touch(self.order, reads, writes)
            if self.observer is not None:
                self.observer(self.issued.issuer, reads, writes)

    def read(self, place: Place) -> np.ndarray:
        """Loads uint32[registers, 32] from a place that has been checked."""
        start, form = place
        found = self._flat[start:].take(fragment(form))
        return found[0] & 0xFFFF | found[1] << 16 if form[2] else found

    def write(self, place: Place, values: np.ndarray) -> None:
        """Stores values uint32[registers, 32] to a place that has been checked. The high halves of the columns that
        .unpack::16b writes are poisoned, since PTX does not define them.
        """
        start, form = place
        if form[2]:
            values = np.stack([values, values >> 16]) | np.uint32(POISON << 16 & POISON)
        self._flat[start:][fragment(form)] = values

    def place(self, name: str, form: Form, warp: int, taddr: int) -> Place:
        """Place of an access. warp: its index in the warpgroup. Raises Fault, naming the instruction, if it is not
        legal.
        """
        shape, num, packed, half_split = form
        lane, column = split_address(taddr)
        lanes, row_registers, widest = _SHAPES.get(shape, (0, 0, 0))
        if not lanes:
            raise Fault(f"{name}.{shape}: not a shape (PTX ISA, {name})")
        if num not in _NUMS or num > widest:
            raise Fault(f"{name}.{shape}.x{num}: .num must be a power of two up to {widest} (PTX ISA, {name})")
        quadrant, within = QUADRANT * warp, lane % QUADRANT
        # Shipped kernels rely on hardware to take the quadrant from the warp and only the rest from the address: they
        # pass the allocation's own address, of lane 0, in every warp, or add 32 lanes for each warp of the CTA.
        if lane % LANES - within not in (0, quadrant) or within % lanes:
            raise Fault(
                f"{name}.{shape}: lane {lane} of warp {warp} of its group; the warp reaches lanes {quadrant} to "
                f"{quadrant + QUADRANT - 1}, an access of {lanes} lanes starts at a multiple of {lanes} "
                f"(PTX ISA, {name})"
            )
        lane = quadrant + within
        if half_split and shape != "16x32bx2":
            raise Fault(f"{name}.{shape}: only 16x32bx2 has a split offset (PTX ISA, {name})")
        columns = num * row_registers * (2 if packed else 1)
        self.check_columns(column, columns, name)
        if half_split:
            self.check_columns(column + half_split, columns, name)
        return lane * COLUMNS + column, form


_SHAPES = {
    "32x32b": (32, 1, 128),
    "16x64b": (16, 2, 128),
    "16x128b": (16, 4, 64),
    "16x256b": (16, 8, 32),
    "16x32bx2": (16, 1, 128),
}
"""Shape -> (lanes of tensor memory, columns per repetition, largest .num)."""


def extent(form: Form) -> tuple[int, int]:
    """(lanes, columns) from the addressed word on; with a split offset there are as many further on."""
    shape, num, packed, _ = form
    lanes, row_registers, _ = _SHAPES[shape]
    return lanes, num * row_registers * (2 if packed else 1)


def touched_columns(place: Place) -> int:
    """Columns of an access as a mask (`order.columns_mask`)."""
    start, form = place
    (lanes, count), half_split = extent(form), form[3]
    halves = ((1 << lanes // HALF) - 1) << start // COLUMNS // HALF
    mask = columns_mask(start % COLUMNS, count, halves)
    return mask | columns_mask(start % COLUMNS + half_split, count, halves) if half_split else mask


_NUMS = (1, 2, 4, 8, 16, 32, 64, 128)


@lru_cache(maxsize=256)
def fragment(form: Form) -> np.ndarray:
    """int64[registers, 32]: the word of each register of each lane, relative to the addressed word.

    With 16-bit packing int64[2, registers, 32]: the words of the low and of the high half (PTX ISA, "Matrix fragments
    for shape .32x32b" and the sections that follow it).
    """
    shape, num, packed, half_split = form
    thread = np.arange(32)
    repeat = np.arange(num)[:, None]
    quad, member = thread // 4, thread % 4
    match shape:
        case "32x32b":
            row, column = np.broadcast_arrays(thread, repeat)
        case "16x32bx2":
            row, column = np.broadcast_arrays(thread % 16, repeat)
        case "16x64b":
            row, column = np.broadcast_arrays(quad + 8 * (member % 2), 2 * repeat + member // 2)
        case "16x128b":
            half = np.arange(2)[:, None]
            row, column = np.broadcast_arrays(quad + 8 * half, 4 * repeat[:, None] + member)
        case "16x256b":
            half, pair = np.arange(2)[:, None, None], np.arange(2)[:, None]
            row, column = np.broadcast_arrays(quad + 8 * half, 8 * repeat[:, None, None] + 2 * member + pair)
    row, column = row.reshape(-1, 32), column.reshape(-1, 32)
    second_half = half_split * (thread // 16) if shape == "16x32bx2" else 0
    if packed:
        column = np.stack([2 * column, 2 * column + 1])
    places = row * COLUMNS + column + second_half
    places.flags.writeable = False
    return places
