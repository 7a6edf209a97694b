"""Rows of the opcode table: floating-point arithmetic. f32x2 works on pairs in 64-bit registers, f16x2 and bf16x2 in
32-bit ones.

PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions". `.approx` functions are the
correctly rounded ones here: hardware may differ in the last bits. Subnormals are kept unless `.ftz` is given.
"""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Instruction
from emulator.operands import type_width
from emulator.rows import Row, always_lanes, computed, row

_BINARY = {"add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}"}
_MINMAX = {"min": "np.fmin({a}, {b})", "max": "np.fmax({a}, {b})"}
_NAN_MINMAX = {"min": "np.minimum({a}, {b})", "max": "np.maximum({a}, {b})"}
_UNARY = {"neg": "-{a}", "abs": "np.abs({a})"}
_APPROXIMATE = {
    "ex2": "np.exp2({a})",
    "lg2": "np.log2({a})",
    "sin": "np.sin({a})",
    "cos": "np.cos({a})",
    "tanh": "np.tanh({a})",
    "rsqrt": "reciprocal_root({a})",
}
_FLOAT_VIEW = {"f16": "f16", "f16x2": "f16", "f32": "f32", "f32x2": "f32", "f64": "f64"}


def _float_row(operation: str, types: str, expression: str, rounding: str = "", suffixes: str = "") -> Row:
    """rounding: modifiers before `.ftz`. All of the arithmetic rounds to nearest even, whatever the type."""

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        type_name = match.group("type")
        width = type_width(type_name)
        flush = ".ftz" in instruction.opcode and "f32" in type_name
        sources = {}
        for key, operand in zip("abc", instruction.operands[1:], strict=False):
            text = f"row_of({code.value(operand, width)}, {width})"
            text = f"from_bf16({text})" if type_name.startswith("bf16") else f"{text}.view({_FLOAT_VIEW[type_name]})"
            sources[key] = f"flush({text})" if flush else text
        result = expression.format(**sources)
        if flush:
            result = f"flush({result})"
        if ".sat" in instruction.opcode:
            result = f"saturate({result})"
        if ".relu" in instruction.opcode:
            result = f"np.maximum({result}, 0)"
        result = f"to_bf16({result}, {width})" if type_name.startswith("bf16") else f"({result}).view(u{width})"
        code.assign(instruction.operands[0], result, "lanes")

    pattern = rf"{operation}{rounding}(?:\.ftz)?{suffixes}\.(?P<type>{types.replace(' ', '|')})"
    return row(pattern, emit, kind=always_lanes)


_ALL = "f16 f16x2 bf16 bf16x2 f32 f32x2 f64"

ROWS: list[Row] = [
    *(_float_row(name, _ALL, text, r"(?:\.rn)?", r"(?:\.sat)?") for name, text in _BINARY.items()),
    _float_row("fma", "f32 f32x2 f64", "fused({a}, {b}, {c})", r"\.rn", r"(?:\.sat)?"),
    _float_row("fma", "f16 f16x2 bf16 bf16x2", "fused({a}, {b}, {c})", r"\.rn", r"(?:\.sat|\.relu)?"),
    _float_row("mad", "f32", "fused({a}, {b}, {c})", r"\.rn"),
    *(_float_row(name, "f16 f16x2 bf16 bf16x2 f32 f64", text) for name, text in _MINMAX.items()),
    *(_float_row(name, "f16 f16x2 bf16 bf16x2 f32", text, suffixes=r"\.NaN") for name, text in _NAN_MINMAX.items()),
    *(_float_row(name, "f16 f16x2 bf16 bf16x2 f32 f64", text) for name, text in _UNARY.items()),
    _float_row("div", "f32 f64", "{a} / {b}", r"(?:\.rn|\.full|\.approx)"),
    _float_row("rcp", "f32 f64", "1 / {a}", r"(?:\.rn|\.approx)"),
    _float_row("sqrt", "f32 f64", "np.sqrt({a})", r"(?:\.rn|\.approx)"),
    *(_float_row(name, "f32", text, r"\.approx") for name, text in _APPROXIMATE.items()),
    _float_row("ex2", "f16 f16x2 bf16 bf16x2", _APPROXIMATE["ex2"], r"\.approx"),
    _float_row("tanh", "f16 f16x2 bf16 bf16x2", _APPROXIMATE["tanh"], r"\.approx"),
    computed(r"copysign", "f32", None, "({a} & u32(0x80000000) | {b} & u32(0x7fffffff))", "qq"),
]
