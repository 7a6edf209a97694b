"""Rules of tensor and bulk copies that do not depend on the state of global memory; every check raises Fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nogpu.arithmetic.reductions import TENSOR_OPERATIONS
from nogpu.errors import Fault
from nogpu.hardware.tma.swizzle import CHUNK
from nogpu.hardware.tma.tensor_map import TensorMap

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.shared_memory import SharedMemory

TILE_ALIGNMENT = 128
GATHERED_ROWS = 4
PADDED_UNIT = 128  # elements of padded types
RESTRICTIONS = "PTX ISA, Restriction on Tensor Copy instructions"


def tile_bytes(tensor_map: TensorMap, rows: bool = False) -> int:
    """Bytes of a box in shared memory."""
    return tensor_map.inner_bytes * GATHERED_ROWS if rows else tensor_map.box_bytes


def counted_bytes(tensor_map: TensorMap, rows: bool = False) -> int:
    """Bytes that a load adds to the mbarrier, whether it is clipped or not: those of the elements, without padding.

    PTX leaves open whether padding counts. CUTLASS's collectives for mixed 8-, 6- and 4-bit operands do not expect it.
    """
    return tensor_map.packed_bytes * (GATHERED_ROWS if rows else tensor_map.rows)


def fits(tensor_map: TensorMap, coords: Sequence[int], rows: bool) -> bool:
    """True if `check_map` passes for a map that is modelled."""
    fits = len(coords) == tensor_map.rank if not rows else tensor_map.rank == 2 and tensor_map.box[1] == 1
    return fits and not (coords[0] & 1 and tensor_map.element.bits == 4)


def check_map(tensor_map: TensorMap, coords: Sequence[int], rows: bool = False) -> None:
    """Raises Fault unless TMA accepts these coordinates with this map.

    coords: in elements, dimension 0 first. rows: the modes tile::gather4 and tile::scatter4.
    """
    instruction = "cp.async.bulk.tensor"
    if rows:
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


def check_tile(
    tensor_map: TensorMap, coords: Sequence[int], shared: SharedMemory, offset: int, kind: str, rows: bool = False
) -> None:
    """Raises Fault unless the copy is legal, whatever the state of global memory.

    offset: of the box in shared memory, bytes. kind: "store" into shared memory, or "load". coords, rows: as check_map.
    """
    check_map(tensor_map, coords, rows)
    if offset % TILE_ALIGNMENT:
        raise Fault(
            f"cp.async.bulk.tensor: shared memory offset {offset:#x} is not a multiple of {TILE_ALIGNMENT} "
            "(PTX ISA, cp.async.bulk.tensor)"
        )
    if kind == "load" and tensor_map.element.name == "b4x16_p64":
        raise Fault(f"cp.async.bulk.tensor to global memory does not have b4x16_p64 elements ({RESTRICTIONS})")
    if kind == "load" and min(coords) < 0:
        raise Fault(
            f"cp.async.bulk.tensor to global memory: coordinates {tuple(coords)}, must not be negative ({RESTRICTIONS})"
        )
    shared.check(offset, tile_bytes(tensor_map, rows), kind)


def check_reduction(tensor_map: TensorMap, operation: str) -> None:
    """Raises Fault unless cp.reduce.async.bulk.tensor has the operation for the map's element type."""
    types = TENSOR_OPERATIONS[operation]
    if tensor_map.element.name not in types:
        raise Fault(
            f"cp.reduce.async.bulk.tensor .{operation} of {tensor_map.element.name} elements; there is one of "
            f"{', '.join(types)} (PTX ISA, cp.reduce.async.bulk)"
        )


def check_bulk(memory: GlobalMemory, address: int, shared: SharedMemory, offset: int, nbytes: int, kind: str) -> None:
    """Raises Fault unless a bulk copy between these places is legal. kind: "store" into shared memory, or "load"."""
    for what, value in (("global address", address), ("shared memory offset", offset), ("size", nbytes)):
        if value % CHUNK:
            raise Fault(f"cp.async.bulk: {what} {value:#x} is not a multiple of {CHUNK} (PTX ISA, cp.async.bulk)")
    if nbytes:
        memory.at(address, nbytes, "load" if kind == "store" else "store")
        shared.check(offset, nbytes, kind)
