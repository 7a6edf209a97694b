"""setmaxnreg: registers per thread of a warpgroup (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.errors import Fault
from nogpu.hardware.setmaxnreg import REGISTERS, requested
from nogpu.ops.active_lanes import whole_warp

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup


def set_registers(g: ActiveGroup, mask: int, count: int, instruction: str) -> None:
    """Executes setmaxnreg.inc or .dec to `count` registers per thread.

    Raises Fault for a count in the other direction, and if the warpgroups have requested more registers than an SM
    has: the hardware would block for ever. Warpgroups without a request are not counted, their share is not known.
    """
    whole_warp(g, mask, instruction)
    requests = g.cta.register_requests
    before = requests.setdefault(g.warp.index, [])
    if before and (count < before[-1] if ".inc" in instruction else count > before[-1]):
        raise Fault(f"{instruction} to {count} registers from {before[-1]} (PTX ISA, setmaxnreg)")
    before.append(count)
    if ".inc" in instruction:
        g.cta.register_increases.add(g.warp.index)
    total = requested(requests)
    if total > REGISTERS:
        raise Fault(f"{instruction} to {count}: warpgroups have asked for {total} registers, an SM has {REGISTERS}")
