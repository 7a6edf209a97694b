"""Tile loads that compiled code repeats (native/loads.c): routes that Python has found legal, and pending loads."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from nogpu import headers
from nogpu.hardware.native import library

if TYPE_CHECKING:
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.tma.tensor_map import TensorMap
    from nogpu.hardware.traffic import Marks

(PENDING,) = headers.constants("native/loads.h", "PENDING")


class Operands(NamedTuple):
    """Addresses of a tile load's operands."""

    destination: int
    tensor_map: int
    barrier: int


Route = headers.structure("native/loads.h", "Route")
"""Tile load that Python has found legal."""


@headers.mirrors("native/loads.h")
class Load(ctypes.Structure):
    """Load that compiled code has issued."""


LoadState = headers.structure("native/loads.h", "Loads")
"""Routes and pending loads."""


class Loads:
    """Routes of a machine's run, and the loads that compiled code has issued."""

    def __init__(self) -> None:
        self._state = LoadState()
        self.address = ctypes.addressof(self._state)
        self._maps: dict[int, TensorMap] = {}  # tensor maps by address, for routes

    def __len__(self) -> int:
        """Number of pending loads."""
        return self._state.count

    def learn(
        self, operands: Operands, own: int, offset: int, tensor_map: TensorMap, marks: Marks, to: MBarrier
    ) -> None:
        """Adds the route of a load with legal operands: by a CTA of rank `own` to an offset of its shared memory,
        counted in `marks`, and signalled to an mbarrier of its cluster.
        """
        tile = tensor_map.tile
        assert tile is not None and to.home is not None  # compiled code can't copy with other maps
        self._maps[tile] = tensor_map
        route = Route(*operands, tile, marks.address, offset, to.offset, own, to.home.rank)
        route.nbytes, route.rank = tensor_map.box_bytes, tensor_map.rank
        library().learn_route(self.address, ctypes.addressof(route))

    def awaits(self, barrier: MBarrier) -> bool:
        """True if a load is on its way to an mbarrier."""
        return bool(library().awaits_load(self.address, barrier.address))

    def forget_allocations(self) -> None:
        """Removes all routes, since the live allocations have changed: Python performs the pending loads and finds
        new routes.
        """
        library().forget_allocations(self.address)

    def take(self) -> Load:
        """Removes and returns the load that was issued first."""
        state = self._state
        load = Load.from_buffer_copy(state.pending[state.first % PENDING])
        state.first += 1
        state.count -= 1
        return load
