"""CUDA arrays, and copies of boxes from and to them and pitched memory.

An array is memory of the device in rows of texels, whose layout the program does not see.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from nogpu import headers
from nogpu.cuda.backends import current
from nogpu.cuda.handles import Table
from nogpu.cuda.programs import devices, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, SIZE, UINT, copied, entry, put, store
from nogpu.cuda.programs.memory import Side, copy_planes
from nogpu.errors import Fault
from nogpu.hardware.textures import CUBEMAP_LIMIT, FACES, FLOAT, LAYERED_LIMITS, LIMITS, MOST_CUBEMAPS

PITCH = 512  # bytes: rows of an array start at multiples
LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8  # flags of cudaMallocArray


class Channels(ctypes.Structure):
    """cudaChannelFormatDesc: bits of each channel, and the kind of their numbers."""

    _fields_ = headers.fields("s32 bits[4], kind")

    def format(self) -> tuple[int, int]:
        """(channels, bits of each). Raises Refused for a format that is not modelled."""
        used = [bits for bits in self.bits if bits]
        widths = (16, 32) if self.kind == FLOAT else (8, 16, 32)
        if self.kind > FLOAT or list(self.bits) != (used + [0] * 4)[:4]:
            raise status.Refused(
                status.NOT_SUPPORTED, f"channels of kind {self.kind}, bits {list(self.bits)}: {_KNOWN}"
            )
        if len(used) not in (1, 2, 4) or len(set(used)) > 1 or used[0] not in widths:
            raise status.Refused(status.INVALID_VALUE, f"channels of bits {list(self.bits)}: {_KNOWN}")
        return len(used), used[0]


_KNOWN = "1, 2 or 4 alike, integers of 8, 16 or 32 bits or floats of 16 or 32, are modelled"


class Extent(ctypes.Structure):
    """cudaExtent: sizes in elements."""

    _fields_ = headers.fields("word width, height, depth")


class Pitched(ctypes.Structure):
    """cudaPitchedPtr: pointer, bytes from row to row, bytes of a row, rows."""

    _fields_ = headers.fields("word start, pitch, width, height")


@dataclass(frozen=True)
class Array:
    """The description and memory of a cudaArray_t."""

    channels: Channels
    extent: tuple[int, int, int]
    """Width, height, depth as the program has given them: 0 for dimensions that the array does not have."""
    flags: int
    address: int

    @property
    def dimensions(self) -> int:
        """Dimensions of the array, or of each layer."""
        return 3 if self.extent[2] and not self.flags & (LAYERED | CUBEMAP) else 2 if self.extent[1] else 1

    @property
    def texel_bytes(self) -> int:
        count, bits = self.channels.format()
        return count * bits // 8

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(texels of a row, rows, planes or layers)."""
        width, height, depth = self.extent
        return width, height or 1, depth or 1

    @property
    def strides(self) -> tuple[int, int, int]:
        """(bytes from texel to texel, from row to row, from plane to plane)."""
        pitch = -(-self.extent[0] * self.texel_bytes // PITCH) * PITCH
        return self.texel_bytes, pitch, pitch * self.sizes[1]

    def side(self, x: int, y: int, z: int, extent: tuple[int, int, int]) -> Side:
        """The box at (x bytes, y, z), of an extent in bytes, rows and planes. Raises Fault unless it is inside."""
        width, height, depth = self.sizes
        for first, count, limit in zip((x, y, z), extent, (width * self.texel_bytes, height, depth)):
            if first + count > limit:
                raise Fault(f"a box from {first} to {first + count} of an array that has {limit}")
        _, pitch, plane = self.strides
        return Side(self.address + x + y * pitch + z * plane, pitch, plane)


_arrays = Table[Array]("CUDA array")


def array(handle: int) -> Array:
    """The array of a handle. Raises UnknownHandle for the handle of none."""
    return _arrays[handle]


@entry("cudaMallocArray", ADDRESS, ADDRESS, SIZE, SIZE, UINT)
def allocate_rows(result: int, channels: int, width: int, height: int, flags: int) -> None:
    allocate(result, channels, width, height, 0, flags)


@entry("emulator_malloc_3d_array", ADDRESS, ADDRESS, SIZE, SIZE, SIZE, UINT)
def allocate(result: int, channels: int, width: int, height: int, depth: int, flags: int) -> None:
    put(result, HANDLE, make(copied(Channels, channels), (width, height, depth), flags))


def make(channels: Channels, extent: tuple[int, int, int], flags: int) -> int:
    """Allocate an array. Returns its handle. Raises Refused for what CUDA refuses and for what is not modelled."""
    device = devices.emulated("CUDA arrays")
    if flags & ~(LAYERED | SURFACE | CUBEMAP | GATHER):
        reason = f"array flags {flags:#x}: sparse and deferred arrays are not modelled"
        raise status.Refused(status.NOT_SUPPORTED, reason)
    made, (width, height, depth), is_layered = Array(channels, extent, flags, 0), extent, bool(flags & LAYERED)
    limits = (LAYERED_LIMITS if is_layered else LIMITS)[made.dimensions]
    lacks: bool | int = not depth if is_layered else depth and not height
    if flags & CUBEMAP:
        limits = CUBEMAP_LIMIT, CUBEMAP_LIMIT, FACES * (MOST_CUBEMAPS if is_layered else 1)
        lacks = width != height or not depth or depth % FACES
    if not width or lacks or any(a > b for a, b in zip(made.sizes, limits)):
        reason = f"an array of {width} x {height} x {depth}; limit {' x '.join(map(str, limits))}"
        raise status.Refused(status.INVALID_VALUE, reason)
    name = f"CUDA array of {' x '.join(map(str, made.extent[: made.dimensions]))}"
    address = device.allocate(made.strides[2] * made.sizes[2], name=name)
    return _arrays.add(Array(channels, extent, flags, address))


@entry("cudaFreeArray cuArrayDestroy", HANDLE)
def free(handle: int) -> None:
    if handle:
        current().free(_arrays.take(handle).address)


@entry("cudaGetChannelDesc", ADDRESS, HANDLE)
def channel_description(result: int, handle: int) -> None:
    array_information(result, 0, 0, handle)


@entry("cudaArrayGetInfo", ADDRESS, ADDRESS, ADDRESS, HANDLE)
def array_information(channels: int, extent: int, flags: int, handle: int) -> None:
    found = array(handle)
    if channels:
        store(channels, found.channels)
    if extent:
        store(extent, Extent(*found.extent))
    if flags:
        put(flags, UINT, found.flags)


# Copies: a place in an array is (bytes, rows).


@entry(*("cudaMemcpy2DToArray", HANDLE, SIZE, SIZE, ADDRESS, SIZE, SIZE, SIZE, INT), queued="cudaMemcpy2DToArrayAsync")
def copy_to_array(target: int, x: int, y: int, source: int, pitch: int, *rest: int) -> None:
    width, height, kind, *queue = rest
    extent = width, height, 1
    copy_planes(queue, array(target).side(x, y, 0, extent), Side(source, pitch, 0), extent, kind)


@entry(
    *("cudaMemcpy2DFromArray", ADDRESS, SIZE, HANDLE, SIZE, SIZE, SIZE, SIZE, INT), queued="cudaMemcpy2DFromArrayAsync"
)
def copy_from_array(target: int, pitch: int, source: int, x: int, y: int, *rest: int) -> None:
    width, height, kind, *queue = rest
    extent = width, height, 1
    copy_planes(queue, Side(target, pitch, 0), array(source).side(x, y, 0, extent), extent, kind)


@entry("cudaMemcpy2DArrayToArray", HANDLE, SIZE, SIZE, HANDLE, SIZE, SIZE, SIZE, SIZE, INT)
def copy_between_arrays(target: int, x: int, y: int, source: int, *rest: int) -> None:
    from_x, from_y, width, height, kind = rest
    extent = width, height, 1
    sides = array(target).side(x, y, 0, extent), array(source).side(from_x, from_y, 0, extent)
    copy_planes((), *sides, extent, kind)


def _runs(of: Array, x: int, y: int, nbytes: int) -> list[tuple[int, Side, int]]:
    """(bytes before it, place, bytes) of each row's part of `nbytes` bytes from byte x of row y on."""
    row_bytes, found, done = of.extent[0] * of.texel_bytes, [], 0
    while done < nbytes:
        part = min(nbytes - done, row_bytes - x)
        if part <= 0:
            raise Fault(f"a copy from byte {x} of a row of {row_bytes}")
        found.append((done, of.side(x, y, 0, (part, 1, 1)), part))
        done, x, y = done + part, 0, y + 1
    return found


@entry("cudaMemcpyToArray", HANDLE, SIZE, SIZE, ADDRESS, SIZE, INT, queued="cudaMemcpyToArrayAsync")
def copy_bytes_to_array(target: int, x: int, y: int, source: int, nbytes: int, kind: int, *queue: int) -> None:
    for before, place, part in _runs(array(target), x, y, nbytes):
        copy_planes(queue, place, Side(source + before, part, 0), (part, 1, 1), kind)


@entry("cudaMemcpyFromArray", ADDRESS, HANDLE, SIZE, SIZE, SIZE, INT, queued="cudaMemcpyFromArrayAsync")
def copy_bytes_from_array(target: int, source: int, x: int, y: int, nbytes: int, kind: int, *queue: int) -> None:
    for before, place, part in _runs(array(source), x, y, nbytes):
        copy_planes(queue, Side(target + before, part, 0), place, (part, 1, 1), kind)


class CopyParameters(ctypes.Structure):
    """cudaMemcpy3DParms: an array and a position in it, or a pointer with its pitch, of source and target; extent."""

    _fields_ = headers.fields(
        "word source_array, source_place[3]; Pitched source; word target_array, target_place[3]; Pitched target; "
        "word extent[3]; s32 kind",
        Pitched=Pitched,
    )


@entry("cudaMemcpy3D", ADDRESS, queued="cudaMemcpy3DAsync")
def copy_box(parameters: int, *queue: int) -> None:
    copy_given_box(copied(CopyParameters, parameters), *queue)


def copy_given_box(box: CopyParameters, *queue: int) -> None:
    """Copy a box. Raises UnknownHandle for an unknown array, and Fault for a box that is not inside an array."""
    width, height, depth = box.extent
    arrays = [array(handle) for handle in (box.target_array, box.source_array) if handle]
    extent = width * (arrays[0].texel_bytes if arrays else 1), height, depth  # in elements of an array, else in bytes

    def side(handle: int, pointer: Pitched, place: Sequence[int]) -> Side:
        x, y, z = place
        if handle:
            return array(handle).side(x * array(handle).texel_bytes, y, z, extent)
        plane = pointer.pitch * pointer.height
        return Side(pointer.start + x + y * pointer.pitch + z * plane, pointer.pitch, plane)

    target = side(box.target_array, box.target, box.target_place)
    copy_planes(queue, target, side(box.source_array, box.source, box.source_place), extent, box.kind)


@entry("emulator_malloc_3d", ADDRESS, SIZE, SIZE, SIZE)
def allocate_planes(result: int, width: int, height: int, depth: int) -> None:
    """Answers cudaMalloc3D with a cudaPitchedPtr; the width is in bytes."""
    pitch = -(-width // PITCH) * PITCH
    store(result, Pitched(current().allocate(pitch * height * depth), pitch, width, height))
