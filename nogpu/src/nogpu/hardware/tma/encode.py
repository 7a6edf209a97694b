"""Encodes tensor maps as cuTensorMapEncodeTiled does (CUDA Driver API, "Tensor Map Object Management").

The bits are those that `tensor_map.py` documents. Values that a field cannot hold are refused here. The other rules are
checked by decoding the result, so that a map is encoded if and only if a copy accepts it.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass

from nogpu.errors import Fault
from nogpu.hardware.tma.tensor_map import FLIPPED, RULES, TENSOR_MAP_BYTES, TensorMap

# CUtensorMapDataType -> (bits 7-10, bit 16)
DATA_TYPES = {
    **{i: (i, 0) for i in range(8)},
    **{8: (9, 0), 9: (10, 0), 10: (8, 0), 11: (7, 1), 12: (8, 1), 13: (11, 0), 14: (12, 0), 15: (13, 0)},
}
# CUtensorMapSwizzle -> bits 13-14, bits 19-20
SWIZZLES = {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (3, 0), 4: (3, 1), 5: (3, FLIPPED), 6: (3, 3)}


def _limit(what: str, values: Sequence[int], low: int, high: int) -> None:
    for i, value in enumerate(values):
        if not low <= value <= high:
            raise Fault(f"tensor map {what} {value} of dimension {i}; limit {low} to {high} ({RULES})")


@dataclass(frozen=True)
class TiledMap:
    """Arguments of cuTensorMapEncodeTiled: the driver's enumerators, and sizes, dimension 0 (contiguous) first."""

    data_type: int
    address: int
    dims: Sequence[int]  # elements
    strides: Sequence[int]  # bytes, of dimensions 1 and up
    box: Sequence[int]  # elements
    element_strides: Sequence[int]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    fill_nan: int = 0

    def encode(self) -> bytes:
        """The 128 bytes of the tensor map; the last 64 are zero. Raises Fault, naming the field, where the driver
        refuses.
        """
        self._check_fields()
        code, variant = DATA_TYPES[self.data_type]
        span, atomicity = SWIZZLES[self.swizzle]
        flags = len(self.dims) - 1 << 4 | code << 7 | self.interleave << 11 | span << 13 | self.fill_nan << 15
        flags |= variant << 16 | self.l2_promotion << 17 | atomicity << 19
        pad = (0,) * (5 - len(self.dims))
        raw = struct.pack(
            "<QI4II5IHx5B4x",
            self.address,
            flags,
            *(stride >> 4 & 0xFFFFFFFF for stride in self.strides),
            *pad,
            sum((stride >> 36) << 4 * i for i, stride in enumerate(self.strides)),
            *(dim - 1 for dim in self.dims),
            *pad,
            sum((step - 1) << 3 * i for i, step in enumerate(self.element_strides)),
            *(size - 1 for size in self.box),
            *pad,
        ).ljust(TENSOR_MAP_BYTES, b"\0")
        for i, stride in enumerate(self.strides):
            if stride % 16:
                raise Fault(f"tensor map stride {stride} of dimension {i + 1} is not a multiple of 16 ({RULES})")
        TensorMap.decode(raw)
        return raw

    def _check_fields(self) -> None:
        """Raises Fault for values that their fields cannot hold."""
        if not 1 <= len(self.dims) <= 5:
            raise Fault(f"tensor map rank {len(self.dims)}; limit 1 to 5 ({RULES})")
        known: tuple[tuple[str, int, Container[int]], ...] = (
            ("data type", self.data_type, DATA_TYPES),
            ("swizzle", self.swizzle, SWIZZLES),
            ("interleave", self.interleave, range(3)),
            ("L2 promotion", self.l2_promotion, range(4)),
            ("out-of-bounds fill", self.fill_nan, range(2)),
        )
        for what, value, values in known:
            if value not in values:
                raise Fault(f"tensor map {what} {value} is not known ({RULES})")
        _limit("size", self.dims, 1, 1 << 32)
        _limit("box", self.box, 1, 256)
        _limit("element stride", self.element_strides, 1, 8)
        _limit("stride", (0, *self.strides), 0, (1 << 40) - 1)
