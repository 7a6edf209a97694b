"""Texture and surface objects of the device: their handles, and the functions of compiled code on them."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from nogpu import headers, toolchain
from nogpu.arithmetic.lanes import row_of
from nogpu.errors import Fault

AXES, CHANNELS, TAPS = headers.constants("native/textures.h", "AXES", "CHANNELS", "TAPS")
SIGNED, UNSIGNED, FLOAT = headers.constants("native/textures.h", "SIGNED", "UNSIGNED", "FLOAT")
WRAP, CLAMP, MIRROR, BORDER = headers.constants("native/textures.h", "WRAP", "CLAMP", "MIRROR", "BORDER")
ALIGNMENT, PITCH_ALIGNMENT = 512, 32  # bytes; for a texture's memory, and for the rows of pitched memory
LIMITS = {1: (131072, 1, 1), 2: (131072, 65536, 1), 3: (16384, 16384, 16384)}
"""Dimensions -> most texels (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""
LAYERED_LIMITS = {1: (32768, 1, 2048), 2: (32768, 32768, 2048)}
"""Dimensions -> most texels and layers, from the table above."""
CUBEMAP_LIMIT, MOST_CUBEMAPS = 32768, 2046 // 6
"""Most texels along an edge, and most cubemaps of a layered one, from the table above."""
FACES = 6
MOST_LINEAR = 1 << 28  # most texels of linear memory, from the table above


@headers.mirrors("native/textures.h")
class Texture(ctypes.Structure):
    """Texture whose texels lie in global memory."""

    gathers = False
    """True if the texture's array allows tld4."""
    layers = 0
    """Number of layers, 0 of a texture without; address, sizes and strides are those of the first one."""
    layer_bytes = 0
    """Bytes from layer to layer."""
    has_faces = False
    """True of a cubemap: its layers are faces, in the order +x, -x, +y, -y, +z, -z, of a layered one for each layer."""
    is_layered_cubemap = False

    @property
    def geometry(self) -> str:
        """The texture's geometry in PTX: 1d, 2d, 3d, a1d, a2d, cube or acube."""
        if self.has_faces:
            return "acube" if self.is_layered_cubemap else "cube"
        return f"{'a' * bool(self.layers)}{self.dimensions}d"

    def layer(self, index: int) -> Texture:
        """The texture that a layer is. An index beyond the last layer's counts as that one's (PTX ISA, tex)."""
        made = Texture.from_buffer_copy(self)
        made.address += min(index, self.layers - 1) * self.layer_bytes
        return made

    @property
    def nbytes(self) -> int:
        """Bytes from the first texel to the end of the last one."""
        return self.texel_bytes + sum((size - 1) * step for size, step in zip(self.sizes, self.strides))

    @property
    def texel_bytes(self) -> int:
        return self.channels * self.bits // 8

    @property
    def reads(self) -> str:
        """Type of the values that a fetch returns: "f32", or "s32" or "u32" for integers."""
        return "f32" if self.is_fraction or self.kind == FLOAT else "s32" if self.kind == SIGNED else "u32"


@dataclass(frozen=True)
class Surface:
    """Surface on a CUDA array."""

    address: int
    dimensions: int
    elements: tuple[int, int, int]
    sizes: tuple[int, int, int]
    """(bytes of a row, number of rows, number of planes)."""
    strides: tuple[int, int, int]
    """Bytes from byte to byte, from row to row, from plane to plane."""


Object = TypeVar("Object", Texture, Surface)
_objects: dict[int, Texture | Surface] = {}
_handles = itertools.count(1)


def add(found: Texture | Surface) -> int:
    """Adds an object. Returns its handle."""
    handle = next(_handles)
    _objects[handle] = found
    if isinstance(found, Texture) and not found.layers:
        _library().know_texture(handle, ctypes.addressof(found))
    return handle


def forget(handle: int) -> None:
    """Destroys the object of a handle. Raises Fault if there is none."""
    if handle not in _objects:
        raise Fault(f"{handle:#x} is no texture or surface object, or it has been destroyed")
    if isinstance(_objects.pop(handle), Texture):
        _library().know_texture(handle, None)


def named(handle: int, kind: type[Object]) -> Object:
    """Object of a handle. Raises Fault if there is none, or if it is not of `kind`."""
    found = _objects.get(handle)
    if not isinstance(found, kind):
        what = kind.__name__.lower()
        raise Fault(f"{handle:#x} is no {what} object: none has been created, or it has been destroyed")
    return found


@cache
def _library() -> ctypes.CDLL:
    found = toolchain.load("native")
    found.know_texture.restype = None
    found.know_texture.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    for name in ("fetch_texels", "gather_texels"):
        function = getattr(found, name)
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int32, *[ctypes.c_void_p] * 2]
    return found


def fetched(
    texture: Texture, mask: int, coordinates: np.ndarray, is_integer: bool, channel: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(uint32[CHANNELS, 32] results of a fetch, uint64[TAPS, 32] addresses of the texels, 0 for the border).

    coordinates: uint32[axes, 32]. channel: the one that is gathered from four texels, None for a fetch of all channels.
    """
    result, touched = np.zeros((CHANNELS, 32), np.uint32), np.zeros((TAPS, 32), np.uint64)
    given = row_of(coordinates, 32)
    function = _library().fetch_texels if channel is None else _library().gather_texels
    number = int(is_integer) if channel is None else channel
    function(ctypes.addressof(texture), mask, given.ctypes.data, number, result.ctypes.data, touched.ctypes.data)
    return result, touched
