"""128-bit registers: each becomes two of 64 bits, and each instruction on it becomes one or two on the halves.

A load or store of 128 bits is one of two 64-bit elements, with the same alignment (PTX ISA, "ld", "st", "mov").
Operations of cluster launch control take both halves in braces. 128-bit atomics are left as they are, to be refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from nogpu.compiler.signatures import shown
from nogpu.ptx.ir import SINK, Register, Vector, items_of

WIDE = 128  # bits
_ACCESSES = ("ld", "ldu", "st")
_VECTORS = {None: "v2", "v2": "v4"}  # vector of 128-bit elements -> of 64-bit ones

Part = tuple[str, tuple]
"""(opcode, operands)."""


def registers(register: Register) -> tuple[Register, ...]:
    """The registers that stand for a declared one: the lower and the upper half if it has 128 bits."""
    if register.width != WIDE:
        return (register,)
    return Register(f"{register.name}#low", WIDE // 2), Register(f"{register.name}#high", WIDE // 2)


def split(opcode: str, operands: tuple) -> Iterator[Part]:
    """The instructions that replace one. Raises ValueError for operands that are not of 128 bits."""
    name, *modifiers = opcode.split(".")
    if "b128" not in modifiers or name not in (*_ACCESSES, "mov", "clusterlaunchcontrol"):
        yield opcode, operands
    elif name in _ACCESSES:
        yield _access(name, modifiers, operands)
    elif name == "mov":
        yield from _moves(operands)
    else:
        yield opcode, tuple(_halves(x) if isinstance(x, Register) and x.width == WIDE else x for x in operands)


def _access(name: str, modifiers: list[str], operands: tuple) -> Part:
    vector = next((modifier for modifier in modifiers if modifier in ("v2", "v4", "v8")), None)
    if vector not in _VECTORS:
        raise ValueError(f".{vector}.b128: an access has at most 256 bits (PTX ISA, {name})")
    place = 1 if name == "st" else 0
    if len(operands) <= place:
        raise ValueError(f"{name} with {len(operands)} operands; it takes 2")
    data = operands[place]
    items = items_of(data)
    parts = Vector(tuple(half for item in items for half in _halves(item).items))
    kept = [modifier for modifier in modifiers if modifier not in (vector, "b128")]
    return ".".join((name, *kept, _VECTORS[vector], "b64")), (*operands[:place], parts, *operands[place + 1 :])


def _moves(operands: tuple) -> Iterator[Part]:
    if len(operands) != 2 or all(isinstance(operand, Vector) for operand in operands):
        raise ValueError("mov.b128 takes a 128-bit register and another one or two registers in braces")
    destinations, sources = (_pair(operand).items for operand in operands)
    for destination, source in zip(destinations, sources):
        if destination != SINK:
            yield "mov.b64", (destination, source)


def _pair(operand: object) -> Vector:
    if not isinstance(operand, Vector):
        return _halves(operand)
    if len(operand.items) != 2:
        raise ValueError(f"{shown(operand)} for 128 bits: two of 64 bits are expected")
    return operand


def _halves(operand: object) -> Vector:
    if operand == SINK:
        return Vector((SINK, SINK))
    if not isinstance(operand, Register) or operand.width != WIDE:
        raise ValueError(f"a 128-bit register is expected, not {shown(operand)}")
    return Vector(registers(operand))
