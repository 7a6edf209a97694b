"""Makers of rows for floating-point arithmetic; `opcodes.floats` and `opcodes.halves` have the rows."""

from __future__ import annotations

import re
from collections.abc import Callable

from emulator.compiler.code import Code
from emulator.compiler.opcodes.float_operands import bits, numbers
from emulator.compiler.opcodes.rows import Row, always_lanes, row, sources_named
from emulator.ptx.ir import Instruction

ROUND = r"\.(?P<rounding>rn|rz|rm|rp)"
MAYBE_ROUND = rf"(?:{ROUND})?"
FTZ = r"(?P<ftz>\.ftz)?"
SAT = r"(?P<sat>\.sat)?"
RELU = r"(?P<relu>\.relu)?"
NAN = r"(?P<nan>\.NaN)?"
XORSIGN = r"(?P<xorsign>\.xorsign)(?P<abs>\.abs)"
ABS = r"(?P<abs>\.abs)"
EXTREMES = {"min": "floats.smaller", "max": "floats.larger"}


def float_row(
    operation: str, types: str, nearest: str, directed: str = "", sources: tuple[str | None, ...] = ()
) -> Row:
    """A row of arithmetic.

    operation: the opcode before its type, as a pattern with groups `rounding`, `ftz`, `sat` and `relu` for the
    modifiers of these names. types: the legal types, separated by spaces.
    nearest: an expression of numbers {a}, {b}, {c}, rounded to nearest even. directed: one for any other {rounding}.
    sources: types of the sources if they differ from the result's; None for the last type in the opcode.
    """

    def expression(texts: list[str], groups: dict[str, str | None]) -> str:
        rounding = groups.get("rounding")
        template = nearest if rounding in (None, "rn") else directed
        return template.format(**dict(zip("abc", texts, strict=False)), rounding=repr(rounding))

    ending = r"\.(?P<of>f16|bf16)" if sources else ""
    return _row(operation, types, expression, (1 + sources_named(nearest),), sources, ending)


def extreme_row(operation: str, modifiers: str, types: str, operands: tuple[int, ...] = (3,)) -> Row:
    """A row of min or max of two or three sources. modifiers: a pattern with groups `nan`, `xorsign` and `abs`."""

    def expression(texts: list[str], groups: dict[str, str | None]) -> str:
        compared = [f"np.abs({text})" for text in texts] if groups.get("abs") else texts
        result, *others = compared
        for other in others:
            result = f"{EXTREMES[operation]}({result}, {other}, {groups.get('nan') is not None})"
        return f"floats.signed_by({result}, {', '.join(texts)})" if groups.get("xorsign") else result

    return _row(operation + modifiers, types, expression, operands)


def _row(
    operation: str,
    types: str,
    expression: Callable[[list[str], dict[str, str | None]], str],
    operands: tuple[int, ...],
    sources: tuple[str | None, ...] = (),
    ending: str = "",
) -> Row:
    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        groups, (destination, *operands) = match.groupdict(), instruction.operands
        result_type, flush = groups["type"], groups.get("ftz") is not None
        source_types = [name or groups["of"] for name in sources] or [result_type] * len(operands)
        code.fits(destination, result_type)
        texts = [numbers(code, *source, flush) for source in zip(operands, source_types, strict=True)]
        texts = [f"{text}.astype(f32)" if sources else text for text in texts]
        text = expression(texts, groups)
        for modifier, function in (("ftz", "floats.flush"), ("sat", "floats.saturate"), ("relu", "floats.rectify")):
            if groups.get(modifier):
                text = f"{function}({text})"
        code.assign(destination, bits(text, result_type), "lanes")

    pattern = rf"{operation}\.(?P<type>{types.replace(' ', '|')}){ending}"
    return row(pattern, emit, operands, kind=always_lanes)
