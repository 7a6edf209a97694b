"""Part of a tensor map that only im2col copies have (CUDA Driver API, cuTensorMapEncodeIm2col), in nogpu's own bits.

| byte | bits | field |
|---|---|---|
| 8-11 | 23 | 1 |
| 55 | | channels per pixel, minus 1 |
| 56-57 | | pixels per column, minus 1 |
| 58-59 | 16, 8 or 5 each | lower corner of the bounding box, W, H, D |
| 60-61 | 16, 8 or 5 each | upper corner |

The bits of NVIDIA's encoder are not known. A GPU cannot use these maps, nor this module the driver's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from nogpu.errors import Fault

IM2COL_RULES = "cuTensorMapEncodeIm2col, CUDA Driver API"
IM2COL = 1 << 23


class Im2col(NamedTuple):
    """Pixels of an im2col copy; corners by dimension, W first."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    pixels: int

    @property
    def inside(self) -> bool:
        """True if the bounding box does not leave the tensor."""
        return min(self.lower) >= 0 >= max(self.upper)


def corner_bits(rank: int) -> int:
    """Number of bits of a corner's coordinate, in two's complement. An offset has as many, unsigned."""
    return 16 // (rank - 2)


def check_rank(rank: int) -> None:
    """Raises Fault unless tensors of this rank have pixels."""
    if not 3 <= rank <= 5:
        raise Fault(f"tensor map rank {rank} for im2col copies; limit 3 to 5 ({IM2COL_RULES})")


def packed(lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int) -> bytes:
    """Bytes of a map from byte 55 on."""
    bits = corner_bits(len(lower) + 2)
    corners = (sum((place & (1 << bits) - 1) << bits * i for i, place in enumerate(c)) for c in (lower, upper))
    return struct.pack("<B3H", channels - 1, pixels - 1, *corners)


def unpacked(raw: bytes, rank: int) -> Im2col:
    """Pixels of a map. Raises Fault for a rank that has none."""
    check_rank(rank)
    bits = corner_bits(rank)
    sign = 1 << bits - 1
    _, pixels, *corners = struct.unpack_from("<B3H", raw, 55)
    lower, upper = (tuple((word >> bits * i & 2 * sign - 1 ^ sign) - sign for i in range(rank - 2)) for word in corners)
    return Im2col(lower, upper, pixels + 1)
