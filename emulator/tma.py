"""Tensor and bulk copies between global and shared memory: the movement of bytes, without barriers, queues or order.

A box arrives in shared memory densely packed, dimension 0 fastest, and is then swizzled: the number of a 16-byte chunk
is changed by its absolute address in shared memory, not by its place in the box (PTX ISA, "Swizzling Modes"). With i =
address / 16:

    span 128: i ^= i >> 3 & 7        span 64: i ^= i >> 3 & 3        span 32: i ^= i >> 3 & 1

Elements outside the tensor are filled on a load and dropped on a store (PTX ISA, "Tensor Dimension, size and format"
and "cp.async.bulk.tensor"). Every function raises Fault for what the hardware does not allow, and hands `who` to the
memories' observers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.errors import Fault
from emulator.tensormap import PADDED_TYPES, TensorMap

if TYPE_CHECKING:
    from emulator.memory import GlobalMemory, SharedMemory

CHUNK = 16
TILE_ALIGNMENT = 128
_SWIZZLE_MASKS = {0: 0, 32: 1, 64: 3, 128: 7}
# A 16-byte item that NumPy moves as one, without looking at it.
_CHUNK_TYPE = np.complex128


def swizzle(chunks: np.ndarray, span: int) -> np.ndarray:
    """Where the hardware puts 16-byte chunks: absolute chunk numbers (int64, any shape) to absolute chunk numbers.

    span: 32, 64 or 128 bytes, 0 for none (PTX ISA, "Swizzling Modes").
    """
    return chunks ^ (chunks >> 3 & _SWIZZLE_MASKS[span])


def chunk_view(shared: SharedMemory) -> np.ndarray:
    """The whole of shared memory as 16-byte items; item i holds the bytes from address 16 i."""
    data = shared.data
    return data[: data.size & -CHUNK].view(_CHUNK_TYPE)


@lru_cache(maxsize=1024)
def _swizzled_range(first_chunk: int, rows: int, row_chunks: int, span: int) -> np.ndarray:
    """int64[rows, row_chunks]: where the chunks of a box land, relative to a multiple of 1024 bytes."""
    linear = first_chunk + np.arange(rows * row_chunks).reshape(rows, row_chunks)
    places = swizzle(linear, span)
    places.flags.writeable = False
    return places


class _Clip(NamedTuple):
    """The part of a box that lies inside the tensor.

    inside: slices of the box, outermost dimension first, the last one in bytes; None if the whole box is inside.
    address, shape, strides: the same part in global memory, last axis in bytes; shape has a 0 where nothing is inside.
    """

    inside: tuple[slice, ...] | None
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@lru_cache(maxsize=8192)
def _clip(tensor_map: TensorMap, coords: tuple[int, ...]) -> _Clip:
    bits = tensor_map.element.bits
    address = tensor_map.address
    inside, shape, strides = [], [], []
    whole = True
    for i, (start, dim, count, step) in enumerate(
        zip(coords, tensor_map.dims, tensor_map.counts, tensor_map.element_strides, strict=True)
    ):
        low = min(count, max(0, -(start // step)))
        high = max(low, min(count, -((start - dim) // step)))
        whole = whole and high - low == count
        first = start + low * step
        if i == 0:
            address += first * bits // 8
            inside.append(slice(low * bits // 8, high * bits // 8))
            shape.append((high - low) * bits // 8)
            strides.append(1)
        else:
            address += first * tensor_map.strides[i - 1]
            inside.append(slice(low, high))
            shape.append(high - low)
            strides.append(step * tensor_map.strides[i - 1])
    return _Clip(None if whole else tuple(inside[::-1]), address, tuple(shape[::-1]), tuple(strides[::-1]))


def _check_tile(tensor_map: TensorMap, coords: Sequence[int], offset: int) -> None:
    instruction = "cp.async.bulk.tensor"
    if len(coords) != tensor_map.rank:
        raise Fault(f"{instruction}: {len(coords)} coordinates for a tensor map of rank {tensor_map.rank}")
    if tensor_map.interleave != "none":
        raise Fault(f"{instruction}: interleave {tensor_map.interleave} is not modelled")
    if tensor_map.element.name in PADDED_TYPES:
        raise Fault(f"{instruction}: element type {tensor_map.element.name} is not modelled")
    if tensor_map.element_strides[0] != 1:
        raise Fault(
            f"{instruction}: element stride {tensor_map.element_strides[0]} in dimension 0; "
            "TMA has none there (cuTensorMapEncodeTiled, CUDA Driver API)"
        )
    if tensor_map.element.bits == 4 and coords[0] % 2:
        raise Fault(f"{instruction}: coordinate {coords[0]} of 4-bit elements is not at a byte boundary")
    if offset % TILE_ALIGNMENT:
        raise Fault(
            f"{instruction}: shared memory offset {offset:#x} is not a multiple of {TILE_ALIGNMENT} "
            f"(PTX ISA, {instruction})"
        )


def _access(shared: SharedMemory, kind: str, offset: int, nbytes: int, who: object) -> None:
    """Check a range of shared memory and report it to the observer. A swizzled box fills the range of a plain one."""
    shared.check(offset, nbytes, kind)
    if shared.observer is not None:
        shared.observer(kind, "async", offset, (nbytes,), (1,), who)


def _places(tensor_map: TensorMap, offset: int) -> tuple[int, np.ndarray]:
    """A chunk number and the places of the box's chunks relative to it, int64[rows, chunks per row]."""
    base = offset & -1024
    row_chunks = tensor_map.inner_bytes // CHUNK
    rows = tensor_map.box_bytes // tensor_map.inner_bytes
    return base // CHUNK, _swizzled_range((offset - base) // CHUNK, rows, row_chunks, tensor_map.swizzle)


def load_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    memory: GlobalMemory,
    shared: SharedMemory,
    dst_offset: int,
    who: object = None,
) -> int:
    """cp.async.bulk.tensor from global to shared memory, tiled mode.

    coords: one per dimension, dimension 0 first, in elements, may lie outside. dst_offset: bytes, a multiple of 128.
    Returns the bytes read from global memory; `tensor_map.box_bytes` are written to shared memory in any case.
    """
    _check_tile(tensor_map, coords, dst_offset)
    _access(shared, "store", dst_offset, tensor_map.box_bytes, who)
    clip = _clip(tensor_map, tuple(coords))
    if clip.inside is None:
        source = memory.strided(clip.address, clip.shape, clip.strides, who)
        nbytes = source.size
    else:
        shape = (*tensor_map.counts[:0:-1], tensor_map.inner_bytes)
        nbytes = int(np.prod(clip.shape, dtype=np.int64))
        fill = tensor_map.fill
        source = np.zeros(shape, np.uint8) if fill == b"\0" else np.resize(np.frombuffer(fill, np.uint8), shape)
        if nbytes:
            source[clip.inside] = memory.strided(clip.address, clip.shape, clip.strides, who)
    if tensor_map.swizzle:
        base, places = _places(tensor_map, dst_offset)
        chunk_view(shared)[base:][places] = source.view(_CHUNK_TYPE).reshape(places.shape)
    else:
        shared.data[dst_offset : dst_offset + tensor_map.box_bytes].reshape(source.shape)[...] = source
    return nbytes


def read_tile(
    tensor_map: TensorMap, coords: Sequence[int], shared: SharedMemory, src_offset: int, who: object = None
) -> np.ndarray:
    """The first half of cp.async.bulk.tensor from shared to global memory, tiled mode: the box, uint8, a copy.

    Coordinates must not be negative (PTX ISA, "Restriction on Tensor Copy instructions").
    """
    _check_tile(tensor_map, coords, src_offset)
    if min(coords) < 0:
        raise Fault(
            f"cp.async.bulk.tensor to global memory: coordinates {tuple(coords)}, must not be negative "
            "(PTX ISA, Restriction on Tensor Copy instructions)"
        )
    _access(shared, "load", src_offset, tensor_map.box_bytes, who)
    base, places = _places(tensor_map, src_offset)
    chunks = chunk_view(shared)[base:].take(places)
    return chunks.view(np.uint8).reshape(*tensor_map.counts[:0:-1], tensor_map.inner_bytes)


def write_tile(
    tensor_map: TensorMap, coords: Sequence[int], memory: GlobalMemory, box: np.ndarray, who: object = None
) -> int:
    """The second half: what lies inside the tensor goes to global memory. Returns the bytes written."""
    clip = _clip(tensor_map, tuple(coords))
    nbytes = int(np.prod(clip.shape, dtype=np.int64))
    if nbytes:
        memory.write_strided(clip.address, clip.strides, box if clip.inside is None else box[clip.inside], who)
    return nbytes


def _check_bulk(address: int, offset: int, nbytes: int) -> None:
    for what, value in (("global address", address), ("shared memory offset", offset), ("size", nbytes)):
        if value % CHUNK:
            raise Fault(f"cp.async.bulk: {what} {value:#x} is not a multiple of {CHUNK} (PTX ISA, cp.async.bulk)")


def load_bulk(
    memory: GlobalMemory, address: int, shared: SharedMemory, dst_offset: int, nbytes: int, who: object = None
) -> int:
    """cp.async.bulk from global to shared memory. All three numbers are multiples of 16. Returns the bytes read."""
    _check_bulk(address, dst_offset, nbytes)
    if nbytes:
        shared.write(dst_offset, memory.read(address, nbytes, who), who)
    return nbytes


def read_bulk(address: int, shared: SharedMemory, src_offset: int, nbytes: int, who: object = None) -> np.ndarray:
    """The first half of cp.async.bulk from shared to global memory: the bytes, a copy. All three numbers are multiples
    of 16.
    """
    _check_bulk(address, src_offset, nbytes)
    return shared.read(src_offset, nbytes, who).copy() if nbytes else np.empty(0, np.uint8)


def write_bulk(memory: GlobalMemory, address: int, data: np.ndarray, who: object = None) -> int:
    """The second half. Returns the bytes written."""
    if data.size:
        memory.write(address, data, who)
    return data.size
