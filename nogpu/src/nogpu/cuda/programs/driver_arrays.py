"""CUDA arrays, copies of boxes, textures and surfaces by the driver, whose structures differ from the runtime's."""

from __future__ import annotations

import ctypes

from nogpu import headers
from nogpu.cuda.backends import WITHIN_DEVICE
from nogpu.cuda.programs import arrays, status, textures
from nogpu.cuda.programs.arrays import Channels
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, copied, entry, put
from nogpu.cuda.programs.memory import BY_ADDRESS, TO_DEVICE, TO_HOST, WITHIN_HOST, Side, copy_planes
from nogpu.errors import Fault
from nogpu.hardware.textures import FLOAT, SIGNED, UNSIGNED

_HOST, _DEVICE, _ARRAY, _UNIFIED = range(1, 5)  # CUmemorytype
_READ_AS_INTEGER, _NORMALIZED, _SRGB = 1, 2, 16  # CU_TRSF flags of a texture
_FORMATS = {
    **{1: (8, UNSIGNED), 2: (16, UNSIGNED), 3: (32, UNSIGNED), 8: (8, SIGNED), 9: (16, SIGNED), 10: (32, SIGNED)},
    **{16: (16, FLOAT), 32: (32, FLOAT)},
}
"""CUarray_format -> bits of a channel, and their kind."""


class ArrayDescription(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = headers.fields("word extent[3]; s32 format; u32 count, flags")


class PlaneDescription(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = headers.fields("word extent[2]; s32 format; u32 count")


_PLACE = "s32 kind; word host, device, array"


class BoxSide(ctypes.Structure):
    """The first or second half of a CUDA_MEMCPY3D: a position in bytes, rows, planes and levels, and a memory."""

    _fields_ = headers.fields(f"word position[3], level; {_PLACE}, reserved, pitch, height")


class RowsSide(ctypes.Structure):
    """The first or second half of a CUDA_MEMCPY2D: a position in bytes and rows, and a memory."""

    _fields_ = headers.fields(f"word position[2]; {_PLACE}, pitch")
    height = 0


class Box(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("source", BoxSide), ("target", BoxSide), ("extent", ctypes.c_size_t * 3)]


class Rows(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [("source", RowsSide), ("target", RowsSide), ("extent", ctypes.c_size_t * 2)]


class _Memory(ctypes.Structure):
    """Linear memory of a CUDA_RESOURCE_DESC (its size in bytes) or pitched memory (texels, rows, bytes of a row)."""

    _fields_ = headers.fields("word address; s32 format; u32 count; word size, height, pitch")


class _Place(ctypes.Union):
    _fields_ = [("array", ctypes.c_size_t), ("memory", _Memory), ("reserved", ctypes.c_int32 * 32)]


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC: the memory of a texture or surface."""

    _fields_ = [("kind", ctypes.c_int32), ("place", _Place), ("flags", ctypes.c_uint32)]


class TextureDescription(ctypes.Structure):
    """CUDA_TEXTURE_DESC: how a texture is read."""

    _fields_ = headers.fields(
        "s32 modes[3], filter; u32 flags, anisotropy; s32 mipmap[4]; f32 border[4]; s32 reserved[12]"
    )


def _channels(form: int, count: int) -> Channels:
    if form not in _FORMATS:
        raise status.Refused(status.NOT_SUPPORTED, f"array format {form:#x} is not modelled")
    bits, kind = _FORMATS[form]
    return Channels(tuple([bits] * min(count, 4)), kind)


@entry("cuArrayCreate_v2", ADDRESS, ADDRESS)
def allocate_rows(result: int, description: int) -> None:
    given = copied(PlaneDescription, description)
    put(result, HANDLE, arrays.make(_channels(given.format, given.count), (*given.extent, 0), 0))


@entry("cuArray3DCreate_v2", ADDRESS, ADDRESS)
def allocate(result: int, description: int) -> None:
    given = copied(ArrayDescription, description)
    put(result, HANDLE, arrays.make(_channels(given.format, given.count), tuple(given.extent), given.flags))


@entry("cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2", ADDRESS, queued="cuMemcpy2DAsync_v2")
def copy_rows(parameters: int, *queue: int) -> None:
    copy_given_box(copied(Rows, parameters), *queue)


@entry("cuMemcpy3D_v2", ADDRESS, queued="cuMemcpy3DAsync_v2")
def copy_box(parameters: int, *queue: int) -> None:
    copy_given_box(copied(Box, parameters), *queue)


def copy_given_box(box: Box | Rows, *queue: int) -> None:
    """Copy a box. Raises UnknownHandle for an unknown array, and Fault for a box that is not inside an array."""
    width, height, depth = (*box.extent, 1)[:3]
    extent = width, height, depth
    kind = BY_ADDRESS
    if _UNIFIED not in (box.source.kind, box.target.kind):
        kinds = ((WITHIN_HOST, TO_DEVICE), (TO_HOST, WITHIN_DEVICE))
        kind = kinds[box.source.kind != _HOST][box.target.kind != _HOST]
    copy_planes(queue, _side(box.target, extent), _side(box.source, extent), extent, kind)


def _side(given: BoxSide | RowsSide, extent: tuple[int, int, int]) -> Side:
    x, y, z = (*given.position, 0)[:3]
    if given.kind == _ARRAY:
        return arrays.array(given.array).side(x, y, z, extent)
    if given.kind not in (_HOST, _DEVICE, _UNIFIED):
        raise Fault(f"memory type {given.kind}: must be {_HOST} to {_UNIFIED}")
    start, plane = given.host if given.kind == _HOST else given.device, given.pitch * given.height
    return Side(start + x + y * given.pitch + z * plane, given.pitch, plane)


def _resource(address: int) -> textures.Resource:
    """A CUDA_RESOURCE_DESC as the runtime's cudaResourceDesc."""
    given = copied(Resource, address)
    made = textures.Resource(kind=given.kind)
    if given.kind in (textures.LINEAR, textures.PITCHED):
        memory = given.place.memory
        channels = _channels(memory.format, memory.count)
        made.place.memory = textures.Memory(memory.address, channels, memory.size, memory.height, memory.pitch)
    else:
        made.place.array = given.place.array
    return made


@entry("cuTexObjectCreate", ADDRESS, ADDRESS, ADDRESS, ADDRESS)
def create_texture(result: int, resource: int, description: int, view: int) -> None:
    place, given = _resource(resource), copied(TextureDescription, description)
    channels = arrays.array(place.place.array).channels if place.kind == textures.ARRAY else place.place.memory.channels
    made = textures.Description(
        modes=given.modes,
        is_filtered=given.filter,
        # integers of 32 bits are never promoted (CUDA Driver API, cuTexObjectCreate)
        is_fraction=not given.flags & _READ_AS_INTEGER and channels.bits[0] < 32,
        is_srgb=bool(given.flags & _SRGB),
        border=given.border,
        is_normalized=bool(given.flags & _NORMALIZED),
        anisotropy=given.anisotropy,
    )
    textures.add_texture(result, place, made, view)


@entry("cuSurfObjectCreate", ADDRESS, ADDRESS)
def create_surface(result: int, resource: int) -> None:
    textures.add_surface(result, _resource(resource))
