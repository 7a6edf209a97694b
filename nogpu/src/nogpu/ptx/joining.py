"""Texts of PTX modules -> the text of one, as a linker of relocatable device code puts them together.

What one module declares .extern another defines; of .weak and .common definitions of a name one is kept; names without
a linking directive belong to their module, and get a suffix where another module has them, too (PTX ISA, "Linking
Directives").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nogpu.errors import EmulatorError
from nogpu.ptx.header import header
from nogpu.ptx.ir import Place
from nogpu.ptx.module import HEAD, statements
from nogpu.ptx.syntax import NAME, VARIABLE, without_comments

_FILES = re.compile(r"((?:\.file|\.loc|\binlined_at)\s+)(\d+)")
_WORD = re.compile(rf'"[^"\n]*"|(?<![\w$%.]){NAME}')
_HIGHEST_FILE = re.compile(r"\.file\s+(\d+)")
_TARGET = re.compile(r"sm_(\d+)([af]?)")


@dataclass
class _Name:
    """A name that a module declares outside of braces."""

    name: str
    linking: str | None
    place: Place
    is_definition: bool
    align: int | None
    """Bytes, at least 0; None for functions and entries."""


class _Part:
    """One of the modules."""

    def __init__(self, text: str) -> None:
        self.text = without_comments(text.rstrip("\0"))
        start = header(self.text)
        self.version = tuple(map(int, start.version.split(".")))
        self.target, self.start = start.target, start.end
        self.names: list[_Name] = []
        for statement in statements(self.text, start.end):
            head = HEAD.fullmatch(statement.text.strip()) if statement.kind == "head" else None
            variable = VARIABLE.fullmatch(statement.text.strip()) if statement.kind == "text" else None
            if head is not None:
                found = _Name(head[4], head[1], statement.place, statement.inside is not None, None)
            elif variable is not None:
                is_definition = variable["linking"] != "extern"
                found = _Name(
                    variable["name"], variable["linking"], statement.place, is_definition, int(variable["align"] or 0)
                )
            else:
                continue
            self.names.append(found)
        self.linkings: dict[str, str | None] = {}
        for each in self.names:
            self.linkings[each.name] = self.linkings.get(each.name) or each.linking

    @property
    def own(self) -> set[str]:
        """The names that no other module means."""
        return {name for name, linking in self.linkings.items() if linking is None}

    def content(self, left_out: set[int], renamed: dict[str, str], files: int) -> str:
        """The text behind the header. left_out: places, by their starts; files: what is added to .file numbers."""
        text = self.text
        for each in sorted(self.names, key=lambda each: -each.place.start):
            if each.place.start in left_out:
                text = text[: each.place.start] + text[each.place.end :]
        text = text[self.start :]
        if renamed:
            text = _WORD.sub(lambda match: renamed.get(match[0], match[0]), text)
        if files:
            text = _FILES.sub(lambda match: f"{match[1]}{int(match[2]) + files}", text)
        return text


def joined(texts: Sequence[str]) -> str:
    """One module of several. Raises EmulatorError for a name that two of them define, and for unknown syntax."""
    if len(texts) == 1:
        return texts[0]
    parts = [_Part(text) for text in texts]
    version = max(part.version for part in parts)
    target = max((part.target for part in parts), key=_architecture)
    content = [f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"]
    kept = _kept(parts)
    users = Counter(name for part in parts for name in part.linkings)
    files = 0
    for number, part in enumerate(parts):
        # Prototypes of functions may stand beside the function.
        left_out = {
            each.place.start
            for each in part.names
            if each.linking is not None
            and kept[each.name] is not each
            and (each.is_definition or each.align is not None)
        }
        renamed = {name: f"{name}$module{number}" for name in part.own if users[name] > 1}
        content.append(part.content(left_out, renamed, files))
        files += max(map(int, _HIGHEST_FILE.findall(part.text)), default=0)
    return "\n".join(content)


def _architecture(target: str) -> tuple[int, str]:
    number, suffix = _TARGET.findall(target)[0]
    return int(number), suffix


def _kept(parts: list[_Part]) -> dict[str, _Name]:
    """The declaration to keep of each name that modules share: a definition if there is one, no weak one if it can be.

    Raises EmulatorError for a name that two modules define.
    """
    kept: dict[str, _Name] = {}
    for part in parts:
        for each in part.names:
            if each.linking is None:
                continue
            other = kept.setdefault(each.name, each)
            strong = [name for name in (other, each) if name.is_definition and name.linking == "visible"]
            if len(strong) == 2 and other is not each:
                raise EmulatorError(f"two modules define {each.name}: only .weak definitions may stand in several")
            kept[each.name] = max((other, each), key=_rank)
    return kept


def _rank(name: _Name) -> tuple[bool, bool, int]:
    # The strictest alignment holds among declarations of dynamic shared memory.
    return name.is_definition, name.linking == "visible", name.align or 0
