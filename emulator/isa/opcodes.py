"""The table of instructions: which row of which part executes an opcode."""

from __future__ import annotations

import re
from functools import lru_cache

from emulator.isa import (
    opcodes_async_stores,
    opcodes_atomics,
    opcodes_carry,
    opcodes_compare,
    opcodes_control,
    opcodes_convert,
    opcodes_copies,
    opcodes_cp_async,
    opcodes_exchange,
    opcodes_float,
    opcodes_half,
    opcodes_integer,
    opcodes_launch_control,
    opcodes_loads,
    opcodes_matrix,
    opcodes_memory,
    opcodes_pack,
    opcodes_sync,
    opcodes_tensor,
)
from emulator.isa.rows import Row

TABLE: list[Row] = [
    *opcodes_integer.ROWS,
    *opcodes_carry.ROWS,
    *opcodes_compare.ROWS,
    *opcodes_float.ROWS,
    *opcodes_half.ROWS,
    *opcodes_convert.ROWS,
    *opcodes_pack.ROWS,
    *opcodes_memory.ROWS,
    *opcodes_loads.ROWS,
    *opcodes_async_stores.ROWS,
    *opcodes_cp_async.ROWS,
    *opcodes_atomics.ROWS,
    *opcodes_matrix.ROWS,
    *opcodes_control.ROWS,
    *opcodes_exchange.ROWS,
    *opcodes_sync.ROWS,
    *opcodes_copies.ROWS,
    *opcodes_launch_control.ROWS,
    *opcodes_tensor.ROWS,
]


@lru_cache(maxsize=4096)
def lookup(opcode: str) -> tuple[Row, re.Match] | None:
    """The row of an opcode and its match, or None for an instruction that is not modelled."""
    for row in TABLE:
        match = row.pattern.fullmatch(opcode)
        if match is not None:
            return row, match
    return None
