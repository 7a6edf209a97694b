"""The carry flag CC.CF (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

PTX leaves it unnamed in the instructions that write it (`.cc`) and read it (addc, subc, madc). Here it is a predicate
register of the entry, a flag per lane, and becomes an operand of theirs: `d|%cc` where it is written, the last source
where it is read. After a subtraction it holds the borrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emulator.compiler.opcodes.rows import Row
from emulator.ptx.ir import Entry, Instruction, Pair, Register

FLAG = Register("%cc", 1)


def with_carry_flag(entry: Entry, rows: Sequence[Row]) -> Entry:
    """The entry with the flag made explicit. rows: of its instructions."""
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
