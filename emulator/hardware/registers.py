"""Register allocation of a CTA's warpgroups, as far as it follows from setmaxnreg (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import Fault

if TYPE_CHECKING:
    from emulator.hardware.cluster import Cta

WARPGROUP = 4  # warps
THREADS = 128  # threads of a warpgroup
REGISTERS = 1 << 16  # 32-bit registers of an SM


def check_requests(cta: Cta) -> None:
    """Raises Fault unless all warps of each warpgroup have executed the same setmaxnreg instructions."""
    for first in range(0, len(cta.warps), WARPGROUP):
        indices = range(first, min(first + WARPGROUP, len(cta.warps)))
        asked = {index: cta.register_requests.get(index, []) for index in indices}
        if any(counts != asked[first] for counts in asked.values()):
            raise Fault(
                f"setmaxnreg by the warps of a warpgroup of {cta.label}: {asked}; all must execute the same "
                "(PTX ISA, setmaxnreg)"
            )
