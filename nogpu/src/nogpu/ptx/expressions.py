"""Constant expressions: literals with C's operators, as operands, offsets and initial values (PTX ISA, "Constant
Expressions").

Integers have 64 bits. A literal with suffix U or from 2^63 on is unsigned, any other signed; an operation with an
unsigned operand is unsigned. Literals with a point are f64.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from nogpu.ptx.ir import Immediate
from nogpu.ptx.literals import integer, number

WARP_SIZE = "WARP_SZ"
DEPTH_LIMIT = 100  # depth of nested operators
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    rf"|(?P<name>{WARP_SIZE})|(?P<cast>\(\s*\.[su]64\s*\))|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&^|!~?:()]))\s*"
)
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"))
_BINARY = {sign: level for level, signs in enumerate((*_LEVELS, ("*", "/", "%"))) for sign in signs}
_COMPARISONS: dict[str, Callable] = {
    **{"==": operator.eq, "!=": operator.ne},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
_ARITHMETIC: dict[str, Callable] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_BITWISE: dict[str, Callable] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}


class _Value(NamedTuple):
    number: int | float
    unsigned: bool = False


def _whole(value: int, unsigned: bool) -> _Value:
    """An integer cut to 64 bits."""
    value &= (1 << 64) - 1
    return _Value(value if unsigned or value < 1 << 63 else value - (1 << 64), unsigned)


def constant(text: str) -> Immediate | None:
    """The value of a literal or constant expression; None for other text. Raises ValueError if it has no value."""
    literal = number(text)
    if literal is not None:
        return literal
    tokens = _tokens(text)
    if tokens is None:
        return None
    value = _Parser(tokens, text).value()
    if isinstance(value.number, float):
        return Immediate(int.from_bytes(struct.pack("<d", value.number), "little"), 64)
    return Immediate(value.number)


def whole(text: str) -> int:
    """The value of an integer expression. Raises ValueError for any other text."""
    value = constant(text.strip())
    if value is None or value.float_width:
        return integer(text)  # ValueError that names the expected form
    return value.value


def _tokens(text: str) -> list[tuple[str, str]] | None:
    """The tokens as (kind, text); None for a text with unknown tokens, without a number, or of one token."""
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            return None
        found.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    known = any(kind in ("number", "name") for kind, _ in found)
    return found if known and (len(found) > 1 or text.strip() == WARP_SIZE) else None


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], text: str):
        self.tokens, self.text, self.place, self.depth = tokens, text, 0, 0

    def value(self) -> _Value:
        found = self._choice()
        if self.place < len(self.tokens):
            raise self._fail()
        return found

    def _fail(self, reason: str = "not understood") -> ValueError:
        return ValueError(f"constant expression {self.text.strip()[:80]!r}: {reason} (PTX ISA, Constant Expressions)")

    def _next(self, *signs: str) -> str | None:
        """Takes the next token if it is one of these signs. Returns it, or None."""
        if self.place < len(self.tokens) and self.tokens[self.place][1] in signs:
            self.place += 1
            return self.tokens[self.place - 1][1]
        return None

    def _choice(self) -> _Value:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self._fail(f"more than {DEPTH_LIMIT} operators inside of others")
        condition = self._binary(0)
        if self._next("?"):
            first = self._choice()
            if not self._next(":"):
                raise self._fail()
            second = self._choice()
            condition = first if condition.number else second
        self.depth -= 1
        return condition

    def _binary(self, level: int) -> _Value:
        if level == 1 + max(_BINARY.values()):
            return self._unary()
        signs = [sign for sign, own in _BINARY.items() if own == level]
        left = self._binary(level + 1)
        while (sign := self._next(*signs)) is not None:
            left = self._result(sign, left, self._binary(level + 1))
        return left

    def _result(self, sign: str, a: _Value, b: _Value) -> _Value:
        x, y = a.number, b.number
        if sign in ("&&", "||"):
            return _Value(int(bool(x) and bool(y)) if sign == "&&" else int(bool(x) or bool(y)))
        if isinstance(x, float) or isinstance(y, float):
            if sign in _COMPARISONS:
                return _Value(int(_COMPARISONS[sign](float(x), float(y))))
            if sign in _ARITHMETIC:
                return _Value(float(_ARITHMETIC[sign](float(x), float(y))))
            if sign != "/" or y == 0:
                raise self._fail(f"{sign} of floating-point numbers" if sign != "/" else "division by zero")
            return _Value(float(x) / float(y))
        if sign in ("<<", ">>"):
            if not 0 <= y < 64:
                raise self._fail(f"a shift by {y} bits")
            return _whole(x << y if sign == "<<" else x >> y, a.unsigned)
        unsigned = a.unsigned or b.unsigned
        x, y = _whole(x, unsigned).number, _whole(y, unsigned).number
        assert isinstance(x, int) and isinstance(y, int)
        if sign in _COMPARISONS:
            return _Value(int(_COMPARISONS[sign](x, y)))
        if sign in _ARITHMETIC or sign in _BITWISE:
            return _whole((_ARITHMETIC | _BITWISE)[sign](x, y), unsigned)
        if y == 0:
            raise self._fail("division by zero")
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return _whole(quotient if sign == "/" else x - quotient * y, unsigned)

    def _unary(self) -> _Value:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self._fail(f"more than {DEPTH_LIMIT} operators inside of others")
        found = self._of_sign()
        self.depth -= 1
        return found

    def _of_sign(self) -> _Value:
        if self.place == len(self.tokens):
            raise self._fail()
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            literal = number(text)
            if literal is None:
                raise self._fail()
            if literal.float_width:
                return _Value(struct.unpack("<d", literal.value.to_bytes(8, "little"))[0])
            return _Value(literal.value, text.endswith("U") or literal.value >> 63 != 0)
        if kind == "name":
            return _Value(32)
        if text == "(":
            inner = self._choice()
            if not self._next(")"):
                raise self._fail("a parenthesis is not closed")
            return inner
        if kind != "cast" and text not in "+-~!":
            raise self._fail()
        operand = self._unary()
        if text == "!":
            return _Value(int(not operand.number))
        if isinstance(operand.number, float):
            if text not in "+-":
                raise self._fail(f"{text} of a floating-point number")
            return _Value(-operand.number if text == "-" else operand.number)
        if kind == "cast":
            return _whole(operand.number, "u" in text)
        changed = {"+": operand.number, "-": -operand.number, "~": ~operand.number}[text]
        return _whole(changed, operand.unsigned)
