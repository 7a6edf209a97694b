"""Places in global memory from which copies read tensor maps repeatedly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.hardware.tma.tensor_map import SIGNIFICANT_BYTES, TENSOR_MAP_BYTES, TensorMap

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

LIMIT = 4096  # number of places that are remembered


class KnownMap:
    """Place in global memory with a tensor map, and the map that was there last."""

    __slots__ = ("_bytes", "_map", "_view", "version")

    def __init__(self, version: int, view: memoryview) -> None:
        self.version, self._view = version, view  # version of the memory's allocations in which the place exists
        self._bytes = b""
        self._map: TensorMap | None = None

    def decoded(self) -> TensorMap:
        """Tensor map at the place. Raises Fault as `TensorMap.decode` does."""
        now = bytes(self._view)
        if self._map is None or now != self._bytes:
            self._map = TensorMap.decode(now)
            self._bytes = now
        return self._map


def map_at(memory: GlobalMemory, address: int) -> KnownMap:
    """Place at an address. Raises Fault unless it is in a live allocation."""
    known = memory.tensor_maps.get(address)
    if known is None or known.version != memory.version:
        version, found = memory.version, memory.at(address, TENSOR_MAP_BYTES, "load")
        if len(memory.tensor_maps) >= LIMIT:
            memory.tensor_maps.clear()
        place = address - found.start
        known = memory.tensor_maps[address] = KnownMap(version, found.frozen[place : place + SIGNIFICANT_BYTES])
    return known
