"""Encodes tensor maps as cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col do (CUDA Driver API, "Tensor Map Object
Management").

The bits are those that `tensor_map.py` documents. Values that a field cannot hold are refused here. The other rules are
checked by decoding the result, so that a map is encoded if and only if a copy accepts it.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence

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


def encode_tiled(
    data_type: int,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    element_strides: Sequence[int],
    interleave: int = 0,
    swizzle: int = 0,
    l2_promotion: int = 0,
    fill_nan: int = 0,
) -> bytes:
    """The 128 bytes of a tensor map; the last 64 are zero.

    data_type, interleave, swizzle, l2_promotion, fill_nan: the driver's enumerators. dims, box, element_strides: in
    elements, dimension 0 (contiguous) first. strides: bytes, of dimensions 1 and up. Raises Fault, naming the field,
    where the driver refuses.
    """
    _limit("box", box, 1, 256)
    kinds = interleave, swizzle, l2_promotion, fill_nan
    return _encoded(data_type, address, dims, strides, element_strides, kinds, 0, bytes(size - 1 for size in box))


def encode_im2col(
    data_type: int,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    channels: int,
    pixels: int,
    element_strides: Sequence[int],
    interleave: int = 0,
    swizzle: int = 0,
    l2_promotion: int = 0,
    fill_nan: int = 0,
) -> bytes:
    """The 128 bytes of a tensor map for im2col copies, in nogpu's own bits (im2col.py).

    lower, upper: corners of the bounding box, W first. channels: of a pixel. The rest as in `encode_tiled`.
    """
    rank = len(dims)
    im2col.check_rank(rank)
    bits = im2col.corner_bits(rank)
    for what, corner in (("lower", lower), ("upper", upper)):
        _limit(f"{what} corner", corner, -(1 << bits - 1), (1 << bits - 1) - 1, first=1)
    for what, value, limit in (("channels per pixel", channels, 256), ("pixels per column", pixels, 1024)):
        if not 1 <= value <= limit:
            raise Fault(f"tensor map {what} {value}; limit 1 to {limit} ({IM2COL_RULES})")
    kinds = interleave, swizzle, l2_promotion, fill_nan
    tail = im2col.packed(lower, upper, channels, pixels)
    return _encoded(data_type, address, dims, strides, element_strides, kinds, im2col.IM2COL, tail)


def _encoded(
    data_type: int,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    element_strides: Sequence[int],
    kinds: tuple[int, int, int, int],
    flags: int,
    tail: bytes,
) -> bytes:
    """The map's bytes. flags: further ones at byte 8. tail: bytes from 55 on."""
    interleave, swizzle, l2_promotion, fill_nan = kinds
    rank = len(dims)
    if not 1 <= rank <= 5:
        raise Fault(f"tensor map rank {rank}; limit 1 to 5 ({RULES})")
    known: tuple[tuple[str, int, Container[int]], ...] = (
        ("data type", data_type, DATA_TYPES),
        ("swizzle", swizzle, SWIZZLES),
        ("interleave", interleave, range(3)),
        ("L2 promotion", l2_promotion, range(4)),
        ("out-of-bounds fill", fill_nan, range(2)),
    )
    for what, value, values in known:
        if value not in values:
            raise Fault(f"tensor map {what} {value} is not known ({RULES})")
    _limit("size", dims, 1, 1 << 32)
    _limit("element stride", element_strides, 1, 8)
    _limit("stride", (0, *strides), 0, (1 << 40) - 1)
    code, variant = DATA_TYPES[data_type]
    span, atomicity = SWIZZLES[swizzle]
    flags |= rank - 1 << 4 | code << 7 | interleave << 11 | span << 13 | fill_nan << 15 | variant << 16
    flags |= l2_promotion << 17 | atomicity << 19
    pad = (0,) * (5 - rank)
    high = sum((stride >> 36) << 4 * i for i, stride in enumerate(strides))
    steps = sum((step - 1) << 3 * i for i, step in enumerate(element_strides))
    raw = struct.pack(
        "<QI4II5IHx",
        address,
        flags,
        *(stride >> 4 & 0xFFFFFFFF for stride in strides),
        *pad[: 5 - rank],
        high,
        *(dim - 1 for dim in dims),
        *pad,
        steps,
    )
    raw = (raw + tail).ljust(TENSOR_MAP_BYTES, b"\0")
    for i, stride in enumerate(strides):
        if stride % 16:
            raise Fault(f"tensor map stride {stride} of dimension {i + 1} is not a multiple of 16 ({RULES})")
    TensorMap.decode(raw)
    return raw
