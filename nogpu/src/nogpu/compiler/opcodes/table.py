"""The opcode table: opcode pattern -> code emitter."""

from __future__ import annotations

import re
from functools import lru_cache

from nogpu.compiler.opcodes import (
    addresses,
    async_stores,
    atomics,
    barriers,
    carry,
    comparisons,
    control,
    conversions,
    copies,
    cp_async,
    exchange,
    floats,
    integers,
    launch_control,
    loads,
    matrices,
    tcgen05,
    textures,
    warp_mma,
)
from nogpu.compiler.opcodes.rows import Row
from nogpu.compiler.order import orders

TABLE: list[Row] = [
    *integers.ROWS,
    *carry.ROWS,
    *comparisons.ROWS,
    *floats.ROWS,
    *conversions.ROWS,
    *addresses.ROWS,
    *loads.ROWS,
    *async_stores.ROWS,
    *cp_async.ROWS,
    *atomics.ROWS,
    *matrices.ROWS,
    *control.ROWS,
    *exchange.ROWS,
    *barriers.ROWS,
    *copies.ROWS,
    *launch_control.ROWS,
    *tcgen05.ROWS,
    *warp_mma.ROWS,
    *textures.ROWS,
]


@lru_cache(maxsize=4096)
def lookup(opcode: str) -> tuple[Row, re.Match[str]] | None:
    """The first row that matches an opcode, and the match; None if the instruction is not modelled.

    The match's string is the opcode with its modifiers in the order that the row has them.
    """
    found = _lookup(opcode, TABLE)
    if found is not None:
        return found
    first = opcode.partition(".")[0]
    rows = [row for row in TABLE if re.match(rf"\W|{first}\b", row.expression)]
    return next((found for other in orders(opcode) if (found := _lookup(other, rows)) is not None), None)


def _lookup(opcode: str, rows: list[Row]) -> tuple[Row, re.Match[str]] | None:
    for row in rows:
        match = row.pattern.fullmatch(opcode)
        if match is not None:
            return row, match
    return None
