"""Entry points for memory: allocation, copies, fills, symbols, attributes of pointers.

Copies and fills, those of a queue too, are done when the call returns. The host should read and write device memory by
copies only: a pointer that it follows is not checked.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nogpu import headers
from nogpu.cuda import graphs, queues
from nogpu.cuda.backends import WITHIN_DEVICE, current
from nogpu.cuda.programs import graph_memory, modules, pages, pools, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, QUEUE, SIZE, UINT, constant, entry, ignored, put, store
from nogpu.errors import Fault

PITCH = 512  # bytes: rows of cudaMallocPitch start at multiples
WITHIN_HOST, TO_DEVICE, TO_HOST, BY_ADDRESS = 0, 1, 2, 4  # cudaMemcpyKind
_UNREGISTERED, _HOST, _DEVICE, _MANAGED = 0, 1, 2, 3  # cudaMemoryType

on_host: set[int] = set()
"""Allocations that are host memory, managed ones among them."""
exported: dict[int, tuple[int, int]] = {}
"""Allocation -> (descriptor of the file of its pages, bytes), of those that other processes may open."""
_managed: set[int] = set()


def _allocate(pointer: int, nbytes: int, host: bool = False, queue: int | None = None) -> int:
    if queue is not None and graphs.capturing(queue):
        address = graph_memory.allocate(nbytes)
        graphs.submit(functools.partial(graph_memory.made, address), queue, graphs.ALLOCATION)
        put(pointer, ctypes.c_size_t, address)
        return address
    try:
        address = current().allocate(nbytes, host, queue) if nbytes else 0
    except Fault as fault:
        raise status.Refused(status.OUT_OF_MEMORY, fault.reason) from None
    if host:
        on_host.add(address)
    put(pointer, ctypes.c_size_t, address)
    return address


@entry("cudaMalloc cuMemAlloc_v2", ADDRESS, SIZE, queued="cudaMallocAsync cuMemAllocAsync")
def allocate(pointer: int, nbytes: int, queue: int | None = None) -> None:
    address = _allocate(pointer, nbytes, queue=queue)
    if queue is not None and not graph_memory.is_graphs(address):
        pools.took(address, nbytes)


@entry("cudaMallocFromPoolAsync cuMemAllocFromPoolAsync", ADDRESS, SIZE, HANDLE, QUEUE)
def allocate_from_pool(pointer: int, nbytes: int, pool: int, queue: int) -> None:
    pools.check(pool)
    address = _allocate(pointer, nbytes, queue=queue)
    if not graph_memory.is_graphs(address):
        pools.took(address, nbytes, pool)


@entry("cudaMallocHost cuMemAllocHost_v2", ADDRESS, SIZE)
@entry("cudaHostAlloc cuMemHostAlloc", ADDRESS, SIZE, UINT)
def allocate_on_host(pointer: int, nbytes: int, flags: int = 0) -> None:
    _allocate(pointer, nbytes, True)


@entry("cudaMallocManaged cuMemAllocManaged", ADDRESS, SIZE, UINT)
def allocate_managed(pointer: int, nbytes: int, flags: int) -> None:
    _managed.add(_allocate(pointer, nbytes, True))


@entry("cudaMallocPitch", ADDRESS, ADDRESS, SIZE, SIZE)
@entry("cuMemAllocPitch_v2", ADDRESS, ADDRESS, SIZE, SIZE, UINT)
def allocate_rows(pointer: int, pitch: int, width: int, height: int, element: int = 0) -> None:
    row = -(-width // PITCH) * PITCH
    put(pitch, ctypes.c_size_t, row)
    _allocate(pointer, row * height)


@entry("cudaFree cudaFreeHost cuMemFree_v2 cuMemFreeHost", ADDRESS, queued="cudaFreeAsync cuMemFreeAsync")
def free(pointer: int, *queue: int) -> None:
    if graph_memory.is_graphs(pointer):
        release = functools.partial(graph_memory.released, pointer)
        if queue:
            graphs.submit(release, queue[0], graphs.RELEASE)
        else:
            release()
        return
    if pointer in exported:
        current().synchronize()
        file, nbytes = exported.pop(pointer)
        pages.renew(pointer, nbytes)
        os.close(file)
    current().free(pointer, *queue)
    pools.gave(pointer)
    on_host.discard(pointer)
    _managed.discard(pointer)


@entry("cudaHostRegister cuMemHostRegister_v2", ADDRESS, SIZE, UINT)
def share(pointer: int, nbytes: int, flags: int) -> None:
    current().share(pointer, nbytes)
    on_host.add(pointer)


@entry("cudaHostUnregister cuMemHostUnregister", ADDRESS)
def unshare(pointer: int) -> None:
    current().unshare(pointer)
    on_host.discard(pointer)


@entry("cudaHostGetDevicePointer cuMemHostGetDevicePointer_v2", ADDRESS, ADDRESS, UINT)
def device_pointer(result: int, pointer: int, flags: int) -> None:
    put(result, ctypes.c_size_t, pointer)


constant("cudaHostGetFlags cuMemHostGetFlags", 0, ADDRESS, ADDRESS, kind=UINT)


@entry("cudaMemGetInfo cuMemGetInfo_v2", ADDRESS, ADDRESS)
def memory_info(free_bytes: int, total_bytes: int) -> None:
    for result, nbytes in zip((free_bytes, total_bytes), current().memory()):
        put(result, ctypes.c_size_t, nbytes)


# Copies


def _submit(queue: Sequence[int], kind: int, call: Callable[..., None], *arguments: int) -> None:
    """Do a copy or fill, or record it in the graph that its queue is captured for. Without a queue the host waits."""
    if not queue and graphs.capturing():
        raise status.Refused(status.CAPTURE_IMPLICIT, "a copy or fill that the host waits for, during a capture")
    graphs.submit(functools.partial(call, *arguments, *queue), queue[0] if queue else queues.LEGACY, kind)


def _copy(queue: Sequence[int], *arguments: int) -> None:
    _submit(queue, graphs.COPY, current().copy, *arguments)


def _fill(queue: Sequence[int], *arguments: int) -> None:
    _submit(queue, graphs.FILL, current().fill, *arguments)


@entry("cudaMemcpy", ADDRESS, ADDRESS, SIZE, INT, queued="cudaMemcpyAsync")
def copy(target: int, source: int, nbytes: int, kind: int, *queue: int) -> None:
    _copy(queue, target, source, nbytes, kind)


@entry("cudaMemcpyPeer", ADDRESS, INT, ADDRESS, INT, SIZE, queued="cudaMemcpyPeerAsync")
@entry("cuMemcpyPeer", ADDRESS, HANDLE, ADDRESS, HANDLE, SIZE, queued="cuMemcpyPeerAsync")
def copy_peer(target: int, target_device: int, source: int, source_device: int, nbytes: int, *queue: int) -> None:
    _copy(queue, target, source, nbytes, WITHIN_DEVICE)


def _copying(kind: int) -> Callable[..., None]:
    """The entry point of a driver's copy, whose name says its kind."""
    return lambda target, source, nbytes, *queue: _copy(queue, target, source, nbytes, kind)


for _kind, _name, _queued in (
    (BY_ADDRESS, "cuMemcpy", "cuMemcpyAsync"),
    (TO_DEVICE, "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2"),
    (TO_HOST, "cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2"),
    (WITHIN_DEVICE, "cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2"),
):
    entry(_name, ADDRESS, ADDRESS, SIZE, queued=_queued)(_copying(_kind))


class Side(NamedTuple):
    """The address of a box of bytes, and the bytes from row to row and from plane to plane."""

    start: int
    pitch: int
    plane: int


def copy_planes(queue: Sequence[int], target: Side, source: Side, extent: tuple[int, int, int], kind: int) -> None:
    """Copy a box of (bytes of a row, rows, planes). Raises Fault for rows longer than a pitch."""
    width, height, depth = extent
    if depth * height > 1 and width > min(target.pitch, source.pitch):
        raise Fault(f"rows of {width} bytes with pitches of {target.pitch} and {source.pitch} bytes")
    for plane in range(depth):
        for row in range(height):
            to, of = (side.start + plane * side.plane + row * side.pitch for side in (target, source))
            _copy(queue, to, of, width, kind)


@entry("cudaMemcpy2D", ADDRESS, SIZE, ADDRESS, SIZE, SIZE, SIZE, INT, queued="cudaMemcpy2DAsync")
def copy_rows(target: int, target_pitch: int, source: int, source_pitch: int, width: int, *rest: int) -> None:
    height, kind, *queue = rest
    if width > target_pitch or width > source_pitch:
        raise Fault(f"rows of {width} bytes with pitches of {target_pitch} and {source_pitch} bytes")
    copy_planes(queue, Side(target, target_pitch, 0), Side(source, source_pitch, 0), (width, height, 1), kind)


# Fills


def _filling(size: int) -> Callable[..., None]:
    """The entry point of a fill with values of `size` bytes, the low ones of its argument."""
    return lambda pointer, value, count, *queue: _fill(queue, pointer, value & (1 << 8 * size) - 1, count, size)


for _size, _name, _queued in (
    (1, "cudaMemset cuMemsetD8_v2", "cudaMemsetAsync cuMemsetD8Async"),
    (2, "cuMemsetD16_v2", "cuMemsetD16Async"),
    (4, "cuMemsetD32_v2", "cuMemsetD32Async"),
):
    entry(_name, ADDRESS, UINT, SIZE, queued=_queued)(_filling(_size))


@entry("cudaMemset2D", ADDRESS, SIZE, INT, SIZE, SIZE, queued="cudaMemset2DAsync")
def fill_rows(pointer: int, pitch: int, value: int, width: int, height: int, *queue: int) -> None:
    for row in range(height):
        _fill(queue, pointer + row * pitch, value & 0xFF, width, 1)


# Symbols: a variable of the program is named by the address of its shadow on the host.


def _place(symbol: int, offset: int, nbytes: int) -> int:
    variable = modules.variable(symbol)
    address, size = variable.place()
    if offset + nbytes > size:
        raise Fault(f"{nbytes} bytes at offset {offset} of variable {variable.name}, which has {size}")
    return address + offset


@entry("cudaMemcpyToSymbol", ADDRESS, ADDRESS, SIZE, SIZE, INT, queued="cudaMemcpyToSymbolAsync")
def copy_to_symbol(symbol: int, source: int, nbytes: int, offset: int, kind: int, *queue: int) -> None:
    address = _place(symbol, offset, nbytes)
    if kind == WITHIN_DEVICE and current().allocation(source) is None:
        raise Fault(f"the source {source:#x} is no device memory")
    # The variable may be read-only for kernels, but the host may write it.
    _copy(queue, address, source, nbytes, BY_ADDRESS)


@entry("cudaMemcpyFromSymbol", ADDRESS, ADDRESS, SIZE, SIZE, INT, queued="cudaMemcpyFromSymbolAsync")
def copy_from_symbol(target: int, symbol: int, nbytes: int, offset: int, kind: int, *queue: int) -> None:
    _copy(queue, target, _place(symbol, offset, nbytes), nbytes, kind)


@entry("cudaGetSymbolAddress", ADDRESS, ADDRESS)
def symbol_address(result: int, symbol: int) -> None:
    put(result, ctypes.c_size_t, _place(symbol, 0, 0))


@entry("cudaGetSymbolSize", ADDRESS, ADDRESS)
def symbol_size(result: int, symbol: int) -> None:
    put(result, ctypes.c_size_t, modules.variable(symbol).place()[1])


@entry("__cudaInitModule", HANDLE)
def place_managed_variables(module: int) -> None:
    """Set the host's pointer of each new __managed__ variable, before its first use."""
    for pointer, variable in modules.managed():
        put(pointer, ctypes.c_size_t, variable.place()[0])


# Pointers


class PointerAttributes(ctypes.Structure):
    """cudaPointerAttributes of CUDA 13 (driver_types.h)."""

    _fields_ = headers.fields("s32 type, device; word device_pointer, host_pointer; s64 reserved[8]")


@entry("cudaPointerGetAttributes", ADDRESS, ADDRESS)
def pointer_attributes(result: int, pointer: int) -> None:
    start = current().allocation(pointer)
    if start is None:
        found = PointerAttributes(_UNREGISTERED, -2, 0, pointer)  # cudaInvalidDeviceId
    elif start in on_host:
        found = PointerAttributes(_MANAGED if start in _managed else _HOST, 0, pointer, pointer)
    else:
        found = PointerAttributes(_DEVICE, 0, pointer, 0)
    store(result, found)


@entry("cuMemGetAddressRange_v2", ADDRESS, ADDRESS, ADDRESS)
def address_range(first: int, nbytes: int, pointer: int) -> None:
    for result, value in zip((first, nbytes), _extent(pointer)):
        if result:
            put(result, ctypes.c_size_t, value)


def _extent(pointer: int) -> tuple[int, int]:
    found = current().extent(pointer)
    if found is None:
        raise Fault(f"pointer {pointer:#x}: no allocation of the device holds it")
    return found


@entry("cuPointerGetAttributes", UINT, ADDRESS, ADDRESS, ADDRESS)
def pointer_attributes_of_driver(count: int, attributes: int, results: int, pointer: int) -> None:
    """Stores 0 for each attribute of a pointer that the device does not know, as the driver does."""
    numbers, places = (ctypes.c_int32 * count).from_address(attributes), (ctypes.c_size_t * count).from_address(results)
    known = current().allocation(pointer) is not None
    for number, place in zip(numbers, places):
        if known:
            pointer_attribute(place, number, pointer)
        else:
            put(place, ctypes.c_size_t if number in _WIDE else ctypes.c_uint32, 0)


_WIDE = (1, 3, 4, 7, 11, 12)  # attributes of 64 bits
ignored("cuPointerSetAttribute", ADDRESS, INT, ADDRESS)


@entry("cuPointerGetAttribute", ADDRESS, INT, ADDRESS)
def pointer_attribute(result: int, attribute: int, pointer: int) -> None:
    start = current().allocation(pointer)
    if start is None:
        raise status.Refused(status.INVALID_VALUE)
    if attribute in (1, 7):  # CU_POINTER_ATTRIBUTE_CONTEXT, of which there is one; _BUFFER_ID
        put(result, ctypes.c_size_t, 1 if attribute == 1 else start)
    elif attribute in (8, 10, 13):  # CU_POINTER_ATTRIBUTE_IS_MANAGED, _IS_LEGACY_CUDA_IPC_CAPABLE, _MAPPED
        put(result, ctypes.c_uint32, {8: start in _managed, 10: start not in on_host, 13: True}[attribute])
    elif attribute in (11, 12):  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, _RANGE_SIZE
        put(result, ctypes.c_size_t, _extent(pointer)[attribute - 11])
    elif attribute == 2:  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        put(result, ctypes.c_uint32, _HOST if start in on_host else _DEVICE)
    elif attribute in (3, 4):  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER, _HOST_POINTER
        put(result, ctypes.c_size_t, pointer)
    elif attribute == 9:  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        put(result, ctypes.c_int32, 0)
    else:
        raise status.Refused(status.NOT_SUPPORTED, f"pointer attribute {attribute} is not modelled")


# Advice has no effect.


ignored("cudaMemAdvise cuMemAdvise_v2", ADDRESS, SIZE, INT, SIZE, SIZE)
ignored("cudaMemPrefetchAsync cuMemPrefetchAsync_v2", ADDRESS, SIZE, SIZE, UINT, QUEUE)
