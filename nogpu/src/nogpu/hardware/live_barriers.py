"""Live mbarriers of a CTA's shared memory, and the bytes that they occupy.

The eight bytes of a live mbarrier are opaque: until mbarrier.inval only mbarrier operations may read or write them
(PTX ISA, "mbarrier").
"""

from __future__ import annotations

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.native import Barrier

MBARRIER_BYTES = 8


class LiveBarriers:
    """Live mbarriers in shared memory that ends at offset `end`."""

    def __init__(self, end: int):
        self._barriers: dict[int, object] = {}  # by offset
        # Barriers that compiled code has, by address. A barrier that is no longer live stays while a load is on its way
        # to it, so that no other gets its address.
        self.by_address: dict[int, Barrier] = {}
        # Addresses of the barriers in this process, 0 for none; by offset / 8.
        self.addresses = np.zeros((end >> 3) + 1, np.uint64)
        # 1 if a barrier is there, by offset / 8. The first byte, where none can be, is 1 if there are any.
        self._bytes = bytearray((end >> 3) + 1)
        self.guarded = np.frombuffer(self._bytes, bool)  # view of `_bytes`

    def __len__(self) -> int:
        return len(self._barriers)

    def place(self, offset: int, barrier: object) -> None:
        """Adds a barrier at `offset`. barrier: any object whose text names it in messages."""
        self._barriers[offset] = barrier
        if isinstance(barrier, Barrier):
            self.addresses[offset >> 3], barrier.offset = barrier.address, offset
            self.by_address[barrier.address] = barrier
        self._bytes[0] = self._bytes[offset >> 3] = 1

    def remove(self, offset: int, is_awaited: bool = False) -> None:
        """Removes the barrier at `offset`. is_awaited: compiled code has a load on its way to it."""
        barrier = self._barriers.pop(offset)
        if isinstance(barrier, Barrier) and not is_awaited:
            del self.by_address[barrier.address]
        self.addresses[offset >> 3] = 0
        self.guarded[offset >> 3] = False
        self.guarded[0] = bool(self._barriers)

    def clear_of(self, places: np.ndarray, width: int) -> np.ndarray:
        """bool[n]: True where the aligned words of `width` <= 32 bytes at offsets `places` touch no barrier."""
        clear = ~self.guarded[places >> 3]
        for further in range(MBARRIER_BYTES, width, MBARRIER_BYTES):
            clear &= ~self.guarded[places + further >> 3]
        return clear

    def check(self, offset: int, nbytes: int, kind: str) -> None:
        """Raises Fault if any of the bytes belong to a live barrier. kind: "load" or "store"."""
        barriers = self._barriers
        if not barriers or not nbytes:
            return
        if nbytes <= MBARRIER_BYTES and offset % nbytes == 0 and offset & -MBARRIER_BYTES not in barriers:
            return
        touched = self._bytes.find(1, offset >> 3, (offset + nbytes + 7) >> 3)
        if touched >= 0:
            barrier = barriers[touched << 3]
            raise Fault(
                f"{kind} of {nbytes} bytes at shared offset {offset:#x} touches a live barrier, whose bytes are opaque "
                f"until mbarrier.inval (PTX ISA, mbarrier): {barrier}"
            )
