"""The carry flag CC.CF (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

PTX leaves it unnamed in the instructions that write it (`.cc`) and read it (addc, subc, madc). Here it is a predicate
register of the entry, a flag per lane, and becomes an operand of theirs: `d|%cc` where it is written, the last source
where it is read. After a subtraction it holds the borrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from emulator.arithmetic.lanes import UINTS, signed
from emulator.frontend.instructions import Entry, Instruction, Pair, Register
from emulator.isa.rows import Row

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


def carried_sum(a: int, b: int, flag: int, width: int) -> tuple[int, bool]:
    """Unsigned a + b + flag as (the low `width` bits, carry)."""
    total = a + b + flag
    return total & (1 << width) - 1, total >> width != 0


def carried_difference(a: int, b: int, flag: int, width: int) -> tuple[int, bool]:
    """Unsigned a - b - flag as (the low `width` bits, borrow)."""
    total = a - b - flag
    return total & (1 << width) - 1, total < 0


def carried_low(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    """The lower half of a * b, plus c and the flag."""
    return carried_sum(a * b & (1 << width) - 1, c, flag, width)


def carried_high(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    """The upper half of the unsigned a * b, plus c and the flag."""
    return carried_sum(a * b >> width, c, flag, width)


def carried_high_signed(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    product = signed(a, width) * signed(b, width)
    return carried_sum(product >> width & (1 << width) - 1, c, flag, width)


def carried_lanes(function: Callable, width: int, *rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One of the functions above, lane by lane: the row of results and the row of flags."""
    results = [function(*values, width) for values in zip(*(row.tolist() for row in rows), strict=True)]
    values, flags = zip(*results, strict=True)
    return np.array(values, UINTS[width]), np.array(flags, bool)
