"""Rows of the opcode table: control flow (PTX ISA, "Control Flow Instructions", "Miscellaneous Instructions")."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, called, ignored, row
from nogpu.compiler.signatures import shown
from nogpu.ops.system_calls import SYSTEM_CALLS
from nogpu.ptx.ir import Immediate, Instruction


def _trap(code: Code, instruction: Instruction, match: re.Match) -> None:
    code.line(f"raise Fault({match.group()!r} + ' is executed')")


def _system_call(code: Code, instruction: Instruction, match: re.Match) -> None:
    places = ", ".join(code.symbol(operand.base) for operand in instruction.operands)
    code.line(f"system_calls.{SYSTEM_CALLS[match['function']]}(g, {code.mask}, ({places},), (g, {code.pc}))")


def _set_registers(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Emits setmaxnreg, whose count is 24 to 256 in steps of 8 (PTX ISA, "setmaxnreg")."""
    (count,) = instruction.operands
    if not isinstance(count, Immediate) or not 24 <= count.value <= 256 or count.value % 8:
        raise code.fail(f"register count {shown(count)}: an immediate from 24 to 256 in steps of 8 is expected")
    code.line(f"setmaxnreg.set_registers(g, {code.mask}, {count.value}, {match.group()!r})")


ROWS: list[Row] = [
    row(r"bra(?:\.uni)?", operands=1, writes=0, flow="branch"),  # emitted by compiler/segments.py, as is the next
    row(r"ret(?:\.uni)?|exit", operands=0, writes=0, flow="exit"),
    row(r"trap|brkpt", _trap, 0, writes=0),
    ignored(r"nanosleep\.u32", "u32"),
    ignored(r"pmevent(?:\.mask)?", "#"),
    row(r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", _set_registers, 1, writes=0),
    # Instructions that compiler.linking writes in the place of calls and brx.idx:
    called(r"brx\.idx(?:\.uni)?", "system_calls.check_index(g, {m}, {0:v}, {1:i})", writes=0),
    called(r"call\.unknown", "system_calls.unknown_function(g, {m}, {0:v})", writes=0),
    row(rf"call\.(?P<function>{'|'.join(SYSTEM_CALLS)})", _system_call, writes=0),
]
