"""Special registers as Python text, and which operands an instruction may have."""

from __future__ import annotations

from emulator.ptx.ir import SINK, Address, Instruction, Pair, Register, Special, Vector
from emulator.ptx.types import type_width

UNIFORM_SPECIALS = {
    **{f"%{name}.{axis}": f"g.{place}[{i}]" for i, axis in enumerate("xyz") for name, place in (
        ("ctaid", "cta.index"), ("nctaid", "grid.config.grid"), ("ntid", "grid.config.block"), ("cluster_ctaid", "cta.cluster_index"),
        ("cluster_nctaid", "grid.config.cluster"), ("clusterid", "cta.cluster.index"), ("nclusterid", "grid.clusters"))},
    "%cluster_ctarank": "g.cta.rank", "%cluster_nctarank": "g.cta.cluster.size", "%warpid": "g.warp.index",
    "%nwarpid": "len(g.cta.warps)", "%smid": "g.cta.sm", "%nsmid": "g.grid.sm_count", "%gridid": "g.grid.number",
    "%clock": "g.clock() & 0xffffffff", "%clock_hi": "g.clock() >> 32", "%clock64": "g.clock()", "%globaltimer": "g.clock()",
    "%globaltimer_lo": "g.clock() & 0xffffffff", "%globaltimer_hi": "g.clock() >> 32",
    "%dynamic_smem_size": "g.grid.config.dynamic_shared_bytes", "%total_smem_size": "g.cta.shared.data.size - 0x400",
    "%is_explicit_cluster": "int(g.cta.cluster.size > 1)", "%aggr_smem_size": "g.cta.shared.data.size",
    "%reserved_smem_offset_begin": "0", "%reserved_smem_offset_end": "0x400", "%reserved_smem_offset_cap": "0x400",
}  # fmt: skip
LANE_SPECIALS = {
    "%tid.x": "g.warp.tid[0]", "%tid.y": "g.warp.tid[1]", "%tid.z": "g.warp.tid[2]", "%laneid": "LANE_ID",
    "%lanemask_eq": "(ONE << LANE_ID)", "%lanemask_lt": "((ONE << LANE_ID) - ONE)", "%lanemask_le": "(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))",
    "%lanemask_gt": "~(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))", "%lanemask_ge": "~((ONE << LANE_ID) - ONE)",
}  # fmt: skip


def special_is_uniform(operand: object) -> bool:
    return not isinstance(operand, Special) or operand.name in UNIFORM_SPECIALS


def misplaced_destination(instruction: Instruction, writes: int) -> str | None:
    """Why an instruction cannot write one of its first `writes` operands, or None. Addresses among them are sources."""
    for operand in instruction.operands[:writes]:
        items = {Vector: lambda o: o.items, Pair: lambda o: (o.first, o.second)}.get(type(operand), lambda o: (o,))
        for item in items(operand):
            if not isinstance(item, Register | Address) and item != SINK:
                return f"a destination of {instruction.opcode} is no register"
    return None


def misfit(operand: object, type_name: str) -> str | None:
    """Why a register cannot be an operand of a type, or None (PTX ISA, "Operand Type Checking")."""
    if not isinstance(operand, Register) or operand.width == type_width(type_name):
        return None
    return f"register {operand.name} has {operand.width} bits, the operand's type .{type_name} {type_width(type_name)}"
