"""What a row of the opcode table is, and the common ways to make one.

A row matches whole opcodes by a regular expression and emits Python for an instruction through `code.Code`. Operands
are given to the emitted text either as Python integers (uniform) or as NumPy rows of 32 lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from emulator.compiler.code import Code

KindOf = Callable[[object], str]  # operand -> "uniform", "bits" or "lanes" (see `flow.py`)
Kind = Callable[[Instruction, int, KindOf], str]


def same_as_sources(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """Uniform if every source is."""
    return "uniform" if all(kind_of(operand) == "uniform" for operand in instruction.operands[writes:]) else "lanes"


def widest_source(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """For predicates: a mask as long as no source is a row."""
    return max((kind_of(operand) for operand in instruction.operands[writes:]), key=("uniform", "bits", "lanes").index)


def always_uniform(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    return "uniform"


def always_lanes(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    return "lanes"


@dataclass(frozen=True)
class Row:
    """pattern: of the whole opcode. writes: how many leading operands are destinations. flow: "", "branch", "exit" or
    "wait" (may have to wait; emitted as the first instruction of a segment). operands: how many operands the
    instruction may have, destinations included; None where `emit` unpacks them and so refuses any other number.
    carry: what the instruction does with the carry flag, of "in" and "out" (see `carry.py`)."""

    pattern: re.Pattern
    emit: Callable[[Code, Instruction, re.Match], None]
    writes: int = 1
    kind: Kind = same_as_sources
    flow: str = ""
    operands: frozenset[int] | None = None
    carry: frozenset[str] = frozenset()

    def refusal(self, instruction: Instruction) -> str | None:
        """Why the row does not take an instruction of its opcode, or None."""
        count = len(instruction.operands)
        if self.operands is None or count in self.operands:
            return None
        expected = " or ".join(map(str, sorted(self.operands)))
        return f"{instruction.opcode} with {count} operands; it takes {expected}"


def row(pattern: str, emit: Callable, operands: int | tuple[int, ...] | None = None, **options) -> Row:
    """operands: the number of operands, or the numbers that there may be."""
    counts = (operands,) if isinstance(operands, int) else operands
    return Row(re.compile(pattern), emit, operands=None if counts is None else frozenset(counts), **options)


def sources_named(template: str) -> int:
    """How many sources an expression names: {a}, {b}, ..."""
    return len(set(re.findall(r"\{([a-e])\}", template)))


def computed(
    pattern: str,
    types: str,
    scalar: str | None,
    lanes: str,
    sources: str = "abc",
    result: str | None = None,
    ending: str = "",
) -> Row:
    """`d = f(a, b, ...)`: the expressions name their sources {a}, {b}, {c} and the type's width in bits as {n}.

    pattern, ending: the opcode up to its type and after it. types: its types. sources: one letter per operand: "q"
    the type's width unsigned, "w" twice its width, "u" and "i" 32 bits unsigned and signed, "p" a predicate; any
    other letter stands for the type itself. scalar None: there is no expression for integers, the result is a row.
    result: the type of the result if it differs, or "wide" for twice the width, "unsigned" for the same width where
    the sign makes no difference. The instruction has one operand for each source that the expressions name.
    """

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        code.compute(instruction, match.group("type"), scalar, lanes, sources, result)

    kind = same_as_sources if scalar is not None else always_lanes
    operands = 1 + sources_named(lanes)
    return row(rf"(?:{pattern})\.(?P<type>{types.replace(' ', '|')}){ending}", emit, operands, kind=kind)


def called(pattern: str, template: str, operands: int | tuple[int, ...] | None = None, **options) -> Row:
    """An instruction that is one call; see `code.Code.call` for what the template may name.

    operands: as of `row`; by default as many as the template names, which suits whatever has no optional operands.
    """
    if operands is None:
        named = [int(index) for index in re.findall(r"\{(\d+)", template)]
        operands = max([options.get("writes", 1) - 1, *named]) + 1

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        code.call(instruction, match, template)

    return row(pattern, emit, operands, **options)


def ignored(pattern: str) -> Row:
    """An instruction without an effect on what is modelled (hints)."""
    return row(pattern, lambda code, instruction, match: None, writes=0)
