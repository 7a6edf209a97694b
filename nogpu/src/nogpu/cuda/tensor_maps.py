"""Tensor maps for kernels of PTX text: cuTensorMapEncodeTiled with names, and with defaults from an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nogpu.cuda.arrays import address_of
from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.tma.encode import TiledMap

ELEMENTS = {
    name: number
    for number, name in enumerate(
        (
            *("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16"),
            *("float32_ftz", "tfloat32", "tfloat32_ftz", "16u4_align8b", "16u4_align16b", "16u6_align16b"),
        )
    )
}
"""Name -> CUtensorMapDataType."""
SWIZZLES = {
    name: number
    for number, name in enumerate(
        ("none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")
    )
}
INTERLEAVES = {"none": 0, "16B": 1, "32B": 2}
PROMOTIONS = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
FILLS = {"zero": 0, "nan": 1}
_SAME_SIZE = {"int8": "uint8", "int16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "bool": "uint8"}


def tensor_map(
    array: Any,
    box: Sequence[int],
    *,
    element: str | None = None,
    dims: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    element_strides: Sequence[int] | None = None,
    swizzle: str = "none",
    interleave: str = "none",
    l2_promotion: str = "none",
    fill: str = "zero",
) -> bytes:
    """The 128 bytes of a tensor map (CUDA Driver API, cuTensorMapEncodeTiled).

    array: a NumPy array or a torch tensor on device "cuda", as `Kernel.launch` takes them, or an address. box: elements
    of a tile. element: a key of ELEMENTS, by default the array's type. dims: elements, strides: bytes of the dimensions
    from 1 on, both by default the array's. element_strides: by default 1. All start with dimension 0, the contiguous
    one, which is an array's last. swizzle, interleave, l2_promotion, fill: keys of the tables above. A type of less
    than 8 bits needs element, dims (in elements) and strides, since an array of bytes does not say them. Raises
    EmulatorError for what the driver refuses, and for an array whose last dimension is not contiguous.
    """
    try:
        address = array if isinstance(array, int) and not isinstance(array, bool) else address_of(array)
        if element is None:
            element = _element(array)
        if dims is None or strides is None:
            found = _shape(array)
            dims, strides = (found[0] if dims is None else dims), (found[1] if strides is None else strides)
        kinds = [
            _number(what, name, names)
            for what, name, names in (
                ("element", element, ELEMENTS),
                ("interleave", interleave, INTERLEAVES),
                ("swizzle", swizzle, SWIZZLES),
                ("l2_promotion", l2_promotion, PROMOTIONS),
                ("fill", fill, FILLS),
            )
        ]
        sizes = [_whole(what, x) for what, x in (("dims", dims), ("strides", strides), ("box", box))]
        steps = [1] * len(sizes[0]) if element_strides is None else _whole("element_strides", element_strides)
        rank = len(sizes[0])
        if (len(sizes[1]), len(sizes[2]), len(steps)) != (rank - 1, rank, rank):
            raise ValueError(
                f"{rank} dims, {len(sizes[1])} strides, a box of {len(sizes[2])} and {len(steps)} element strides: "
                "they are of one rank, with a stride less"
            )
        return TiledMap(kinds[0], address, sizes[0], sizes[1], sizes[2], steps, *kinds[1:]).encode()
    except Fault as fault:
        raise EmulatorError(f"tensor map refused: {fault.reason}") from None
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise EmulatorError(f"tensor map refused: {error}") from None


def _element(array: Any) -> str:
    if isinstance(array, int):
        raise TypeError("an address says no type: name the element")
    name = str(array.dtype).removeprefix("torch.")
    return _SAME_SIZE.get(name, name)


def _shape(array: Any) -> tuple[list[int], list[int]]:
    """(dims, strides in bytes from dimension 1 on) of an array, its last dimension first."""
    if isinstance(array, int):
        raise TypeError("an address says no shape: give dims and strides")
    nbytes = array.element_size() if hasattr(array, "element_size") else array.itemsize
    steps = [step * nbytes for step in array.stride()] if hasattr(array, "stride") else list(array.strides)
    if steps and steps[-1] != nbytes and array.shape[-1] != 1:
        raise ValueError(f"the array's last dimension has a stride of {steps[-1]} bytes, its elements have {nbytes}")
    return [int(size) for size in array.shape[::-1]], steps[-2::-1] if len(steps) > 1 else []


def _number(what: str, name: object, names: dict[str, int]) -> int:
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"{what} {name!r}: one of {', '.join(names)} is expected")
    return names[name]


def _whole(what: str, values: Sequence[int]) -> list[int]:
    found = list(values)
    if not all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in found):
        raise TypeError(f"{what} {found!r}: integers are expected")
    return [int(value) for value in found]
