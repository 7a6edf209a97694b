"""setmaxnreg: what is known of a CTA's registers (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import Fault
from emulator.memories.access import whole_warp

if TYPE_CHECKING:
    from emulator.machine.cluster import Cta
    from emulator.machine.warp import Group

WARPGROUP = 4  # warps
THREADS = 128
REGISTERS = 1 << 16  # 32-bit ones of an SM


def set_registers(g: Group, mask: int, count: int, instruction: str) -> None:
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


def check_requests(cta: Cta) -> None:
    """All warps of a warpgroup must execute the same setmaxnreg."""
    for first in range(0, len(cta.warps), WARPGROUP):
        indices = range(first, min(first + WARPGROUP, len(cta.warps)))
        asked = {index: cta.register_requests.get(index, []) for index in indices}
        if any(counts != asked[first] for counts in asked.values()):
            raise Fault(
                f"setmaxnreg by the warps of a warpgroup of {cta.label}: {asked}; all must execute the same "
                "(PTX ISA, setmaxnreg)"
            )
