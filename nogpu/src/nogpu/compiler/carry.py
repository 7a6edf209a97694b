"""The carry flag CC.CF (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

Instructions that write the flag (`.cc`) or read it (addc, subc, madc) do not name it. Here it is a predicate register
of the entry and an explicit operand: `d|%cc` as a destination, the last source where it is read. After a subtraction it
holds the borrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nogpu.compiler.opcodes.rows import Row
from nogpu.ptx.ir import Entry, Instruction, Pair, Register

FLAG = Register("%cc", 1)


def with_carry_flag(entry: Entry, rows: Sequence[Row]) -> Entry:
    """The entry with the flag as a register. rows: the row of the opcode table for each instruction."""
    if not any(row.carry for row in rows):
        return entry
    instructions = [
        _explicit(*pair) if pair[1].carry else pair[0] for pair in zip(entry.instructions, rows, strict=True)
    ]
    return replace(entry, instructions=instructions, registers=entry.registers | {FLAG.name: FLAG})


def _explicit(instruction: Instruction, row: Row) -> Instruction:
    destination, *sources = instruction.operands
    if "out" in row.carry:
        destination = Pair(destination, FLAG)
    if "in" in row.carry:
        sources.append(FLAG)
    return replace(instruction, operands=(destination, *sources))
