"""Types of operands, as rows of the opcode table state them, and their check (PTX ISA, "Operand Type Checking").

A signature has a word for each operand, in order; `{name}` in it is a group of the opcode's pattern:

| word | operand |
|---|---|
| a type, `u32` | a register of the type's width or a literal that fits |
| `u32+` | a register of at least that width or a literal that fits |
| `p` | a predicate |
| `[]`, `[,]` | an address without, with coordinates |
| `#` | an integer literal |
| `.` | checked by the row itself |
| `%b128` | a register |
| `_b64` | a register, or `_` for a result that nobody needs |
| `b32*` | registers or literals in braces, or one of them |
| `b32\\|p` | two destinations, one of which may be `_`, or only the first |

A word that ends in `?` may be left out, as may those behind it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from emulator.ptx.ir import SINK, Address, Immediate, Instruction, Negated, Pair, Register, Special, Symbol, Vector
from emulator.ptx.literals import literal_bits
from emulator.ptx.types import type_width


@lru_cache(maxsize=1024)
def _words(signature: str, match: re.Match[str] | None) -> tuple[str, ...]:
    text = signature
    if "{" in text and match is not None:
        text = text.format(**match.groupdict(default=""))
    return tuple(text.split())


def counts(signature: str) -> frozenset[int]:
    """The legal numbers of operands."""
    words = signature.split()
    needed = sum(not word.endswith("?") for word in words)
    return frozenset(range(needed, len(words) + 1))


def mismatch(instruction: Instruction, signature: str, match: re.Match[str]) -> str | None:
    """Why the operands of an instruction do not have the types of a signature, or None."""
    for operand, word in zip(instruction.operands, _words(signature, match)):
        reason = misfit(operand, word.removesuffix("?"))
        if reason is not None:
            return reason
    return None


def misfit(operand: object, word: str) -> str | None:
    """Why an operand does not have the type of a word, or None."""
    if word == ".":
        return None
    if word in ("[]", "[,]"):
        if isinstance(operand, Address) and (operand.coordinates is not None) == (word == "[,]"):
            return None
        return f"an address {'with' if word == '[,]' else 'without'} coordinates is expected, not {shown(operand)}"
    if word == "#":
        if isinstance(operand, Immediate) and not operand.float_width:
            return None
        return f"an integer literal is expected, not {shown(operand)}"
    if word.endswith("*"):
        items = operand.items if isinstance(operand, Vector) else (operand,)
        return next((reason for item in items if item != SINK and (reason := misfit(item, word[:-1]))), None)
    if "|" in word:
        first, second = word.split("|")
        if not isinstance(operand, Pair):
            return misfit(operand, first)
        if operand.first == operand.second == SINK:
            return "one of two destinations must be a register"
        return misfit(operand.first, f"_{first}") or misfit(operand.second, f"_{second}")
    if word.startswith("%") and not isinstance(operand, Register):
        return f"a register is expected, not {shown(operand)}"
    if word.startswith("%"):
        return misfit(operand, word[1:])
    if word.endswith("+"):
        word = word[:-1]
        wider = isinstance(operand, Register) and operand.width >= type_width(word)
        return None if wider else misfit(operand, word)
    if word.startswith("_"):
        return None if operand == SINK else misfit(operand, word[1:])
    return _misfit_of_type(operand, "pred" if word == "p" else word)


def _misfit_of_type(operand: object, type_name: str) -> str | None:
    width = type_width(type_name)
    if isinstance(operand, Register):
        if operand.width == width:
            return None
        if type_name == "pred":
            return f"{operand.name} is no predicate, it has {operand.width} bits"
        return f"register {operand.name} has {operand.width} bits, the operand's type .{type_name} {width}"
    if type_name == "pred" and isinstance(operand, Negated | Immediate):
        return None
    if isinstance(operand, Special):
        return None
    if isinstance(operand, Immediate):
        try:
            literal_bits(operand, type_name)
        except ValueError as error:
            return str(error)
        return None
    return f"a register or a literal of type .{type_name} is expected, not {shown(operand)}"


def shown(operand: object) -> str:
    """An operand for messages, as in PTX; labels and variables without their addresses."""
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
        case Address(base, offset, coordinates):
            place = shown(base) + (f"+{offset}" if offset else "")
            return f"[{place}]" if coordinates is None else f"[{place}, {shown(Vector(coordinates))}]"
    return "nothing" if operand is None else str(operand)
