"""Literals: integers and floating-point numbers (PTX ISA, "Constants"), and the bits that they have as operands."""

from __future__ import annotations

import math
import re
import struct

from nogpu.ptx.ir import Immediate

INTEGER_BITS = 64  # size of an integer literal
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")
_FLOAT_BITS = re.compile(r"0(?:[fF]([0-9a-fA-F]{8})|[dD]([0-9a-fA-F]{16}))")
_FLOAT = re.compile(r"-?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)")
_FORMATS = {32: "<f", 64: "<d"}  # bits -> code of struct
_DIGITS = 100  # most digits of an integer literal; a number with more has over 64 bits


def integer(text: str) -> int:
    """The value of an integer literal (PTX ISA, "Integer Constants"); a leading 0 means octal.

    Raises ValueError for any other text and for a number that does not fit 64 bits, signed or unsigned.
    """
    text = text.strip()
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no integer literal (PTX ISA, Integer Constants)")
    digits = text.rstrip("U").lstrip("-")
    octal = digits.startswith("0") and digits.isdecimal()
    value = int(digits, 8 if octal else 0) if len(digits) <= _DIGITS else 1 << _DIGITS
    value = -value if text.startswith("-") else value
    if not fits(value, INTEGER_BITS):
        raise ValueError(
            f"integer literal {text[:_DIGITS]} does not fit {INTEGER_BITS} bits (PTX ISA, Integer Constants)"
        )
    return value


def fits(value: int, width: int) -> bool:
    """True if an integer is a signed or an unsigned number of `width` bits."""
    return -(1 << width - 1) <= value < 1 << width


def number(text: str) -> Immediate | None:
    """An integer or floating-point literal; None for other text. Raises ValueError for a number that fits no type."""
    if _INTEGER.fullmatch(text):
        return Immediate(integer(text))
    match = _FLOAT_BITS.fullmatch(text)
    if match is not None:
        return Immediate(int(match[1], 16), 32) if match[1] else Immediate(int(match[2], 16), 64)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value) or (value == 0 and re.search("[1-9]", re.split("[eE]", text)[0])):
            raise ValueError(
                f"floating-point literal {text[:_DIGITS]} does not fit f64 (PTX ISA, Floating-Point Constants)"
            )
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), 64)
    return None


def literal_bits(literal: Immediate, type_name: str) -> int:
    """The bits of a literal as an operand or initial value of a type: an unsigned integer of the type's width.

    Integers must fit their type, signed or unsigned: no bits are cut off but those that extend a negative number's sign
    to 64 bits (Triton writes 0xffffffffffff8000). f32 and f64 take floating-point literals, which are converted.
    Untyped bits take literals of their own width, and packed and 16-bit floating-point types take none (PTX ISA,
    "Constants"). Raises ValueError otherwise.
    """
    kind, width = type_name[0], int(type_name.lstrip("bfsu").partition("x")[0])
    if type_name in ("f32", "f64"):
        if not literal.float_width:
            raise ValueError(
                f"integer literal {literal.value} for type .{type_name}, a floating-point literal is expected"
            )
        return _converted(literal, width)
    if kind == "f" or type_name.startswith("bf") or "x" in type_name:
        raise ValueError(f"type .{type_name} has no literals (PTX ISA, Constants)")
    if not literal.float_width:
        negative = literal.value >> INTEGER_BITS - 1 == 1
        if not fits(literal.value - (1 << INTEGER_BITS) if negative else literal.value, width):
            low, high = -(1 << width - 1), (1 << width) - 1
            raise ValueError(f"literal {literal.value} does not fit .{type_name}: {low} to {high} do")
        return literal.value & (1 << width) - 1
    if kind != "b" or literal.float_width != width:
        raise ValueError(f"a {literal.float_width}-bit floating-point value for type .{type_name}")
    return literal.value


def _converted(literal: Immediate, width: int) -> int:
    """Bits of a floating-point literal in the format of a width. Raises ValueError if it is finite and too large."""
    if literal.float_width == width:
        return literal.value
    source = literal.value.to_bytes(literal.float_width // 8, "little")
    (value,) = struct.unpack(_FORMATS[literal.float_width], source)
    try:
        packed = struct.pack(_FORMATS[width], value)
    except OverflowError:
        raise ValueError(f"floating-point literal {value} does not fit f{width}") from None
    return int.from_bytes(packed, "little")
