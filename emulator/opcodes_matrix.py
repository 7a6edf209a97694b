"""Rows of the opcode table: matrices between shared memory and registers (PTX ISA, "ldmatrix", "stmatrix")."""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Instruction, Vector
from emulator.rows import Row, always_lanes, row


def _load_matrix(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands
    items = destination.items if isinstance(destination, Vector) else (destination,)
    if len(items) != int(match.group("count")):
        raise code.fail(f"{len(items)} registers for .x{match.group('count')}")
    transposed = match.group("trans") is not None
    call = f"load_matrix(g, {code.mask}, {code.address(address)}, {len(items)}, {transposed}, (g, {code.pc}))"
    code.assign_parts(destination, call, "lanes")


def _store_matrix(code: Code, instruction: Instruction, match: re.Match) -> None:
    address, source = instruction.operands
    items = source.items if isinstance(source, Vector) else (source,)
    if len(items) != int(match.group("count")):
        raise code.fail(f"{len(items)} registers for .x{match.group('count')}")
    values = ", ".join(code.value(item) for item in items)
    transposed = match.group("trans") is not None
    code.line(
        f"store_matrix(g, {code.mask}, {code.address(address)}, stack([{values}], 32), {transposed}, (g, {code.pc}))"
    )


ROWS: list[Row] = [
    row(r"ldmatrix\.sync\.aligned\.m8n8\.x(?P<count>1|2|4)(?P<trans>\.trans)?(?:\.shared(?:::cta)?)\.b16", _load_matrix, kind=always_lanes),
    row(r"stmatrix\.sync\.aligned\.m8n8\.x(?P<count>1|2|4)(?P<trans>\.trans)?(?:\.shared(?:::cta)?)\.b16", _store_matrix, writes=0),
]  # fmt: skip
