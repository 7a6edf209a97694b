"""setmaxnreg: registers per thread, by warpgroup (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import Fault
from emulator.hardware.registers import REGISTERS, THREADS, WARPGROUP
from emulator.ops.active_lanes import whole_warp

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup


def set_registers(g: ActiveGroup, mask: int, count: int, instruction: str) -> None:
    """Registers per thread from now on. An increase blocks until there are as many: for ever, if the other warpgroups
    have asked for too many. What a warpgroup has that has not asked is not known, and not counted.
    """
    whole_warp(g, mask, instruction)
    requests = g.cta.register_requests
    before = requests.setdefault(g.warp.index, [])
    if before and (count < before[-1] if ".inc" in instruction else count > before[-1]):
        raise Fault(f"{instruction} to {count} registers from {before[-1]} (PTX ISA, setmaxnreg)")
    before.append(count)
    asked = {index // WARPGROUP: counts[-1] for index, counts in requests.items()}
    total = THREADS * sum(asked.values())
    if total > REGISTERS:
        raise Fault(f"{instruction} to {count}: warpgroups have asked for {total} registers, an SM has {REGISTERS}")
