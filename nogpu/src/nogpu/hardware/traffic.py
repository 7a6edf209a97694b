"""Traffic of one launch to and from global memory.

Loads of the async proxy are recorded as requested bytes and, per allocation, a mark for each 32-byte sector touched;
stores as requested bytes and a mark for each byte written, by which another process can be given the launch's result.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.copying import AllocationTraffic

if TYPE_CHECKING:
    from nogpu.hardware.allocations import Allocation, Allocations

_ONES = {width: np.ones(width, np.uint8).view(f"V{width}") for width in (1, 2, 4, 8, 16, 32)}
MARK_PADDING = 8  # marks of stores are whole 64-bit words
SPARE_MARKS = 1 << 26  # marks of an allocation that are kept between launches
SECTOR = 32  # bytes; the unit in which L2 and DRAM move data


PackedLoads = dict[int, tuple[int, np.ndarray]]
"""Address of an allocation -> (requested bytes, marks as bits)."""


class Marks(AllocationTraffic):
    """Loads from one allocation, or the stores to it."""

    requested: int  # bytes, repeats included
    origin: int  # address of the first mark's sector or byte
    # Every mark of stores is in [low, high), so that a large allocation need not be searched for a few.
    low: int
    high: int

    def __init__(self, allocation: Allocation, origin: int, length: int):
        self.marks = np.zeros(length, np.uint8)  # one per sector (loads) or byte (stores)
        super().__init__(allocation.start, allocation.end, self.marks.ctypes.data, origin, 0, length, 0)
        self.address = ctypes.addressof(self)  # for compiled code
        self.view = self.marks.data
        self.words: dict[int, np.ndarray] = {}  # width of a word in bytes -> the marks of each word as one item

    def clear(self) -> None:
        """Makes marks of stores as they were at first."""
        self.marks[self.low : self.high] = 0
        self.requested, self.low, self.high = 0, len(self.marks), 0


@lru_cache(maxsize=4096)
def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """First byte and end of a box of bytes, relative to its address."""
    if len(shape) != len(strides) or strides[-1] != 1 or min(shape) < 1:
        raise ValueError(
            f"a box needs one stride per axis, contiguous bytes last and no empty axis: {shape}, {strides}"
        )
    reach = [(n - 1) * stride for n, stride in zip(shape, strides)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + 1


@lru_cache(maxsize=4096)
def _sectors(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...] | None]:
    """(bytes of a box, shape in sectors, strides in sectors); no strides if rows may start inside a sector."""
    nbytes = int(np.prod(shape))
    sectors = (*shape[:-1], -(-shape[-1] // SECTOR))
    if any(stride % SECTOR for n, stride in zip(shape[:-1], strides) if n > 1):
        return nbytes, sectors, None
    return nbytes, sectors, (*(stride // SECTOR for stride in strides[:-1]), 1)


@lru_cache(maxsize=256)
def _rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """int64[rows]: offsets of a box's rows in bytes."""
    offsets = np.zeros(1, np.int64)
    for n, stride in zip(shape[:-1], strides):
        offsets = (offsets[:, None] + np.arange(n) * stride).ravel()
    return offsets


class Traffic:
    """Loads and stores of a launch, by allocation. The memory that it is attached to reports them."""

    def __init__(self, notes_stores: bool = True) -> None:
        """notes_stores: False if nobody asks for the marks of stores: some are left out."""
        self.notes_stores = notes_stores
        self.loads: dict[Allocation, Marks] = {}
        self.stores: dict[Allocation, Marks] = {}
        self._prepared: dict[Allocation, Marks] = {}

    @property
    def stored_bytes(self) -> int:
        """Number of bytes requested by all stores."""
        return sum(stores.requested for stores in self.stores.values())

    def packed_loads(self) -> PackedLoads:
        """Loads, for `add_loads` in another process."""
        return {
            allocation.start: (loads.requested, np.packbits(loads.marks)) for allocation, loads in self.loads.items()
        }

    def add_loads(self, memory: Allocations, packed: PackedLoads) -> None:
        """Adds loads that another process has recorded, whose allocations are live here too."""
        for start, (requested, bits) in packed.items():
            allocation = memory.allocation(start)
            if allocation is None:
                raise ValueError(f"no live allocation at {start:#x}")
            entry = self._loaded(allocation)
            entry.requested += requested
            entry.marks |= np.unpackbits(bits, count=len(entry.marks))

    def _loaded(self, allocation: Allocation) -> Marks:
        entry = self.loads.get(allocation)
        if entry is None:
            origin = allocation.start & -SECTOR
            entry = self.loads[allocation] = Marks(allocation, origin, -(-(allocation.end - origin) // SECTOR))
        return entry

    def load(self, allocation: Allocation, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """Counts a load of a box of bytes by the async proxy."""
        entry = self._loaded(allocation)
        nbytes, sectors, sector_strides = _sectors(shape, strides)
        entry.requested += nbytes
        offset = address - entry.origin
        if sector_strides is not None and not offset % SECTOR:
            np.ndarray(sectors, np.uint8, entry.view, offset // SECTOR, sector_strides).fill(1)
            return
        rows = _rows(shape, strides) + offset
        first, last = rows // SECTOR, (rows + (shape[-1] - 1)) // SECTOR
        reach = np.arange(sectors[-1] + 1)
        entry.marks[np.minimum(first[:, None] + reach, last[:, None])] = 1

    def stored(self, allocation: Allocation) -> Marks:
        """Marks of the stores to an allocation, which `stores` lists from now on."""
        entry = self.stores.get(allocation)
        if entry is None:
            entry = self.stores[allocation] = self.prepared(allocation)
            del self._prepared[allocation]
        return entry

    def prepared(self, allocation: Allocation) -> Marks:
        """Marks of the stores to an allocation, all clear if there have been none."""
        entry = self.stores.get(allocation) or self._prepared.get(allocation)
        if entry is None and allocation.spare_marks is not None:
            entry = self._prepared[allocation] = allocation.spare_marks
            allocation.spare_marks = None
        if entry is None:
            length = -(-(allocation.end - allocation.start) // MARK_PADDING) * MARK_PADDING
            entry = self._prepared[allocation] = Marks(allocation, allocation.start, length)
        return entry

    def give_back(self) -> None:
        """Leaves the marks of stores, clear, to the next launch: nobody asks for this one's. Large ones are freed."""
        for stores in self._prepared, self.stores:
            for allocation, marks in stores.items():
                if len(marks.marks) <= SPARE_MARKS:
                    marks.clear()
                    allocation.spare_marks = marks
            stores.clear()

    def store(self, allocation: Allocation, address: int, nbytes: int) -> None:
        """Counts a store of adjacent bytes."""
        entry = self.stored(allocation)
        entry.requested += nbytes
        offset = address - entry.origin
        if offset < entry.low:
            entry.low = offset
        if offset + nbytes > entry.high:
            entry.high = offset + nbytes
        entry.marks[offset : offset + nbytes] = 1

    def store_box(self, allocation: Allocation, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """Counts a store of a box of bytes."""
        entry = self.stored(allocation)
        entry.requested += _sectors(shape, strides)[0]
        offset = address - entry.origin
        low, high = extent(shape, strides)
        if offset + low < entry.low:
            entry.low = offset + low
        if offset + high > entry.high:
            entry.high = offset + high
        np.ndarray(shape, np.uint8, entry.view, offset, strides).fill(1)

    def store_lanes(self, allocation: Allocation, index: np.ndarray, width: int) -> None:
        """Counts a store by the lanes of a warp of aligned words of `width` bytes. index: int64[lanes], in the
        allocation's words.
        """
        entry = self.stored(allocation)
        entry.requested += width * len(index)
        words = entry.words.get(width)
        if words is None:
            first = -allocation.start % width
            length = (len(entry.marks) - first) // width
            # A search of all marks takes less time than finding the lanes' lowest and highest words.
            entry.low, entry.high = 0, len(entry.marks)
            words = entry.words[width] = entry.marks[first:][: length * width].view(f"V{width}")
        words[index] = _ONES[width]
