"""Instructions of an entry as written, and blocks of PTX that replace them.

The parser of nogpu/ptx finds the instructions and their places in the text; the operands are cut from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from nogpu.ptx import syntax
from nogpu.ptx.ir import Entry, Instruction


@dataclass(frozen=True)
class Statement:
    """An instruction, both as written and as parsed."""

    guard: str  # "@%p1", "@!%p1" or ""
    opcode: str
    operands: tuple[str, ...]  # stripped texts
    parsed: Instruction

    @property
    def inverse_guard(self) -> str:
        return "@" + self.guard[2:] if self.guard.startswith("@!") else "@!" + self.guard[1:]


def split(text: str) -> list[str]:
    """Split `text` at the commas outside brackets and braces; the parts are stripped."""
    return [part.strip() for part in syntax.split(text)]


def statements(text: str, entry: Entry) -> Iterator[Statement]:
    """The instructions of an entry, in order. text: that of the module that the entry was parsed from (Module.text)."""
    for instruction in entry.instructions:
        start, end = instruction.place
        guard, opcode, operands = syntax.instruction(text[start:end].removesuffix(";"))
        yield Statement(guard, opcode, tuple(operands), instruction)


class Block:
    """PTX that replaces an instruction: lines in their own scope, with registers that no other code uses."""

    _labels = itertools.count()

    def __init__(self) -> None:
        self._declarations: list[str] = []
        self._lines: list[str] = []

    def register(self, kind: str = "b32") -> str:
        """A new register; kind: b16, b32, b64 or pred."""
        name = f"hopper_{kind}_{len(self._declarations)}"
        self._declarations.append(f".reg .{kind} {name};")
        return name

    def add(self, line: str) -> None:
        self._lines.append(line)

    def call(self, function: str, *arguments: tuple[str, str], result: tuple[str, str] | None = None) -> None:
        """Add the call of a device function. arguments, result: (b32 or b64, register or immediate)."""
        self.add("{")
        for number, (kind, operand) in enumerate(arguments):
            self.add(f".param .{kind} hopper_argument_{number};")
            self.add(f"st.param.{kind} [hopper_argument_{number}], {operand};")
        names = ", ".join(f"hopper_argument_{number}" for number in range(len(arguments)))
        if result:
            self.add(f".param .{result[0]} hopper_result;")
            self.add(f"call (hopper_result), {function}, ({names});")
            self.add(f"ld.param.{result[0]} {result[1]}, [hopper_result];")
        else:
            self.add(f"call {function}, ({names});")
        self.add("}")

    def text(self, statement: Statement | None = None) -> str:
        """The block, skipped where the guard of `statement`, if it has one, is false."""
        lines = ["{", *self._declarations]
        if statement is not None and statement.guard:
            label = f"$hopper_{next(self._labels)}"
            lines += [f"{statement.inverse_guard} bra {label};", *self._lines, f"{label}:"]
        else:
            lines += self._lines
        return "\n\t".join([*lines, "}"])
