"""Rows of the opcode table: mov, and cvt between integers and floats (PTX ISA, "mov", "cvt")."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes import conversion_kernels as kernels
from nogpu.compiler.opcodes.float_operands import numbers
from nogpu.compiler.opcodes.rows import Row, always_lanes, row
from nogpu.compiler.signatures import shown
from nogpu.ptx.ir import SINK, Address, Instruction, Symbol, Vector
from nogpu.ptx.types import type_width

_WORD = "b16|u16|s16|f16|bf16|b32|u32|s32|f32|f16x2|bf16x2|b64|u64|s64|f64|f32x2"


def _mov(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    type_name = match.group("type")
    width = type_width(type_name)
    for operand in (destination, source):
        if isinstance(operand, Vector):
            _check_parts(code, operand, type_name)
        elif operand is destination or type_name[0] == "f" or not isinstance(operand, Symbol | Address):
            code.fits(operand, type_name)
    if isinstance(destination, Vector):
        _unpack(code, destination, source, width)
    elif isinstance(source, Vector):
        _pack(code, destination, source, width)
    else:
        text = (
            code.place(source, width) if isinstance(source, Symbol | Address) else code.value(source, width, type_name)
        )
        code.assign(destination, text, code.kind)


def _check_parts(code: Code, operand: Vector, type_name: str) -> None:
    """Raises EmulatorError unless the items of a vector are two or four equal parts of a type (PTX ISA, "mov")."""
    count, width = len(operand.items), type_width(type_name)
    if count not in (2, 4) or type_name[0] != "b" or width // count < 8:
        raise code.fail(f"{shown(operand)} for type .{type_name}: two or four parts of untyped bits are expected")
    code.fits(operand, f"b{width // count}*")


def _unpack(code: Code, destination: Vector, source: object, width: int) -> None:
    part = width // len(destination.items)
    text = code.place(source, width)
    mask = (1 << part) - 1
    for i, item in enumerate(destination.items):
        if code.kind == "uniform":
            value = f"{text} >> {part * i} & {mask}" if i else f"{text} & {mask}"
        else:
            value = f"({text} >> u{width}({part * i})).astype(u{part})" if i else f"{text}.astype(u{part})"
        if item != SINK:
            code.assign(item, value, code.kind)


def _pack(code: Code, destination: object, source: Vector, width: int) -> None:
    part = width // len(source.items)
    texts = [code.value(item, part) for item in source.items]
    if code.kind == "uniform":
        terms = [f"{text} << {part * i}" if i else text for i, text in enumerate(texts)]
        code.assign(destination, " | ".join(terms), "uniform")
    else:
        rows = ", ".join(f"row_of({text}, {part})" for text in texts)
        code.assign(destination, f"floats.interleave(({rows},), u{width})", "lanes")


_INTEGER = "u8|s8|u16|s16|u32|s32|u64|s64"
_FLOAT = "f16|bf16|f32|f64"


def _from_integer(code: Code, operand: object, type_name: str) -> str:
    """The source's low bits with the type's sign: an integer, or a row of the type's width."""
    width = type_width(type_name)
    text = code.value(operand, width, type_name)
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
        text = f"floats.saturate_integer({text}, {low}, {high})"
    text = f"{text}.astype({'i' if is_signed else 'u'}{width})"
    if width < register_width:
        text = f"{text}.astype({'i' if is_signed else 'u'}{register_width})"
    code.assign(destination, f"{text}.view(u{register_width})", "lanes")


def _integer_to_float(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    text = _from_integer(code, source, match.group("type"))
    letter = "i" if match.group("type")[0] == "s" else "u"
    text = f"np.full(32, {text}, {letter}64)" if code.is_uniform(source) else text
    _narrowed(code, destination, f"roundings.odd_float64({text})", match)


def _long_to_double(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    text = _from_integer(code, source, match.group("type"))
    letter = "i" if match.group("type")[0] == "s" else "u"
    text = f"np.full(32, {text}, {letter}64)" if code.is_uniform(source) else text
    code.assign(destination, f"{text}.astype(f64).view(u64)", "lanes")


def _narrowed(code: Code, destination: object, text: str, match: re.Match) -> None:
    """Emits the assignment of a row of numbers, converted by the type, rounding and modifiers of the opcode."""
    register_width = code.register(destination).width
    groups = match.groupdict()
    rounding, modifiers = groups.get("rounding") or "rn", groups.get("modifiers") or ""
    if rounding in _INTEGRAL:
        text, rounding = f"{_INTEGRAL[rounding]}({text})", "rn"
    if groups.get("sat"):
        text = f"floats.saturate({text})"
    text = (
        f"packing.narrow({text}, {groups['to']!r}, {rounding!r}, {'.satfinite' in modifiers}, {'.relu' in modifiers})"
    )
    if groups.get("ftz") and groups["to"] == "f32":
        text = f"floats.flush({text}.view(f32)).view(u32)"
    if register_width > type_width(groups["to"]):
        text = f"{text}.astype(u{register_width})"
    code.assign(destination, text, "lanes")


_INTEGRAL = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


def _float_to_integer(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    to = match.group("to")
    text = numbers(code, source, match.group("type"), match.group("ftz") is not None)
    text = f"floats.float_to_int({text}, {type_width(to)}, {to[0] == 's'}, {match.group('rounding')!r})"
    if type_width(to) < destination.width:
        letter = "i" if to[0] == "s" else "u"
        text = f"{text}.view({letter}{type_width(to)}).astype({letter}{destination.width}).view(u{destination.width})"
    code.assign(destination, text, "lanes")


def _float_to_float(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    flush = match.groupdict().get("ftz") is not None and match.group("type") == "f32"
    _narrowed(code, destination, numbers(code, source, match.group("type"), flush), match)


_CONVERTED = "{to}+ {type}+"
_FTZ_SAT = r"(?P<ftz>\.ftz)?(?P<sat>\.sat)?"
_NARROW_INTEGER = "u8|s8|u16|s16|u32|s32"

ROWS: list[Row] = [
    row(rf"mov\.(?P<type>{_WORD})", _mov, 2, kernels=kernels.mov),
    row(
        rf"cvt(?P<sat>\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_INTEGER})",
        _integer_to_integer,
        takes=_CONVERTED,
        kernels=kernels.integer_to_integer,
    ),
    row(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp){_FTZ_SAT}\.(?P<to>f16|f32)\.(?P<type>{_INTEGER})",
        _integer_to_float,
        kind=always_lanes,
        kernels=kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    row(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)\.(?P<to>bf16)\.(?P<type>{_INTEGER})",
        _integer_to_float,
        kind=always_lanes,
        kernels=kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    row(
        rf"cvt\.(?P<rounding>rn|rz|rm|rp)(?P<sat>\.sat)?\.(?P<to>f64)\.(?P<type>{_NARROW_INTEGER})",
        _integer_to_float,
        kind=always_lanes,
        kernels=kernels.integer_to_float,
        takes=_CONVERTED,
    ),
    row(
        r"cvt\.rn\.f64\.(?P<type>u64|s64)",
        _long_to_double,
        kind=always_lanes,
        kernels=kernels.long_to_double,
        takes="f64 {type}+",
    ),
    row(
        rf"cvt\.(?P<rounding>rni|rzi|rmi|rpi)(?P<ftz>\.ftz)?(?:\.sat)?\.(?P<to>{_INTEGER})\.(?P<type>{_FLOAT})",
        _float_to_integer,
        kind=always_lanes,
        kernels=kernels.float_to_integer,
        takes=_CONVERTED,
    ),
    row(
        rf"cvt(?:\.(?P<rounding>rn|rz|rm|rp|rni|rzi|rmi|rpi))?{_FTZ_SAT}\.(?P<to>{_FLOAT})\.(?P<type>{_FLOAT})",
        _float_to_float,
        kind=always_lanes,
        kernels=kernels.float_to_float,
        takes=_CONVERTED,
    ),
    row(
        r"cvt\.(?P<rounding>rn|rz)(?P<modifiers>(?:\.relu|\.satfinite)+)\.(?P<to>f16|bf16)\.(?P<type>f32)",
        _float_to_float,
        kind=always_lanes,
        kernels=kernels.float_to_float,
        takes=_CONVERTED,
    ),
]
