"""The analysis of an entry, from which its row code is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nogpu.compiler import carry
from nogpu.compiler.flow import Flow
from nogpu.compiler.layout import Layout, lay_out
from nogpu.compiler.linking import link
from nogpu.compiler.nesting import Nesting
from nogpu.compiler.steps import Match, in_order, rows_of, steps_of
from nogpu.compiler.tmem_uses import first_uses
from nogpu.ptx.ir import Entry, Instruction


@dataclass(frozen=True)
class Plan:
    """Everything that the row code of an entry depends on. Lists are by index of the instruction."""

    entry: Entry
    """The entry with calls expanded, modifiers in their rows' order and the carry flag as a register."""
    rows: list[Match]
    flow: Flow
    nesting: Nesting
    layout: Layout
    numbers: dict[str, int]
    """Register name -> its number in the Python text of instructions."""
    first_uses: dict[int, frozenset[int]]
    """Instruction -> the tcgen05.ld instructions that must be complete before it (`tmem_uses`)."""


def plan(entry: Entry, parted: bool = False, by_lane: bool = False) -> Plan:
    """The plan of an entry. parted: as in `steps_of`; by_lane: as in `Flow`.

    Raises EmulatorError, with its line, for what is not modelled.
    """
    entry = link(entry)
    if not entry.instructions:  # ptxas makes an exit of it; nvcc leaves no more of a kernel that cannot end well
        entry = replace(entry, instructions=[Instruction("ret", (), None, entry.line, "}")])
    rows = rows_of(entry)
    entry = in_order(entry, rows)
    entry = carry.with_carry_flag(entry, [row for row, _ in rows])
    flow = Flow(entry, steps_of(entry, rows, parted), by_lane)
    return Plan(
        entry=entry,
        rows=rows,
        flow=flow,
        nesting=Nesting(flow),
        layout=lay_out(entry),
        numbers={name: number for number, name in enumerate(entry.registers)},
        first_uses=first_uses(flow),
    )
