"""Integer arithmetic with a carry flag (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

A function takes unsigned integers, the flag (0 or 1) and a width in bits, and returns (result, flag). After a
subtraction the flag is a borrow.
"""

from __future__ import annotations

from nogpu.arithmetic.lanes import signed


def add(a: int, b: int, flag: int, width: int) -> tuple[int, bool]:
    """Unsigned a + b + flag as (the low `width` bits, carry)."""
    total = a + b + flag
    return total & (1 << width) - 1, total >> width != 0


def subtract(a: int, b: int, flag: int, width: int) -> tuple[int, bool]:
    """Unsigned a - b - flag as (the low `width` bits, borrow)."""
    total = a - b - flag
    return total & (1 << width) - 1, total < 0


def multiply_low(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    """The lower half of a * b, plus c and the flag."""
    return add(a * b & (1 << width) - 1, c, flag, width)


def multiply_high(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    """The upper half of the unsigned a * b, plus c and the flag."""
    return add(a * b >> width, c, flag, width)


def multiply_high_signed(a: int, b: int, c: int, flag: int, width: int) -> tuple[int, bool]:
    """The upper half of the signed a * b, plus c and the flag."""
    product = signed(a, width) * signed(b, width)
    return add(product >> width & (1 << width) - 1, c, flag, width)
