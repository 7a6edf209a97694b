"""Integer functions of instructions, lane by lane: division, bit fields, permutes, dot products.

Arguments are Python integers, unsigned unless `is_signed` says otherwise. Results may be wider than the register.

PTX ISA, "Integer Arithmetic Instructions", "prmt".
"""

import operator
import re

from nogpu.arithmetic.lanes import FULL, signed


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


def video(match: re.Match, a: int, b: int, c: int) -> int:
    """SIMD video instructions; a row's pattern has their opcodes' parts."""
    found = match.groupdict()
    width = {"2": 16, "4": 8}[found["parts"]]
    pairs = list(zip(_fields(a, width, found["a"] == "s"), _fields(b, width, found["b"] == "s"), strict=True))
    results = [int(_VIDEO[found["name"]](x, y)) for x, y in pairs]
    if found["ending"] == ".add":
        return c + sum(results)
    if found["ending"] == ".sat":
        half = 1 << width - 1
        low, high = (-half, half - 1) if found["result"] == "s" else (0, 2 * half - 1)
        results = [min(max(result, low), high) for result in results]
    return sum((result & (1 << width) - 1) << width * i for i, result in enumerate(results))


_VIDEO = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "avrg": lambda x, y: (x + y + 1) // 2 if x + y >= 0 else (x + y) // 2,
    "absdiff": lambda x, y: abs(x - y),
    **{"min": min, "max": max, "eq": operator.eq, "ne": operator.ne},
    **{"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge},
}


def dot_halves(a: int, b: int, c: int, a_signed: bool, b_signed: bool, upper: bool) -> int:
    """dp2a: `c` plus the dot product of the 16-bit halves of `a` and the lower or upper two bytes of `b`."""
    parts = _fields(b, 8, b_signed)[2:] if upper else _fields(b, 8, b_signed)[:2]
    return c + sum(x * y for x, y in zip(_fields(a, 16, a_signed), parts, strict=True))


def product24(a: int, b: int, is_signed: bool) -> int:
    """mul24: the 48-bit product of the low 24 bits."""
    low = (1 << 24) - 1
    return signed(a, 24) * signed(b, 24) if is_signed else (a & low) * (b & low)


MODES = {
    "f4e": "3210 4321 5432 6543",
    "b4e": "5670 6701 7012 0123",
    "rc8": "0000 1111 2222 3333",
    "ecl": "3210 3211 3222 3333",
    "ecr": "0000 1110 2210 3210",
    "rc16": "1010 3232 1010 3232",
}
"""Mode -> bytes of the result, the highest first, for each control (PTX ISA, "prmt", table of modes)."""


def permute_mode(a: int, b: int, control: int, mode: str) -> int:
    """prmt with a mode."""
    source = (b << 32 | a).to_bytes(8, "little")
    return int.from_bytes(bytes(source[int(digit)] for digit in MODES[mode].split()[control & 3]), "big")


def divide(a: int, b: int) -> int:
    """div, truncating; a quotient by zero has all bits set, as on NVIDIA GPUs (PTX leaves it open)."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder(a: int, b: int) -> int:
    """rem: a - b * (a / b) with the quotient of `divide`."""
    return a - divide(a, b) * b


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


def funnel_shift(a: int, b: int, count: int, left: bool, clamp: bool) -> int:
    """shf: the upper (left) or lower (right) half of the 64-bit value b:a, shifted (PTX ISA, "shf")."""
    count = min(count, 32) if clamp else count & 31
    value = b << 32 | a
    return (value << count >> 32 if left else value >> count) & FULL


def logic3(a: int, b: int, c: int, table: int) -> int:
    """lop3: bit (a << 2 | b << 1 | c) of the truth table, for every bit position."""
    terms = [
        (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        for index in range(8)
        if table >> index & 1
    ]
    return sum(terms) & FULL  # no two of them have a bit in common
