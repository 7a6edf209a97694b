"""How a row of floating-point arithmetic is made; `opcodes_float.py` and `opcodes_half.py` hold the rows."""

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


def float_row(operation: str, types: str, nearest: str, directed: str | None = None, sources: tuple = ()) -> Row:
    """operation: the opcode before its type, as a pattern; a group `rounding` says how to round, groups `ftz`, `sat` and
    `relu` are the modifiers of these names.

    nearest: an expression of the sources' numbers {a}, {b}, {c}, rounded to nearest even. directed: with any other
    {rounding}. sources: the types of the sources where they are not all the result's; None for the opcode's last type,
    group `of`.
    """

    def expression(texts: list[str], groups: dict) -> str:
        rounding = groups.get("rounding")
        template = nearest if rounding in (None, "rn") else directed
        return template.format(**dict(zip("abc", texts, strict=False)), rounding=repr(rounding))

    ending = r"\.(?P<of>f16|bf16)" if sources else ""
    return _row(operation, types, expression, (1 + sources_named(nearest),), sources, ending)


def extreme_row(operation: str, modifiers: str, types: str, operands: tuple[int, ...] = (3,)) -> Row:
    """min or max of two or three sources. The modifiers' groups `nan`, `xorsign` and `abs` are those of these names."""

    def expression(texts: list[str], groups: dict) -> str:
        compared = [f"np.abs({text})" for text in texts] if groups.get("abs") else texts
        result, *others = compared
        for other in others:
            result = f"{EXTREMES[operation]}({result}, {other}, {groups.get('nan') is not None})"
        return f"floats.signed_by({result}, {', '.join(texts)})" if groups.get("xorsign") else result

    return _row(operation + modifiers, types, expression, operands)


def _row(
    operation: str,
    types: str,
    expression: Callable[[list[str], dict], str],
    operands: tuple[int, ...],
    sources: tuple = (),
    ending: str = "",
) -> Row:
    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        groups, (destination, *operands) = match.groupdict(), instruction.operands
        result_type, flush = groups["type"], groups.get("ftz") is not None
        source_types = [name or groups["of"] for name in sources] or [result_type] * len(operands)
        texts = [numbers(code, *source, flush) for source in zip(operands, source_types, strict=True)]
        texts = [f"{text}.astype(f32)" if sources else text for text in texts]
        text = expression(texts, groups)
        for modifier, function in (("ftz", "floats.flush"), ("sat", "floats.saturate"), ("relu", "floats.rectify")):
            if groups.get(modifier):
                text = f"{function}({text})"
        code.assign(destination, bits(text, result_type), "lanes")

    pattern = rf"{operation}\.(?P<type>{types.replace(' ', '|')}){ending}"
    return row(pattern, emit, operands, kind=always_lanes)
