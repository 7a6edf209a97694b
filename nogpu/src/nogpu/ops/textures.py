"""tex, tld4, txq, suld, sust and suq: textures and surfaces of the CUDA runtime (PTX ISA, "Texture Instructions",
"Surface Instructions").

A texture's memory is read, to the byte, as loads read it; the texture cache, which may hold what a kernel has since
overwritten, is not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import UINTS, lane_list, lanes, row_of, signed
from nogpu.errors import Fault
from nogpu.hardware.textures import CHANNELS, FACES, Surface, Texture, fetched, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nogpu.hardware.memory import GlobalMemory
    from nogpu.hardware.textures import Object
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

TextureForm = tuple[str, str, bool]
"""Geometry in PTX, type of the result, true for an integer coordinate."""
_GEOMETRIES = {
    **{"1d": "1D texture", "2d": "2D texture", "3d": "3D texture", "cube": "cubemap texture"},
    **{"a1d": "1D layered texture", "a2d": "2D layered texture", "acube": "layered cubemap texture"},
}
SurfaceForm = tuple[int, int, str]
"""Dimensions, bits of a value, what becomes of an access outside: trap, clamp or zero."""


def _by_object(mask: int, handle: Operand, kind: type[Object]) -> Iterator[tuple[int, Object]]:
    """(mask of the lanes, object) of each handle."""
    row = row_of(handle, 64)
    for each in np.unique(row[lanes(mask)]).tolist():
        yield sum(1 << lane for lane in lane_list(mask) if row[lane] == each), named(each, kind)


def _by_layer(mask: int, texture: Texture, index: np.ndarray) -> Iterator[tuple[int, Texture]]:
    """(mask of the lanes, texture that the layer is) of each index."""
    for each in np.unique(index[lanes(mask)]).tolist():
        yield sum(1 << lane for lane in lane_list(mask) if index[lane] == each), texture.layer(each)


def _on_faces(texture: Texture, coordinates: np.ndarray) -> np.ndarray:
    """uint32[3, 32], a layer's index and the place in it, of uint32[axes, 32]: a direction, behind an index if layered.

    CUDA C++ Programming Guide, "Cubemap Textures". Of components that are alike the first is taken for the largest.
    """
    x, y, z = coordinates[-3:].view(np.float32)
    axis = np.abs(np.stack([x, y, z])).argmax(axis=0)
    major = np.choose(axis, [x, y, z])
    is_behind = np.signbit(major) & (major != 0)
    across = np.choose(axis, [np.where(is_behind, z, -z), x, np.where(is_behind, -x, x)])
    down = np.choose(axis, [-y, np.where(is_behind, -z, z), -y])
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (np.stack([across, down]) / np.abs(major) + np.float32(1)) / np.float32(2)
    cube = np.minimum(coordinates[0], texture.layers // FACES - 1) if len(coordinates) > 3 else 0
    return np.concatenate([(cube * FACES + 2 * axis + is_behind)[None].astype(np.uint32), place.view(np.uint32)])


def _check(texture: Texture, form: TextureForm) -> None:
    geometry, type_name, is_integer = form
    if texture.geometry != geometry:
        raise Fault(f"a fetch from a {_GEOMETRIES[geometry]}; the object is a {_GEOMETRIES[texture.geometry]}")
    if bool(texture.is_linear) != is_integer:
        needs = "an integer coordinate (tex1Dfetch)" if texture.is_linear else "coordinates of f32"
        raise Fault(f"a texture of {'linear' if texture.is_linear else 'array or pitched'} memory needs {needs}")
    if (texture.reads == "f32") != (type_name == "f32"):
        raise Fault(f"a fetch of .{type_name}; the texture returns .{texture.reads}")


def _readable(memory: GlobalMemory, texture: Texture, mask: int, coordinates: np.ndarray) -> Texture:
    """The texture, one of linear memory cut where its allocation ends: only texels that are fetched need memory.

    coordinates: uint32[axes, 32]. Raises Fault for memory that cannot be loaded.
    """
    if not texture.is_linear:
        memory.at(texture.address, texture.nbytes, "load")
        return texture
    count = (memory.at(texture.address, texture.texel_bytes, "load").end - texture.address) // texture.texel_bytes
    if count >= texture.sizes[0]:
        return texture
    index = coordinates[0][lanes(mask)]
    beyond = index[(index >= count) & (index < texture.sizes[0])]
    if len(beyond):
        memory.at(texture.address, (int(beyond[0]) + 1) * texture.texel_bytes, "load")
    cut = Texture.from_buffer_copy(texture)
    cut.sizes[0] = count
    return cut


def fetch(
    g: ActiveGroup,
    mask: int,
    form: TextureForm,
    handle: Operand,
    coordinates: np.ndarray,
    channel: int | None,
    issuer: Issuer,
) -> np.ndarray:
    """tex, or tld4 of a channel: uint32[4, 32]. coordinates: uint32[axes, 32]."""
    result = np.zeros((CHANNELS, 32), np.uint32)
    memory = g.grid.memory
    for part, texture in _by_object(mask, handle, Texture):
        _check(texture, form)
        if channel is not None and not texture.gathers:
            raise Fault("tld4 from a texture whose array has been allocated without cudaArrayTextureGather")
        at = _on_faces(texture, coordinates) if texture.has_faces else coordinates
        for among, one in _by_layer(part, texture, at[0]) if texture.layers else [(part, texture)]:
            one = _readable(memory, one, among, at)
            found, touched = fetched(one, among, at[1:] if texture.layers else at, form[2], channel)
            result = np.where(lanes(among), found, result)
            if memory.observer is not None:
                for row in touched:
                    places = row[row != 0]
                    if len(places):
                        memory.observer("load", "generic", places, (one.texel_bytes,), (1,), issuer)
    return result


def size(g: ActiveGroup, mask: int, handle: Operand, axis: int, of_surface: bool) -> np.ndarray:
    """txq and suq: uint32[32], texels of a texture or elements of a surface along an axis."""
    result = np.zeros(32, np.uint32)
    for part, surface in _by_object(mask, handle, Surface) if of_surface else ():
        result[lanes(part)] = surface.elements[axis]
    for part, texture in () if of_surface else _by_object(mask, handle, Texture):
        result[lanes(part)] = texture.sizes[axis]
    return result


def _places(mask: int, form: SurfaceForm, surface: Surface, coordinates: np.ndarray, nbytes: int) -> np.ndarray:
    """uint64[32]: the lanes' addresses; 0 for those that a .zero access leaves out. Raises Fault for a .trap access."""
    dimensions, _, mode = form
    if surface.dimensions != dimensions:
        raise Fault(f"an access to a {dimensions}D surface; the object is a {surface.dimensions}D surface")
    result = np.zeros(32, np.uint64)
    limits = (surface.sizes[0] - nbytes, surface.sizes[1] - 1, surface.sizes[2] - 1)
    for lane in lane_list(mask):
        at = [signed(int(coordinates[axis, lane]), 32) for axis in range(dimensions)]
        near = [min(max(i, 0), limit) for i, limit in zip(at, limits)]
        if at != near and mode == "zero":
            continue
        if at != near and mode == "trap":
            width, *others = surface.sizes[:dimensions]
            raise Fault(
                f"surface access of {nbytes} bytes at {tuple(at)}, the first in bytes: the surface has rows of {width} "
                f"bytes{''.join(f' by {other}' for other in others)}, and the access is .trap"
            )
        result[lane] = surface.address + sum(i * step for i, step in zip(near, surface.strides))
    return result


def load(
    g: ActiveGroup, mask: int, form: SurfaceForm, handle: Operand, coordinates: np.ndarray, count: int, issuer: Issuer
) -> np.ndarray:
    """suld.b: uint[count, 32], where values of 8 bits have 16. coordinates: uint32[axes, 32], the first in bytes."""
    nbytes = form[1] // 8
    result = np.zeros((count, 32), UINTS[form[1]])
    for part, surface in _by_object(mask, handle, Surface):
        places = _places(part, form, surface, coordinates, count * nbytes)
        found = g.grid.memory.gather(places, nbytes, count, places != 0, issuer)
        result = np.where(places != 0, found, result)
    return result.astype(UINTS[max(form[1], 16)])


def store(
    g: ActiveGroup,
    mask: int,
    form: SurfaceForm,
    handle: Operand,
    coordinates: np.ndarray,
    values: np.ndarray,
    issuer: Issuer,
) -> None:
    """Executes sust.b. values: uint[count, 32]; coordinates as in `load`."""
    g.cta.machine.progress += 1
    for part, surface in _by_object(mask, handle, Surface):
        places = _places(part, form, surface, coordinates, len(values) * values.itemsize)
        g.grid.memory.scatter(places, values, places != 0, issuer)
