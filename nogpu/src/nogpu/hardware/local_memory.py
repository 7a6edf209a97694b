"""Local memory of a warp's lanes (PTX ISA, "Local State Space")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nogpu.arithmetic.lanes import UINTS, lane_list
from nogpu.errors import Fault
from nogpu.hardware.native import Context

Observer = Callable[[str, list[tuple[int, int]], int], None]
"""observer(kind, places, nbytes): lanes are about to load or store `nbytes` bytes each. places: (lane, offset)."""

_NONE = np.empty((32, 0), np.uint8)


class LocalMemory:
    """Local memory of a warp's lanes: uint8[32, size], 0xFF until written.

    Methods take a mask of active lanes and an address per lane. They raise Fault for misaligned addresses and for those
    past the end.
    """

    def __init__(self, size: int):
        self.data = np.full((32, size), 0xFF, np.uint8) if size else _NONE
        self.observer: Observer | None = None

    def tell(self, context: Context) -> None:
        """Gives compiled code the memory."""
        if self.data.size:
            context.local, context.local_bytes = self.data.ctypes.data, self.data.shape[1]

    def _places(self, mask: int, address: np.ndarray, width: int) -> list[tuple[int, int]]:
        places = []
        for lane in lane_list(mask):
            offset = int(address[lane]) & 0xFFFFFFFF
            if offset % width or offset + width > self.data.shape[1]:
                raise Fault(
                    f"access of {width} bytes at local address {offset:#x}: misaligned, or outside of the "
                    f"thread's local memory, [0, {self.data.shape[1]:#x})"
                )
            places.append((lane, offset))
        return places

    def load(self, mask: int, address: np.ndarray, nbytes: int, count: int) -> np.ndarray:
        """Loads per lane `count` words of `nbytes` bytes: uint[count, 32]; inactive lanes get zeros."""
        values = np.zeros((count, 32), UINTS[8 * nbytes])
        places = self._places(mask, address, nbytes * count)
        if self.observer is not None:
            self.observer("load", places, nbytes * count)
        for lane, offset in places:
            values[:, lane] = self.data[lane, offset : offset + nbytes * count].view(UINTS[8 * nbytes])
        return values

    def store(self, mask: int, address: np.ndarray, values: np.ndarray) -> None:
        """Stores values uint[count, 32], the words of each lane."""
        width = values.itemsize * len(values)
        places = self._places(mask, address, width)
        if self.observer is not None:
            self.observer("store", places, width)
        for lane, offset in places:
            self.data[lane, offset : offset + width] = np.ascontiguousarray(values[:, lane]).view(np.uint8)
