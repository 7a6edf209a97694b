"""Rows of the opcode table: mov, packing, and cvt between integers, floats and packed small floats (PTX ISA, "mov",
"cvt").
"""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import Instruction, Vector
from emulator.operands import type_width
from emulator.rows import Row, always_lanes, called, row

_WORD = "b16|u16|s16|f16|bf16|b32|u32|s32|f32|f16x2|bf16x2|b64|u64|s64|f64|f32x2|b128"


def _mov(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    width = type_width(match.group("type"))
    if width == 128:
        raise code.fail("128-bit registers are not modelled")
    if isinstance(destination, Vector):
        _unpack(code, destination, source, width)
    elif isinstance(source, Vector):
        _pack(code, destination, source, width)
    else:
        code.assign(destination, code.value(source, width), code.kind)


def _unpack(code: Code, destination: Vector, source: object, width: int) -> None:
    part = width // len(destination.items)
    text = code.value(source, width)
    mask = (1 << part) - 1
    for i, item in enumerate(destination.items):
        if code.kind == "uniform":
            value = f"{text} >> {part * i} & {mask}" if i else f"{text} & {mask}"
        else:
            value = f"({text} >> u{width}({part * i})).astype(u{part})" if i else f"{text}.astype(u{part})"
        code.assign(item, value, code.kind) if item.name != "_" else None


def _pack(code: Code, destination: object, source: Vector, width: int) -> None:
    part = width // len(source.items)
    texts = [code.value(item, part) for item in source.items]
    if code.kind == "uniform":
        terms = [f"{text} << {part * i}" if i else text for i, text in enumerate(texts)]
        code.assign(destination, " | ".join(terms), "uniform")
    else:
        rows = ", ".join(f"row_of({text}, {part})" for text in texts)
        code.assign(destination, f"interleave(({rows},), u{width})", "lanes")


_INTEGER = "u8|s8|u16|s16|u32|s32|u64|s64"
_FLOAT = "f16|bf16|f32|f64"


def _from_integer(code: Code, operand: object, type_name: str) -> str:
    """The source's low bits with the type's sign: an integer or a row of exactly that width."""
    width = type_width(type_name)
    text = code.value(operand, width)
    register_width = getattr(operand, "width", width)
    if code.is_uniform(operand):
        text = f"({text} & {(1 << width) - 1})" if register_width > width else text
        return f"signed({text}, {width})" if type_name[0] == "s" else text
    text = f"{text}.astype(u{width})" if register_width != width else text
    return f"{text}.view(i{width})" if type_name[0] == "s" else text


def _integer_to_integer(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    to, register_width = match.group("to"), destination.width
    text = _from_integer(code, source, match.group("type"))
    width, is_signed = type_width(to), to[0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    if code.kind == "uniform":
        if match.group("sat"):
            text = f"min(max({text}, {low}), {high})"
        elif is_signed and width < register_width:
            text = f"signed({text}, {width})"
        elif width < register_width:
            text = f"{text} & {high}"
        code.assign(destination, f"{text} & {(1 << register_width) - 1}", "uniform")
        return
    if match.group("sat"):
        text = f"saturate_integer({text}, {low}, {high})"
    text = f"{text}.astype({'i' if is_signed else 'u'}{width})"
    if width < register_width:
        text = f"{text}.astype({'i' if is_signed else 'u'}{register_width})"
    code.assign(destination, f"{text}.view(u{register_width})", "lanes")


def _float_source(code: Code, operand: object, type_name: str) -> str:
    width = type_width(type_name)
    text = f"row_of({code.value(operand, width)}, {width})"
    return f"from_bf16({text})" if type_name == "bf16" else f"{text}.view(f{width})"


def _to_float(
    code: Code, destination: object, values: str, type_name: str, rounding: str, flush: bool, saturate: bool
) -> None:
    """values: expression of a float64 row."""
    if type_name == "bf16":
        text = f"to_bf16(round_float({values}, f32, 'rn'), 16)" if rounding == "rn" else f"truncate_bf16({values})"
    else:
        text = f"round_float({values}, f{type_width(type_name)}, {rounding!r})"
        text = f"saturate({text})" if saturate else text
        text = f"flush({text})" if flush and type_name == "f32" else text
        text = f"{text}.view(u{type_width(type_name)})"
    code.assign(destination, text, "lanes")


def _integer_to_float(code: Code, instruction: Instruction, match: re.Match) -> None:
    text = f"np.asarray({_from_integer(code, instruction.operands[1], match.group('type'))})"
    text = f"np.broadcast_to({text}, 32)" if code.is_uniform(instruction.operands[1]) else text
    if match.group("to") == "f32" and match.group("rounding") == "rn":
        code.assign(instruction.operands[0], f"{text}.astype(f32).view(u32)", "lanes")
    else:
        _to_float(
            code,
            instruction.operands[0],
            f"{text}.astype(f64)",
            match.group("to"),
            match.group("rounding"),
            False,
            False,
        )


def _float_to_integer(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    to = match.group("to")
    text = _float_source(code, source, match.group("type"))
    if match.group("ftz"):
        text = f"flush({text})"
    text = f"float_to_int({text}, {type_width(to)}, {to[0] == 's'}, {match.group('rounding')!r})"
    if type_width(to) < destination.width:
        text = f"{text}.view({'i' if to[0] == 's' else 'u'}{type_width(to)}).astype({'i' if to[0] == 's' else 'u'}{destination.width})"
        text = f"{text}.view(u{destination.width})"
    code.assign(destination, text, "lanes")


def _float_to_float(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    text = _float_source(code, source, match.group("type"))
    flush, rounding = bool(match.group("ftz")), match.group("rounding") or "rn"
    if flush and match.group("type") == "f32":
        text = f"flush({text})"
    if rounding.endswith("i"):
        text = f"{ {'rni': 'np.rint', 'rzi': 'np.trunc', 'rmi': 'np.floor', 'rpi': 'np.ceil'}[rounding] }({text})"
        rounding = "rn"
    if match.group("relu"):
        text = f"np.maximum({text}, 0)"
    _to_float(code, destination, f"{text}.astype(f64)", match.group("to"), rounding, flush, bool(match.group("sat")))


def _pack_small(code: Code, instruction: Instruction, match: re.Match) -> None:
    """The result's register has 16 bits, or 8 for two 4-bit numbers."""
    destination, high, low = instruction.operands
    rows = f"row_of({code.value(high)}, 32), row_of({code.value(low)}, 32)"
    call = f"pack_small({rows}, {match.group('small')!r}, {match.group('relu') is not None})"
    code.assign(destination, f"{call}.astype(u{destination.width})", "lanes")


def _unpack_small(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    text = f"row_of({code.value(source, source.width)}, {source.width}).astype(u16)"
    code.assign(
        destination, f"unpack_small({text}, {match.group('small')!r}, {match.group('relu') is not None})", "lanes"
    )


_SMALL = "e4m3|e5m2|e2m1|e2m3|e3m2"
ROWS: list[Row] = [
    row(rf"mov\.(?P<type>{_WORD})", _mov),
    row(rf"cvt(?P<sat>\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_INTEGER})", _integer_to_integer),
    row(r"cvt\.(?P<rounding>rn)\.(?P<to>f32|f64)\.(?P<type>u64|s64)", _integer_to_float, kind=always_lanes),
    row(rf"cvt\.(?P<rounding>rn|rz|rm|rp)\.(?P<to>{_FLOAT})\.(?P<type>u8|s8|u16|s16|u32|s32)", _integer_to_float, kind=always_lanes),
    row(
        rf"cvt\.(?P<rounding>rni|rzi|rmi|rpi)(?P<ftz>\.ftz)?(?:\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_FLOAT})",
        _float_to_integer,
        kind=always_lanes,
    ),
    row(
        r"cvt(?:\.(?P<rounding>rn|rz|rm|rp|rni|rzi|rmi|rpi))?(?P<ftz>\.ftz)?(?P<relu>\.relu)?(?P<sat>\.sat)?"
        rf"\.(?P<to>{_FLOAT})\.(?P<type>{_FLOAT})",
        _float_to_float,
        kind=always_lanes,
    ),
    called(r"cvt\.rn\.f16x2\.f32", "float_to_half2(row_of({1:v}, 32), row_of({2:v}, 32))", kind=always_lanes),
    called(r"cvt\.rn\.bf16x2\.f32", "float_to_bf16x2(row_of({1:v}, 32), row_of({2:v}, 32))", kind=always_lanes),
    row(rf"cvt\.rn\.satfinite(?P<relu>\.relu)?\.(?P<small>{_SMALL})x2\.f32", _pack_small, kind=always_lanes),
    called(
        r"cvt\.(?P<rounding>rp|rz)(?:\.satfinite)?\.ue8m0x2\.f32",
        "pack_scales(row_of({1:v}, 32), row_of({2:v}, 32), {rounding} == 'rp')",
        kind=always_lanes,
    ),
    row(rf"cvt\.rn(?P<relu>\.relu)?\.f16x2\.(?P<small>{_SMALL})x2", _unpack_small, kind=always_lanes),
    called(r"cvt\.rn\.bf16x2\.ue8m0x2", "unpack_scales(row_of({1:v}, 16))", kind=always_lanes),
]  # fmt: skip
