"""Rows of the opcode table: arithmetic of f16, bf16, f32 and f64, and of pairs: f32x2 in 64-bit registers, f16x2 and
bf16x2 in 32-bit ones.

PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Mixed Precision Floating Point
Instructions". `.approx` functions are the correctly rounded ones here: hardware may differ in the last bits. Subnormals
are kept unless `.ftz` is given.
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.compiler.opcodes.rows import Kernels, Row, always_lanes, computed, row
from nogpu.compiler.rowcode.assembler import Assembler, Source
from nogpu.ptx.ir import Instruction
from nogpu.ptx.types import type_width

_ROUND = r"\.(?P<rounding>rn|rz|rm|rp)"
_MAYBE_ROUND = rf"(?:{_ROUND})?"
_FTZ = r"(?P<ftz>\.ftz)?"
_SAT = r"(?P<sat>\.sat)?"
_RELU = r"(?P<relu>\.relu)?"
_NAN = r"(?P<nan>\.NaN)?"
_XORSIGN = r"(?P<xorsign>\.xorsign)(?P<abs>\.abs)"
_ABS = r"(?P<abs>\.abs)"
_EXTREMES = ("min", "max")
_BITS = headers.constants("native/arithmetic.h", "FTZ", "SAT", "RELU", "PROPAGATE", "XORSIGN", "ABSOLUTE", "OOB")
# Group of an opcode's pattern -> the modifier's bit of a kernel's constant
_MODIFIERS = dict(zip(("ftz", "sat", "relu", "nan", "xorsign", "abs", "oob"), _BITS))
_ROUNDINGS = ("rn", "rz", "rm", "rp")
(_ROUNDING_SHIFT,) = headers.constants("native/arithmetic.h", "ROUNDING")
_PLAIN_TOO = ("add", "sub", "mul", "fma", "div", "rcp", "sqrt")
"""Operations that have a kernel without modifiers, one with (`_m`), one for roundings not to nearest (`_r`)."""


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
    """The kernels of a row of min or max, which combine the sources one after the other."""

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
    """A row of arithmetic of `count` sources. A NaN result is canonical, or in f64 the first source that is a NaN.

    operation: the opcode before its type, as a pattern with groups `rounding`, `ftz`, `sat`, `relu` and `oob` for the
    modifiers of these names. types: the legal types, separated by spaces.
    sources: types of the sources if they differ from the result's; None for the last type in the opcode.
    kernel: name of the kernel; by default the first word of `operation`.
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


_BASIC = ("add", "sub", "mul")
_DIVIDING = {"div": 2, "rcp": 1, "sqrt": 1}  # operation -> sources
_APPROXIMATE = dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "sqrt", "rcp"), 1) | {"div": 2}
_UNARY = ("neg", "abs")

SINGLE_AND_DOUBLE: list[Row] = [
    *(float_row(name + _MAYBE_ROUND + _FTZ + _SAT, "f32", 2) for name in _BASIC),
    *(float_row(name + _MAYBE_ROUND + _FTZ, "f32x2", 2) for name in _BASIC),
    *(float_row(name + _MAYBE_ROUND, "f64", 2) for name in _BASIC),
    float_row("(?:fma|mad)" + _ROUND + _FTZ + _SAT, "f32", 3, kernel="fma"),
    float_row("fma" + _ROUND + _FTZ, "f32x2", 3),
    float_row("(?:fma|mad)" + _ROUND, "f64", 3, kernel="fma"),
    *(float_row(name + _ROUND + _FTZ, "f32", count) for name, count in _DIVIDING.items()),
    *(float_row(name + _ROUND, "f64", count) for name, count in _DIVIDING.items()),
    *(float_row(rf"{name}\.approx" + _FTZ, "f32", count) for name, count in _APPROXIMATE.items()),
    float_row(r"div\.full" + _FTZ, "f32", 2),
    float_row(r"rsqrt\.approx", "f64", 1),
    *(float_row(rf"{name}\.approx\.ftz", "f64", 1, kernel=f"{name}_upper") for name in ("rcp", "rsqrt")),
    *(float_row(name + _FTZ, "f32", 1) for name in _UNARY),
    *(float_row(name, "f64", 1) for name in _UNARY),
    *(extreme_row(name, _FTZ + _NAN, "f32", (3, 4)) for name in _EXTREMES),
    *(extreme_row(name, _FTZ + _NAN + _XORSIGN, "f32") for name in _EXTREMES),
    *(extreme_row(name, _FTZ + _NAN + _ABS, "f32", (4,)) for name in _EXTREMES),
    *(extreme_row(name, "", "f64") for name in _EXTREMES),
    computed("copysign", "f32 f64", "copysign_{f}", kind=always_lanes),
]

_HALF, _BRAIN = "f16 f16x2", "bf16 bf16x2"
_MAYBE_NEAREST = r"(?:\.rn)?"
_SAT_OR_RELU = r"(?:(?P<sat>\.sat)|(?P<relu>\.relu))?"

HALF: list[Row] = [
    *(float_row(name + _MAYBE_NEAREST + _FTZ + _SAT, _HALF, 2) for name in _BASIC),
    *(float_row(name + _MAYBE_NEAREST, _BRAIN, 2) for name in _BASIC),
    float_row(r"fma\.rn" + _FTZ + _SAT_OR_RELU, _HALF, 3),
    float_row(r"fma\.rn" + _RELU, _BRAIN, 3),
    *(float_row(r"fma\.rn(?P<oob>\.oob)" + _RELU, types, 3) for types in (_HALF, _BRAIN)),
    *(float_row(name + _FTZ, _HALF, 1) for name in _UNARY),
    *(float_row(name, _BRAIN, 1) for name in _UNARY),
    *(extreme_row(name, _FTZ + _NAN + sign, _HALF) for name in _EXTREMES for sign in ("", _XORSIGN)),
    *(extreme_row(name, _NAN + sign, _BRAIN) for name in _EXTREMES for sign in ("", _XORSIGN)),
    float_row(r"ex2\.approx", _HALF, 1),
    float_row(r"ex2\.approx(?P<ftz>\.ftz)", _BRAIN, 1),
    float_row(r"tanh\.approx", f"{_HALF} {_BRAIN}", 1),
]

# f32 results; the 16-bit sources are widened exactly.
MIXED: list[Row] = [
    *(float_row(name + _MAYBE_ROUND + _SAT, "f32", 2, (None, "f32")) for name in ("add", "sub")),
    float_row("fma" + _ROUND + _SAT, "f32", 3, (None, None, "f32")),
]

ROWS: list[Row] = [*SINGLE_AND_DOUBLE, *HALF, *MIXED]
