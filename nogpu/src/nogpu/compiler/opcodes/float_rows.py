"""Makers of rows for floating-point arithmetic; `opcodes.floats` and `opcodes.halves` have the rows."""

from __future__ import annotations

import re

from nogpu.compiler.opcodes.rows import Kernels, Row, always_lanes, row
from nogpu.compiler.rowcode.assembler import Assembler, Source
from nogpu.ptx.ir import Instruction
from nogpu.ptx.types import type_width

ROUND = r"\.(?P<rounding>rn|rz|rm|rp)"
MAYBE_ROUND = rf"(?:{ROUND})?"
FTZ = r"(?P<ftz>\.ftz)?"
SAT = r"(?P<sat>\.sat)?"
RELU = r"(?P<relu>\.relu)?"
NAN = r"(?P<nan>\.NaN)?"
XORSIGN = r"(?P<xorsign>\.xorsign)(?P<abs>\.abs)"
ABS = r"(?P<abs>\.abs)"
EXTREMES = ("min", "max")
# native/arithmetic.h: group of an opcode's pattern -> the modifier's bit of a kernel's constant.
_MODIFIERS = {"ftz": 1, "sat": 2, "relu": 4, "nan": 8, "xorsign": 16, "abs": 32, "oob": 64}
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_ROUNDING_SHIFT = 8
_PLAIN_TOO = ("add", "sub", "mul", "fma", "div", "rcp", "sqrt")
"""Operations that have a kernel without modifiers, one with (`_m`), and one for roundings but to nearest (`_r`)."""


def _constant(groups: dict[str, str | None]) -> int:
    """The modifiers of an opcode as a kernel's constant."""
    rounding = _ROUNDINGS.index(groups.get("rounding") or "rn") << _ROUNDING_SHIFT
    return rounding | sum(bit for name, bit in _MODIFIERS.items() if groups.get(name))


def _arithmetic(operation: str, sources: tuple[str | None, ...]) -> Kernels:
    """The kernels of a row of arithmetic; parameters as in `float_row`."""

    def kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        groups, (destination, *operands) = match.groupdict(), instruction.operands
        type_name, constant = groups["type"], _constant(groups)
        source_types = [name or groups["of"] for name in sources] or [type_name] * len(operands)
        code.fits(destination, type_name)
        values = [_widened(code, *source, type_name) for source in zip(operands, source_types, strict=True)]
        ending = ""
        if operation in _PLAIN_TOO:
            ending = "_r" if constant >> _ROUNDING_SHIFT else "_m" if constant else ""
        code.operation(f"{operation}_{type_name}{ending}", destination, values, constant)

    return kernels


def _widened(code: Assembler, operand: object, of: str, to: str) -> Source:
    value = code.source(operand, of)
    return value if of == to else code.intermediate(f"cvt_{to}_{of}", type_width(to), [value], row=True)


def _extreme(operation: str) -> Kernels:
    """The kernels of a row of min or max: one pair of sources after the other."""

    def kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        groups, (destination, *operands) = match.groupdict(), instruction.operands
        type_name, constant = groups["type"], _constant(groups)
        code.fits(destination, type_name)
        first, *others, last = [code.source(operand, type_name) for operand in operands]
        for other in others:
            first = code.intermediate(
                f"{operation}_{type_name}", type_width(type_name), [first, other], constant, row=True
            )
        code.operation(f"{operation}_{type_name}", destination, [first, last], constant)

    return kernels


def float_row(
    operation: str, types: str, count: int, sources: tuple[str | None, ...] = (), kernel: str | None = None
) -> Row:
    """A row of arithmetic of `count` sources. A NaN is the canonical one, or of f64 the first source that is one.

    operation: the opcode before its type, as a pattern with groups `rounding`, `ftz`, `sat`, `relu` and `oob` for the
    modifiers of these names. types: the legal types, separated by spaces.
    sources: types of the sources if they differ from the result's; None for the last type in the opcode.
    kernel: the operation's name; by default the opcode's letters.
    """
    ending = r"\.(?P<of>f16|bf16)" if sources else ""
    name = kernel or re.split(r"\W", operation)[0]
    return _row(operation, types, (1 + count,), ending, _arithmetic(name, sources))


def extreme_row(operation: str, modifiers: str, types: str, operands: tuple[int, ...] = (3,)) -> Row:
    """A row of min or max of two or three sources. modifiers: a pattern with groups `nan`, `xorsign` and `abs`."""
    return _row(operation + modifiers, types, operands, "", _extreme(operation))


def _row(operation: str, types: str, operands: tuple[int, ...], ending: str, kernels: Kernels) -> Row:
    pattern = rf"{operation}\.(?P<type>{types.replace(' ', '|')}){ending}"
    return row(pattern, operands=operands, kind=always_lanes, kernels=kernels)
