"""A row of the opcode table, and common ways to make one.

A row matches whole opcodes by a regular expression. It emits an instruction as kernels (`rowcode.assembler`), as a call
of Python (`code.Code`), or as both: then kernels call Python for what they leave out and for errors. In the text of a
call an operand is a Python integer if it is uniform, else a NumPy row of 32 lanes. Both ways refuse what is not legal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nogpu.compiler.signatures import counts, mismatch
from nogpu.ptx.ir import Instruction

if TYPE_CHECKING:
    from nogpu.compiler.code import Code
    from nogpu.compiler.rowcode.assembler import Assembler

KindOf = Callable[[object], str]
"""Operand -> "uniform", "bits" or "lanes" (see `compiler.flow`)."""
Kind = Callable[[Instruction, int, KindOf], str]
"""(instruction, number of its destinations, kinds of operands) -> the kind of its result."""
Emit = Callable[["Code", Instruction, re.Match[str]], None]
Kernels = Callable[["Assembler", Instruction, re.Match[str]], None]
"""Emits an instruction as kernels. Raises Unsupported for what it leaves to the row's call, if there is one."""


def same_as_sources(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """Uniform if every source is, else a row."""
    return "uniform" if all(kind_of(operand) == "uniform" for operand in instruction.operands[writes:]) else "lanes"


def widest_source(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    """The kind of a predicate: uniform if every source is, a mask if no source is a row, else a row."""
    return max((kind_of(operand) for operand in instruction.operands[writes:]), key=("uniform", "bits", "lanes").index)


def _always(kind: str) -> Kind:
    return lambda instruction, writes, kind_of: kind


always_uniform, always_bits, always_lanes = map(_always, ("uniform", "bits", "lanes"))


@dataclass(frozen=True)
class Row:
    """The instructions whose whole opcode matches a pattern."""

    expression: str
    """Regular expression of the opcodes."""
    emit: Emit | None = None
    """Emits the instruction as a call; None if kernels do all of it."""
    writes: int = 1
    """Number of leading operands that are destinations."""
    kind: Kind = same_as_sources
    flow: str = ""
    """"branch", "exit", "wait" (may have to wait; the first instruction of a segment), or "" for none of these."""
    operands: frozenset[int] | None = None
    """Legal numbers of operands, destinations included; None if the row unpacks them, which refuses other numbers."""
    carry: frozenset[str] = frozenset()
    """Use of the carry flag: "in" if the instruction reads it, "out" if it writes it (see `compiler.carry`)."""
    takes: str = ""
    """Types of the operands (see `compiler.signatures`); empty if they are checked when they are emitted."""
    kernels: Kernels | None = None
    """Emits the instruction as kernels; None if there are none."""
    refuses: bool = False
    """True if the row only says why an instruction is not modelled."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression: a process that only runs stored programs needs none."""
        return re.compile(self.expression)

    def refusal(self, instruction: Instruction, match: re.Match[str]) -> str | None:
        """The reason why the row does not take an instruction of its opcode, or None."""
        count = len(instruction.operands)
        if self.operands is not None and count not in self.operands:
            expected = " or ".join(map(str, sorted(self.operands)))
            return f"{instruction.opcode} with {count} operands; it takes {expected}"
        return mismatch(instruction, self.takes, match) if self.takes else None


def row(pattern: str, emit: Emit | None = None, operands: int | tuple[int, ...] | None = None, **options: Any) -> Row:
    """A row. operands: the legal number of operands, or the legal numbers; by default those of `takes`, if given.

    options: other attributes of the row. `writes` is 0 by default if the first word of `takes` is no destination: an
    address or a literal.
    """
    takes = options.get("takes", "")
    options.setdefault("writes", 0 if takes.startswith(("[", "#")) else 1)
    if operands is None and "takes" in options:
        return Row(pattern, emit, operands=counts(takes), **options)
    numbers = (operands,) if isinstance(operands, int) else operands
    return Row(pattern, emit, operands=None if numbers is None else frozenset(numbers), **options)


def computed(
    pattern: str,
    types: str,
    kernel: str,
    sources: str = "tt",
    result: str | None = None,
    ending: str = "",
    constant: int = 0,
    **options: Any,
) -> Row:
    """A row for `d = f(a, b, ...)` that is one kernel.

    pattern, ending: the opcode before and after its type. types: the legal types, separated by spaces.
    kernel, constant: name of the kernel and the constant for it, as `rowcode.assembler.Assembler.compute` has them.
    sources: a letter per source for its type: "t" the type; "q" the type's width, unsigned; "w" twice the width; "u"
    and "i" 32 bits, unsigned and signed.
    result: type of the result; None for the type itself, "wide" for twice its width. options: as for `row`.
    """

    def emit(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        code.compute(instruction, match.group("type"), kernel, sources, constant, result)

    return row(
        rf"(?:{pattern})\.(?P<type>{types.replace(' ', '|')}){ending}",
        operands=1 + len(sources),
        kernels=emit,
        **options,
    )


def by_lane(pattern: str, kernels: Kernels, **options: Any) -> Row:
    """A row that kernels compute for each lane, even where all lanes hold the same. options: as for `row`."""
    return row(pattern, kernels=kernels, kind=always_lanes, **options)


def called(
    pattern: str,
    template: str,
    operands: int | tuple[int, ...] | None = None,
    check: Emit | None = None,
    parts: bool = False,
    **options: Any,
) -> Row:
    """A row for an instruction that is one call. template, parts: as in `code.Code.call`.

    operands: as in `row`; by default those that `takes` or, without it, the template names. check: raises EmulatorError
    for what `takes` does not refuse.
    """
    if operands is None and "takes" not in options:
        named = [int(index) for index in re.findall(r"\{(\d+)", template)]
        operands = max([options.get("writes", 1) - 1, *named]) + 1

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        if check is not None:
            check(code, instruction, match)
        code.call(instruction, match, template, parts)

    return row(pattern, emit, operands, **options)


def ignored(pattern: str, takes: str = "") -> Row:
    """A row for a hint, which has no effect in the model. takes: as in `Row`; empty if there are no operands."""

    def nothing(code: object, instruction: Instruction, match: re.Match) -> None: ...

    return row(pattern, writes=0, takes=takes, kernels=nothing)


def refused(pattern: str, reason: str) -> Row:
    """A row for instructions that are not modelled, with the reason."""

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        raise code.fail(f"instruction {instruction.opcode} is not modelled: {reason}")

    return row(pattern, emit, writes=0, refuses=True)
