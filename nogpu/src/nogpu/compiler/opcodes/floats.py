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
from nogpu.compiler.opcodes.rows import Row, computed

# Operation -> to nearest even, with another rounding.
_BASIC = {
    "add": ("{a} + {b}", "roundings.rounded_sum({a}, {b}, {rounding})"),
    "sub": ("{a} - {b}", "roundings.rounded_sum({a}, -{b}, {rounding})"),
    "mul": ("{a} * {b}", "roundings.rounded_product({a}, {b}, {rounding})"),
}
_FUSED = ("floats.fused({a}, {b}, {c})", "roundings.rounded_fused({a}, {b}, {c}, {rounding})")
_DIVIDING = {
    "div": ("{a} / {b}", "roundings.rounded_quotient({a}, {b}, {rounding})"),
    "rcp": ("1 / {a}", "roundings.rounded_quotient(np.ones_like({a}), {a}, {rounding})"),
    "sqrt": ("np.sqrt({a})", "roundings.rounded_root({a}, {rounding})"),
}
_APPROXIMATE = {
    "ex2": "floats.in_double(np.exp2, {a})",
    "lg2": "floats.in_double(np.log2, {a})",
    "sin": "floats.in_double(np.sin, {a})",
    "cos": "floats.in_double(np.cos, {a})",
    "tanh": "floats.in_double(np.tanh, {a})",
    "rsqrt": "floats.reciprocal_root({a})",
    "sqrt": "np.sqrt({a})",
    "rcp": "1 / {a}",
    "div": "{a} / {b}",
}
_UNARY = {"neg": "-{a}", "abs": "np.abs({a})"}

ROWS: list[Row] = [
    *(float_row(name + MAYBE_ROUND + FTZ + SAT, "f32", *texts) for name, texts in _BASIC.items()),
    *(float_row(name + MAYBE_ROUND + FTZ, "f32x2", *texts) for name, texts in _BASIC.items()),
    *(float_row(name + MAYBE_ROUND, "f64", *texts) for name, texts in _BASIC.items()),
    float_row("(?:fma|mad)" + ROUND + FTZ + SAT, "f32", *_FUSED, kernel="fma"),
    float_row("fma" + ROUND + FTZ, "f32x2", *_FUSED),
    float_row("(?:fma|mad)" + ROUND, "f64", *_FUSED, kernel="fma"),
    *(float_row(name + ROUND + FTZ, "f32", *texts) for name, texts in _DIVIDING.items()),
    *(float_row(name + ROUND, "f64", *texts) for name, texts in _DIVIDING.items()),
    *(float_row(rf"{name}\.approx" + FTZ, "f32", text) for name, text in _APPROXIMATE.items()),
    float_row(r"div\.full" + FTZ, "f32", _APPROXIMATE["div"]),
    float_row(r"rsqrt\.approx", "f64", _APPROXIMATE["rsqrt"]),
    *(float_row(name + FTZ, "f32", text) for name, text in _UNARY.items()),
    *(float_row(name, "f64", text) for name, text in _UNARY.items()),
    *(extreme_row(name, FTZ + NAN, "f32", (3, 4)) for name in EXTREMES),
    *(extreme_row(name, FTZ + NAN + XORSIGN, "f32") for name in EXTREMES),
    *(extreme_row(name, FTZ + NAN + ABS, "f32", (4,)) for name in EXTREMES),
    *(extreme_row(name, "", "f64") for name in EXTREMES),
    computed(
        "copysign",
        "f32",
        None,
        "({a} & u32(0x80000000) | {b} & u32(0x7fffffff))",
        "qq",
        "unsigned",
        kernel="copysign_{f}",
    ),
    computed(
        "copysign",
        "f64",
        None,
        "({a} & u64(1 << 63) | {b} & u64((1 << 63) - 1))",
        "qq",
        "unsigned",
        kernel="copysign_{f}",
    ),
]
