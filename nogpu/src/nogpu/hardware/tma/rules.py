"""Rules of tensor and bulk copies that do not depend on the state of global memory; every check raises Fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nogpu import headers
from nogpu.arithmetic.reductions import TENSOR_OPERATIONS
from nogpu.errors import Fault
from nogpu.hardware.tma.im2col import corner_bits
from nogpu.hardware.tma.modes import Mode, part_count
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.hardware.tma.tensor_map import TensorMap

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.shared_memory import SharedMemory

(TILE_ALIGNMENT,) = headers.constants("native/copies.c", "TILE_ALIGNMENT")
PADDED_UNIT = 128  # elements of padded types
RESTRICTIONS = "PTX ISA, Restriction on Tensor Copy instructions"


def tile_bytes(tensor_map: TensorMap, mode: Mode = "tile") -> int:
    """Bytes of a copy in shared memory."""
    return tensor_map.box_bytes * part_count(tensor_map, mode)


def counted_bytes(tensor_map: TensorMap, mode: Mode = "tile") -> int:
    """Bytes that a load adds to the mbarrier, whether it is clipped or not: those of the elements, without padding.

    PTX leaves open whether padding counts. CUTLASS's collectives for mixed 8-, 6- and 4-bit operands expect none.
    """
    return tensor_map.packed_bytes * tensor_map.rows * part_count(tensor_map, mode)


def fits(tensor_map: TensorMap, coords: Sequence[int], mode: Mode) -> bool:
    """True if `check_map` passes for a map that is modelled."""
    if mode == "tile":
        fits = tensor_map.im2col is None and len(coords) == tensor_map.rank
    elif mode == "rows":
        fits = tensor_map.im2col is None and tensor_map.rank == 2 and tensor_map.box[1] == 1
    else:
        fits = tensor_map.im2col is not None and not _broken_by_pixels(tensor_map, coords)
    return fits and not (coords[0] & 1 and tensor_map.element.bits == 4)


def _broken_by_pixels(tensor_map: TensorMap, coords: Sequence[int]) -> str:
    """The rule of im2col copies that coordinates and offsets break, "" if there is none."""
    assert tensor_map.im2col is not None
    rank, offsets = tensor_map.rank, coords[tensor_map.rank :]
    if len(coords) != 2 * rank - 2:
        return f"{len(coords) // 2 + 1} coordinates for a tensor map of rank {rank}"
    limit = (1 << corner_bits(rank)) - 1
    for i, (base, dim, lower, upper, offset) in enumerate(
        zip(coords[1:], tensor_map.dims[1:], *tensor_map.im2col[:2], offsets), start=1
    ):
        if not lower <= base <= dim - 1 + upper:
            return (
                f"coordinate {base} in dimension {i} is outside of the bounding box from {lower} to {dim - 1 + upper} "
                "(PTX ISA, im2col mode)"
            )
        if offset > limit:
            return f"im2col offset {offset} in dimension {i}; limit {limit} (PTX ISA, im2col mode)"
    return ""


def check_map(tensor_map: TensorMap, coords: Sequence[int], mode: Mode = "tile") -> None:
    """Raises Fault unless TMA accepts these coordinates with this map.

    coords: in elements, as modes.py lists them.
    """
    instruction = "cp.async.bulk.tensor"
    if (mode == "im2col") != (tensor_map.im2col is not None):
        encoder = "cuTensorMapEncodeTiled" if mode == "im2col" else "cuTensorMapEncodeIm2col"
        raise Fault(f"{instruction} in {mode if mode == 'im2col' else 'tile'} mode with a tensor map of {encoder}")
    if mode == "im2col":
        if reason := _broken_by_pixels(tensor_map, coords):
            raise Fault(f"{instruction}: {reason}")
    elif mode == "rows":
        if tensor_map.rank != 2 or tensor_map.box[1] != 1:
            raise Fault(
                f"{instruction} of four rows: the tensor map has rank {tensor_map.rank} and a box of {tensor_map.box}; "
                "the rank must be 2 and the box one row high (PTX ISA, tile::gather4 and tile::scatter4 modes)"
            )
    elif len(coords) != tensor_map.rank:
        raise Fault(f"{instruction}: {len(coords)} coordinates for a tensor map of rank {tensor_map.rank}")
    if not tensor_map.modelled:
        raise _not_modelled(tensor_map)
    if tensor_map.element.bits == 4 and coords[0] % 2:
        raise Fault(f"{instruction}: coordinate {coords[0]} of 4-bit elements is not at a byte boundary")
    if tensor_map.padded and coords[0] % PADDED_UNIT:
        raise Fault(
            f"{instruction}: coordinate {coords[0]} of {tensor_map.element.name} elements is not a multiple of "
            f"{PADDED_UNIT} ({RESTRICTIONS})"
        )


def _not_modelled(tensor_map: TensorMap) -> Fault:
    instruction = "cp.async.bulk.tensor"
    if tensor_map.interleave != "none":
        return Fault(f"{instruction}: interleave {tensor_map.interleave} is not modelled")
    return Fault(
        f"{instruction}: element stride {tensor_map.element_strides[0]} in dimension 0; "
        "TMA has none there (cuTensorMapEncodeTiled, CUDA Driver API)"
    )


def stays_inside(tensor_map: TensorMap, coords: Sequence[int]) -> bool:
    """True if a copy to global memory may have these coordinates and the map's corners."""
    return min(coords) >= 0 and (tensor_map.im2col is None or tensor_map.im2col.inside)


def check_tile(
    tensor_map: TensorMap, coords: Sequence[int], shared: SharedMemory, offset: int, kind: str, mode: Mode = "tile"
) -> None:
    """Raises Fault unless the copy is legal, whatever the state of global memory.

    offset: bytes, of the box in shared memory. kind: "store" into shared memory, or "load". coords: as for `check_map`.
    """
    check_map(tensor_map, coords, mode)
    if offset % TILE_ALIGNMENT:
        raise Fault(
            f"cp.async.bulk.tensor: shared memory offset {offset:#x} is not a multiple of {TILE_ALIGNMENT} "
            "(PTX ISA, cp.async.bulk.tensor)"
        )
    if kind == "load" and tensor_map.element.name == "b4x16_p64":
        raise Fault(f"cp.async.bulk.tensor to global memory does not have b4x16_p64 elements ({RESTRICTIONS})")
    if kind == "load" and not stays_inside(tensor_map, coords):
        if min(coords) >= 0 and tensor_map.im2col is not None:
            raise Fault(
                f"cp.async.bulk.tensor to global memory: corners {tensor_map.im2col.lower} and "
                f"{tensor_map.im2col.upper} of the bounding box; the lower one must not be negative, the upper one not "
                f"positive ({RESTRICTIONS})"
            )
        raise Fault(
            f"cp.async.bulk.tensor to global memory: coordinates {tuple(coords)}, must not be negative ({RESTRICTIONS})"
        )
    shared.check(offset, tile_bytes(tensor_map, mode), kind)


def check_reduction(tensor_map: TensorMap, operation: str) -> None:
    """Raises Fault unless cp.reduce.async.bulk.tensor has the operation for the map's element type."""
    types = TENSOR_OPERATIONS[operation]
    if tensor_map.element.name not in types:
        raise Fault(
            f"cp.reduce.async.bulk.tensor .{operation} of {tensor_map.element.name} elements; there is one of "
            f"{', '.join(types)} (PTX ISA, cp.reduce.async.bulk)"
        )


def check_bulk(
    memory: GlobalMemory,
    address: int,
    shared: SharedMemory,
    offset: int,
    nbytes: int,
    kind: str,
    ignored: Sequence[int] = (0, 0),
) -> None:
    """Raises Fault unless a bulk copy between these places is legal.

    kind: "store" into shared memory, or "load". ignored: bytes at the start and at the end that the copy does not
    touch in global memory (PTX ISA, cp.async.bulk, .ignore_oob, .cp_mask).
    """
    for count in ignored:
        if count >= CHUNK:
            raise Fault(f"cp.async.bulk.ignore_oob: {count} bytes are ignored; limit 0 to 15 (PTX ISA, cp.async.bulk)")
    for what, value in (("global address", address), ("shared memory offset", offset), ("size", nbytes)):
        if value % CHUNK:
            raise Fault(f"cp.async.bulk: {what} {value:#x} is not a multiple of {CHUNK} (PTX ISA, cp.async.bulk)")
    if nbytes > sum(ignored):
        memory.at(address + ignored[0], nbytes - sum(ignored), "load" if kind == "store" else "store")
    if nbytes:
        shared.check(offset, nbytes, kind)
