"""Local memory of a warp's lanes (PTX ISA, "Local State Space")."""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic.lanes import UINTS, lane_list
from nogpu.errors import Fault


class LocalMemory:
    """Local memory of a warp's lanes: uint8[32, size], 0xFF until written.

    Methods take a mask of active lanes and an address per lane. They raise Fault for misaligned addresses and for those
    past the end.
    """

    def __init__(self, size: int):
        self.data = np.full((32, size), 0xFF, np.uint8)

    def _places(self, mask: int, address: np.ndarray, width: int) -> list[tuple[int, int]]:
        places = []
        for lane in lane_list(mask):
            offset = int(address[lane]) & 0xFFFFFFFF
            if offset % width or offset + width > self.data.shape[1]:
                raise Fault(
                    f"access of {width} bytes at local address {offset:#x}: misaligned, or past {self.data.shape[1]:#x}"
                )
            places.append((lane, offset))
        return places

    def load(self, mask: int, address: np.ndarray, nbytes: int, count: int) -> np.ndarray:
        """Loads per lane `count` words of `nbytes` bytes: uint[count, 32]; inactive lanes get zeros."""
        values = np.zeros((count, 32), UINTS[8 * nbytes])
        for lane, offset in self._places(mask, address, nbytes * count):
            values[:, lane] = self.data[lane, offset : offset + nbytes * count].view(UINTS[8 * nbytes])
        return values

    def store(self, mask: int, address: np.ndarray, values: np.ndarray) -> None:
        """Stores values uint[count, 32], the words of each lane."""
        width = values.itemsize * len(values)
        for lane, offset in self._places(mask, address, width):
            self.data[lane, offset : offset + width] = np.ascontiguousarray(values[:, lane]).view(np.uint8)
