"""What one launch moves to and from global memory.

For loads of the async proxy: bytes asked for and, per allocation, a mark for each 32-byte sector touched. For stores:
bytes asked for and a mark for each byte written, from which the launch's result can be carried to another process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emulator.hardware.allocations import Allocation, Allocations

_ONES = {width: np.ones(width, np.uint8).view(f"V{width}") for width in (1, 2, 4, 8, 16, 32)}
MARK_PADDING = 8  # marks of stores are whole 64-bit words
SECTOR = 32  # bytes; the unit in which L2 and DRAM move data


PackedLoads = dict[int, tuple[int, np.ndarray]]
"""By an allocation's address: bytes asked for, marks as bits."""


class Marks:
    """One byte per sector (loads) or per byte (stores) of an allocation, and the bytes asked for, repeats included.

    Stores: [low, high) holds every mark, so that a large allocation need not be searched for a few.
    """

    __slots__ = ("high", "low", "marks", "origin", "requested", "view", "words")

    def __init__(self, origin: int, length: int):
        self.requested = 0
        self.origin = origin
        self.marks = np.zeros(length, np.uint8)
        self.view = memoryview(self.marks)
        self.low = length
        self.high = 0
        self.words: dict = {}


@lru_cache(maxsize=4096)
def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """First byte and end of a box, relative to its address."""
    if len(shape) != len(strides) or strides[-1] != 1 or min(shape) < 1:
        raise ValueError(
            f"a box needs one stride per axis, contiguous bytes last and no empty axis: {shape}, {strides}"
        )
    reach = [(n - 1) * stride for n, stride in zip(shape, strides)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + 1


@lru_cache(maxsize=4096)
def _sectors(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...] | None]:
    """Bytes of a box, shape of its sectors and, if all rows start on a sector when the first does, their strides."""
    nbytes = int(np.prod(shape))
    sectors = (*shape[:-1], -(-shape[-1] // SECTOR))
    if any(stride % SECTOR for n, stride in zip(shape[:-1], strides) if n > 1):
        return nbytes, sectors, None
    return nbytes, sectors, (*(stride // SECTOR for stride in strides[:-1]), 1)


@lru_cache(maxsize=256)
def _rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Offsets of a box's rows, int64[rows]."""
    offsets = np.zeros(1, np.int64)
    for n, stride in zip(shape[:-1], strides):
        offsets = (offsets[:, None] + np.arange(n) * stride).ravel()
    return offsets


class Traffic:
    """loads, stores: Marks per allocation. Called by the memory that this object is attached to."""

    def __init__(self) -> None:
        self.loads: dict[Allocation, Marks] = {}
        self.stores: dict[Allocation, Marks] = {}

    @property
    def stored_bytes(self) -> int:
        return sum(stores.requested for stores in self.stores.values())

    def packed_loads(self) -> PackedLoads:
        return {
            allocation.start: (loads.requested, np.packbits(loads.marks)) for allocation, loads in self.loads.items()
        }

    def add_loads(self, memory: Allocations, packed: PackedLoads) -> None:
        """Adds loads that another process has seen."""
        for start, (requested, bits) in packed.items():
            entry = self._loaded(memory.allocation(start))
            entry.requested += requested
            entry.marks |= np.unpackbits(bits, count=len(entry.marks))

    def _loaded(self, allocation: Allocation) -> Marks:
        entry = self.loads.get(allocation)
        if entry is None:
            origin = allocation.start & -SECTOR
            entry = self.loads[allocation] = Marks(origin, -(-(allocation.end - origin) // SECTOR))
        return entry

    def load(self, allocation: Allocation, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
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

    def _stored(self, allocation: Allocation) -> Marks:
        entry = self.stores.get(allocation)
        if entry is None:
            length = -(-(allocation.end - allocation.start) // MARK_PADDING) * MARK_PADDING
            entry = self.stores[allocation] = Marks(allocation.start, length)
        return entry

    def store(self, allocation: Allocation, address: int, nbytes: int) -> None:
        entry = self._stored(allocation)
        entry.requested += nbytes
        offset = address - entry.origin
        if offset < entry.low:
            entry.low = offset
        if offset + nbytes > entry.high:
            entry.high = offset + nbytes
        entry.marks[offset : offset + nbytes] = 1

    def store_box(self, allocation: Allocation, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        entry = self._stored(allocation)
        entry.requested += _sectors(shape, strides)[0]
        offset = address - entry.origin
        low, high = extent(shape, strides)
        if offset + low < entry.low:
            entry.low = offset + low
        if offset + high > entry.high:
            entry.high = offset + high
        np.ndarray(shape, np.uint8, entry.view, offset, strides).fill(1)

    def store_lanes(self, allocation: Allocation, index: np.ndarray, width: int) -> None:
        """index: int64[lanes], of the allocation's words that are aligned to their `width` bytes."""
        entry = self._stored(allocation)
        entry.requested += width * len(index)
        words = entry.words.get(width)
        if words is None:
            first = -allocation.start % width
            length = (len(entry.marks) - first) // width
            entry.low, entry.high = 0, len(entry.marks)  # lanes' lowest and highest word would cost more than they save
            words = entry.words[width] = entry.marks[first:][: length * width].view(f"V{width}")
        words[index] = _ONES[width]
