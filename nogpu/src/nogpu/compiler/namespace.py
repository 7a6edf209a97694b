"""The names that generated code may use.

Operations are named by module (`mbarrier.arrive`, `memory.load`). Helpers that move values between registers and
operations have no prefix.
"""

from __future__ import annotations

import numpy as np

from nogpu.arithmetic import lanes
from nogpu.compiler.operands import VALUES
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
    textures,
    tmem,
)

MODULES = (
    *(active_lanes, async_stores, atomics, barriers, bulk_stores, copies, cp_async, exchange, fences, launch_control),
    *(matrices, mbarrier, memory, messages, setmaxnreg, system_calls, tcgen05, tensor_maps, textures, tmem),
)

_ROWS = {
    "FULL": lanes.FULL,
    "agreed": active_lanes.agreed,
    "bits_of": lanes.bits_of,
    "extend": lanes.extend,
    "lanes": lanes.lanes,
    "pick": active_lanes.pick,
    "row_of": lanes.row_of,
    "signed": lanes.signed,
    "specials": VALUES,
    "stack": lanes.stack,
    "where": np.where,
}


def namespace() -> dict[str, object]:
    """A new namespace for the functions of one program's instructions."""
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    return {"Fault": Fault} | _ROWS | modules
