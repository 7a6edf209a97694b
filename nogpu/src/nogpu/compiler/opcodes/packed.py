"""Rows of the opcode table: cvt to and from packed numbers and tf32, cvt.pack (PTX ISA, "cvt", "cvt.pack").

Conversions of four numbers with random bits (`.rs` to e4m3x4, e2m1x4, ...) are not modelled: the PTX ISA shows the
layout of their bits in pictures only.
"""

from __future__ import annotations

import re

from nogpu.arithmetic.minifloats import FORMATS
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes import conversion_kernels as kernels
from nogpu.compiler.opcodes.float_operands import numbers
from nogpu.compiler.opcodes.rows import Row, always_lanes, row
from nogpu.ptx.ir import Instruction


def _flags(match: re.Match) -> str:
    modifiers = match.group("modifiers") or ""
    return f"{'.satfinite' in modifiers}, {'.relu' in modifiers}"


def _columns(code: Code, sources: list, type_name: str) -> str:
    """The two numbers of a register as columns, from two f32 sources, the second one lowest, or a packed source."""
    if type_name == "f32":
        return f"packing.columns({', '.join(numbers(code, source, 'f32') for source in reversed(sources))})"
    return f"{numbers(code, sources[0], type_name)}.reshape(32, 2)"


def _bits(name: str) -> int:
    return {"e2m1": 4, "f16": 16, "bf16": 16}.get(name, 8)


def _pack(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, *sources = instruction.operands
    name, columns = match.group("to"), _columns(code, sources, match.group("type"))
    codes = f"packing.narrow({columns}, {name!r}, {match.group('rounding')!r}, {_flags(match)})"
    code.assign(destination, f"packing.packed({codes}, {_bits(name)}, {code.register(destination).width})", "lanes")


def _pack_stochastic(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, random = instruction.operands
    source = _columns(code, [a, b], "f32")
    codes = f"packing.stochastic({source}, {match.group('to')!r}, row_of({code.value(random)}, 32), {_flags(match)})"
    code.assign(destination, f"packing.packed({codes}, 16, 32)", "lanes")


def _unpack(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source, *scale = instruction.operands
    width = code.register(source).width
    text = f"packing.unpacked(row_of({code.value(source)}, {width}), {match.group('of')!r})"
    if match.groupdict().get("scaled"):
        code.fits(scale[0], "b16")
        text = f"{text} * packing.unpacked(row_of({code.value(scale[0], 16)}, 16), 'ue8m0')"
    codes = f"packing.narrow({text}, {match.group('to')!r}, 'rn', {_flags(match)})"
    code.fits(destination, "b32")
    code.assign(destination, f"packing.packed({codes}, 16, 32)", "lanes")


def _round_to_tf32(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    text = f"packing.narrow({numbers(code, source, 'f32')}, 'tf32', {match.group('rounding')!r}, {_flags(match)})"
    code.assign(destination, text, "lanes")


def _pack_integers(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, *sources = instruction.operands
    rows = [f"row_of({code.value(source)}, 32)" for source in sources] + ["row_of(0, 32)"] * (3 - len(sources))
    text = f"packing.pack_integers({', '.join(rows)}, {match.group('width')}, {match.group('sign') == 's'})"
    code.assign(destination, text, "lanes")


_SMALL = "|".join(FORMATS)
_MODIFIERS = r"(?P<modifiers>(?:\.relu|\.satfinite)*)"
_SATURATING = r"(?P<modifiers>(?:\.relu)?\.satfinite(?:\.relu)?)"
_RELU = r"(?P<modifiers>\.relu)?"
_SATFINITE = r"(?P<modifiers>\.satfinite)?"

ROWS: list[Row] = [
    row(
        rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.(?P<to>f16|bf16)x2\.(?P<type>f32)",
        _pack,
        3,
        kernels=kernels.pack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.rs{_MODIFIERS}\.(?P<to>f16|bf16)x2\.f32",
        _pack_stochastic,
        kernels=kernels.pack_stochastic,
        kind=always_lanes,
        takes="b32 f32 f32 b32",
    ),
    row(
        rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f32)",
        _pack,
        3,
        kernels=kernels.pack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f16x2|bf16x2)",
        _pack,
        2,
        kernels=kernels.pack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>f32)",
        _pack,
        3,
        kernels=kernels.pack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>bf16x2)",
        _pack,
        2,
        kernels=kernels.pack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.rn{_RELU}\.(?P<to>f16|bf16)x2\.(?P<of>{_SMALL})x2",
        _unpack,
        2,
        kernels=kernels.unpack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.rn{_RELU}(?P<scaled>\.scaled::n2::ue8m0)\.(?P<to>bf16)x2\.(?P<of>{_SMALL})x2",
        _unpack,
        3,
        kernels=kernels.unpack,
        kind=always_lanes,
    ),
    row(
        r"cvt\.rn(?P<modifiers>)\.(?P<to>bf16)x2\.(?P<of>ue8m0)x2",
        _unpack,
        2,
        kernels=kernels.unpack,
        kind=always_lanes,
    ),
    row(
        rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.tf32\.f32",
        _round_to_tf32,
        kernels=kernels.round_to_tf32,
        kind=always_lanes,
        takes="b32 f32",
    ),
    row(
        rf"cvt\.(?P<rounding>rna){_SATFINITE}\.tf32\.f32",
        _round_to_tf32,
        kernels=kernels.round_to_tf32,
        kind=always_lanes,
        takes="b32 f32",
    ),
    row(
        r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>16)\.s32",
        _pack_integers,
        kernels=kernels.pack_integers,
        kind=always_lanes,
        takes="b32 s32 s32",
    ),
    row(
        r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>2|4|8)\.s32\.b32",
        _pack_integers,
        kernels=kernels.pack_integers,
        kind=always_lanes,
        takes="b32 s32 s32 b32",
    ),
]
