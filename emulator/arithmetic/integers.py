"""Integer functions of rare instructions, on Python integers (one lane each, see `lanes.per_lane`) or on rows of packed
16-bit numbers. Arguments are unsigned unless their type says otherwise; results may be wider than the register.

PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "prmt".
"""

from __future__ import annotations

import numpy as np

from emulator.arithmetic.lanes import FULL, row_of, signed

# Of each mode the selectors of prmt without a mode, by the two low bits of the third source (PTX ISA, "prmt").
PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def halves(value: int | np.ndarray, dtype: type) -> np.ndarray:
    """The two 16-bit numbers of every lane: dtype[64]."""
    return row_of(value, 32).view(dtype)


def clamped(value: int, width: int) -> int:
    """A signed result saturated to a width (`.sat`)."""
    return min(max(value, -(1 << width - 1)), (1 << width - 1) - 1)


def bit_mask(start: int, length: int, clamp: bool) -> int:
    """bmsk."""
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
    step = -1 if offset < 0 else 1
    left = max(abs(offset) - 1, 0)
    for position in (base,) if offset == 0 else range(base, -1 if offset < 0 else 32, step):
        if mask >> position & 1:
            if left == 0:
                return position
            left -= 1
    return FULL


def _fields(value: int, width: int, is_signed: bool) -> list[int]:
    parts = [value >> start & (1 << width) - 1 for start in range(0, 32, width)]
    return [signed(part, width) for part in parts] if is_signed else parts


def dot_bytes(a: int, b: int, c: int, a_signed: bool, b_signed: bool) -> int:
    """dp4a."""
    return c + sum(x * y for x, y in zip(_fields(a, 8, a_signed), _fields(b, 8, b_signed), strict=True))


def dot_halves(a: int, b: int, c: int, a_signed: bool, b_signed: bool, upper: bool) -> int:
    """dp2a: the two 16-bit numbers of `a` with the lower or the upper two bytes of `b`."""
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
