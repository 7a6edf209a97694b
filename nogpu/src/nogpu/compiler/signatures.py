"""Types of operands, as rows of the opcode table state them, and their check (PTX ISA, "Operand Type Checking").

A signature has a word for each operand, in order; `{name}` in it is a group of the opcode's pattern:

| word | operand |
|---|---|
| a type, `u32` | a register of the type's width or a literal that fits |
| `u32+` | a register of at least that width or a literal that fits |
| `p` | a predicate |
| `[]`, `[,]` | an address without, with coordinates |
| `#` | an integer literal |
| `.` | an operand that the row checks |
| `%b128` | a register |
| `_b64` | a register, or `_` for a result that nobody needs |
| `b32*` | registers or literals in braces, or a single one |
| `b32\\|p` | two destinations, one of which may be `_`, or only the first |

A word that ends in `?` may be left out, as may those behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from nogpu.ptx.ir import (
    SINK,
    Address,
    Immediate,
    Instruction,
    Negated,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
    items_of,
)
from nogpu.ptx.literals import literal_bits
from nogpu.ptx.types import type_width

Check = Callable[[object], "str | None"]
"""Operand -> the reason why it does not have the type of a word, or None."""


def counts(signature: str) -> frozenset[int]:
    """The legal numbers of operands."""
    words = signature.split()
    needed = sum(not word.endswith("?") for word in words)
    return frozenset(range(needed, len(words) + 1))


def mismatch(instruction: Instruction, signature: str, match: re.Match[str]) -> str | None:
    """The reason why the operands of an instruction do not have the types of a signature, or None."""
    for operand, check in zip(instruction.operands, _checks(signature, match)):
        reason = check(operand)
        if reason is not None:
            return reason
    return None


def misfit(operand: object, word: str) -> str | None:
    """The reason why an operand does not have the type of a word, or None."""
    return _check(word)(operand)


@lru_cache(maxsize=4096)
def _checks(signature: str, match: re.Match[str]) -> tuple[Check, ...]:
    text = signature.format(**match.groupdict(default="")) if "{" in signature else signature
    return tuple(_check(word.removesuffix("?")) for word in text.split())


@lru_cache(maxsize=256)
def _check(word: str) -> Check:
    if word == ".":
        return lambda operand: None
    if word in ("[]", "[,]"):
        return _address_check(word == "[,]")
    if word == "#":
        return _literal_check
    if word.endswith("*"):
        return _items_check(_check(word[:-1]))
    if "|" in word:
        return _pair_check(*word.split("|"))
    if word.startswith("%"):
        return _register_check(_check(word[1:]))
    if word.startswith("_"):
        inner = _check(word[1:])
        return lambda operand: None if operand == SINK else inner(operand)
    if word.endswith("+"):
        return _type_check(word[:-1], wider=True)
    return _type_check("pred" if word == "p" else word)


def _address_check(coordinates: bool) -> Check:
    def check(operand: object) -> str | None:
        if not isinstance(operand, Address) or (operand.coordinates is not None) != coordinates or operand.direct:
            return f"an address {'with' if coordinates else 'without'} coordinates is expected, not {shown(operand)}"
        if isinstance(operand.base, Immediate):
            return f"address {operand.base.value} is a literal: ptxas takes those for .local only"
        return None

    return check


def _literal_check(operand: object) -> str | None:
    if isinstance(operand, Immediate) and not operand.float_width:
        return None
    return f"an integer literal is expected, not {shown(operand)}"


def _items_check(inner: Check) -> Check:
    def check(operand: object) -> str | None:
        items = items_of(operand)
        return next((reason for item in items if item != SINK and (reason := inner(item))), None)

    return check


def _pair_check(first: str, second: str) -> Check:
    def check(operand: object) -> str | None:
        if not isinstance(operand, Pair):
            return misfit(operand, first)
        if operand.first == operand.second == SINK:
            return "one of two destinations must be a register"
        return misfit(operand.first, f"_{first}") or misfit(operand.second, f"_{second}")

    return check


def _register_check(inner: Check) -> Check:
    def check(operand: object) -> str | None:
        return inner(operand) if isinstance(operand, Register) else f"a register is expected, not {shown(operand)}"

    return check


def _type_check(type_name: str, wider: bool = False) -> Check:
    """The check of values of a type. wider: registers may have more bits than the type."""
    width = type_width(type_name)

    def check(operand: object) -> str | None:
        if isinstance(operand, Register):
            if operand.width == width or (wider and operand.width > width):
                return None
            if type_name == "pred":
                return f"{operand.name} is no predicate, it has {operand.width} bits"
            return f"register {operand.name} has {operand.width} bits, the operand's type .{type_name} {width}"
        if isinstance(operand, Immediate) and type_name != "pred":
            try:
                literal_bits(operand, type_name)
            except ValueError as error:
                return str(error)
            return None
        if isinstance(operand, Special) or (type_name == "pred" and isinstance(operand, Negated | Immediate)):
            return None
        return f"a register or a literal of type .{type_name} is expected, not {shown(operand)}"

    return check


def shown(operand: object) -> str:
    """The text of an operand for messages, as in PTX; labels and variables are names."""
    match operand:
        case Register(name) | Special(name) | Symbol(name):
            return name
        case Immediate(value, 0):
            return str(value)
        case Immediate(value, width):
            return f"0{'f' if width == 32 else 'd'}{value:0{width // 4}x}"
        case Negated(register):
            return f"!{register.name}"
        case Vector(items):
            return "{" + ", ".join(map(shown, items)) + "}"
        case Pair(first, second):
            return f"{shown(first)}|{shown(second)}"
        case Address(base, offset, coordinates, direct):
            place = shown(base) + (f"+{offset}" if offset else "")
            if direct:
                return place
            return f"[{place}]" if coordinates is None else f"[{place}, {shown(Vector(coordinates))}]"
    return "nothing" if operand is None else str(operand)
