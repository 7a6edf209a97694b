"""The instructions of PTX text with their places in it, so that they can be replaced where they stand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from emulator.ptx.ir import Entry, Instruction

_NAME = r"[A-Za-z_$%][\w$%]*"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STATEMENT = re.compile(
    rf"\s*(?:(?P<loc>\.loc\b[^\n]*)|(?P<label>{_NAME})\s*:(?!:)|(?P<brace>[{{}}])|(?P<text>[^;{{}}][^;]*);|(?P<end>\Z))"
)
_PARTS = re.compile(rf"(?:@(?P<not>!?)\s*(?P<guard>{_NAME})\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<rest>.*)", re.S)


@dataclass(frozen=True)
class Statement:
    """An instruction as it is written, and as it was parsed.

    start, end: its characters, the semicolon included. guard: "@%p1", "@!%p1" or "". operands: as written.
    """

    start: int
    end: int
    guard: str
    opcode: str
    operands: tuple[str, ...]
    parsed: Instruction

    @property
    def inverse_guard(self) -> str:
        return "@" + self.guard[2:] if self.guard.startswith("@!") else "@!" + self.guard[1:]


def split(text: str) -> list[str]:
    """`text` at the commas outside of brackets and braces, stripped."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]


def without_comments(text: str) -> str:
    """`text` with comments blanked; every other character keeps its place."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def span(clean: str, name: str) -> tuple[int, int, int]:
    """(start, start of the body, end) of an entry; start is that of its line, the body begins behind the brace."""
    header = re.search(rf"^[^\n]*\.entry\s+{re.escape(name)}\b[^{{;]*\{{", clean, re.M)
    depth = 1
    for match in re.compile(r"[{}]").finditer(clean, header.end()):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return header.start(), header.end(), match.end()
    raise ValueError(f"the braces of {name} do not match")


def statements(clean: str, body: int, end: int, entry: Entry) -> Iterator[Statement]:
    """The instructions of an entry in order; `entry` is what the parser made of the same text."""
    position, parsed = body, iter(entry.instructions)
    while position < end - 1:
        match = _STATEMENT.match(clean, position, end - 1)
        position = match.end()
        text = match["text"]
        if text is None or text.startswith("."):
            continue
        parts = _PARTS.fullmatch(text.strip())
        operands = tuple(split(parts["rest"])) if parts["rest"].strip() else ()
        guard = f"@{parts['not']}{parts['guard']}" if parts["guard"] else ""
        yield Statement(match.start("text"), match.end(), guard, parts["opcode"], operands, next(parsed))


class Block:
    """PTX that takes an instruction's place: lines in a scope of their own, with registers that nobody else has."""

    _labels = itertools.count()

    def __init__(self):
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
        """Call a device function. arguments, result: (kind, register or immediate), kind b32 or b64."""
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
        """The block; with the guard of `statement` around it if that has one."""
        lines = ["{", *self._declarations]
        if statement is not None and statement.guard:
            label = f"$hopper_{next(self._labels)}"
            lines += [f"{statement.inverse_guard} bra {label};", *self._lines, f"{label}:"]
        else:
            lines += self._lines
        return "\n\t".join([*lines, "}"])
