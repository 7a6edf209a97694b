"""Shared memory of a CTA, with the methods and observers that `memory.py` describes."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.copying import Window
from nogpu.hardware.live_barriers import MBARRIER_BYTES, LiveBarriers
from nogpu.hardware.memory import RANK_SHIFT, SHARED_BASE, Observer
from nogpu.hardware.words import STRUCT, Words, misaligned

if TYPE_CHECKING:
    from nogpu.hardware.store_marks import StoreMarks
    from nogpu.hardware.warp import Issuer

UNWRITTEN = 0xFF  # a byte that nobody has written
CHECKED_LIMIT = 1000  # number of ranges of bytes that are remembered as legal


class SharedMemory:
    """Shared memory of one CTA: `size` bytes from offset 0x400 on, each `UNWRITTEN` at first.

    Lanes' addresses are whole 32-bit shared addresses (rank << 24 | offset) and must carry this CTA's rank; copies take
    offsets. Only mbarrier operations may touch a live mbarrier's bytes.
    """

    def __init__(self, size: int, rank: int = 0):
        self.rank = rank  # rank of the CTA in its cluster
        self.data = np.full(SHARED_BASE + size, UNWRITTEN, np.uint8)  # by offset in the CTA's window
        self._observer: Observer | None = None
        self.notes_only = False  # the observer only notes copies: compiled code may make them
        self.closed = False  # True once the CTA has exited
        self._marks: StoreMarks | None = None
        self._window: Window | None = None  # made at its first use
        self._view = self.data.data
        self.live_barriers = LiveBarriers(len(self.data))
        self._checked: set[tuple[int, int]] = set()  # (offset, bytes) of accesses that `check` has allowed
        self._words: dict[tuple[int, int], Words] = {}  # (bytes, count) -> the words

    @cached_property
    def window(self) -> int:
        """Address of the structure that compiled copies take."""
        guarded = self.live_barriers.guarded.ctypes.data
        barriers = self.live_barriers.addresses.ctypes.data
        self._window = Window(self.data.ctypes.data, len(self.data), guarded, closed=self.closed, barriers=barriers)
        self._tell()
        return ctypes.addressof(self._window)

    def _tell(self) -> None:
        """Copies to C whether accesses are observed, and where stores are marked."""
        if self._window is not None:
            self._window.observed = self.refuses_copies
            self._window.watched = self._observer is not None and self._marks is None
            self._window.marked = self._marks.address if self._marks is not None else None

    def tell_tensor_memory(self, address: int) -> None:
        """Tells compiled code the address of the CTA's `TensorMemoryState`."""
        assert self._window is not None  # made with the CTA
        self._window.tensor = address

    @property
    def observer(self) -> Observer | None:
        """Observer that is called for each access, or None. Marks are one while there are any."""
        return self._observer if self._marks is None else self._marks.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observer = observer
        self._tell()

    def follow(self, observer: Observer) -> None:
        """Passes accesses to an observer that only notes copies, and whose rules take the place of the marks."""
        self._observer, self._marks, self.notes_only = observer, None, True
        self._tell()

    @property
    def marks(self) -> StoreMarks | None:
        """Marks that record threads' stores in place of the observer, or None."""
        return self._marks

    @marks.setter
    def marks(self, marks: StoreMarks | None) -> None:
        self._marks = marks
        self._tell()

    @property
    def refuses_copies(self) -> bool:
        """True if compiled code must not copy, since the observer would miss its copies. Marks hear of them."""
        return self._observer is not None and not self.notes_only

    def close(self) -> None:
        """Closes the memory: the CTA has exited."""
        self.closed = True
        if self._window is not None:
            self._window.closed = True

    @cached_property
    def address(self) -> int:
        """Address of offset 0, in this process."""
        return self.data.ctypes.data

    def place_barrier(self, offset: int, barrier: object) -> None:
        """Adds an mbarrier in the eight bytes at `offset`."""
        self.live_barriers.place(offset, barrier)
        self._checked.clear()

    def remove_barrier(self, offset: int, is_awaited: bool = False) -> None:
        """Removes the mbarrier at `offset`: its bytes are ordinary memory again, poisoned.

        is_awaited: as `LiveBarriers.remove` takes it.
        """
        self.live_barriers.remove(offset, is_awaited)
        self.data[offset : offset + MBARRIER_BYTES] = UNWRITTEN

    def is_poisoned(self, offset: int) -> bool:
        """True if the eight bytes at `offset` are as `remove_barrier` has left them."""
        return bool((self.data[offset : offset + MBARRIER_BYTES] == UNWRITTEN).all())

    def has(self, offset: int, end: int) -> bool:
        """True if the bytes at offsets [offset, end) lie in the CTA's shared memory."""
        return offset >= SHARED_BASE and end <= len(self.data)

    @property
    def bounds(self) -> str:
        """The legal offsets, in messages."""
        return f"[{SHARED_BASE:#x}, {len(self.data):#x})"

    def check_range(self, offset: int, nbytes: int, kind: str = "load") -> None:
        """Raises Fault unless `nbytes` bytes at `offset` lie in the CTA's shared memory. kind: "load" or "store"."""
        if not self.has(offset, offset + nbytes):
            raise Fault(
                f"{kind} of {nbytes} bytes at shared offset {offset:#x} of CTA rank {self.rank}: the launch's shared "
                f"memory is {self.bounds}"
            )

    def check(self, offset: int, nbytes: int, kind: str = "load") -> None:
        """Raises Fault as `check_range` does, and if the bytes overlap a live mbarrier."""
        if (offset, nbytes) in self._checked:
            return
        self.check_range(offset, nbytes, kind)
        self.live_barriers.check(offset, nbytes, kind)
        if len(self._checked) > CHECKED_LIMIT:
            self._checked.clear()
        self._checked.add((offset, nbytes))

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

    def load_vector(self, address: int, nbytes: int, count: int, issuer: Issuer | None = None) -> tuple[int, ...]:
        """Loads like `GlobalMemory.load_vector`, with a 32-bit shared address."""
        offset = self._lane(address, nbytes * count, "load")
        if self.observer is not None:
            self.observer("load", "generic", offset, (nbytes * count,), (1,), issuer)
        return STRUCT[nbytes, count].unpack_from(self._view, offset)

    def store_vector(self, address: int, values: tuple[int, ...], nbytes: int, issuer: Issuer | None = None) -> None:
        """Stores like `GlobalMemory.store_vector`, with a 32-bit shared address."""
        offset = self._lane(address, nbytes * len(values), "store")
        if self.marks is not None:
            self.marks.stored(offset, self._known(issuer))
        elif self.observer is not None:
            self.observer("store", "generic", offset, (nbytes * len(values),), (1,), issuer)
        STRUCT[nbytes, len(values)].pack_into(self._view, offset, *values)

    def _lanes(self, addresses: np.ndarray, nbytes: int, count: int) -> Words:
        """Words, for lanes with these addresses. Raises IndexError if an address touches a live mbarrier; the words
        raise it for other illegal addresses. `_check_lanes` then names the lane's address.
        """
        if self.live_barriers and not self.live_barriers.clear_of(addresses & 0xFFFFFF, nbytes * count).all():
            raise IndexError
        words = self._words.get((nbytes, count))
        if words is None:
            start = (self.rank << RANK_SHIFT) + SHARED_BASE
            words = self._words[nbytes, count] = Words(self.data[SHARED_BASE:], start, nbytes, count, np.uint32)
        return words

    def gather(
        self,
        addresses: np.ndarray,
        nbytes: int,
        count: int = 1,
        mask: np.ndarray | None = None,
        issuer: Issuer | None = None,
    ) -> np.ndarray:
        """Loads like `GlobalMemory.gather`, with addresses uint32[lanes]."""
        active = addresses if mask is None else addresses[mask]
        try:
            values = self._lanes(active, nbytes, count).load(addresses, mask)
        except IndexError:
            self._check_lanes(active, nbytes * count, "load")
            raise
        if self.observer is not None:
            self.observer("load", "generic", active & 0xFFFFFF, (nbytes * count,), (1,), issuer)
        return values

    def scatter(
        self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None = None, issuer: Issuer | None = None
    ) -> None:
        """Stores like `GlobalMemory.scatter`, with addresses uint32[lanes]."""
        if mask is not None:
            addresses, values = addresses.compress(mask), values.compress(mask, axis=1)
        count, nbytes = len(values), values.itemsize
        if self.observer is not None and self.marks is None:
            self._check_lanes(addresses, nbytes * count, "store")
            self.observer("store", "generic", addresses & 0xFFFFFF, (nbytes * count,), (1,), issuer)
        try:
            self._lanes(addresses, nbytes, count).store(addresses, values)
        except IndexError:
            self._check_lanes(addresses, nbytes * count, "store")
            raise
        if self.marks is not None:
            self.marks.stored(addresses, self._known(issuer))

    @staticmethod
    def _known(issuer: Issuer | None) -> Issuer:
        if issuer is None:
            raise ValueError("a store that the async proxy may read needs an issuer")
        return issuer

    def _check_lanes(self, addresses: np.ndarray, width: int, kind: str) -> None:
        """Raises Fault for the first lane whose access is not allowed, if there is one."""
        words = self._lanes(addresses[:0], 1, 1)
        index = words.index(addresses)
        good = (index >= 0) & (index <= len(words.lanes) - width) & (addresses & np.uint32(width - 1) == 0)
        good &= self.live_barriers.clear_of(np.where(good, addresses & 0xFFFFFF, 0), width)
        if not good.all():
            for address in addresses[~good].tolist():
                self._lane(address, width, kind)

    def read(self, offset: int, nbytes: int, issuer: Issuer | None = None, proxy: str = "async") -> np.ndarray:
        """View uint8[nbytes] of the bytes at an offset."""
        self.check(offset, nbytes, "load")
        if self.observer is not None:
            self.observer("load", proxy, offset, (nbytes,), (1,), issuer)
        return self.data[offset : offset + nbytes]

    def write(self, offset: int, data: np.ndarray, issuer: Issuer | None = None, proxy: str = "async") -> None:
        """Writes data uint8[nbytes] to an offset."""
        self.check(offset, len(data), "store")
        if self.observer is not None:
            self.observer("store", proxy, offset, (len(data),), (1,), issuer)
        self.data[offset : offset + len(data)] = data
