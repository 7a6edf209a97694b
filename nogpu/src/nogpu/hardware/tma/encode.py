"""Encodes tensor maps as cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col do (CUDA Driver API, "Tensor Map Object
Management").

The bits are those that `tensor_map.py` documents. Values that a field cannot hold are refused here. The other rules are
checked by decoding the result, so that a map is encoded if and only if a copy accepts it.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass

from nogpu.errors import Fault
from nogpu.hardware.tma import im2col
from nogpu.hardware.tma.im2col import IM2COL_RULES
from nogpu.hardware.tma.tensor_map import FLIPPED, RULES, TENSOR_MAP_BYTES, TensorMap

# CUtensorMapDataType -> (bits 7-10, bit 16)
DATA_TYPES = {
    **{i: (i, 0) for i in range(8)},
    **{8: (9, 0), 9: (10, 0), 10: (8, 0), 11: (7, 1), 12: (8, 1), 13: (11, 0), 14: (12, 0), 15: (13, 0)},
}
# CUtensorMapSwizzle -> bits 13-14, bits 19-20
SWIZZLES = {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (3, 0), 4: (3, 1), 5: (3, FLIPPED), 6: (3, 3)}


def _limit(what: str, values: Sequence[int], low: int, high: int, first: int = 0) -> None:
    for i, value in enumerate(values, start=first):
        if not low <= value <= high:
            raise Fault(f"tensor map {what} {value} of dimension {i}; limit {low} to {high} ({RULES})")


# Dataclasses take the fields of the last base first: the maps' arguments are in the driver's order.
@dataclass(frozen=True)
class _Tensor:
    """The driver's enumerator of the type, and sizes, dimension 0 (contiguous) first."""

    data_type: int
    address: int
    dims: Sequence[int]  # elements
    strides: Sequence[int]  # bytes, of dimensions 1 and up


@dataclass(frozen=True)
class _Box:
    box: Sequence[int]  # elements


@dataclass(frozen=True)
class _Pixels:
    lower: Sequence[int]  # corner of the bounding box, W first
    upper: Sequence[int]
    channels: int  # channels of a pixel
    pixels: int


@dataclass(frozen=True)
class _Options:
    """Steps of the traversal by dimension, and the driver's enumerators."""

    element_strides: Sequence[int]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    fill_nan: int = 0


@dataclass(frozen=True)
class TiledMap(_Options, _Box, _Tensor):
    """Arguments of cuTensorMapEncodeTiled."""

    def encode(self) -> bytes:
        """The 128 bytes of the tensor map; the last 64 are zero. Raises Fault, naming the field, for arguments that the
        driver refuses.
        """
        _limit("box", self.box, 1, 256)
        return _encoded(self, 0, bytes(size - 1 for size in self.box))


@dataclass(frozen=True)
class Im2colMap(_Options, _Pixels, _Tensor):
    """Arguments of cuTensorMapEncodeIm2col."""

    def encode(self) -> bytes:
        """The 128 bytes of the tensor map, in nogpu's own bits (im2col.py). Raises Fault, naming the field, for
        arguments that the driver refuses.
        """
        rank = len(self.dims)
        im2col.check_rank(rank)
        bits = im2col.corner_bits(rank)
        for what, corner in (("lower", self.lower), ("upper", self.upper)):
            _limit(f"{what} corner", corner, -(1 << bits - 1), (1 << bits - 1) - 1, first=1)
        for what, value, limit in (
            ("channels per pixel", self.channels, 256),
            ("pixels per column", self.pixels, 1024),
        ):
            if not 1 <= value <= limit:
                raise Fault(f"tensor map {what} {value}; limit 1 to {limit} ({IM2COL_RULES})")
        return _encoded(self, im2col.IM2COL, im2col.packed(self.lower, self.upper, self.channels, self.pixels))


def _encoded(of: TiledMap | Im2colMap, flags: int, tail: bytes) -> bytes:
    """Bytes of the map. flags: further bits of the word at byte 8. tail: bytes from byte 55 on."""
    _check_fields(of)
    code, variant = DATA_TYPES[of.data_type]
    span, atomicity = SWIZZLES[of.swizzle]
    flags |= len(of.dims) - 1 << 4 | code << 7 | of.interleave << 11 | span << 13 | of.fill_nan << 15 | variant << 16
    flags |= of.l2_promotion << 17 | atomicity << 19
    pad = (0,) * (5 - len(of.dims))
    raw = struct.pack(
        "<QI4II5IHx",
        of.address,
        flags,
        *(stride >> 4 & 0xFFFFFFFF for stride in of.strides),
        *pad,
        sum((stride >> 36) << 4 * i for i, stride in enumerate(of.strides)),
        *(dim - 1 for dim in of.dims),
        *pad,
        sum((step - 1) << 3 * i for i, step in enumerate(of.element_strides)),
    )
    raw = (raw + tail).ljust(TENSOR_MAP_BYTES, b"\0")
    for i, stride in enumerate(of.strides):
        if stride % 16:
            raise Fault(f"tensor map stride {stride} of dimension {i + 1} is not a multiple of 16 ({RULES})")
    TensorMap.decode(raw)
    return raw


def _check_fields(of: TiledMap | Im2colMap) -> None:
    """Raises Fault for values that their fields cannot hold."""
    if not 1 <= len(of.dims) <= 5:
        raise Fault(f"tensor map rank {len(of.dims)}; limit 1 to 5 ({RULES})")
    known: tuple[tuple[str, int, Container[int]], ...] = (
        ("data type", of.data_type, DATA_TYPES),
        ("swizzle", of.swizzle, SWIZZLES),
        ("interleave", of.interleave, range(3)),
        ("L2 promotion", of.l2_promotion, range(4)),
        ("out-of-bounds fill", of.fill_nan, range(2)),
    )
    for what, value, values in known:
        if value not in values:
            raise Fault(f"tensor map {what} {value} is not known ({RULES})")
    _limit("size", of.dims, 1, 1 << 32)
    _limit("element stride", of.element_strides, 1, 8)
    _limit("stride", (0, *of.strides), 0, (1 << 40) - 1)
