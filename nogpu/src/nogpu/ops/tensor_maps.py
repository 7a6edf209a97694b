"""Tensor maps edited and published by kernels (PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.tma import tensor_map
from nogpu.hardware.tma.tensor_map import TENSOR_MAP_BYTES
from nogpu.ops.active_lanes import pick, whole_warp
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand


def replace_field(
    g: ActiveGroup,
    mask: int,
    space: str,
    address: Operand,
    field: tuple[str, int | None],
    value: Operand,
    issuer: Issuer,
) -> None:
    """Executes tensormap.replace.tile on a tensor map in shared or global memory.

    field: name and dimension, which is None for a field that has none.
    """
    place, new_value = pick(address, mask), pick(value, mask)
    g.cta.machine.progress += 1
    if space.startswith("shared"):
        cta, offset = shared_target(g, place)
        raw = np.array(cta.shared.read(offset, TENSOR_MAP_BYTES, issuer, proxy="generic"))
        tensor_map.edit(raw, *field, new_value)
        cta.shared.write(offset, raw, issuer, proxy="generic")
    else:
        raw = np.array(g.grid.memory.read(place, TENSOR_MAP_BYTES, issuer, proxy="generic"))
        tensor_map.edit(raw, *field, new_value)
        g.grid.memory.write(place, raw, issuer, proxy="generic")


def publish(g: ActiveGroup, mask: int, destination: Operand, source: Operand, nbytes: int, issuer: Issuer) -> None:
    """tensormap.cp_fenceproxy: the whole warp copies one tensor map from shared to global memory."""
    whole_warp(g, mask, "tensormap.cp_fenceproxy")
    if nbytes != TENSOR_MAP_BYTES:
        raise Fault(f"tensormap.cp_fenceproxy of {nbytes} bytes: must be {TENSOR_MAP_BYTES}")
    cta, offset = shared_target(g, pick(source, mask))
    g.cta.machine.progress += 1
    data = cta.shared.read(offset, TENSOR_MAP_BYTES, issuer, proxy="generic")
    g.grid.memory.write(pick(destination, mask), data, issuer, proxy="generic")
    # The warp's lanes make one copy, which is over for all of them.
    g.cta.cluster.events.joined(g.warp, mask)
    g.cta.cluster.events.released_maps(g.warp, mask)
