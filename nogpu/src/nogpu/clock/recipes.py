"""Recipes, by which compiled code finds the operands of an instruction that it records (native/trace.c)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nogpu import headers
from nogpu.clock import operands
from nogpu.compiler.operands import PARAMETERS, SHARED_BASE
from nogpu.compiler.plan import Plan
from nogpu.compiler.rowcode.registers import Slots
from nogpu.ptx.ir import Address, Immediate, Instruction, Register, Special, Symbol, Vector
from nogpu.ptx.types import type_width

_SOURCE = "native/trace.c"
_BY_LANE, _WIDE, _NARROW = headers.constants(_SOURCE, "BY_LANE", "WIDE", "NARROW")
_PLAIN, _WORDS, _ACCESS, _BARRIER, _WAIT = headers.constants(_SOURCE, "PLAIN", "WORDS", "ACCESS", "BARRIER", "WAIT")
_GENERIC, _GLOBAL, _SHARED = headers.constants(_SOURCE, "GENERIC", "GLOBAL", "SHARED")
_LOCAL, _CONSTANT = headers.constants(_SOURCE, "LOCAL", "CONSTANT")
_INIT, _INVAL, _ARRIVE, _COMPLETE = headers.constants(_SOURCE, "INIT", "INVAL", "ARRIVE", "COMPLETE")
_PARITY, _STATE = headers.constants(_SOURCE, "PARITY", "STATE")
_ALL = 0xFFFFFFFF
_MATRIX_ROW = 16  # bytes of a matrix row

RECIPE = np.dtype(headers.structure(_SOURCE, "Recipe"))

Value = tuple[int, int, int]
"""The struct Value of native/trace.c: (slot, form, constant); slot -1 for a constant alone."""
_NONE: Value = (-1, 0, 0)


@dataclass(frozen=True)
class Recipe:
    """The way an instruction is recorded."""

    kind: int = _PLAIN
    form: int = 0
    nbytes: int = 0
    lanes: int = _ALL
    count: int = 0
    later: bool = False
    address: Value = _NONE
    values: Sequence[Value] = ()

    def packed(self) -> tuple:
        """The recipe as an element of type RECIPE."""
        values = [*self.values, *[_NONE] * (4 - len(self.values))]
        return self.kind, self.form, self.nbytes, self.lanes, self.count, self.later, self.address, values


class Recipes:
    """The recipes of a program's instructions."""

    def __init__(self, planned: Plan, slots: Slots) -> None:
        self._planned, self._slots = planned, slots

    def table(self) -> np.ndarray:
        """The recipes as an array RECIPE[instructions]."""
        found = [self._recipe(index) for index in range(len(self._planned.entry.instructions))]
        return np.array([recipe.packed() for recipe in found], RECIPE)

    def _recipe(self, index: int) -> Recipe:
        instruction, waits = self._planned.entry.instructions[index], self._planned.flow.steps[index].blocks
        for pattern, make in _RECIPES:
            match = pattern.match(instruction.opcode)
            if match is not None:
                recipe = make(self, instruction, match)
                return Recipe(**{**recipe.__dict__, "later": True}) if waits else recipe
        return Recipe(later=waits)

    # Operands

    def value(self, operand: object) -> Value:
        """The value of a source operand. Raises TypeError for an operand that has none."""
        if isinstance(operand, Immediate):
            return -1, 0, operand.value
        if isinstance(operand, Register | Special):
            slot = self._slots[operand.name]
            # 8 bytes suffice for a value that all lanes share.
            return slot.offset, (_BY_LANE if slot.row else _WIDE) | (_WIDE if slot.width == 64 else 0), 0
        if isinstance(operand, Address | Symbol):
            return self.address(operand)
        raise TypeError(f"{operand} is no source of a record")

    def address(self, operand: object) -> Value:
        """The value of an address in brackets."""
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if isinstance(base, Symbol):
            space, place = self._planned.layout.symbols[base.name]
            name = {"shared": SHARED_BASE, "param": PARAMETERS}.get(space)
            return (-1 if name is None else self._slots[name].offset), _WIDE, place + offset
        slot, form, constant = self.value(base)
        narrow = _NARROW if isinstance(base, Register) and base.width == 32 else 0
        return slot, form | narrow, constant + offset


# Recipes by opcode

_SPACES = {"global": _GLOBAL, "local": _LOCAL, "param": _CONSTANT, "const": _CONSTANT}


def _space(opcode: str) -> int:
    for part in opcode.split(".")[1:]:
        space = part.partition("::")[0]
        if space in _SPACES:
            return _SPACES[space]
        if space == "shared":
            return _SHARED
    return _GENERIC


def _bytes(opcode: str) -> int:
    """Bytes per lane of an access, from its vector and the last type in its opcode."""
    parts = opcode.split(".")
    count = next((int(part[1:]) for part in parts if re.fullmatch("v[248]", part)), 1)
    types = [part for part in parts if re.fullmatch(r"[bsuf](?:8|16|32|64|128)|bf16|b?f16x2", part)]
    width = 32 if types[-1].endswith("x2") else 16 if types[-1] == "bf16" else 128 if types[-1] == "b128" else None
    return count * (width or type_width(types[-1])) // 8


def _addresses(instruction: Instruction) -> list[Address]:
    return [operand for operand in instruction.operands if isinstance(operand, Address)]


def _access(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    address, *_ = _addresses(instruction)
    opcode = instruction.opcode
    return Recipe(_ACCESS, _space(opcode), _bytes(opcode), address=recipes.address(address))


def _async_store(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    address, barrier = _addresses(instruction)
    nbytes = _bytes(instruction.opcode)
    values = recipes.address(barrier), (-1, 0, nbytes)
    return Recipe(_ACCESS, _SHARED, nbytes, count=2, address=recipes.address(address), values=values)


def _copy(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    _, source, size = instruction.operands[:3]
    return Recipe(_ACCESS, _GLOBAL, size.value, address=recipes.address(source))


def _matrix(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    (address,) = _addresses(instruction)
    rows = (16 if match["shape"] == "m16n16" else 8) * int(match["count"])
    return Recipe(_ACCESS, _SHARED, _MATRIX_ROW, (1 << rows) - 1, address=recipes.address(address))


def _prefetch(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    (address,) = _addresses(instruction)
    return Recipe(_ACCESS, _space(instruction.opcode), 1, address=recipes.address(address))


def _barrier(form: int, arrivals: str = "") -> Callable[[Recipes, Instruction, re.Match], Recipe]:
    """The rule for an mbarrier operation. arrivals: "count" if the operand behind the address counts them (1 without
    it), "bytes" for one that expects that operand's bytes, "bytes only" for none, "" for an operation of another kind.
    """

    def make(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
        place = next(i for i, operand in enumerate(instruction.operands) if isinstance(operand, Address))
        behind = [recipes.value(operand) for operand in instruction.operands[place + 1 :]]
        one = (-1, 0, 1)
        values: Sequence[Value] = behind[:1]
        if arrivals == "count":
            values = behind[:1] or [one]
        elif arrivals:
            values = [one if arrivals == "bytes" else _NONE, *behind[:1]]
        return Recipe(_BARRIER, form, address=recipes.address(instruction.operands[place]), values=values)

    return make


def _wait(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
    _, address, value = instruction.operands[:3]
    form = _PARITY if ".parity" in instruction.opcode else _STATE
    return Recipe(_WAIT, form, address=recipes.address(address), values=[recipes.value(value)])


def _words(
    numbers: Callable[[Instruction, re.Match], Sequence[object]],
) -> Callable[[Recipes, Instruction, re.Match], Recipe]:
    """The rule for an instruction with fixed operand words. numbers: gives them, as integers or operands."""

    def make(recipes: Recipes, instruction: Instruction, match: re.Match) -> Recipe:
        found = numbers(instruction, match)
        values = [(-1, 0, x) if isinstance(x, int) else recipes.value(x) for x in found]
        return Recipe(_WORDS, count=len(values), values=values)

    return make


def _fragment(instruction: Instruction, match: re.Match) -> Sequence[object]:
    fragment = instruction.operands[0 if match["name"] == "ld" else -1]
    registers = len(fragment.items) if isinstance(fragment, Vector) else 1
    return registers, 32 if match["shape"] == "32x32b" else 16, int(match["name"] == "st")


def _tensor_copy(instruction: Instruction, match: re.Match) -> Sequence[object]:
    """Words of tcgen05.cp: 4-row shapes write one lane of each quadrant, others all 128, for any number of warps."""
    lanes = 4 if match["rows"] == "4" else 128
    return lanes * int(match["bits"]) // 8, int(match["group"])


_GROUP = r".*\.cta_group::(?P<group>[12])"
_RECIPES = [
    (re.compile(pattern), make)
    for pattern, make in (
        (operands.PATTERN, lambda recipes, instruction, match: Recipe(later=True)),
        (r"(?:ldu?|st)\.(?!async|bulk)", _access),
        (r"(?:atom|red)\.(?!async)", _access),
        (r"(?:st|red)\.async\.", _async_store),
        (r"cp\.async\.c[ag]\.", _copy),
        (r"(?:ld|st)matrix\..*\.(?P<shape>m\d+n\d+)\.x(?P<count>[124])", _matrix),
        (r"prefetchu?\.", _prefetch),
        (r"mbarrier\.init", _barrier(_INIT)),
        (r"mbarrier\.inval", _barrier(_INVAL)),
        (r"mbarrier\.arrive(?:_drop)?\.expect_tx", _barrier(_ARRIVE, "bytes")),
        (r"mbarrier\.arrive|cp\.async\.mbarrier\.arrive", _barrier(_ARRIVE, "count")),
        (r"mbarrier\.expect_tx", _barrier(_ARRIVE, "bytes only")),
        (r"mbarrier\.complete_tx", _barrier(_COMPLETE, "bytes only")),
        (r"mbarrier\.(?:test|try)_wait", _wait),
        (r"cp\.async(?:\.bulk)?\.commit_group|cp\.async\.wait_all", _words(lambda i, m: (0, 0))),
        (
            r"cp\.async(?:\.bulk)?\.wait_group(?P<read>\.read)?",
            _words(lambda i, m: (i.operands[0], int(m["read"] is not None))),
        ),
        (r"tcgen05\.(?P<name>ld|st)\.sync\.aligned\.(?P<shape>\w+)\.x\d+", _words(_fragment)),
        (rf"tcgen05\.(?:alloc|dealloc){_GROUP}", _words(lambda i, m: (i.operands[1], int(m["group"])))),
        (rf"tcgen05\.cp{_GROUP}\.(?P<rows>\d+)x(?P<bits>\d+)b", _words(_tensor_copy)),
        (r"barrier\.cluster\.(?P<name>arrive|wait)", _words(lambda i, m: (int(m["name"] == "wait"),))),
        (r"griddepcontrol\.(?P<name>\w+)", _words(lambda i, m: (int(m["name"] != "wait"),))),
        (r"nanosleep", _words(lambda i, m: (i.operands[0],))),
    )
]
