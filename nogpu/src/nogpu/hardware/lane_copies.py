"""cp.async that compiled code keeps (native/lane_copies.c)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.hardware.native import library

if TYPE_CHECKING:
    from nogpu.hardware.warp import Warp

MOST_COPIES, REFUSED = headers.constants("native/lane_copies.h", "MOST_COPIES", "REFUSED")
"""Copies of a CTA that compiled code keeps at most; answer of `copy_lanes` and `run_copies`."""


@headers.mirrors("native/lane_copies.h")
class LaneCopies(ctypes.Structure):
    """The copies that the lanes of a warp have issued with one instruction: each lane writes `size` bytes, `counts`
    bytes from its source, then zeros.

    places, sources: addresses, 32 bits in shared and 64 bits in global memory.
    """

    size: int
    sources: ctypes.Array
    places: ctypes.Array
    counts: ctypes.Array


@headers.mirrors("native/lane_copies.h", copies=LaneCopies)
class KeptCopies(ctypes.Structure):
    """Copies that compiled code has issued.

    number: index in the order of issue. group: number of the warp's group. warp, pc: who has issued them. left: mask of
    lanes.
    """

    copies: LaneCopies
    number: int
    group: int
    warp: int
    pc: int
    left: int


LaneQueue = headers.structure("native/lane_copies.h", "LaneQueue")
"""State of the copies that compiled code keeps."""


class CompiledCopies:
    """The copies of a CTA that compiled code keeps, for the warps of which Python has none."""

    def __init__(self, is_prompt: bool) -> None:
        """is_prompt: copies happen at their issue."""
        self._room = np.empty(MOST_COPIES * ctypes.sizeof(KeptCopies), np.uint8)  # touched where it is used
        self._state = LaneQueue(copies=self._room.ctypes.data, is_prompt=is_prompt)
        self.address = ctypes.addressof(self._state)

    def take(self, warp: Warp) -> list[tuple[KeptCopies, int]]:
        """Removes and returns the outstanding copies of a warp, in the order of issue, each with the number of groups
        from its own on.
        """
        kept = (KeptCopies * self._state.used).from_buffer(self._room)
        taken = [KeptCopies.from_buffer_copy(each) for each in kept if each.left and each.warp == warp.index]
        if taken:
            library().forget_copies(warp.registers.context_address)
        return [(each, self._state.committed[warp.index] - each.group) for each in taken]

    def tell(self, warp: Warp, in_python: bool) -> None:
        """Tells compiled code whether Python has copies, or groups of them, of a warp."""
        self._state.in_python[warp.index] = in_python
