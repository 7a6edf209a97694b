"""The names that generated code may use.

Operations and arithmetic are named by module (`mbarrier.arrive`, `memory.load`, `floats.fused`). Helpers that move
values between registers and operations have no prefix: the row helpers below and NumPy.
"""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic import carry, floats, integers, lanes, packing, roundings
from nogpu.errors import Fault
from nogpu.ops import (
    active_lanes,
    async_stores,
    atomics,
    barriers,
    bulk_stores,
    copies,
    cp_async,
    exchange,
    fences,
    launch_control,
    matrices,
    mbarrier,
    memory,
    messages,
    setmaxnreg,
    system_calls,
    tcgen05,
    tensor_maps,
    tmem,
    warp_mma,
)

MODULES = (
    *(carry, floats, integers, packing, roundings),
    *(active_lanes, async_stores, atomics, barriers, bulk_stores, copies, cp_async, exchange, fences, launch_control),
    *(matrices, mbarrier, memory, messages, setmaxnreg, system_calls, tcgen05, tensor_maps, tmem, warp_mma),
)

_ROWS = {
    "FULL": lanes.FULL,
    "INTS": lanes.INTS,
    "LANE_ID": lanes.LANE_ID,
    "ONE": np.uint32(1),
    "UINTS": lanes.UINTS,
    "agreed": active_lanes.agreed,
    "bits_of": lanes.bits_of,
    "extend": lanes.extend,
    "lanes": lanes.lanes,
    "pick": active_lanes.pick,
    "row_of": lanes.row_of,
    "signed": lanes.signed,
    "stack": lanes.stack,
}
_TYPES: dict[str, object] = {
    **{"f16": np.float16, "f32": np.float32, "f64": np.float64},
    **{f"u{bits}": kind for bits, kind in lanes.UINTS.items()},
    **{f"i{bits}": kind for bits, kind in lanes.INTS.items()},
}


def namespace() -> dict[str, object]:
    """A new namespace for the functions of one program's instructions."""
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    return {"np": np, "where": np.where, "Fault": Fault} | _TYPES | _ROWS | modules
