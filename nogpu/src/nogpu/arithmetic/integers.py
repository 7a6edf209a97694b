"""Integer functions of instructions: shifts, division, bit fields, permutes, dot products.

An argument is a row of 32 lanes, or a Python integer for all of them (`Value`); functions of Python integers alone are
applied lane by lane (`per_lane`). Arguments are unsigned unless `is_signed` says otherwise. Results of functions on
integers may be wider than the register.

PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "prmt".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nogpu.arithmetic.lanes import FULL, INTS, UINTS, row_of, signed

Value = int | np.ndarray

_NIBBLES = np.arange(0, 16, 4, dtype=np.uint32)
_ROWS = np.arange(32)[:, None]

PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""Mode of prmt -> the equivalent selector without a mode, by the third source's two low bits (PTX ISA, "prmt")."""


def halves(value: Value, dtype: type) -> np.ndarray:
    """The two 16-bit numbers of every lane: dtype[64]."""
    return row_of(value, 32).view(dtype)


def clamped(value: int, width: int) -> int:
    """A signed result saturated to a width (`.sat`)."""
    return min(max(value, -(1 << width - 1)), (1 << width - 1) - 1)


def bit_mask(start: int, length: int, clamp: bool) -> int:
    """bmsk: `length` ones from bit `start` up."""
    if clamp and start >= 32:
        return 0
    start, length = start & 31, min(length, 32) if clamp else length & 31
    return ((1 << length) - 1) << start & FULL


def extend_bits(value: int, length: int, is_signed: bool, clamp: bool) -> int:
    """szext: the low `length` bits, sign- or zero-extended."""
    if clamp and length >= 32:
        return value & FULL
    length &= 31
    if length == 0:
        return 0
    return signed(value, length) if is_signed else value & (1 << length) - 1


def find_nth_set(mask: int, base: int, offset: int) -> int:
    """fns: the position of the |offset|-th set bit from `base` upwards, or downwards for a negative offset."""
    left = max(abs(offset) - 1, 0)
    if offset == 0:
        positions = range(base, base + 1)
    else:
        positions = range(min(base, 31), -1, -1) if offset < 0 else range(base, 32)
    for position in positions:
        if mask >> position & 1:
            if left == 0:
                return position
            left -= 1
    return FULL


def _fields(value: int, width: int, is_signed: bool) -> list[int]:
    parts = [value >> start & (1 << width) - 1 for start in range(0, 32, width)]
    return [signed(part, width) for part in parts] if is_signed else parts


def dot_bytes(a: int, b: int, c: int, a_signed: bool, b_signed: bool) -> int:
    """dp4a: `c` plus the dot product of the four bytes of `a` and of `b`."""
    return c + sum(x * y for x, y in zip(_fields(a, 8, a_signed), _fields(b, 8, b_signed), strict=True))


def dot_halves(a: int, b: int, c: int, a_signed: bool, b_signed: bool, upper: bool) -> int:
    """dp2a: `c` plus the dot product of the 16-bit halves of `a` and the lower or upper two bytes of `b`."""
    parts = _fields(b, 8, b_signed)[2:] if upper else _fields(b, 8, b_signed)[:2]
    return c + sum(x * y for x, y in zip(_fields(a, 16, a_signed), parts, strict=True))


def product24(a: int, b: int, is_signed: bool) -> int:
    """mul24: the 48-bit product of the low 24 bits."""
    low = (1 << 24) - 1
    return signed(a, 24) * signed(b, 24) if is_signed else (a & low) * (b & low)


def permute_mode(a: int, b: int, control: int, mode: str) -> int:
    """prmt with a mode."""
    source, selector = b << 32 | a, PERMUTE_MODES[mode][control & 3]
    return sum((source >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i for i in range(4))


def shift_left(a: Value, b: Value, width: int) -> np.ndarray:
    """shl, with counts clamped at the width (PTX ISA, "shl")."""
    a = row_of(a & (1 << width) - 1, width) if isinstance(a, int) else a
    b = row_of(b, 32)
    count = np.minimum(b, np.uint32(width - 1)).astype(a.dtype)
    return np.where(b >= width, a.dtype.type(0), a << count)


def shift_right(a: Value, b: Value, width: int, is_signed: bool) -> np.ndarray:
    """shr, arithmetic if signed, else logical, with counts clamped at the width (PTX ISA, "shr")."""
    dtype = (INTS if is_signed else UINTS)[width]
    a, b = np.asarray(a, dtype), row_of(b, 32)
    shifted = a >> np.minimum(b, np.uint32(width - 1)).astype(dtype)
    return shifted if is_signed else np.where(b >= width, dtype(0), shifted)


def divide(a: Value, b: Value, width: int, is_signed: bool) -> np.ndarray:
    """div, truncating; a quotient by zero has all bits set, as on NVIDIA GPUs (PTX leaves it open)."""
    dtype = (INTS if is_signed else UINTS)[width]
    a, b = np.broadcast_arrays(np.asarray(a, dtype), np.asarray(b, dtype))
    zero = b == 0
    divisor = np.where(zero, dtype(1), b)
    if is_signed:
        with np.errstate(over="ignore"):
            quotient = a // divisor
            quotient = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (divisor < 0)))
    else:
        quotient = a // divisor
    return np.where(zero, dtype(-1) if is_signed else dtype(~dtype(0)), quotient).astype(dtype)


def remainder(a: Value, b: Value, width: int, is_signed: bool) -> np.ndarray:
    """rem: a - b * (a / b) with the quotient of `divide`."""
    dtype = (INTS if is_signed else UINTS)[width]
    quotient = divide(a, b, width, is_signed)
    with np.errstate(over="ignore"):
        return np.asarray(a, dtype) - quotient * np.asarray(b, dtype)


def divide_scalar(a: int, b: int) -> int:
    """`divide` of one lane, both sources as signed or unsigned Python integers."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder_scalar(a: int, b: int) -> int:
    """`remainder` of one lane."""
    return a - divide_scalar(a, b) * b


def multiply_high(a: Value, b: Value, width: int, is_signed: bool) -> np.ndarray:
    """mul.hi: the upper half of the double-width product."""
    if width < 64:
        dtype = (INTS if is_signed else UINTS)[2 * width]
        return (np.multiply(a, b, dtype=dtype) >> dtype(width)).astype((INTS if is_signed else UINTS)[width])
    product = np.asarray(a).astype(object) * np.asarray(b).astype(object)
    return np.array([int(p) >> 64 & (1 << 64) - 1 for p in np.broadcast_to(product, 32)], np.uint64)


def bit_count(a: np.ndarray) -> np.ndarray:
    """popc."""
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: np.ndarray, width: int) -> np.ndarray:
    """clz."""
    return np.array([width - int(value).bit_length() for value in a.tolist()], np.uint32)


def find_leading(a: int, width: int, is_signed: bool, shift_amount: bool) -> int:
    """bfind: position of the most significant bit that differs from the sign, 0xFFFFFFFF if there is none.

    shift_amount: the left shift that brings the bit to the top instead (`.shiftamt`).
    """
    value = ~a if is_signed and a < 0 else a
    position = value.bit_length() - 1
    if position < 0:
        return FULL
    return width - 1 - position if shift_amount else position


def reverse_bits(a: int, width: int) -> int:
    """brev."""
    return int(f"{a:0{width}b}"[::-1], 2)


def extract_field(a: int, start: int, length: int, width: int, is_signed: bool) -> int:
    """bfe; `a` is the unsigned value (PTX ISA, "bfe")."""
    start, length = start & 0xFF, length & 0xFF
    if length == 0:
        return 0
    sign_position = min(start + length - 1, width - 1)
    sign = is_signed and a >> sign_position & 1
    kept = max(0, min(length, width - start))
    value = (a >> start) & ((1 << kept) - 1) if kept else 0
    return value | (-1 << kept) if sign else value


def insert_field(a: int, b: int, start: int, length: int, width: int) -> int:
    """bfi: `b` with its bits [start, start + length) replaced by the low bits of `a` (PTX ISA, "bfi")."""
    start, length = start & 0xFF, length & 0xFF
    mask = ((1 << length) - 1) << start & (1 << width) - 1
    return (b & ~mask) | (a << start & mask)


def permute_bytes(a: int, b: int, selector: int) -> int:
    """prmt without a mode (PTX ISA, "prmt")."""
    source, result = a | b << 32, 0
    for i in range(4):
        choice = selector >> 4 * i & 0xF
        byte = source >> 8 * (choice & 7) & 0xFF
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def permute_bytes_row(a: np.ndarray, b: np.ndarray, selector: Value) -> np.ndarray:
    """`permute_bytes` of all lanes."""
    source = np.stack((a, b), axis=1).astype(np.uint32, copy=False).view(np.uint8)
    choice = np.asarray(selector).astype(np.uint32).reshape(-1, 1) >> _NIBBLES & np.uint32(0xF)
    result = source[_ROWS, choice & np.uint32(7)]
    if (choice & np.uint32(8)).any():
        spread = np.where(result & np.uint8(0x80), np.uint8(0xFF), np.uint8(0))
        result = np.where(choice & np.uint32(8), spread, result)
    return result.view(np.uint32)[:, 0]


def logic3(a: Value, b: Value, c: Value, table: int) -> Value:
    """lop3: bit (a << 2 | b << 1 | c) of the truth table, for every bit position; an integer if all sources are."""
    if isinstance(a, int) and isinstance(b, int) and isinstance(c, int):
        return _logic3(a, b, c, table, FULL, 0)
    return _logic3(row_of(a, 32), row_of(b, 32), row_of(c, 32), table, np.uint32(FULL), np.zeros(32, np.uint32))


def _logic3(a: Any, b: Any, c: Any, table: int, ones: Any, result: Any) -> Any:  # all integers, or all rows
    for index in range(8):
        if table >> index & 1:
            term_a = a if index & 4 else a ^ ones
            term_b = b if index & 2 else b ^ ones
            term_c = c if index & 1 else c ^ ones
            result = result | (term_a & term_b & term_c)
    return result


def funnel_shift(a: int, b: int, count: int, left: bool, clamp: bool) -> int:
    """shf: the upper (left) or lower (right) half of the 64-bit value b:a, shifted (PTX ISA, "shf")."""
    count = min(count, 32) if clamp else count & 31
    value = b << 32 | a
    return (value << count >> 32 if left else value >> count) & FULL


def per_lane(function: Callable[..., int], width: int, *operands: Value) -> np.ndarray:
    """A function of Python integers applied lane by lane, for rare instructions: a row of `width` bits."""
    columns = [operand.tolist() if isinstance(operand, np.ndarray) else [operand] * 32 for operand in operands]
    mask = (1 << width) - 1
    return np.array([function(*values) & mask for values in zip(*columns, strict=True)], UINTS[width])
