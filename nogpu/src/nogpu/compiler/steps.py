"""Steps of an entry: each instruction with its row of the opcode table and what the row says of control flow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from nogpu.compiler.flow import Step, written_operands
from nogpu.compiler.opcodes.rows import Row
from nogpu.compiler.opcodes.table import lookup
from nogpu.compiler.operands import misplaced_destination, special_is_uniform
from nogpu.compiler.signatures import shown
from nogpu.ptx.ir import Entry, Instruction, Symbol, located

BRANCH_CHAIN = 8  # most unconditional branches followed one after the other

_COMMUNICATES = re.compile(
    r"(?:atom|red|mbarrier|barrier|griddepcontrol|tcgen05\.(?:alloc|dealloc)|cp\.async\.mbarrier)\."
    r"|bar\.(?!warp)|(?:ld|st)\.(?:\S*\.)?(?:volatile|relaxed|acquire|release|mmio)(?:\.|$)"
)

Match = tuple[Row, re.Match[str]]
"""A row of the opcode table and its pattern's match of the opcode."""


def rows_of(entry: Entry) -> list[Match]:
    """The row of each instruction. Raises EmulatorError for instructions and operands that are not modelled, and for a
    branch target that is no label.
    """
    rows = []
    for instruction in entry.instructions:
        found = lookup(instruction.opcode)
        if found is None:
            raise located(f"instruction {instruction.opcode} is not modelled", entry, instruction)
        refusal = found[0].refusal(instruction, found[1]) or misplaced_destination(instruction, found[0].writes)
        if refusal is None and found[0].flow == "branch":
            label = instruction.operands[0]
            if not isinstance(label, Symbol) or label.name not in entry.labels:
                refusal = f"branch target {shown(label)} is not a label"
        if refusal is not None:
            raise located(refusal, entry, instruction)
        rows.append(found)
    return rows


def in_order(entry: Entry, rows: list[Match]) -> Entry:
    """The entry with the modifiers of each opcode in its row's order."""
    pairs = zip(entry.instructions, rows, strict=True)
    instructions = [i if i.opcode == match.string else replace(i, opcode=match.string) for i, (_, match) in pairs]
    return replace(entry, instructions=instructions)


def steps_of(entry: Entry, rows: list[Match], parted: bool = False) -> list[Step]:
    """The steps of an entry. parted: those by which threads communicate are segments of their own."""
    found = [_step(entry, rows, index) for index in range(len(entry.instructions))]
    for step in found if parted else ():
        step.parts = _COMMUNICATES.match(step.instruction.opcode) is not None
    return found


def _step(entry: Entry, rows: list[Match], index: int) -> Step:
    instruction, (row, _) = entry.instructions[index], rows[index]
    defines, uses = written_operands(instruction, row.writes)
    target, ends = None, row.flow == "exit"
    if row.flow == "branch":
        target = instruction.operands[0].name
        if _is_exit(entry, rows, _goes_to(entry, entry.labels[target], False)):
            target, ends = None, True

    def kind(kind_of: Callable[[object], str]) -> str:
        return row.kind(instruction, row.writes, lambda x: kind_of(x) if special_is_uniform(x) else "lanes")

    return Step(instruction, defines, uses, target, ends, row.flow == "wait" or spins(entry, index), kind)


def _is_exit(entry: Entry, rows: list[Match], index: int) -> bool:
    """True if all threads exit at an instruction. A branch to it is then an exit: other lanes do not wait for them."""
    instructions = entry.instructions
    return index < len(instructions) and rows[index][0].flow == "exit" and instructions[index].predicate is None


def spins(entry: Entry, index: int) -> bool:
    """True if an instruction is the test of a loop that does nothing but test an mbarrier until the test succeeds."""
    instruction = entry.instructions[index]
    if (
        not instruction.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))
        or instruction.predicate is not None
    ):
        return False
    following = entry.instructions[index + 1 : index + 2]
    if not following or not following[0].opcode.startswith("bra") or following[0].predicate is None:
        return False
    guard = following[0].predicate
    if guard.register != instruction.operands[0]:
        return False
    return _goes_to(entry, index + 1 if guard.negated else index + 2, guard.negated) == index


def _goes_to(entry: Entry, index: int, taken: bool) -> int:
    """The instruction to which a chain of unguarded branches leads. taken: the first one is taken, guarded or not."""
    for _ in range(BRANCH_CHAIN):
        if index >= len(entry.instructions):
            return index
        instruction: Instruction = entry.instructions[index]
        if not instruction.opcode.startswith("bra") or (instruction.predicate is not None and not taken):
            return index
        index, taken = entry.labels.get(instruction.operands[0].name, index), False
    return index
