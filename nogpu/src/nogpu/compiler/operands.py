"""Values of special registers, and checks of operands."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from nogpu.arithmetic.lanes import LANE_ID
from nogpu.ptx.ir import SINK, Address, Instruction, Pair, Register, Special, Vector

Value = Callable[[Any], Any]
"""Active group -> the value that it reads, an integer or a row."""

_VECTORS = {
    "ctaid": "cta.index",
    "nctaid": "grid.config.grid",
    "ntid": "grid.config.block",
    "cluster_ctaid": "cta.cluster_index",
    "cluster_nctaid": "grid.config.cluster",
    "clusterid": "cta.cluster.index",
    "nclusterid": "grid.clusters",
}
CLOCKS = {
    **dict.fromkeys(("%clock64", "%globaltimer"), (64, 0)),
    **dict.fromkeys(("%clock", "%globaltimer_lo"), (32, 0)),
    **dict.fromkeys(("%clock_hi", "%globaltimer_hi"), (32, 32)),
}
"""Special register -> (its width in bits, the lowest bit of the clock in it)."""
_RESERVED_BYTES = 0x400  # bytes of shared memory that the system takes
_ONE_LANE = np.uint32(1) << LANE_ID
_LANES_BELOW = _ONE_LANE - np.uint32(1)


def _component(place: str, axis: int) -> Value:
    vector = attrgetter(place)
    return lambda g: vector(g)[axis]


def _clock(bits: int, lowest: int) -> Value:
    return lambda g: g.clock() >> lowest & (1 << bits) - 1


def _warps(g: Any) -> int:
    x, y, z = g.grid.config.block
    return (x * y * z + 31) // 32


UNIFORM_SPECIALS: dict[str, Value] = {
    **{f"%{name}.{axis}": _component(place, i) for name, place in _VECTORS.items() for i, axis in enumerate("xyz")},
    "%cluster_ctarank": lambda g: g.cta.rank,
    "%cluster_nctarank": lambda g: g.cta.cluster.size,
    "%warpid": lambda g: g.warp.index,
    "%nwarpid": _warps,
    "%smid": lambda g: g.cta.sm,
    "%nsmid": lambda g: g.grid.sm_count,
    "%gridid": lambda g: g.grid.number,
    **{name: _clock(*place) for name, place in CLOCKS.items()},
    "%dynamic_smem_size": lambda g: g.grid.config.dynamic_shared_bytes,
    "%total_smem_size": lambda g: g.cta.shared.data.size - _RESERVED_BYTES,
    "%is_explicit_cluster": lambda g: int(g.cta.cluster.size > 1),
    "%aggr_smem_size": lambda g: g.cta.shared.data.size,
    # cooperative_groups/details/driver_abi.h
    "%envreg1": lambda g: g.grid.config.workspace >> 32,
    "%envreg2": lambda g: g.grid.config.workspace & 0xFFFFFFFF,
    "%reserved_smem_offset_begin": lambda g: 0,
    "%reserved_smem_offset_end": lambda g: _RESERVED_BYTES,
    "%reserved_smem_offset_cap": lambda g: _RESERVED_BYTES,
}
LANE_SPECIALS: dict[str, Value] = {
    "%tid.x": lambda g: g.warp.tid[0],
    "%tid.y": lambda g: g.warp.tid[1],
    "%tid.z": lambda g: g.warp.tid[2],
    "%laneid": lambda g: LANE_ID,
    "%lanemask_eq": lambda g: _ONE_LANE,
    "%lanemask_lt": lambda g: _LANES_BELOW,
    "%lanemask_le": lambda g: _LANES_BELOW | _ONE_LANE,
    "%lanemask_gt": lambda g: ~(_LANES_BELOW | _ONE_LANE),
    "%lanemask_ge": lambda g: ~_LANES_BELOW,
}
SHARED_BASE, PARAMETERS, PARAMETER_BYTES = "%shared_base", "%parameters", "%parameter_bytes"
"""Names of the base addresses of symbols, and of the parameters' size in bytes."""
VALUES: dict[str, Value] = {
    **UNIFORM_SPECIALS,
    **LANE_SPECIALS,
    SHARED_BASE: lambda g: g.cta.shared_base,
    PARAMETERS: lambda g: g.grid.param_address,
    PARAMETER_BYTES: lambda g: len(g.grid.parameters),
}


BY_CTA = frozenset(["%smid", *(f"%{name}.{axis}" for name in ("ctaid", "clusterid") for axis in "xyz")])
"""Special registers that differ between CTAs of a grid, each alone in its cluster."""


def special_is_uniform(operand: object) -> bool:
    """False for special registers that differ from lane to lane."""
    return not isinstance(operand, Special) or operand.name in UNIFORM_SPECIALS


def misplaced_destination(instruction: Instruction, writes: int) -> str | None:
    """Reason why an instruction cannot write its first `writes` operands, or None. Addresses among them are sources."""
    for operand in instruction.operands[:writes]:
        items: tuple[object, ...] = (operand,)
        if isinstance(operand, Vector):
            items = operand.items
        elif isinstance(operand, Pair):
            items = (operand.first, operand.second)
        for item in items:
            if not isinstance(item, Register | Address) and item != SINK:
                return f"a destination of {instruction.opcode} is no register"
    return None
