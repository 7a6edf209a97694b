"""Tensor and bulk copies between global and shared memory: the movement of bytes, without barriers, queues or order.

A box lies in shared memory densely packed, dimension 0 fastest, and swizzled (swizzle.py). Elements outside the tensor
are filled on a load and dropped on a store (PTX ISA, "Tensor Dimension, size and format" and "cp.async.bulk.tensor").
A copy of several boxes (modes.py) has them one behind the other. Every function raises Fault for a copy that the
hardware does not allow, and passes the issuer to the memories' observers.

Compiled code (native/copies.c) makes the copies that nobody observes and whose allocation has been copied from or to
before. It refuses copies that it cannot prove legal; code in NumPy makes those copies, or raises the errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.arithmetic.reductions import combined
from nogpu.hardware.copying import REFUSED, buffer, coordinates
from nogpu.hardware.native import library
from nogpu.hardware.tma.modes import Mode, part_count, parts
from nogpu.hardware.tma.rules import check_bulk, check_tile, fits, stays_inside, tile_bytes
from nogpu.hardware.tma.swizzle import CHUNK, CHUNK_TYPE, chunk_view, flipped, places
from nogpu.hardware.tma.tensor_map import TensorMap
from nogpu.hardware.traffic import extent

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.warp import Issuer

__all__ = ["check_bulk", "tile_bytes"]

ADDRESS_MASK = (1 << 64) - 1  # an address has 64 bits

Data = ctypes.Array
"""Bytes on their way from shared to global memory, uint8[n]; a box is densely packed."""


class _Clip(NamedTuple):
    """Part of a box that lies inside the tensor; axes from the outermost dimension on, the last one in bytes."""

    inside: tuple[slice, ...] | None  # part of the box; None: all of it
    address: int  # address in global memory
    shape: tuple[int, ...]  # has a 0 if nothing is inside
    strides: tuple[int, ...]  # bytes, in global memory


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
    address &= ADDRESS_MASK  # ragged tensors have coordinates that move by a multiple of 2**64 bytes
    return _Clip(None if whole else tuple(inside[::-1]), address, tuple(shape[::-1]), tuple(strides[::-1]))


def inside(
    tensor_map: TensorMap, coords: Sequence[int], mode: Mode = "tile"
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Bytes of a copy inside of the tensor: for each of its boxes (address in global memory, bytes of a row and
    counts of rows by dimension, strides in bytes), dimension 0 first. A count is 0 if nothing is inside.
    """
    for place in parts(tensor_map, tuple(coords), mode):
        clip = _clip(tensor_map, place)
        yield clip.address, clip.shape[::-1], clip.strides[::-1]


def _shape(tensor_map: TensorMap, mode: Mode) -> tuple[int, ...]:
    """Shape of a copy as bytes: its boxes, then dimensions, the outermost first."""
    return (part_count(tensor_map, mode), *tensor_map.counts[:0:-1], tensor_map.packed_bytes)


def _padded(tensor_map: TensorMap, box: np.ndarray) -> np.ndarray:
    """Rows of the box as in shared memory. The padding behind 16 elements, which PTX leaves open, is poison."""
    groups = box.reshape(-1, 2 * tensor_map.element.bits)
    wide = np.full((len(groups), CHUNK), 0xFF, np.uint8)
    wide[:, : groups.shape[1]] = groups
    return wide.reshape(*box.shape[:-1], tensor_map.inner_bytes)


def load_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    memory: GlobalMemory,
    shared: SharedMemory,
    dst_offset: int,
    issuer: Issuer | None = None,
    mode: Mode = "tile",
) -> int:
    """Copies by cp.async.bulk.tensor from global to shared memory.

    coords: as for `check_map`; may lie outside the tensor. dst_offset: bytes, a multiple of 128. Returns the number of
    bytes read from global memory; `tile_bytes` are always written to shared memory.
    """
    if not shared.refuses_copies and (tile := tensor_map.tile) is not None and fits(tensor_map, coords, mode):
        loads = memory.counted("load", tensor_map.address)
        if loads is not None:
            found = parts(tensor_map, tuple(coords), mode)
            places = coordinates(found)
            nbytes = library().load_tile(tile, loads.address, shared.window, dst_offset, places, len(found))
            if nbytes != REFUSED:
                _observe(shared, "store", dst_offset, tile_bytes(tensor_map, mode), issuer)
                _note(memory, "load", tensor_map, coords, mode, issuer)
                return nbytes
    check_tile(tensor_map, coords, shared, dst_offset, "store", mode)
    _observe(shared, "store", dst_offset, tile_bytes(tensor_map, mode), issuer)
    box, nbytes = _fetch(tensor_map, coords, memory, issuer, mode)
    if tensor_map.padded:
        box = _padded(tensor_map, box)
    if tensor_map.swizzle:
        base, where = _places(tensor_map, dst_offset, mode)
        chunks = box.view(CHUNK_TYPE).reshape(where.shape)
        chunk_view(shared)[base:][where] = flipped(chunks, where) if tensor_map.flip else chunks
    else:
        shared.data[dst_offset : dst_offset + box.size].reshape(box.shape)[...] = box
    return nbytes


def _fetch(
    tensor_map: TensorMap, coords: Sequence[int], memory: GlobalMemory, issuer: Issuer | None, mode: Mode
) -> tuple[np.ndarray, int]:
    """Box of a load, uint8, and the number of its bytes that were read from global memory."""
    if mode == "tile":
        clip = _clip(tensor_map, tuple(coords))
        if clip.inside is None:
            box = memory.strided(clip.address, clip.shape, clip.strides, issuer)
            return box, box.size
    shape, fill = _shape(tensor_map, mode), tensor_map.fill
    box = np.zeros(shape, np.uint8) if fill == b"\0" else np.resize(np.frombuffer(fill, np.uint8), shape)
    nbytes = 0
    for i, place in enumerate(parts(tensor_map, tuple(coords), mode)):
        clip = _clip(tensor_map, place)
        size = int(np.prod(clip.shape, dtype=np.int64))
        if size:
            target = box[i] if clip.inside is None else box[i][clip.inside]
            target[...] = memory.strided(clip.address, clip.shape, clip.strides, issuer)
        nbytes += size
    return box, nbytes


def read_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    shared: SharedMemory,
    src_offset: int,
    issuer: Issuer | None = None,
    mode: Mode = "tile",
) -> Data:
    """Reads the box from shared memory: the first half of cp.async.bulk.tensor to global memory.

    Coordinates and the corners of im2col copies must not lead out of the tensor's low end, nor corners out of its high
    end (PTX ISA, "Restriction on Tensor Copy instructions"). src_offset: bytes, a multiple of 128.
    """
    if not shared.refuses_copies and (tile := tensor_map.tile) is not None and fits(tensor_map, coords, mode):
        count, box = part_count(tensor_map, mode), buffer(tile_bytes(tensor_map, mode))
        legal = stays_inside(tensor_map, coords)
        if legal and library().read_tile(tile, shared.window, src_offset, count, box) != REFUSED:
            _observe(shared, "load", src_offset, tile_bytes(tensor_map, mode), issuer)
            return box
    check_tile(tensor_map, coords, shared, src_offset, "load", mode)
    _observe(shared, "load", src_offset, tile_bytes(tensor_map, mode), issuer)
    base, where = _places(tensor_map, src_offset, mode)
    chunks = chunk_view(shared)[base:].take(where)
    if tensor_map.flip:
        chunks = flipped(chunks, where)
    data = chunks.view(np.uint8).reshape(-1)
    if tensor_map.padded:
        data = np.ascontiguousarray(data.reshape(-1, CHUNK)[:, : 2 * tensor_map.element.bits]).reshape(-1)
    return np.ctypeslib.as_ctypes(data)


def write_tile(
    tensor_map: TensorMap,
    coords: Sequence[int],
    memory: GlobalMemory,
    box: Data,
    issuer: Issuer | None = None,
    mode: Mode = "tile",
    operation: str | None = None,
) -> int:
    """Writes the box's elements inside the tensor to global memory: the second half. Returns the number of bytes.

    operation: that of cp.reduce.async.bulk.tensor, which combines the elements with those in memory.
    """
    if operation is None and (tile := tensor_map.tile) is not None:
        stores = memory.counted("store", tensor_map.address)
        if stores is not None:
            found = parts(tensor_map, tuple(coords), mode)
            nbytes = library().write_tile(tile, stores.address, coordinates(found), len(found), box)
            if nbytes != REFUSED:
                _note(memory, "store", tensor_map, coords, mode, issuer)
                return nbytes
    nbytes, whole = 0, np.ctypeslib.as_array(box).reshape(_shape(tensor_map, mode))
    for i, place in enumerate(parts(tensor_map, tuple(coords), mode)):
        clip = _clip(tensor_map, place)
        if 0 in clip.shape:
            continue
        data = whole[i] if clip.inside is None else whole[i][clip.inside]
        if operation is not None:
            old = _present(memory, clip.address, clip.shape, clip.strides)
            data = combined(operation, tensor_map.element.name, old, data)
        memory.write_strided(clip.address, clip.strides, data, issuer)
        nbytes += data.size
    return nbytes


def stores_any(
    tensor_map: TensorMap, coords: Sequence[int], shared: SharedMemory, src_offset: int, mode: Mode = "tile"
) -> bool:
    """True if the part of the box that a store writes has a byte that is not 0."""
    whole = np.ctypeslib.as_array(read_tile(tensor_map, coords, shared, src_offset, None, mode))
    box = whole.reshape(_shape(tensor_map, mode))
    for i, place in enumerate(parts(tensor_map, tuple(coords), mode)):
        clip = _clip(tensor_map, place)
        if 0 not in clip.shape and (box[i] if clip.inside is None else box[i][clip.inside]).any():
            return True
    return False


def _present(memory: GlobalMemory, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """uint8[shape] of global memory that a reduction combines with. L2 reads it, so it is no load of an SM."""
    low, high = extent(shape, strides)
    allocation = memory.at(address + low, high - low, "store")
    return np.ndarray(shape, np.uint8, allocation.frozen, address - allocation.start, strides)


def _observe(shared: SharedMemory, kind: str, offset: int, nbytes: int, issuer: Issuer | None) -> None:
    """Reports a box to the observer as a range, which a swizzled box fills like a plain one."""
    if shared.observer is not None:
        shared.observer(kind, "async", offset, (nbytes,), (1,), issuer)


def _note(
    memory: GlobalMemory, kind: str, tensor_map: TensorMap, coords: Sequence[int], mode: Mode, issuer: Issuer | None
) -> None:
    """Reports the part of a copy inside of the tensor to the memory's observer."""
    if memory.observer is not None:
        for place in parts(tensor_map, tuple(coords), mode):
            clip = _clip(tensor_map, place)
            if 0 not in clip.shape:
                memory.observer(kind, "async", clip.address, clip.shape, clip.strides, issuer)


def _places(tensor_map: TensorMap, offset: int, mode: Mode) -> tuple[int, np.ndarray]:
    inner = tensor_map.inner_bytes
    return places(offset, tile_bytes(tensor_map, mode) // inner, inner, tensor_map.swizzle, tensor_map.atom)


def load_bulk(
    memory: GlobalMemory,
    address: int,
    shared: SharedMemory,
    dst_offset: int,
    nbytes: int,
    issuer: Issuer | None = None,
    ignored: Sequence[int] = (0, 0),
) -> int:
    """Copies by cp.async.bulk from global to shared memory. Returns the number of bytes.

    address, dst_offset, nbytes: multiples of 16. ignored: bytes at the start and at the end that are not read; those in
    shared memory become poison, since the PTX ISA leaves their value open.
    """
    if nbytes and not any(ignored) and not shared.refuses_copies:
        loads = memory.counted("load", address)
        if loads is not None:
            copied = library().load_bulk(loads.address, shared.window, address, dst_offset, nbytes)
            if copied != REFUSED:
                _observe(shared, "store", dst_offset, nbytes, issuer)
                memory.note("load", "async", address, nbytes, issuer)
                return nbytes
    check_bulk(memory, address, shared, dst_offset, nbytes, "store", ignored)
    left, read = ignored[0], max(nbytes - sum(ignored), 0)
    data = np.full(nbytes, 0xFF, np.uint8)
    if read:
        data[left : left + read] = memory.read(address + left, read, issuer)
    if nbytes:
        shared.write(dst_offset, data, issuer)
    return nbytes


def read_bulk(shared: SharedMemory, src_offset: int, nbytes: int, issuer: Issuer | None = None) -> Data:
    """Reads the data from shared memory: the first half of cp.async.bulk to global memory.

    src_offset, nbytes: multiples of 16.
    """
    data = buffer(nbytes)
    if not shared.refuses_copies and nbytes:
        if library().read_bulk(shared.window, src_offset, nbytes, data) != REFUSED:
            _observe(shared, "load", src_offset, nbytes, issuer)
            return data
    if nbytes:
        np.ctypeslib.as_array(data)[:] = shared.read(src_offset, nbytes, issuer)
    return data


def write_bulk(
    memory: GlobalMemory,
    address: int,
    data: Data,
    issuer: Issuer | None = None,
    byte_mask: int | None = None,
    reduction: tuple[str, str] | None = None,
) -> int:
    """Writes the data to global memory: the second half. Returns the number of bytes written.

    byte_mask: operand of .cp_mask; byte i of every 16 is written if bit i is set. reduction: (operation, element type)
    of cp.reduce.async.bulk.
    """
    if not len(data):
        return 0
    if byte_mask is None and reduction is None:
        stores = memory.counted("store", address)
        if stores is not None and library().write_bulk(stores.address, address, data, len(data)) != REFUSED:
            memory.note("store", "async", address, len(data), issuer)
            return len(data)
    written = np.ctypeslib.as_array(data)
    if byte_mask is not None:
        return _write_masked(memory, address, written, byte_mask, issuer)
    if reduction is not None:
        written = combined(*reduction, _present(memory, address, written.shape, (1,)), written)
    memory.write(address, written, issuer)
    return written.size


def _write_masked(memory: GlobalMemory, address: int, data: np.ndarray, byte_mask: int, issuer: Issuer | None) -> int:
    kept = [i for i in range(CHUNK) if byte_mask >> i & 1]
    rows = data.reshape(-1, CHUNK)
    for i in kept:
        memory.write_strided(address + i, (CHUNK, 1), rows[:, i : i + 1], issuer)
    return len(kept) * len(rows)
