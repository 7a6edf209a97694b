"""The names that PTX text uses without a declaration: types and special registers.

PTX ISA, "Fundamental Types", "Special Registers".
"""

from __future__ import annotations

import re

_OF_THREE_AXES = ("tid", "ntid", "ctaid", "nctaid", "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
SPECIAL_REGISTERS = frozenset(
    (
        *(f"%{name}.{axis}" for name in _OF_THREE_AXES for axis in "xyz"),
        *("%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster", "%gridid", "%smid", "%nsmid"),
        *("%laneid", "%warpid", "%nwarpid", *(f"%lanemask_{relation}" for relation in ("eq", "lt", "le", "gt", "ge"))),
        *("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"),
        *("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"),
        *(f"%reserved_smem_offset_{place}" for place in ("begin", "end", "cap")),
        *(f"%envreg{i}" for i in range(32)),
        *(f"%pm{i}{bits}" for i in range(8) for bits in ("", "_64")),
        "%current_graph_exec",
    )
)


def type_width(type_name: str) -> int:
    """The width in bits of a type, such as "u32", "f16x2", "pred"."""
    if type_name == "pred":
        return 1
    bits, _, count = re.sub(r"^[a-z]+", "", type_name).partition("x")
    return int(bits) * int(count or 1)
