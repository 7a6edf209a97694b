"""Special registers as Python text, and checks of operands."""

from __future__ import annotations

from nogpu.ptx.ir import SINK, Address, Instruction, Pair, Register, Special, Vector

_VECTORS = {
    "ctaid": "cta.index",
    "nctaid": "grid.config.grid",
    "ntid": "grid.config.block",
    "cluster_ctaid": "cta.cluster_index",
    "cluster_nctaid": "grid.config.cluster",
    "clusterid": "cta.cluster.index",
    "nclusterid": "grid.clusters",
}
UNIFORM_SPECIALS = {
    **{f"%{name}.{axis}": f"g.{place}[{i}]" for name, place in _VECTORS.items() for i, axis in enumerate("xyz")},
    "%cluster_ctarank": "g.cta.rank",
    "%cluster_nctarank": "g.cta.cluster.size",
    "%warpid": "g.warp.index",
    "%nwarpid": "(g.grid.config.block[0] * g.grid.config.block[1] * g.grid.config.block[2] + 31) // 32",
    "%smid": "g.cta.sm",
    "%nsmid": "g.grid.sm_count",
    "%gridid": "g.grid.number",
    "%clock": "g.clock() & 0xffffffff",
    "%clock_hi": "g.clock() >> 32",
    "%clock64": "g.clock()",
    "%globaltimer": "g.clock()",
    "%globaltimer_lo": "g.clock() & 0xffffffff",
    "%globaltimer_hi": "g.clock() >> 32",
    "%dynamic_smem_size": "g.grid.config.dynamic_shared_bytes",
    "%total_smem_size": "g.cta.shared.data.size - 0x400",
    "%is_explicit_cluster": "int(g.cta.cluster.size > 1)",
    "%aggr_smem_size": "g.cta.shared.data.size",
    # cooperative_groups/details/driver_abi.h
    "%envreg1": "g.grid.config.workspace >> 32",
    "%envreg2": "g.grid.config.workspace & 0xffffffff",
    "%reserved_smem_offset_begin": "0",
    "%reserved_smem_offset_end": "0x400",
    "%reserved_smem_offset_cap": "0x400",
}
"""Special register -> text of an integer."""
LANE_SPECIALS = {
    "%tid.x": "g.warp.tid[0]",
    "%tid.y": "g.warp.tid[1]",
    "%tid.z": "g.warp.tid[2]",
    "%laneid": "LANE_ID",
    "%lanemask_eq": "(ONE << LANE_ID)",
    "%lanemask_lt": "((ONE << LANE_ID) - ONE)",
    "%lanemask_le": "(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))",
    "%lanemask_gt": "~(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))",
    "%lanemask_ge": "~((ONE << LANE_ID) - ONE)",
}
"""Special register -> text of a row."""


def special_is_uniform(operand: object) -> bool:
    """False for special registers that differ from lane to lane."""
    return not isinstance(operand, Special) or operand.name in UNIFORM_SPECIALS


def misplaced_destination(instruction: Instruction, writes: int) -> str | None:
    """Why an instruction cannot write its first `writes` operands, or None. Addresses among them are sources."""
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
