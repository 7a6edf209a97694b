"""Register allocation of a CTA's warpgroups, as far as it follows from setmaxnreg (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from nogpu.errors import Fault, doubt
from nogpu.hardware.properties import WARP_THREADS

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta

WARPGROUP = 4  # warps
REGISTERS = 1 << 16  # 32-bit registers of an SM


def requested(requests: dict[int, list[int]]) -> int:
    """Number of registers that the warpgroups with a setmaxnreg have requested. requests: warp -> register
    counts of its setmaxnreg.

    A warp that has not requested any yet counts with the fewest that another one of its warpgroup has requested.
    """
    groups: dict[int, list[int]] = {}
    for index, counts in requests.items():
        groups.setdefault(index // WARPGROUP, []).append(counts[-1])
    counted = (sum(counts) + (WARPGROUP - len(counts)) * min(counts) for counts in groups.values())
    return WARP_THREADS * sum(counted)


def check_requests(cta: Cta) -> None:
    """Raises Fault unless all warps of each warpgroup have executed the same setmaxnreg.

    Different counts are a doubt, and so is a setmaxnreg.dec of some of the warps only: the PTX ISA requires the same
    instruction, but hardware allocates by warp. Attention and mixed-input kernels of NVIDIA ship with an idle warp that
    keeps fewer registers than its warpgroup, and tutorials with one warp that gives registers back.
    """
    for first in range(0, len(cta.warps), WARPGROUP):
        indices = range(first, min(first + WARPGROUP, len(cta.warps)))
        asked = {index: cta.register_requests.get(index, []) for index in indices}
        if all(counts == asked[first] for counts in asked.values()):
            continue
        each = ", ".join(f"warp {index}: {_words(counts)}" for index, counts in asked.items())
        reason = (
            f"setmaxnreg by the warps of a warpgroup of {cta.label}: {each}; all must execute the same "
            "(PTX ISA, setmaxnreg)"
        )
        if len({len(counts) for counts in asked.values()}) > 1 and not cta.register_increases.isdisjoint(indices):
            raise Fault(reason)
        doubt(reason, (cta.grid.entry.name, first, "setmaxnreg"))


def _words(counts: list[int]) -> str:
    """Text of counts, equal neighbours as one: "64, 40 (3 times)"."""
    runs = [(count, sum(1 for _ in same)) for count, same in groupby(counts)]
    return ", ".join(f"{count} ({times} times)" if times > 1 else str(count) for count, times in runs) or "none"
