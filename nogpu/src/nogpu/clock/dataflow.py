"""The registers that each instruction of an entry reads and writes. A trace keeps them for replays without operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nogpu.compiler.flow import written_operands
from nogpu.compiler.opcodes.table import lookup
from nogpu.ptx.ir import Instruction, Special


class Flow(NamedTuple):
    """The names of an instruction's registers, each once."""

    defines: tuple[str, ...]
    uses: tuple[str, ...]
    """Sources, including the guard."""
    special: bool
    """True if the instruction reads a special register."""


def flows_of(instructions: Sequence[Instruction]) -> list[Flow]:
    """The flow of each instruction, indexed by pc. The instructions must have their operands."""
    return [_flow(instruction) for instruction in instructions]


def _flow(instruction: Instruction) -> Flow:
    found = lookup(instruction.opcode)
    defines, uses = written_operands(instruction, found[0].writes if found else 0)
    return Flow(
        tuple(dict.fromkeys(register.name for register in defines)),
        tuple(dict.fromkeys(register.name for register in uses)),
        any(isinstance(operand, Special) for operand in instruction.operands),
    )
