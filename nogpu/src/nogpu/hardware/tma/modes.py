"""Modes of tensor copies: the boxes of the tensor that a copy moves (PTX ISA, "Tensor Access Modes").

| mode | of instructions | boxes | coordinates |
|---|---|---|---|
| `tile` | `.tile` | one | one for each dimension |
| `rows` | `.tile::gather4`, `.tile::scatter4` | four rows of a matrix | column, row, row, row, row |
| `im2col` | `.im2col`, `.im2col_no_offs` | one for each pixel | channel, base W, H, D, image, offset W, H, D |

A 3-D tensor of images has no H and D, a 4-D one no D. Pixels follow one another along W, then H, then D, then image, by
the element strides. Their bases stay in the bounding box, from the lower corner to the tensor's last element plus the
upper corner, both of them included; the offsets are added to each base (PTX ISA, "im2col mode"). The pixel
behind the last one of a line of the box is the first one of the next line.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from nogpu.hardware.tma.tensor_map import TensorMap

Mode = Literal["tile", "rows", "im2col"]
GATHERED_ROWS = 4


def part_count(tensor_map: TensorMap, mode: Mode) -> int:
    """Number of a copy's boxes."""
    if mode == "tile":
        return 1
    if mode == "rows":
        return GATHERED_ROWS
    return tensor_map.im2col.pixels if tensor_map.im2col is not None else 1


def parts(tensor_map: TensorMap, coords: tuple[int, ...], mode: Mode) -> tuple[tuple[int, ...], ...]:
    """Coordinates of each box of a legal copy, in the order in which they lie in shared memory."""
    if mode == "tile":
        return (coords,)
    if mode == "rows":
        column, *found = coords
        return tuple((column, row) for row in found)
    return _pixels(tensor_map, coords)


@lru_cache(maxsize=4096)
def _pixels(tensor_map: TensorMap, coords: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    rank, shape = tensor_map.rank, tensor_map.im2col
    assert shape is not None
    channel, *base, image = coords[:rank]
    ends = [dim + upper for dim, upper in zip(tensor_map.dims[1:], shape.upper)]
    found = []
    for _ in range(shape.pixels):
        found.append((channel, *(place + offset for place, offset in zip(base, coords[rank:])), image))
        for i, (step, end, lower) in enumerate(zip(tensor_map.element_strides[1:], ends, shape.lower)):
            base[i] += step
            if base[i] < end:
                break
            base[i] = lower
        else:
            image += 1
    return tuple(found)
