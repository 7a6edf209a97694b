"""Global and shared memory as a kernel sees them.

Global memory is the memory of this process: a device pointer is a host address, and every access is first checked
against the live allocations, to the byte. Shared memory is one array per CTA, poisoned at the start. Both answer three
kinds of callers: one lane (`load`, `store`: Python integers), the lanes of a warp (`gather`, `scatter`: one array
operation for all), and copies (`read`, `write`, and for tensor boxes `strided`, `write_strided`: uint8 arrays).

Every access takes `who`, an object of the caller's, and hands it to `observer` where one is attached:
`observer(kind, proxy, address, shape, strides, who)` with kind "load" or "store", proxy "generic" or "async", address
an integer or the active lanes' addresses, and the box of bytes that starts at each of them. It is called after the
checks and, for a store, before the bytes change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import Fault
from emulator.hardware.allocations import NO_ALLOCATION, Allocation, Allocations
from emulator.hardware.live_barriers import MBARRIER_BYTES, LiveBarriers
from emulator.hardware.traffic import Traffic, extent
from emulator.hardware.words import STRUCT, UINT, Words, misaligned

if TYPE_CHECKING:
    from emulator.hardware.store_marks import StoreMarks

SHARED_BASE = 0x400  # the first 1 KiB of a CTA's shared window belongs to the system
RANK_SHIFT = 24  # bits 24.. of a 32-bit shared address hold the CTA's rank in its cluster

Observer = Callable[[str, str, "int | np.ndarray", tuple[int, ...], tuple[int, ...], object], None]


class GlobalMemory(Allocations):
    """Accesses to the live allocations. `traffic` and `observer` are None unless a launch attaches them."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic: Traffic | None = None
        self.observer: Observer | None = None

    # One lane

    def load(self, address: int, nbytes: int, issuer: object = None) -> int:
        """One aligned word of 1, 2, 4 or 8 bytes."""
        return self.load_vector(address, nbytes, 1, issuer)[0]

    def load_vector(self, address: int, nbytes: int, count: int, issuer: object = None) -> tuple[int, ...]:
        """`count` consecutive words (1, 2, 4 or 8), aligned to their total size."""
        width = nbytes * count
        if address & (width - 1):
            raise misaligned("load", address, width)
        allocation = self.at(address, width, "load")
        if self.observer is not None:
            self.observer("load", "generic", address, (width,), (1,), issuer)
        return STRUCT[nbytes, count].unpack_from(allocation.view, address - allocation.start)

    def store(self, address: int, value: int, nbytes: int, issuer: object = None) -> None:
        self.store_vector(address, (value,), nbytes, issuer)

    def store_vector(self, address: int, values: tuple[int, ...], nbytes: int, issuer: object = None) -> None:
        """Words (1, 2, 4 or 8) of `nbytes` bytes each, aligned to their total size."""
        width = nbytes * len(values)
        if address & (width - 1):
            raise misaligned("store", address, width)
        allocation = self.at(address, width, "store")
        if self.observer is not None:
            self.observer("store", "generic", address, (width,), (1,), issuer)
        STRUCT[nbytes, len(values)].pack_into(allocation.view, address - allocation.start, *values)
        if self.traffic is not None:
            self.traffic.store(allocation, address, width)

    # The lanes of a warp

    def gather(
        self, addresses: np.ndarray, nbytes: int, count: int = 1, mask: np.ndarray | None = None, issuer: object = None
    ) -> np.ndarray:
        """Per lane `count` words of `nbytes` bytes at addresses uint64[lanes] -> uint[count, lanes].

        Lanes outside `mask` (bool[lanes]; None: all) are not accessed and their results mean nothing.
        """
        try:
            values = self._recent_lanes.lanes(nbytes, count).load(addresses, mask)
        except IndexError:
            allocation = self._first_lane(addresses, mask)
            try:
                values = allocation.lanes(nbytes, count).load(addresses, mask)
                self._recent_lanes = allocation
            except IndexError:
                values = self._gather_each(addresses, nbytes, count, mask)
        if self.observer is not None:
            active = addresses if mask is None else addresses[mask]
            self.observer("load", "generic", active, (nbytes * count,), (1,), issuer)
        return values

    def scatter(
        self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None = None, issuer: object = None
    ) -> None:
        """Per lane values uint[count, lanes] to addresses uint64[lanes]; of lanes with one address the last stays."""
        if mask is not None:
            addresses, values = addresses.compress(mask), values.compress(mask, axis=1)
        count, nbytes = len(values), values.itemsize
        if self.observer is not None:
            self._check_each(addresses, nbytes * count)
            self.observer("store", "generic", addresses, (nbytes * count,), (1,), issuer)
        allocation = self._recent_lanes
        try:
            if not allocation.writable:
                raise IndexError
            index = allocation.lanes(nbytes, count).store(addresses, values)
        except IndexError:
            allocation = self._first_lane(addresses, None)
            try:
                if not allocation.writable:
                    raise IndexError
                index = allocation.lanes(nbytes, count).store(addresses, values)
                self._recent_lanes = allocation
            except IndexError:
                return self._scatter_each(addresses, values)
        if self.traffic is not None:
            self.traffic.store_lanes(allocation, index, nbytes * count)

    def _first_lane(self, addresses: np.ndarray, mask: np.ndarray | None) -> Allocation:
        if not len(addresses):
            return NO_ALLOCATION
        return self.allocation(addresses.item(0 if mask is None else mask.argmax())) or NO_ALLOCATION

    def _word(self, address: int, width: int, kind: str) -> Allocation:
        if address & (width - 1):
            raise misaligned(kind, address, width)
        return self.at(address, width, kind)

    def _gather_each(self, addresses: np.ndarray, nbytes: int, count: int, mask: np.ndarray | None) -> np.ndarray:
        values = np.zeros((count, len(addresses)), UINT[nbytes])
        for lane in range(len(addresses)) if mask is None else np.flatnonzero(mask).tolist():
            address = addresses.item(lane)
            allocation = self._word(address, nbytes * count, "load")
            values[:, lane] = STRUCT[nbytes, count].unpack_from(allocation.view, address - allocation.start)
        return values

    def _scatter_each(self, addresses: np.ndarray, values: np.ndarray) -> None:
        count, nbytes = len(values), values.itemsize
        self._check_each(addresses, nbytes * count)
        for address, words in zip(addresses.tolist(), values.T.tolist()):
            allocation = self.at(address, nbytes * count, "store")
            STRUCT[nbytes, count].pack_into(allocation.view, address - allocation.start, *words)
            if self.traffic is not None:
                self.traffic.store(allocation, address, nbytes * count)

    def _check_each(self, addresses: np.ndarray, width: int) -> None:
        for address in addresses.tolist():
            self._word(address, width, "store")

    # Copies

    def read(self, address: int, nbytes: int, issuer: object = None, proxy: str = "async") -> np.ndarray:
        """uint8[nbytes], a read-only view. Only reads of the async proxy count as traffic."""
        return self.strided(address, (nbytes,), (1,), issuer, proxy)

    def strided(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: object = None,
        proxy: str = "async",
    ) -> np.ndarray:
        """A box of bytes, uint8[shape], as a read-only view. Strides are in bytes, one per axis, the last one 1."""
        low, high = extent(shape, strides)
        allocation = self.at(address + low, high - low, "load")
        if self.observer is not None:
            self.observer("load", proxy, address, shape, strides, issuer)
        if self.traffic is not None and proxy == "async":
            self.traffic.load(allocation, address, shape, strides)
        return np.ndarray(shape, np.uint8, allocation.frozen, address - allocation.start, strides)

    def write(self, address: int, data: np.ndarray, issuer: object = None, proxy: str = "async") -> None:
        """data: uint8[nbytes]."""
        self.write_strided(address, (1,), data, issuer, proxy)

    def write_strided(
        self, address: int, strides: tuple[int, ...], data: np.ndarray, issuer: object = None, proxy: str = "async"
    ) -> None:
        """data: uint8 box; strides in bytes, one per axis, the last one 1."""
        low, high = extent(data.shape, strides)
        allocation = self.at(address + low, high - low, "store")
        if self.observer is not None:
            self.observer("store", proxy, address, data.shape, strides, issuer)
        np.ndarray(data.shape, np.uint8, allocation.view, address - allocation.start, strides)[...] = data
        if self.traffic is not None:
            self.traffic.store_box(allocation, address, data.shape, strides)


class SharedMemory:
    """Shared memory of one CTA: `size` bytes from offset 0x400 on, each 0xFF until written.

    data: uint8[0x400 + size], indexed by the offset in the CTA's window. Lanes' addresses are whole 32-bit shared
    addresses (rank << 24 | offset) and must carry this CTA's rank; copies take offsets.

    Nothing but mbarrier operations may touch a live mbarrier's bytes. Lanes first try the largest part without a
    barrier, where nothing needs to be looked up.
    """

    def __init__(self, size: int, rank: int = 0):
        self.rank = rank
        self.data = np.full(SHARED_BASE + size, 0xFF, np.uint8)
        self.observer: Observer | None = None
        self.marks: StoreMarks | None = None  # told of stores in the observer's place
        self._view = memoryview(self.data)
        self._live = LiveBarriers(SHARED_BASE, len(self.data))
        self._everywhere: dict[tuple[int, int], Words] = {}
        self._open: dict[tuple[int, int], Words] = {}  # in the part without barriers

    def place_barrier(self, offset: int, barrier: object) -> None:
        """An mbarrier lives in the eight bytes at `offset` from now on."""
        self._live.place(offset, barrier)
        self._open.clear()

    def remove_barrier(self, offset: int) -> None:
        """The barrier's bytes are ordinary memory again, with nothing of use in them."""
        self._live.remove(offset)
        self._open.clear()
        self.data[offset : offset + MBARRIER_BYTES] = 0xFF

    def check_range(self, offset: int, nbytes: int, kind: str = "load") -> None:
        """Fault unless `nbytes` bytes at `offset` lie in what the launch gave this CTA."""
        if offset < SHARED_BASE or offset + nbytes > len(self.data):
            raise Fault(
                f"{kind} of {nbytes} bytes at shared offset {offset:#x} of CTA rank {self.rank}: the launch's shared "
                f"memory is [{SHARED_BASE:#x}, {len(self.data):#x})"
            )

    def check(self, offset: int, nbytes: int, kind: str = "load") -> None:
        """`check_range`, and Fault if the bytes overlap a live mbarrier."""
        self.check_range(offset, nbytes, kind)
        self._live.check(offset, nbytes, kind)

    def _lane(self, address: int, width: int, kind: str) -> int:
        if address & (width - 1):
            raise misaligned(kind, address, width)
        if address >> RANK_SHIFT != self.rank:
            raise Fault(
                f"{kind} at shared address {address:#x} names CTA rank {address >> RANK_SHIFT}, not {self.rank}"
            )
        offset = address & ((1 << RANK_SHIFT) - 1)
        self.check(offset, width, kind)
        return offset

    def load(self, address: int, nbytes: int, issuer: object = None) -> int:
        """One aligned word of 1, 2, 4 or 8 bytes."""
        return self.load_vector(address, nbytes, 1, issuer)[0]

    def load_vector(self, address: int, nbytes: int, count: int, issuer: object = None) -> tuple[int, ...]:
        offset = self._lane(address, nbytes * count, "load")
        if self.observer is not None:
            self.observer("load", "generic", offset, (nbytes * count,), (1,), issuer)
        return STRUCT[nbytes, count].unpack_from(self._view, offset)

    def store(self, address: int, value: int, nbytes: int, issuer: object = None) -> None:
        self.store_vector(address, (value,), nbytes, issuer)

    def store_vector(self, address: int, values: tuple[int, ...], nbytes: int, issuer: object = None) -> None:
        offset = self._lane(address, nbytes * len(values), "store")
        if self.marks is not None:
            self.marks.stored(offset, issuer)
        elif self.observer is not None:
            self.observer("store", "generic", offset, (nbytes * len(values),), (1,), issuer)
        STRUCT[nbytes, len(values)].pack_into(self._view, offset, *values)

    def _lanes(self, nbytes: int, count: int) -> Words:
        """The words of the part without barriers."""
        words = self._open.get((nbytes, count))
        if words is None:
            words = self._open[nbytes, count] = self._words(*self._live.opening, nbytes, count)
        return words

    def _all_lanes(self, nbytes: int, count: int) -> Words:
        words = self._everywhere.get((nbytes, count))
        if words is None:
            words = self._everywhere[nbytes, count] = self._words(SHARED_BASE, len(self.data), nbytes, count)
        return words

    def _words(self, low: int, high: int, nbytes: int, count: int) -> Words:
        return Words(self.data[low:high], (self.rank << RANK_SHIFT) + low, nbytes, count, np.uint32)

    def gather(
        self, addresses: np.ndarray, nbytes: int, count: int = 1, mask: np.ndarray | None = None, issuer: object = None
    ) -> np.ndarray:
        """As GlobalMemory.gather, with addresses uint32[lanes]."""
        try:
            values = self._lanes(nbytes, count).load(addresses, mask)
        except IndexError:
            self._explain(addresses if mask is None else addresses[mask], nbytes * count, "load")
            values = self._all_lanes(nbytes, count).load(addresses, mask)
        if self.observer is not None:
            active = addresses if mask is None else addresses[mask]
            self.observer("load", "generic", active & 0xFFFFFF, (nbytes * count,), (1,), issuer)
        return values

    def scatter(
        self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None = None, issuer: object = None
    ) -> None:
        """As GlobalMemory.scatter, with addresses uint32[lanes]."""
        if mask is not None:
            addresses, values = addresses.compress(mask), values.compress(mask, axis=1)
        count, nbytes = len(values), values.itemsize
        if self.observer is not None and self.marks is None:
            self._explain(addresses, nbytes * count, "store")
            self.observer("store", "generic", addresses & 0xFFFFFF, (nbytes * count,), (1,), issuer)
        try:
            self._lanes(nbytes, count).store(addresses, values)
        except IndexError:
            self._explain(addresses, nbytes * count, "store")
            self._all_lanes(nbytes, count).store(addresses, values)
        if self.marks is not None:
            self.marks.stored(addresses, issuer)

    def _explain(self, addresses: np.ndarray, width: int, kind: str) -> None:
        """Fault for the first lane whose access is not allowed, if there is one."""
        words = self._all_lanes(1, 1)
        index = words.index(addresses)
        good = (index >= 0) & (index <= len(words.lanes) - width) & (addresses & np.uint32(width - 1) == 0)
        good &= self._live.clear_of(np.where(good, addresses & 0xFFFFFF, 0), width)
        if not good.all():
            for address in addresses[~good].tolist():
                self._lane(address, width, kind)

    def read(self, offset: int, nbytes: int, issuer: object = None, proxy: str = "async") -> np.ndarray:
        """uint8[nbytes], a view of the bytes at an offset."""
        self.check(offset, nbytes, "load")
        if self.observer is not None:
            self.observer("load", proxy, offset, (nbytes,), (1,), issuer)
        return self.data[offset : offset + nbytes]

    def write(self, offset: int, data: np.ndarray, issuer: object = None, proxy: str = "async") -> None:
        """data: uint8[nbytes]."""
        self.check(offset, len(data), "store")
        if self.observer is not None:
            self.observer("store", proxy, offset, (len(data),), (1,), issuer)
        self.data[offset : offset + len(data)] = data
