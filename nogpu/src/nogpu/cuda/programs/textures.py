"""Texture and surface objects, by the CUDA runtime's structures."""

from __future__ import annotations

import ctypes

from nogpu import headers
from nogpu.cuda.backends import current
from nogpu.cuda.programs import devices, status
from nogpu.cuda.programs.arrays import CUBEMAP, GATHER, LAYERED, SURFACE, Array, Channels, array
from nogpu.cuda.programs.entries import ADDRESS, U64, Structure, copied, entry, put, store
from nogpu.errors import Fault
from nogpu.hardware import textures
from nogpu.hardware.textures import ALIGNMENT, BORDER, CLAMP, FLOAT, MIRROR, MOST_LINEAR, PITCH_ALIGNMENT, WRAP

ARRAY, MIPMAP, LINEAR, PITCHED = range(4)  # cudaResourceType


class Memory(ctypes.Structure):
    """Linear memory of a cudaResourceDesc (its size in bytes) or pitched memory (texels, rows, bytes of a row)."""

    _fields_ = headers.fields("word address; Channels channels; word size, height, pitch", Channels=Channels)


class _Place(ctypes.Union):
    _fields_ = [("array", ctypes.c_size_t), ("memory", Memory), ("reserved", ctypes.c_int32 * 32)]


class Resource(ctypes.Structure):
    """cudaResourceDesc: the memory of a texture or surface."""

    _fields_ = [("kind", ctypes.c_int32), ("place", _Place), ("flags", ctypes.c_uint32)]


class Description(ctypes.Structure):
    """cudaTextureDesc: how a texture is read."""

    _fields_ = headers.fields(
        "s32 modes[3], is_filtered, is_fraction, is_srgb; f32 border[4]; s32 is_normalized; u32 anisotropy; "
        "s32 mipmap_filter; f32 mipmap_bias, mipmap_least, mipmap_most; s32 trilinear, seamless"
    )


_described: dict[int, tuple[Resource, Description]] = {}


@entry("cudaCreateTextureObject", ADDRESS, ADDRESS, ADDRESS, ADDRESS)
def create_texture(result: int, resource: int, description: int, view: int) -> None:
    add_texture(result, copied(Resource, resource), copied(Description, description), view)


def add_texture(result: int, resource: Resource, description: Description, view: int) -> None:
    """Make a texture, and store its handle at an address."""
    if view:
        raise status.Refused(status.NOT_SUPPORTED, "resource views are not modelled")
    handle = textures.add(_texture(resource, description))
    _described[handle] = resource, description
    put(result, U64, handle)


def _texture(resource: Resource, description: Description) -> textures.Texture:
    """The texture of a resource. Raises Refused or Fault for what CUDA refuses, Refused for what is not modelled."""
    devices.emulated("texture objects")
    if description.is_srgb or description.anisotropy > 1:
        raise status.Refused(status.NOT_SUPPORTED, "textures of sRGB and anisotropic filters are not modelled")
    made = textures.Texture()
    if resource.kind == ARRAY:
        _of_array(made, array(resource.place.array))
    elif resource.kind in (LINEAR, PITCHED):
        _of_memory(made, resource.place.memory, resource.kind == LINEAR)
    else:
        raise status.Refused(status.NOT_SUPPORTED, "mipmapped arrays are not modelled")
    integers = made.kind != FLOAT
    made.is_fraction = int(bool(description.is_fraction) and integers)
    if made.is_fraction and made.bits == 32:
        raise status.Refused(status.INVALID_NORM_SETTING, "integers of 32 bits cannot be read as normalized floats")
    if made.is_linear:
        made.modes[0] = BORDER  # a fetch outside returns 0; the other attributes are ignored
        return made
    if description.is_filtered and made.reads != "f32":
        raise status.Refused(status.INVALID_FILTER_SETTING, "linear filtering needs texels that are read as floats")
    if any(description.border) and made.reads != "f32":
        raise status.Refused(status.NOT_SUPPORTED, "a border colour of integers is not modelled")
    if made.has_faces and description.seamless:
        raise status.Refused(status.NOT_SUPPORTED, "filters across the edges of a cubemap are not modelled")
    made.is_filtered, made.is_normalized = (
        description.is_filtered,
        int(bool(description.is_normalized or made.has_faces)),
    )
    made.border[:] = description.border
    for axis, mode in enumerate(description.modes):
        if mode not in (WRAP, CLAMP, MIRROR, BORDER):
            raise Fault(f"address mode {mode}: must be {WRAP} to {BORDER}")
        # wrap and mirror are for normalized coordinates (CUDA Runtime API, cudaTextureDesc::addressMode)
        made.modes[axis] = mode if made.is_normalized or mode == BORDER else CLAMP
    return made


def _set_format(made: textures.Texture, channels: Channels) -> None:
    made.channels, made.bits = channels.format()
    made.kind = channels.kind


def _of_array(made: textures.Texture, found: Array) -> None:
    _set_format(made, found.channels)
    made.address, made.dimensions = found.address, found.dimensions
    made.sizes[:], made.strides[:] = found.sizes, found.strides
    made.gathers = found.dimensions == 2 and bool(found.flags & GATHER)
    made.has_faces = bool(found.flags & CUBEMAP)
    made.is_layered_cubemap = made.has_faces and bool(found.flags & LAYERED)
    if found.flags & (LAYERED | CUBEMAP):
        made.layers, made.layer_bytes = found.sizes[2], found.strides[2]
        made.sizes[2] = 1


def _of_memory(made: textures.Texture, memory: Memory, linear: bool) -> None:
    _set_format(made, memory.channels)
    if memory.address % ALIGNMENT:
        raise Fault(f"the texture's memory at {memory.address:#x} must be a multiple of {ALIGNMENT}")
    made.address, made.is_linear = memory.address, int(linear)
    if linear:
        made.dimensions, made.sizes[:] = 1, (memory.size // made.texel_bytes, 1, 1)
        made.strides[:] = made.texel_bytes, 0, 0
    else:
        if memory.pitch % PITCH_ALIGNMENT or memory.pitch < memory.size * made.texel_bytes:
            raise Fault(
                f"rows of {memory.pitch} bytes for {memory.size} texels of {made.texel_bytes}: they must hold these, "
                f"and be multiples of {PITCH_ALIGNMENT} bytes"
            )
        made.dimensions, made.sizes[:] = 2, (memory.size, memory.height, 1)
        made.strides[:] = made.texel_bytes, memory.pitch, 0
    if not 1 <= made.sizes[0] <= MOST_LINEAR or made.sizes[1] < 1:
        raise Fault(f"a texture of {made.sizes[0]} x {made.sizes[1]} texels of memory; limit 1 to {MOST_LINEAR}")


@entry("cudaDestroyTextureObject cudaDestroySurfaceObject cuTexObjectDestroy cuSurfObjectDestroy", U64)
def destroy(handle: int) -> None:
    current().finish()
    textures.forget(handle)
    _described.pop(handle, None)


def _put_description(result: int, handle: int, kind: type[Structure]) -> None:
    textures.named(handle, textures.Texture)
    store(result, next(each for each in _described[handle] if isinstance(each, kind)))


@entry("cudaGetTextureObjectResourceDesc", ADDRESS, U64)
def resource_of(result: int, handle: int) -> None:
    _put_description(result, handle, Resource)


@entry("cudaGetTextureObjectTextureDesc", ADDRESS, U64)
def description_of(result: int, handle: int) -> None:
    _put_description(result, handle, Description)


@entry("cudaCreateSurfaceObject", ADDRESS, ADDRESS)
def create_surface(result: int, resource: int) -> None:
    add_surface(result, copied(Resource, resource))


def add_surface(result: int, given: Resource) -> None:
    """Make a surface, and store its handle at an address."""
    if given.kind != ARRAY:
        raise Fault(f"a surface on a resource of kind {given.kind}: surfaces are on CUDA arrays")
    found = array(given.place.array)
    if not found.flags & SURFACE:
        raise Fault("a surface on an array that has been allocated without cudaArraySurfaceLoadStore")
    if found.flags & (LAYERED | CUBEMAP):
        raise status.Refused(status.NOT_SUPPORTED, "surfaces with layers or faces are not modelled")
    width, height, depth = found.sizes
    _, pitch, plane = found.strides
    made = textures.Surface(
        found.address, found.dimensions, found.sizes, (width * found.texel_bytes, height, depth), (1, pitch, plane)
    )
    put(result, U64, textures.add(made))
