"""Rows of the opcode table: mov, cvt among integers, floats, packed numbers and tf32, cvt.pack (PTX ISA, "mov", "cvt",
"cvt.pack").

Conversions of four numbers with random bits (`.rs` to e4m3x4, e2m1x4, ...) are not modelled: the PTX ISA shows the
layout of their bits in pictures only.
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.compiler.opcodes.rows import Row, by_lane, row
from nogpu.compiler.rowcode.assembler import Assembler, Source
from nogpu.compiler.signatures import shown
from nogpu.ptx.ir import Instruction, Register, Vector
from nogpu.ptx.types import type_width

# Modifiers of a conversion as bits of a kernel's constant
FLUSHED, SATURATED, RECTIFIED = headers.constants("native/arithmetic.h", "FTZ", "SAT", "RELU")
FINITE, FLUSHED_SOURCE = headers.constants("native/narrow.h", "SATFINITE", "FLUSH_SOURCE")
DIRECTION, INTEGRAL_SHIFT = headers.constants("native/narrow.h", "DIRECTION", "INTEGRAL")
DIRECTIONS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
(RANDOM_SHIFT,) = headers.constants("native/pack.c", "RANDOM")
_INTEGRAL_DIRECTIONS = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
_WITHOUT_MODIFIERS = {("f16", "f32"), ("bf16", "f32"), ("f64", "f32"), ("f32", "f64"), ("f32", "f32")}
"""(result, source) of the kernels for conversions to nearest, without a modifier."""


def _mov(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    type_name = match.group("type")
    width = type_width(type_name)
    if not isinstance(destination, Vector):
        code.fits(destination, type_name)
    if isinstance(destination, Vector):
        part = _part(code, destination, type_name)
        value = code.place(source, type_name)
        for i, item in enumerate(destination.items):
            code.operation(f"part_{width}_{part}", item, [value], part * i)
    elif isinstance(source, Vector):
        part = _part(code, source, type_name)
        items = [code.source(item, f"b{part}") for item in source.items]
        while len(items) > 2:
            part *= 2
            items = [
                code.intermediate(f"join_{part}_{part // 2}", part, items[i : i + 2]) for i in range(0, len(items), 2)
            ]
        code.operation(f"join_{width}_{part}", destination, items)
    else:
        value = code.source(source, type_name) if type_name[0] == "f" else code.place(source, type_name)
        code.operation(f"mov_{width}", destination, [value])


def _part(code: Assembler, operand: Vector, type_name: str) -> int:
    """The width in bits of a vector's items, which are two or four equal parts of a type (PTX ISA, "mov")."""
    count, width = len(operand.items), type_width(type_name)
    if count not in (2, 4) or type_name[0] != "b" or width // count < 8:
        raise code.fail(f"{shown(operand)} for type .{type_name}: two or four parts of untyped bits are expected")
    code.fits(operand, f"b{width // count}*")
    return width // count


def _resized(code: Assembler, value: Source, of: str, to: str) -> Source:
    """A value of integer type `of`, such as "s32", extended or cut off to type `to`."""
    return value if of[1:] == to[1:] else code.intermediate(f"cvt_{to}_{of}", type_width(to), [value])


def _low_part(code: Assembler, operand: object, type_name: str) -> Source:
    """A literal of a type, or the low bits of a register as its value, with zeros above if the register is narrower."""
    if isinstance(operand, Register) and operand.width != type_width(type_name):
        return _resized(code, code.source(operand, f"u{operand.width}"), f"u{operand.width}", f"u{type_name[1:]}")
    return code.source(operand, type_name)


def _integer_to_integer(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    to, of = match.group("to"), match.group("type")
    value = _low_part(code, source, of)
    if match.group("sat"):
        if type_width(of) == 8:
            of, value = "s32", _resized(code, value, of, "s32")
        value = _saturated(code, value, of, to)
    width = getattr(destination, "width", type_width(to))
    if type_width(to) < width:
        value, of = _resized(code, value, of, to), to
    code.operation(f"cvt_u{width}_{of}", destination, [value])


def _saturated(code: Assembler, value: Source, of: str, to: str) -> Source:
    """A value of type `of`, which has at least 16 bits, clamped to the range of type `to`."""
    (low, high), (least, most) = (
        (-(1 << type_width(name) - 1), (1 << type_width(name) - 1) - 1)
        if name[0] == "s"
        else (0, (1 << type_width(name)) - 1)
        for name in (to, of)
    )
    width = type_width(of)
    if high < most:
        value = code.intermediate(f"min_{of}", width, [value, code.constant(high)])
    if low > least:
        value = code.intermediate(f"max_{of}", width, [value, code.constant(low)])
    return value


def _constant_of(modifiers: str) -> int:
    """The bits of a kernel's constant for .relu and .satfinite in `modifiers`."""
    return RECTIFIED * (".relu" in modifiers) | FINITE * (".satfinite" in modifiers)


def _as_single(code: Assembler, value: Source, of: str) -> Source:
    """A row of f16 or bf16 as one of f32; a row of any other type as it is."""
    return code.intermediate(f"cvt_f32_{of}", 32, [value], row=True) if of in ("f16", "bf16") else value


def _to_register(code: Assembler, destination: object, kernel: str, width: int, sources: list[Source], x: int) -> None:
    """Emits `destination = kernel(sources)`. width: bits of the result; a wider register gets zeros above them."""
    if not isinstance(destination, Register) or destination.width == width:
        code.operation(kernel, destination, sources, x)
        return
    result = code.intermediate(kernel, width, sources, x, row=True)
    code.operation(f"cvt_u{destination.width}_u{width}", destination, [result])


def _float_constant(match: re.Match) -> int:
    """The modifiers of a conversion to a float as a kernel's constant."""
    groups = match.groupdict()
    rounding, flush = groups.get("rounding") or "rn", groups.get("ftz") is not None
    constant = _constant_of(groups.get("modifiers") or "") | SATURATED * (groups.get("sat") is not None)
    constant |= FLUSHED * (flush and groups["to"] == "f32") | FLUSHED_SOURCE * (flush and groups["type"] == "f32")
    if rounding in _INTEGRAL_DIRECTIONS:
        return constant | (_INTEGRAL_DIRECTIONS[rounding] + 1) << INTEGRAL_SHIFT
    return constant | DIRECTIONS[rounding] << DIRECTION


def _float_to_float(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    of, to, constant = match.group("type"), match.group("to"), _float_constant(match)
    value = code.source(source, of)
    if of in ("f16", "bf16") and (to != "f32" or constant):
        value, of = _as_single(code, value, of), "f32"
    plain = not constant and ((to, of) in _WITHOUT_MODIFIERS or to == "f32")
    kernel = f"cvt_{to}_{of}" if plain else f"cvt_{to}_{of}_m"
    _to_register(code, destination, kernel, type_width(to), [value], constant)


def _integer_to_float(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    of, to, constant = match.group("type"), match.group("to"), _float_constant(match) & ~FLUSHED
    value = _low_part(code, source, of)
    if type_width(of) < 32:
        of, value = of[0] + "32", _resized(code, value, of, of[0] + "32")
    if to == "f64":
        constant &= SATURATED  # a 32-bit integer is exact, a 64-bit one is rounded to nearest
    if to in ("f32", "f64") and not constant:
        _to_register(code, destination, f"cvt_{to}_{of}", type_width(to), [value], 0)
        return
    exact = f"cvt_f64_{of}" if type_width(of) == 32 else f"odd_f64_{of}"
    double = code.intermediate(exact, 64, [value], row=True)
    _to_register(code, destination, f"cvt_{to}_f64_m", type_width(to), [double], constant)


def _float_to_integer(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    of, to, flush = match.group("type"), match.group("to"), match.group("ftz") is not None
    if flush and of != "f32":
        raise code.fail(f"{instruction.opcode}: .ftz is for sources of .f32 (PTX ISA, cvt)")
    value = _as_single(code, code.source(source, of), of)
    constant = _INTEGRAL_DIRECTIONS[match.group("rounding")] << DIRECTION | FLUSHED_SOURCE * flush
    kernel, width = f"cvt_{to}_{'f64' if of == 'f64' else 'f32'}", type_width(to)
    if getattr(destination, "width", width) == width:
        code.operation(kernel, destination, [value], constant)
        return
    result = code.intermediate(kernel, width, [value], constant, row=True)
    code.operation(f"cvt_{to[0]}{destination.width}_{to}", destination, [result])


def _pack(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits cvt of two f32, or of a pair of f16 or bf16, to a pair of a narrower type."""
    destination, *operands = instruction.operands
    scale = [code.source(operands.pop(), "b16")] if match.groupdict().get("scaled") else []
    to, of, rounding = match.group("to"), match.group("type"), match.group("rounding")
    constant = _constant_of(match.group("modifiers") or "") | DIRECTIONS[rounding] << DIRECTION
    sources = [code.source(operand, of) for operand in operands]
    if of != "f32":
        parts = [code.intermediate("part_32_16", 16, sources, shift, row=True) for shift in (16, 0)]
        sources = [_as_single(code, part, of.removesuffix("x2")) for part in parts]
    if to in ("f16", "bf16") and constant:
        halves = [code.intermediate(f"cvt_{to}_f32_m", 16, [x], constant, row=True) for x in reversed(sources)]
        _to_register(code, destination, "join_32_16", 32, halves, 0)
        return
    width = {"f16": 32, "bf16": 32, "e2m1": 8}.get(to, 16)
    kernel = f"{'scaled' if scale else 'cvt'}_{to}x2_f32"
    _to_register(code, destination, kernel, width, [*sources, *scale], constant)


def _pack_stochastic(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, random = instruction.operands
    bits, constant = code.source(random, "b32"), _constant_of(match.group("modifiers") or "")
    halves = [
        code.intermediate(
            f"stochastic_{match.group('to')}",
            16,
            [code.source(operand, "f32"), bits],
            constant | shift << RANDOM_SHIFT,
            row=True,
        )
        for operand, shift in ((b, 0), (a, 16))
    ]
    code.operation("join_32_16", destination, halves)


def _unpack(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source, *scale = instruction.operands
    of, to = match.group("of"), match.group("to")
    if not isinstance(source, Register):
        raise code.fail(f"a register is expected, not {shown(source)}")
    sources = [_low_part(code, source, "u8" if of == "e2m1" else "u16"), *(code.source(x, "b16") for x in scale)]
    constant = _constant_of(match.group("modifiers") or "")
    code.operation(f"{'scaled' if scale else 'cvt'}_{to}x2_{of}x2", destination, sources, constant)


def _round_to_tf32(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    direction = {"rn": 0, "rz": 1, "rna": 2}[match.group("rounding")]
    constant = _constant_of(match.group("modifiers") or "") | direction << DIRECTION
    code.operation("cvt_tf32_f32", destination, [code.source(source, "f32")], constant)


def _pack_integers(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, *above = instruction.operands
    sources = [code.source(a, "s32"), code.source(b, "s32")]
    sources.append(code.source(above[0], "b32") if above else code.constant(0))
    code.operation("cvt_pack", destination, sources, int(match.group("width")) | 32 * (match.group("sign") == "s"))


_WORD = "b16|u16|s16|f16|bf16|b32|u32|s32|f32|f16x2|bf16x2|b64|u64|s64|f64|f32x2"
_INTEGER = "u8|s8|u16|s16|u32|s32|u64|s64"
_FLOAT = "f16|bf16|f32|f64"
_CONVERTED, _FLOAT_CONVERTED = "{to}+ {type}+", "{to}+ {type}"
_FTZ_SAT = r"(?P<ftz>\.ftz)?(?P<sat>\.sat)?"
_NARROW_INTEGER = "u8|s8|u16|s16|u32|s32"

PLAIN: list[Row] = [
    row(rf"mov\.(?P<type>{_WORD})", operands=2, kernels=_mov),
    row(
        rf"cvt(?P<sat>\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_INTEGER})", takes=_CONVERTED, kernels=_integer_to_integer
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp){_FTZ_SAT}\.(?P<to>f16|f32)\.(?P<type>{_INTEGER})",
        _integer_to_float,
        takes=_CONVERTED,
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)\.(?P<to>bf16)\.(?P<type>{_INTEGER})", _integer_to_float, takes=_CONVERTED
    ),
    by_lane(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)(?P<sat>\.sat)?\.(?P<to>f64)\.(?P<type>{_NARROW_INTEGER})",
        _integer_to_float,
        takes=_CONVERTED,
    ),
    by_lane(r"cvt\.(?P<rounding>rn)\.(?P<to>f64)\.(?P<type>u64|s64)", _integer_to_float, takes="f64 {type}+"),
    by_lane(
        rf"cvt\.(?P<rounding>rni|rzi|rmi|rpi)(?P<ftz>\.ftz)?(?:\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_FLOAT})",
        _float_to_integer,
        takes=_FLOAT_CONVERTED,
    ),
    by_lane(
        rf"cvt(?:\.(?P<rounding>rn|rz|rm|rp|rni|rzi|rmi|rpi))?{_FTZ_SAT}\.(?P<to>{_FLOAT})\.(?P<type>{_FLOAT})",
        _float_to_float,
        takes=_FLOAT_CONVERTED,
    ),
    by_lane(
        r"cvt\.(?P<rounding>rn|rz)(?P<modifiers>(?:\.relu|\.satfinite)+)\.(?P<to>f16|bf16)\.(?P<type>f32)",
        _float_to_float,
        takes=_FLOAT_CONVERTED,
    ),
]

_SMALL = "e4m3|e5m2|e2m1|e2m3|e3m2"
_MODIFIERS = r"(?P<modifiers>(?:\.relu|\.satfinite)*)"
_SATURATING = r"(?P<modifiers>(?:\.relu)?\.satfinite(?:\.relu)?)"
_RELU = r"(?P<modifiers>\.relu)?"
_SATFINITE = r"(?P<modifiers>\.satfinite)?"
_SCALED = r"(?P<scaled>\.scaled::n2::ue8m0)"

PACKED: list[Row] = [
    by_lane(rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.(?P<to>f16|bf16)x2\.(?P<type>f32)", _pack, operands=3),
    by_lane(rf"cvt\.rs{_MODIFIERS}\.(?P<to>f16|bf16)x2\.f32", _pack_stochastic, takes="b32 f32 f32 b32"),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f32)", _pack, operands=3),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>{_SMALL})x2\.(?P<type>f16x2|bf16x2)", _pack, operands=2),
    by_lane(rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>f32)", _pack, operands=3),
    by_lane(rf"cvt\.(?P<rounding>rz|rp){_SATFINITE}\.(?P<to>ue8m0)x2\.(?P<type>bf16x2)", _pack, operands=2),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>s2f6)x2\.(?P<type>f32)", _pack, operands=3),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}\.(?P<to>s2f6)x2\.(?P<type>bf16x2)", _pack, operands=2),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}{_SCALED}\.(?P<to>s2f6)x2\.(?P<type>f32)", _pack, operands=4),
    by_lane(rf"cvt\.(?P<rounding>rn){_SATURATING}{_SCALED}\.(?P<to>s2f6)x2\.(?P<type>bf16x2)", _pack, operands=3),
    by_lane(rf"cvt\.rn{_RELU}\.(?P<to>f16)x2\.(?P<of>{_SMALL})x2", _unpack, takes="b32 ."),
    by_lane(rf"cvt\.rn{_MODIFIERS}\.(?P<to>bf16)x2\.(?P<of>{_SMALL}|s2f6)x2", _unpack, takes="b32 ."),
    by_lane(rf"cvt\.rn{_MODIFIERS}{_SCALED}\.(?P<to>bf16)x2\.(?P<of>{_SMALL}|s2f6)x2", _unpack, takes="b32 . b16"),
    by_lane(r"cvt\.rn(?P<modifiers>)\.(?P<to>bf16)x2\.(?P<of>ue8m0)x2", _unpack, takes="b32 ."),
    by_lane(rf"cvt\.(?P<rounding>rn|rz){_MODIFIERS}\.tf32\.f32", _round_to_tf32, takes="b32 f32"),
    by_lane(rf"cvt\.(?P<rounding>rna){_SATFINITE}\.tf32\.f32", _round_to_tf32, takes="b32 f32"),
    by_lane(r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>16)\.s32", _pack_integers, takes="b32 s32 s32"),
    by_lane(r"cvt\.pack\.sat\.(?P<sign>[us])(?P<width>2|4|8)\.s32\.b32", _pack_integers, takes="b32 s32 s32 b32"),
]

ROWS: list[Row] = [*PLAIN, *PACKED]
