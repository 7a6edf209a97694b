"""Constant expressions against C's rules for 64-bit integers and doubles."""

import struct

import pytest

from nogpu.ptx.expressions import DEPTH_LIMIT, constant, whole
from nogpu.ptx.ir import Immediate


@pytest.mark.parametrize(
    "text,value",
    [
        ("4*8", 32),
        ("(4 + 8) << 2", 48),
        ("1-2", -1),
        ("-(3)", -3),
        ("!0", 1),
        ("~0", -1),
        ("1 ? 2 : 3", 2),
        ("0 ? 2 : 1 ? 5 : 6", 5),
        ("(.s64)-5", -5),
        ("(.u64) -1 > 0", 1),
        ("-1 > 0U", 1),
        ("-1 > 0", 0),
        ("7/2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("3==3", 1),
        ("1 | 6 & 3 ^ 1", 3),
        ("1 + 2 << 1 < 7 == 1", 1),
        ("8 >> 1 >> 1", 2),
        ("-8 >> 1", -4),
        ("0xffffffffffffffff >> 63", 1),
        ("0x7fffffffffffffff + 1", -(1 << 63)),
        ("WARP_SZ", 32),
        ("WARP_SZ*2", 64),
        ("2 && 0 || 3", 1),
        ("10 - 3 - 2", 5),
        ("010 + 0b11 + 0x10U", 27),
        ("1.5 < 2.0", 1),
    ],
)
def test_integers(text, value):
    assert constant(text) == Immediate(value)
    assert whole(text) == value


@pytest.mark.parametrize("text,value", [("1.5 + 2.0*2.0", 5.5), ("-1.0", -1.0), ("1.0 / 4", 0.25), ("-(1e3)", -1000.0)])
def test_floating_point_numbers(text, value):
    assert constant(text) == Immediate(int.from_bytes(struct.pack("<d", value), "little"), 64)


@pytest.mark.parametrize(
    "text,reason",
    [
        ("1 +", "not understood"),
        ("(1", "a parenthesis is not closed"),
        ("1 ? 2", "not understood"),
        ("1 2", "not understood"),
        ("5 / 0", "division by zero"),
        ("1 << 64", "a shift by 64 bits"),
        ("~1.5", "of a floating-point number"),
        ("1.5 | 1", "of floating-point numbers"),
        ("1.5 / 0", "division by zero"),
        ("(" * 2 * DEPTH_LIMIT + "1" + ")" * 2 * DEPTH_LIMIT, "operators inside of others"),
        ("-" * 2 * DEPTH_LIMIT + "1", "operators inside of others"),
    ],
)
def test_expressions_without_a_value(text, reason):
    with pytest.raises(ValueError, match=reason):
        constant(text)


@pytest.mark.parametrize("text", ["%r1", "x", "x+4", "", "+", "{1, 2}", "_", "!p", "%r1|%p1", "0f3F800000+0f3F800000"])
def test_other_operands(text):
    assert constant(text) is None
    with pytest.raises(ValueError, match="no integer literal"):
        whole(text)
