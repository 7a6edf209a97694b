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
_BASIC = ("add", "sub", "mul")
_UNARY = ("neg", "abs")
_MAYBE_NEAREST = r"(?:\.rn)?"
_SAT_OR_RELU = r"(?:(?P<sat>\.sat)|(?P<relu>\.relu))?"

HALF: list[Row] = [
    *(float_row(name + _MAYBE_NEAREST + FTZ + SAT, _HALF, 2) for name in _BASIC),
    *(float_row(name + _MAYBE_NEAREST, _BRAIN, 2) for name in _BASIC),
    float_row(r"fma\.rn" + FTZ + _SAT_OR_RELU, _HALF, 3),
    float_row(r"fma\.rn" + RELU, _BRAIN, 3),
    *(float_row(r"fma\.rn(?P<oob>\.oob)" + RELU, types, 3) for types in (_HALF, _BRAIN)),
    *(float_row(name + FTZ, _HALF, 1) for name in _UNARY),
    *(float_row(name, _BRAIN, 1) for name in _UNARY),
    *(extreme_row(name, FTZ + NAN + sign, _HALF) for name in EXTREMES for sign in ("", XORSIGN)),
    *(extreme_row(name, NAN + sign, _BRAIN) for name in EXTREMES for sign in ("", XORSIGN)),
    float_row(r"ex2\.approx", _HALF, 1),
    float_row(r"ex2\.approx(?P<ftz>\.ftz)", _BRAIN, 1),
    float_row(r"tanh\.approx", f"{_HALF} {_BRAIN}", 1),
]

# f32 results; the 16-bit sources are widened exactly.
MIXED: list[Row] = [
    *(float_row(name + MAYBE_ROUND + SAT, "f32", 2, (None, "f32")) for name in ("add", "sub")),
    float_row("fma" + ROUND + SAT, "f32", 3, (None, None, "f32")),
]

ROWS: list[Row] = [*HALF, *MIXED]
