"""Waivers: rules that may be broken, for a program, at an opcode, or at a line of the kernel's source."""

from __future__ import annotations

import linecache
import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nogpu.ptx.ir import Instruction
    from nogpu.ptx.module import Entry

_COMMENT = re.compile(r"(?:#|//) sanitizer: allow ([\w-]+(?:\s*,\s*[\w-]+)*)(?::\s*(\S.*))?")
_OPCODE = re.compile(r"""["'](?:@\S+ )?([a-z]\w*(?:\.[\w:]+)+)""")


class Waiver(NamedTuple):
    """Rule that may be broken."""

    rule: str
    opcode: str | None = None  # opcode that one of the instructions must have; None: any
    place: str | None = None  # "file.py:line" of the waiver; one in a source line holds for that line alone
    reason: str | None = None

    def __str__(self) -> str:
        why = ": ".join(filter(None, (self.place and os.path.basename(self.place), self.reason)))
        return f"{self.text}{f' ({why})' if why else ''}"

    @property
    def text(self) -> str:
        """Waiver as text that `parse` takes."""
        return self.rule if self.opcode is None else f"{self.rule}@{self.opcode}"


def parse(text: str, rules: Iterable[str]) -> Waiver:
    """Waiver from a text, "RULE" or "RULE@OPCODE". rules: names of all rules. Raises ValueError for any other text."""
    rule, at, opcode = text.strip().partition("@")
    if rule not in rules or (at and not opcode):
        raise ValueError(f"{text!r} is no rule of the sanitizer: {', '.join(rules)}; RULE@OPCODE for some instructions")
    return Waiver(rule, opcode or None)


def in_line(text: str, place: str) -> list[Waiver]:
    """Waivers in a line of source, by a comment, `# sanitizer: allow RULE[, RULE][: REASON]`."""
    found = _COMMENT.search(text)
    return [] if found is None else [Waiver(rule, None, place, found[2]) for rule in re.split(r"\s*,\s*", found[1])]


def in_source(text: str, name: str, rules: Iterable[str]) -> list[Waiver]:
    """Waivers in a Python file whose kernels have no line information: each comment stands behind a PTX instruction in
    quotes, and waives the rule wherever an instruction has that opcode. Raises ValueError for a comment without an
    instruction, and for an unknown rule.
    """
    waivers = []
    for number, line in enumerate(text.splitlines(), 1):
        for waiver in in_line(line, f"{name}:{number}"):
            opcode = _OPCODE.search(line)
            if opcode is None:
                raise ValueError(f"{waiver.place}: no instruction in quotes stands before `sanitizer: allow`")
            parse(waiver.rule, rules)
            waivers.append(waiver._replace(opcode=opcode[1]))
    return waivers


class Waivers:
    """Waivers of a process."""

    def __init__(self, waivers: Iterable[Waiver] = ()) -> None:
        """waivers: those of the whole program; `read` adds those of source lines."""
        self.named = tuple(dict.fromkeys(waivers))
        self.lines: dict[Waiver, None] = {}  # those of the source lines of kernels that have been read
        self._known: dict[tuple[str, str, str | None], bool] = {}
        self._places: dict[int, tuple[Entry, frozenset[int]]] = {}  # by id: the entry, and its `places`

    def read(self, entry: Entry) -> None:
        """Adds the waivers in the lines of a kernel's source."""
        for source in dict.fromkeys(instruction.source for instruction in entry.instructions):
            self.lines |= dict.fromkeys(_of_place(source))

    def waives(self, rule: str) -> bool:
        """True if a rule may be broken everywhere."""
        return any(waiver.rule == rule and waiver.opcode is None for waiver in self.named)

    def waives_at(self, rule: str, instruction: Instruction) -> bool:
        """True if an instruction may break a rule."""
        key = rule, instruction.opcode, instruction.source
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = any(
                waiver.rule == rule and waiver.opcode in (None, instruction.opcode) for waiver in self.named
            ) or any(waiver.rule == rule for waiver in _of_place(instruction.source))
        return found

    def places(self, entry: Entry) -> frozenset[int]:
        """Indices of a kernel's instructions that may break a rule which others may not."""
        if id(entry) not in self._places:
            opcodes = {waiver.opcode for waiver in self.named}
            found = (
                index
                for index, instruction in enumerate(entry.instructions)
                if instruction.opcode in opcodes or _of_place(instruction.source)
            )
            self._places[id(entry)] = entry, frozenset(found)
        return self._places[id(entry)][1]

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.named, *self.lines)))


def _of_place(source: str | None) -> list[Waiver]:
    file, colon, line = (source or "").rpartition(":")
    return in_line(linecache.getline(file, int(line)), f"{file}:{line}") if colon and line.isdecimal() else []
