"""The mbarriers that live in a CTA's shared memory: which bytes are theirs, and which part is free of them.

The eight bytes of a live mbarrier are opaque: nothing but mbarrier operations may read or write them until
mbarrier.inval (PTX ISA, "mbarrier").
"""

from __future__ import annotations

import itertools

import numpy as np

from emulator.errors import Fault

MBARRIER_BYTES = 8


class LiveBarriers:
    """Of offsets [low, high) of shared memory. opening: the largest part (low, high) without a barrier."""

    def __init__(self, low: int, high: int):
        self.low, self.high = low, high
        self.opening = low, high
        self._barriers: dict[int, object] = {}  # by offset
        self._guarded = np.zeros((high >> 3) + 1, bool)  # by offset / 8

    def place(self, offset: int, barrier: object) -> None:
        """barrier: its text names it in messages."""
        self._barriers[offset] = barrier
        self._guarded[offset >> 3] = True
        self._find_opening()

    def remove(self, offset: int) -> None:
        del self._barriers[offset]
        self._guarded[offset >> 3] = False
        self._find_opening()

    def _find_opening(self) -> None:
        edges = [self.low - MBARRIER_BYTES, *sorted(self._barriers), self.high]
        openings = [(low + MBARRIER_BYTES, high) for low, high in itertools.pairwise(edges)]
        self.opening = max(openings, key=lambda part: part[1] - part[0])

    def clear_of(self, places: np.ndarray, width: int) -> np.ndarray:
        """Whether naturally aligned words of `width` bytes, 32 at most, at these offsets touch no barrier: bool[n]."""
        clear = ~self._guarded[places >> 3]
        for further in range(MBARRIER_BYTES, width, MBARRIER_BYTES):
            clear &= ~self._guarded[places + further >> 3]
        return clear

    def check(self, offset: int, nbytes: int, kind: str) -> None:
        """Fault if any of the bytes are a barrier's."""
        barriers = self._barriers
        if not barriers or not nbytes:
            return
        if nbytes <= MBARRIER_BYTES and offset % nbytes == 0 and offset & -MBARRIER_BYTES not in barriers:
            return
        touched = self._guarded[offset >> 3 : (offset + nbytes + 7) >> 3]
        if touched.any():
            barrier = barriers[(offset >> 3) + int(touched.argmax()) << 3]
            raise Fault(
                f"{kind} of {nbytes} bytes at shared offset {offset:#x} touches a live barrier, whose bytes are opaque "
                f"until mbarrier.inval (PTX ISA, mbarrier): {barrier}"
            )
