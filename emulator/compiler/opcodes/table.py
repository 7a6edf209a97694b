"""The table of instructions: which row of which part executes an opcode."""

from __future__ import annotations

import re
from functools import lru_cache

from emulator.compiler.opcodes import addresses as opcodes_memory
from emulator.compiler.opcodes import async_stores as opcodes_async_stores
from emulator.compiler.opcodes import atomics as opcodes_atomics
from emulator.compiler.opcodes import barriers as opcodes_sync
from emulator.compiler.opcodes import carry as opcodes_carry
from emulator.compiler.opcodes import comparisons as opcodes_compare
from emulator.compiler.opcodes import control as opcodes_control
from emulator.compiler.opcodes import conversions as opcodes_convert
from emulator.compiler.opcodes import copies as opcodes_copies
from emulator.compiler.opcodes import cp_async as opcodes_cp_async
from emulator.compiler.opcodes import exchange as opcodes_exchange
from emulator.compiler.opcodes import floats as opcodes_float
from emulator.compiler.opcodes import halves as opcodes_half
from emulator.compiler.opcodes import integers as opcodes_integer
from emulator.compiler.opcodes import launch_control as opcodes_launch_control
from emulator.compiler.opcodes import loads as opcodes_loads
from emulator.compiler.opcodes import matrices as opcodes_matrix
from emulator.compiler.opcodes import packed as opcodes_pack
from emulator.compiler.opcodes import tcgen05 as opcodes_tensor
from emulator.compiler.opcodes.rows import Row

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
