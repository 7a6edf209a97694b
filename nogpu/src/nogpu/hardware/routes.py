"""Tile loads that compiled code repeats (native/loads.c): routes that Python has found legal, and pending loads."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from nogpu import headers
from nogpu.hardware.native import library

if TYPE_CHECKING:
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.tma.tensor_map import TensorMap
    from nogpu.hardware.traffic import Marks

(PENDING,) = headers.constants("native/loads.h", "PENDING")


class Operands(NamedTuple):
    """Of a tile load: addresses."""

    destination: int
    tensor_map: int
    barrier: int


@headers.mirrors("native/loads.h")
class Route(ctypes.Structure):
    """A tile load that Python has found legal."""


@headers.mirrors("native/loads.h")
class Load(ctypes.Structure):
    """A load that compiled code has issued."""


@headers.mirrors("native/loads.h", "Loads")
class LoadState(ctypes.Structure):
    """The routes and the pending loads."""


class Loads:
    """The routes of a machine's run, and the loads that compiled code has issued."""

    def __init__(self) -> None:
        self._state = LoadState()
        self.address = ctypes.addressof(self._state)
        self._maps: dict[int, TensorMap] = {}  # by the addresses that routes have of them

    def __len__(self) -> int:
        """Loads that are pending."""
        return self._state.count

    def learn(
        self, operands: Operands, shared: SharedMemory, offset: int, tensor_map: TensorMap, marks: Marks, to: MBarrier
    ) -> None:
        """A load is legal, as far as that depends on its operands: by a CTA to an offset of its shared memory, marked
        there, and signalled to an mbarrier of its own.
        """
        tile = tensor_map.tile
        assert tile is not None  # or compiled code can't copy with this map
        self._maps[tile] = tensor_map
        route = Route(*operands, shared.address, shared.window, tile, marks.address, to.address, offset)
        route.nbytes, route.rank = tensor_map.box_bytes, tensor_map.rank
        library().learn_route(self.address, ctypes.addressof(route))

    def forget(self, shared: SharedMemory) -> None:
        """The CTA of this memory is over."""
        library().forget_routes(self.address, shared.address)

    def forget_barrier(self, barrier: MBarrier) -> bool:
        """An mbarrier is no longer live. Whether a pending load is on its way to it."""
        return bool(library().forget_barrier(self.address, barrier.address))

    def forget_allocations(self) -> None:
        """The live allocations have changed: Python does the pending loads, and finds routes legal anew."""
        library().forget_allocations(self.address)

    def take(self) -> Load:
        """The load that was issued first, which is no longer pending."""
        state = self._state
        load = Load.from_buffer_copy(state.pending[state.first % PENDING])
        state.first += 1
        state.count -= 1
        return load
