"""Tensor maps that kernels edit and publish (PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.errors import Fault
from emulator.hardware.tma import tensor_map
from emulator.hardware.tma.tensor_map import TENSOR_MAP_BYTES
from emulator.ops.active_lanes import pick, whole_warp
from emulator.ops.memory import shared_target

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup


def replace_field(
    g: ActiveGroup, mask: int, space: str, field: str, address, ordinal: int | None, value, issuer
) -> None:
    """tensormap.replace.tile of a tensor map in shared or global memory."""
    address, value = pick(address, mask), pick(value, mask)
    if space.startswith("shared"):
        cta, offset = shared_target(g, address)
        raw = np.array(cta.shared.read(offset, TENSOR_MAP_BYTES, issuer, proxy="generic"))
        tensor_map.edit(raw, field, ordinal, value)
        cta.shared.write(offset, raw, issuer, proxy="generic")
    else:
        raw = np.array(g.grid.memory.read(address, TENSOR_MAP_BYTES, issuer, proxy="generic"))
        tensor_map.edit(raw, field, ordinal, value)
        g.grid.memory.write(address, raw, issuer, proxy="generic")


def publish(g: ActiveGroup, mask: int, destination, source, nbytes: int, issuer) -> None:
    """tensormap.cp_fenceproxy: the whole warp copies one tensor map from shared to global memory."""
    whole_warp(g, mask, "tensormap.cp_fenceproxy")
    if nbytes != TENSOR_MAP_BYTES:
        raise Fault(f"tensormap.cp_fenceproxy of {nbytes} bytes: must be {TENSOR_MAP_BYTES}")
    cta, offset = shared_target(g, pick(source, mask))
    g.cta.machine.progress += 1
    data = cta.shared.read(offset, TENSOR_MAP_BYTES, issuer, proxy="generic")
    g.grid.memory.write(pick(destination, mask), data, issuer, proxy="generic")
