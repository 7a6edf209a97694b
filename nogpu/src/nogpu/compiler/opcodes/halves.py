"""Rows of the opcode table: arithmetic of f16, bf16 and their pairs in 32-bit registers, and of f32 with f16 or bf16.

PTX ISA, "Half Precision Floating Point Instructions", "Mixed Precision Floating Point Instructions". `.approx`
functions are the correctly rounded ones here: hardware may differ in the last bits.
"""

from __future__ import annotations

from nogpu.compiler.opcodes.float_rows import (
    EXTREMES,
    FTZ,
    MAYBE_ROUND,
    NAN,
    RELU,
    ROUND,
    SAT,
    XORSIGN,
    extreme_row,
    float_row,
)
from nogpu.compiler.opcodes.rows import Row

_HALF, _BRAIN = "f16 f16x2", "bf16 bf16x2"
# A sum of bf16 in float32 rounds to bf16 as the exact one does: 24 bits hold twice 8, and two more. A product may be
# too small for float32.
_BASIC = {"add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}"}
_BRAIN_BASIC = _BASIC | {"mul": "roundings.odd_float32({a}.astype(f64) * {b})"}
_UNARY = {"neg": "-{a}", "abs": "np.abs({a})"}
_FUSED = {_HALF: "floats.fused({a}, {b}, {c})", _BRAIN: "floats.fused_bf16({a}, {b}, {c})"}
_PATTERN = {_HALF: "u16", _BRAIN: "u32"}
_APPROXIMATE = {"ex2": "floats.in_double(np.exp2, {a})", "tanh": "floats.in_double(np.tanh, {a})"}
_BRAIN_APPROXIMATE = {name: text.replace("in_double(", "odd_in_double(") for name, text in _APPROXIMATE.items()}
_MAYBE_NEAREST = r"(?:\.rn)?"
_SAT_OR_RELU = r"(?:(?P<sat>\.sat)|(?P<relu>\.relu))?"

HALF: list[Row] = [
    *(float_row(name + _MAYBE_NEAREST + FTZ + SAT, _HALF, text) for name, text in _BASIC.items()),
    *(float_row(name + _MAYBE_NEAREST, _BRAIN, text) for name, text in _BRAIN_BASIC.items()),
    float_row(r"fma\.rn" + FTZ + _SAT_OR_RELU, _HALF, _FUSED[_HALF]),
    float_row(r"fma\.rn" + RELU, _BRAIN, _FUSED[_BRAIN]),
    *(
        float_row(
            r"fma\.rn(?P<oob>\.oob)" + RELU, types, f"floats.without_oob({text}, {{a}}, {{b}}, {_PATTERN[types]})"
        )
        for types, text in _FUSED.items()
    ),
    *(float_row(name + FTZ, _HALF, text) for name, text in _UNARY.items()),
    *(float_row(name, _BRAIN, text) for name, text in _UNARY.items()),
    *(extreme_row(name, FTZ + NAN + sign, _HALF) for name in EXTREMES for sign in ("", XORSIGN)),
    *(extreme_row(name, NAN + sign, _BRAIN) for name in EXTREMES for sign in ("", XORSIGN)),
    float_row(r"ex2\.approx", _HALF, _APPROXIMATE["ex2"]),
    float_row(r"ex2\.approx(?P<ftz>\.ftz)", _BRAIN, _BRAIN_APPROXIMATE["ex2"]),
    float_row(r"tanh\.approx", _HALF, _APPROXIMATE["tanh"]),
    float_row(r"tanh\.approx", _BRAIN, _BRAIN_APPROXIMATE["tanh"]),
]

# f32 results; the 16-bit sources are widened exactly.
MIXED: list[Row] = [
    float_row(
        "add" + MAYBE_ROUND + SAT, "f32", "{a} + {b}", "roundings.rounded_sum({a}, {b}, {rounding})", (None, "f32")
    ),
    float_row(
        "sub" + MAYBE_ROUND + SAT, "f32", "{a} - {b}", "roundings.rounded_sum({a}, -{b}, {rounding})", (None, "f32")
    ),
    float_row(
        "fma" + ROUND + SAT,
        "f32",
        "floats.fused({a}, {b}, {c})",
        "roundings.rounded_fused({a}, {b}, {c}, {rounding})",
        (None, None, "f32"),
    ),
]

ROWS: list[Row] = [*HALF, *MIXED]
