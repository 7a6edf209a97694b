"""Rows of the opcode table: control flow (PTX ISA, "Control Flow Instructions", "Miscellaneous Instructions")."""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Instruction
from emulator.rows import Row, ignored, row


def _ends(code: Code, instruction: Instruction, match: re.Match) -> None:
    raise AssertionError("control flow is emitted by translate.py")


def _trap(code: Code, instruction: Instruction, match: re.Match) -> None:
    code.line(f"raise Fault({match.group()!r} + ' is executed')")


ROWS: list[Row] = [
    row(r"bra(?:\.uni)?", _ends, writes=0, flow="branch"),
    row(r"ret(?:\.uni)?|exit", _ends, writes=0, flow="exit"),
    row(r"trap|brkpt", _trap, writes=0),
    ignored(r"nanosleep\.u32"),
    ignored(r"pmevent(?:\.mask)?"),
    ignored(r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32"),
]
