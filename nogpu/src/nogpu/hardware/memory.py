"""Global memory of a kernel, and the interface that all memories share.

Global memory is the memory of this process: a device pointer is a host address, and every access is first checked
against the live allocations, to the byte. Shared memory (`shared_memory.py`) is one array per CTA. Both have methods
for three kinds of callers: one lane (`load`, `store`: Python integers), the lanes of a warp (`gather`, `scatter`: one
array operation for all), and copies (`read`, `write`, and for tensor boxes `strided`, `write_strided`: uint8 arrays).
All of them raise Fault for an access that is not allowed.

Every access takes its issuer and passes it to the memory's `observer`, if it has one:
`observer(kind, proxy, address, shape, strides, issuer)` with kind "load" or "store", proxy "generic" or "async",
address an integer or the active lanes' addresses, and the box of bytes that starts at each of them. The call
follows the checks and, for a store, precedes the change of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu import headers
from nogpu.hardware.allocations import NO_ALLOCATION, Allocation, Allocations
from nogpu.hardware.traffic import Marks, Traffic, extent
from nogpu.hardware.words import STRUCT, UINT, misaligned

if TYPE_CHECKING:
    from nogpu.hardware.warp import Issuer

SHARED_BASE, RANK_SHIFT, UNWRITTEN = headers.constants("native/engine.h", "SHARED_BASE", "RANK_SHIFT", "UNWRITTEN")

Observer = Callable[[str, str, "int | np.ndarray", tuple[int, ...], tuple[int, ...], "Issuer | None"], None]


class GlobalMemory(Allocations):
    """Live allocations, and a kernel's accesses to them."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic: Traffic | None = None  # traffic of the launch that runs, if it is counted
        self.tensor_maps: dict[int, Any] = {}  # `tma.known_maps.KnownMap` by address, of maps that copies have used
        self.observer: Observer | None = None
        self.notes_only = False  # the observer only notes copies: compiled code may make them

    @property
    def refuses_copies(self) -> bool:
        """True if compiled code must not copy, since the observer would miss its copies."""
        return self.observer is not None and not self.notes_only

    def note(self, kind: str, proxy: str, address: int, nbytes: int, issuer: Issuer | None) -> None:
        """Passes adjacent bytes that were not accessed by the methods below to the observer, if there is one."""
        if self.observer is not None:
            self.observer(kind, proxy, address, (nbytes,), (1,), issuer)

    def counted(self, kind: str, address: int) -> Marks | None:
        """Marks of the launch's loads from the allocation that holds an address, or of its stores to it. kind: "load"
        or "store".

        Returns None if compiled copies cannot add to them: traffic is not counted, there are no marks yet, an observer
        must see every access, or stores would go to a read-only allocation.
        """
        traffic, found = self.traffic, self._recent
        if traffic is None or self.refuses_copies:
            return None
        if not found.start <= address < found.end:
            found = self.holding(address)
        if kind == "load":
            return traffic.loads.get(found)
        return traffic.stores.get(found) if found.writable else None

    # One lane

    def load_vector(self, address: int, nbytes: int, count: int, issuer: Issuer | None = None) -> tuple[int, ...]:
        """Loads `count` (1, 2, 4 or 8) adjacent unsigned words of `nbytes` bytes, aligned to their total size."""
        width = nbytes * count
        if address & (width - 1):
            raise misaligned("load", address, width)
        allocation = self.at(address, width, "load")
        if self.observer is not None:
            self.observer("load", "generic", address, (width,), (1,), issuer)
        return STRUCT[nbytes, count].unpack_from(allocation.view, address - allocation.start)

    def store_vector(self, address: int, values: tuple[int, ...], nbytes: int, issuer: Issuer | None = None) -> None:
        """Stores 1, 2, 4 or 8 adjacent unsigned words of `nbytes` bytes, aligned to their total size."""
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
        self,
        addresses: np.ndarray,
        nbytes: int,
        count: int = 1,
        mask: np.ndarray | None = None,
        issuer: Issuer | None = None,
    ) -> np.ndarray:
        """Loads per lane `count` words of `nbytes` bytes at addresses uint64[lanes] -> uint[count, lanes].

        Lanes outside `mask` (bool[lanes]; None: all) are not accessed; their results are arbitrary.
        """
        try:
            values = self._first_lane(addresses, mask).lanes(nbytes, count).load(addresses, mask)
        except IndexError:
            values = self._gather_each(addresses, nbytes, count, mask)
        if self.observer is not None:
            active = addresses if mask is None else addresses[mask]
            self.observer("load", "generic", active, (nbytes * count,), (1,), issuer)
        return values

    def scatter(
        self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None = None, issuer: Issuer | None = None
    ) -> None:
        """Stores values uint[count, lanes] to addresses uint64[lanes]; of equal addresses the last lane wins."""
        if mask is not None:
            addresses, values = addresses.compress(mask), values.compress(mask, axis=1)
        count, nbytes = len(values), values.itemsize
        if self.observer is not None:
            self._check_each(addresses, nbytes * count)
            self.observer("store", "generic", addresses, (nbytes * count,), (1,), issuer)
        allocation = self._first_lane(addresses, None)
        try:
            if not allocation.writable:
                raise IndexError
            index = allocation.lanes(nbytes, count).store(addresses, values)
        except IndexError:
            return self._scatter_each(addresses, values)
        if self.traffic is not None:
            self.traffic.store_lanes(allocation, index, nbytes * count)

    def _first_lane(self, addresses: np.ndarray, mask: np.ndarray | None) -> Allocation:
        if not len(addresses):
            return NO_ALLOCATION
        return self.holding(addresses.item(0 if mask is None else mask.argmax()))

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

    def read(self, address: int, nbytes: int, issuer: Issuer | None = None, proxy: str = "async") -> np.ndarray:
        """Read-only view uint8[nbytes] of the bytes at an address. Only reads of the async proxy count as traffic."""
        return self.strided(address, (nbytes,), (1,), issuer, proxy)

    def strided(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        issuer: Issuer | None = None,
        proxy: str = "async",
    ) -> np.ndarray:
        """Read-only view uint8[shape] of a box of bytes. strides: bytes, one per axis, the last one 1."""
        low, high = extent(shape, strides)
        allocation = self.at(address + low, high - low, "load")
        if self.observer is not None:
            self.observer("load", proxy, address, shape, strides, issuer)
        if self.traffic is not None and proxy == "async":
            self.traffic.load(allocation, address, shape, strides)
        return np.ndarray(shape, np.uint8, allocation.frozen, address - allocation.start, strides)

    def write(self, address: int, data: np.ndarray, issuer: Issuer | None = None, proxy: str = "async") -> None:
        """Writes data uint8[nbytes] to an address."""
        self.write_strided(address, (1,), data, issuer, proxy)

    def write_strided(
        self,
        address: int,
        strides: tuple[int, ...],
        data: np.ndarray,
        issuer: Issuer | None = None,
        proxy: str = "async",
    ) -> None:
        """Writes a box of bytes, data uint8[shape]. strides: bytes, one per axis, the last one 1."""
        low, high = extent(data.shape, strides)
        allocation = self.at(address + low, high - low, "store")
        if self.observer is not None:
            self.observer("store", proxy, address, data.shape, strides, issuer)
        np.ndarray(data.shape, np.uint8, allocation.view, address - allocation.start, strides)[...] = data
        if self.traffic is not None:
            self.traffic.store_box(allocation, address, data.shape, strides)
