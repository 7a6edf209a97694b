"""What the rules share: what they are told of a kernel, and how they speak of operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.errors import EmulatorError
from emulator.hopper.maps import MARK_4_BIT, MARK_OFFSET, MapFacts, Origins
from emulator.hopper.statements import Block, Statement
from emulator.ptx.ir import Entry, located

CONTROL, PHASE, EXIT = "hopper_control", "hopper_phase", "$hopper_exit"
"""Registers of a kernel with extra warps: address of its Control (control.cuh), parity of its next cluster barrier; and
the label where its own threads end."""


@dataclass
class Context:
    """What rules need to know of the kernel and of its launch.

    maps: facts of the parameters that are tensor maps, by name. bare: whether conversions may be wrong. extra: whether the lowered kernel has extra warps.
    threads: of the kernel as it was written. calls: set by rules that call the library; asks: by those that look for
    the mark of a 4-bit map.
    """

    entry: Entry
    exact: bool
    ctas: int
    threads: int
    extra: bool
    maps: dict[str, MapFacts]
    bare: bool = False
    origins: Origins = field(init=False)
    calls: bool = False
    asks: bool = False

    def __post_init__(self):
        self.origins = Origins(self.entry)

    def refuse(self, statement: Statement, reason: str) -> EmulatorError:
        return located(f"{statement.opcode} cannot be lowered to sm_90a: {reason}", self.entry, statement.parsed)

    def call(self, block: Block, function: str, *arguments: tuple[str, str], result: tuple[str, str] | None = None):
        self.calls = True
        block.call(function, ("b32", CONTROL), *arguments, result=result)


def asked(block: Block, context: Context, space: str, base: str, value: str) -> str:
    """Half of a b32 `value` if the map at `base` is marked, else itself; space: "", ".shared" or ".global"."""
    half, found, four_bit = block.register(), block.register(), block.register("pred")
    context.asks = True
    block.add(f"ld{space}.u8 {found}, [{base}+{MARK_OFFSET}];")
    block.add(f"setp.eq.u32 {four_bit}, {found}, {MARK_4_BIT};")
    block.add(f"shr.s32 {half}, {value}, 1;")
    block.add(f"selp.b32 {half}, {half}, {value}, {four_bit};")
    return half


def word(number: int) -> tuple[str, str]:
    return "b32", str(number)


def address(block: Block, operand: str) -> str:
    """The 32-bit register of an operand like "[%r1]" or "[%r1+16]"."""
    base, plus, offset = operand.strip()[1:-1].partition("+")
    if not plus:
        return base.strip()
    register = block.register()
    block.add(f"add.s32 {register}, {base.strip()}, {offset.strip()};")
    return register
