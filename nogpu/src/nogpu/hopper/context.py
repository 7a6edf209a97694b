"""Context and operand helpers of the lowering rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from nogpu.errors import EmulatorError
from nogpu.hopper.maps import MARK_4_BIT, MARK_OFFSET, MapFacts, Origins
from nogpu.hopper.statements import Block, Statement
from nogpu.ptx.ir import Entry, located

CONTROL, PHASE, EXIT = "hopper_control", "hopper_phase", "$hopper_exit"
"""Names in a kernel with extra warps: register with the address of its Control (control.cuh), register with the parity
of its next cluster barrier, and the label where its own threads end."""
ARRIVED = "hopper_arrived"
"""Name in such a kernel: register, 1 between a warp's arrival at a cluster barrier and its wait."""


@dataclass
class Context:
    """The kernel and its launch, as the rules see them."""

    entry: Entry
    exact: bool  # True if software emulates tensor memory and tensor core
    ctas: int  # CTAs per cluster
    threads: int  # threads of the original kernel; 0 without extra warps
    extra: bool  # True if the lowered kernel has extra warps
    maps: dict[str, MapFacts]  # name -> facts of a parameter that is a tensor map
    bare: bool = False  # True if conversions may give wrong values
    origins: Origins = field(init=False)
    calls: bool = False  # True once a rule has called the library
    asks: bool = False  # True once a rule has looked for the mark of a 4-bit map
    converted: frozenset[object] = field(init=False)  # bytes that instructions convert from e2m1
    high_bytes: dict[object, tuple[str, int]] = field(default_factory=dict)  # byte -> (word, place): rules_e2m1
    beginning: list[str] = field(default_factory=list)  # PTX for the start of the entry
    constants: dict[int, str] = field(default_factory=dict)  # value -> its register

    def __post_init__(self) -> None:
        self.origins = Origins(self.entry)
        conversions = [x for x in self.entry.instructions if x.opcode == "cvt.rn.f16x2.e2m1x2"]
        self.converted = frozenset(x.operands[1] for x in conversions)

    def register(self, kind: str) -> str:
        """A new register that the whole entry can use; kind: b16, b32, b64 or pred."""
        name = f"hopper_entry_{len(self.beginning)}"
        self.beginning.append(f".reg .{kind} {name};")
        return name

    def constant(self, value: int) -> str:
        """A register with this value, for the whole entry.

        ptxas keeps known constants in uniform registers, and copies them for instructions that cannot read those. It
        does not know that bit 31 of %lanemask_lt is 0.
        """
        if value not in self.constants:
            name = self.constants[value] = self.register("b32")
            self.beginning += [
                f"mov.u32 {name}, %lanemask_lt;",
                f"shr.u32 {name}, {name}, 31;",
                f"or.b32 {name}, {name}, {value:#x};",
            ]
        return self.constants[value]

    def refuse(self, statement: Statement, reason: str) -> EmulatorError:
        return located(f"{statement.opcode} cannot be lowered to sm_90a: {reason}", self.entry, statement.parsed)

    def call(
        self, block: Block, function: str, *arguments: tuple[str, str], result: tuple[str, str] | None = None
    ) -> None:
        """Add a library call with CONTROL as its first argument; Block.call has the other arguments and the result."""
        self.calls = True
        block.call(function, ("b32", CONTROL), *arguments, result=result)


def asked(block: Block, context: Context, space: str, base: str, value: str) -> str:
    """A register with half of the b32 `value` if the map at `base` is marked, else with `value`.

    space: state space of the map's address: ".shared", ".global", or "" for a generic one.
    """
    half, found, four_bit = block.register(), block.register(), block.register("pred")
    context.asks = True
    block.add(f"ld{space}.u8 {found}, [{base}+{MARK_OFFSET}];")
    block.add(f"setp.eq.u32 {four_bit}, {found}, {MARK_4_BIT};")
    block.add(f"shr.s32 {half}, {value}, 1;")
    block.add(f"selp.b32 {half}, {half}, {value}, {four_bit};")
    return half


def word(number: int) -> tuple[str, str]:
    """A number as an argument of a call."""
    return "b32", str(number)


def address(block: Block, operand: str) -> str:
    """The 32-bit register of an operand like "[%r1]" or "[%r1+16]"."""
    base, plus, offset = operand.strip()[1:-1].partition("+")
    if not plus:
        return base.strip()
    register = block.register()
    block.add(f"add.s32 {register}, {base.strip()}, {offset.strip()};")
    return register
