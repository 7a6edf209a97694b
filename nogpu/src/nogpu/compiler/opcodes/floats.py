"""Rows of the opcode table: arithmetic of f32, f64 and f32x2, whose pairs are in 64-bit registers.

PTX ISA, "Floating Point Instructions". `.approx` functions are the correctly rounded ones here: hardware may differ in
the last bits. Subnormals are kept unless `.ftz` is given.
"""

from __future__ import annotations

from nogpu.compiler.opcodes.float_rows import (
    ABS,
    EXTREMES,
    FTZ,
    MAYBE_ROUND,
    NAN,
    ROUND,
    SAT,
    XORSIGN,
    extreme_row,
    float_row,
)
from nogpu.compiler.opcodes.rows import Row, always_lanes, computed

_BASIC = ("add", "sub", "mul")
_DIVIDING = {"div": 2, "rcp": 1, "sqrt": 1}  # operation -> sources
_APPROXIMATE = dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "sqrt", "rcp"), 1) | {"div": 2}
_UNARY = ("neg", "abs")

ROWS: list[Row] = [
    *(float_row(name + MAYBE_ROUND + FTZ + SAT, "f32", 2) for name in _BASIC),
    *(float_row(name + MAYBE_ROUND + FTZ, "f32x2", 2) for name in _BASIC),
    *(float_row(name + MAYBE_ROUND, "f64", 2) for name in _BASIC),
    float_row("(?:fma|mad)" + ROUND + FTZ + SAT, "f32", 3, kernel="fma"),
    float_row("fma" + ROUND + FTZ, "f32x2", 3),
    float_row("(?:fma|mad)" + ROUND, "f64", 3, kernel="fma"),
    *(float_row(name + ROUND + FTZ, "f32", count) for name, count in _DIVIDING.items()),
    *(float_row(name + ROUND, "f64", count) for name, count in _DIVIDING.items()),
    *(float_row(rf"{name}\.approx" + FTZ, "f32", count) for name, count in _APPROXIMATE.items()),
    float_row(r"div\.full" + FTZ, "f32", 2),
    float_row(r"rsqrt\.approx", "f64", 1),
    *(float_row(name + FTZ, "f32", 1) for name in _UNARY),
    *(float_row(name, "f64", 1) for name in _UNARY),
    *(extreme_row(name, FTZ + NAN, "f32", (3, 4)) for name in EXTREMES),
    *(extreme_row(name, FTZ + NAN + XORSIGN, "f32") for name in EXTREMES),
    *(extreme_row(name, FTZ + NAN + ABS, "f32", (4,)) for name in EXTREMES),
    *(extreme_row(name, "", "f64") for name in EXTREMES),
    computed("copysign", "f32 f64", "copysign_{f}", kind=always_lanes),
]
