"""Operands that need no code: special registers, the widths of types, immediates."""

from __future__ import annotations

import re
import struct

import numpy as np

from emulator.instructions import Immediate, Special

UNIFORM_SPECIALS = {
    **{f"%{name}.{axis}": f"g.{place}[{i}]" for i, axis in enumerate("xyz") for name, place in (
        ("ctaid", "cta.index"), ("nctaid", "grid.config.grid"), ("ntid", "grid.config.block"), ("cluster_ctaid", "cta.cluster_index"),
        ("cluster_nctaid", "grid.config.cluster"), ("clusterid", "cta.cluster.index"), ("nclusterid", "grid.clusters"))},
    "%cluster_ctarank": "g.cta.rank", "%cluster_nctarank": "g.cta.cluster.size", "%warpid": "g.warp.index",
    "%nwarpid": "len(g.cta.warps)", "%smid": "g.cta.sm", "%nsmid": "g.grid.sm_count", "%gridid": "g.grid.number",
    "%clock": "g.clock() & 0xffffffff", "%clock_hi": "g.clock() >> 32", "%clock64": "g.clock()", "%globaltimer": "g.clock()",
    "%globaltimer_lo": "g.clock() & 0xffffffff", "%globaltimer_hi": "g.clock() >> 32",
    "%dynamic_smem_size": "g.grid.config.dynamic_shared_bytes", "%total_smem_size": "g.cta.shared.data.size - 0x400",
    "%is_explicit_cluster": "int(g.cta.cluster.size > 1)",
}  # fmt: skip
LANE_SPECIALS = {
    "%tid.x": "g.warp.tid[0]", "%tid.y": "g.warp.tid[1]", "%tid.z": "g.warp.tid[2]", "%laneid": "LANE_ID",
    "%lanemask_eq": "(ONE << LANE_ID)", "%lanemask_lt": "((ONE << LANE_ID) - ONE)", "%lanemask_le": "(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))",
    "%lanemask_gt": "~(((ONE << LANE_ID) - ONE) | (ONE << LANE_ID))", "%lanemask_ge": "~((ONE << LANE_ID) - ONE)",
}  # fmt: skip


def special_is_uniform(operand: object) -> bool:
    return not isinstance(operand, Special) or operand.name in UNIFORM_SPECIALS


def type_width(type_name: str) -> int:
    if type_name == "pred":
        return 1
    bits, _, count = re.sub(r"^[a-z]+", "", type_name).partition("x")
    return int(bits) * int(count or 1)


def immediate_bits(operand: Immediate, width: int) -> int:
    """The immediate as an unsigned integer of a width; a 64-bit literal is rounded for a 32-bit float."""
    if operand.float_width == 64 and width == 32:
        value = struct.unpack("<d", struct.pack("<Q", operand.value))[0]
        return int(np.float32(value).view(np.uint32))
    return operand.value & (1 << width) - 1
