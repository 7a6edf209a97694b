"""The table of instructions: which row of which part executes an opcode."""

from __future__ import annotations

import re
from functools import lru_cache

from emulator import (
    opcodes_control,
    opcodes_convert,
    opcodes_copies,
    opcodes_exchange,
    opcodes_float,
    opcodes_integer,
    opcodes_matrix,
    opcodes_memory,
    opcodes_sync,
    opcodes_tensor,
)
from emulator.rows import Row

TABLE: list[Row] = [
    *opcodes_integer.ROWS,
    *opcodes_float.ROWS,
    *opcodes_convert.ROWS,
    *opcodes_memory.ROWS,
    *opcodes_matrix.ROWS,
    *opcodes_control.ROWS,
    *opcodes_exchange.ROWS,
    *opcodes_sync.ROWS,
    *opcodes_copies.ROWS,
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
