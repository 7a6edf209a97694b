"""Directives of entries and functions (PTX ISA, "Performance-Tuning Directives", "Cluster Dimension Directives")."""

from __future__ import annotations

import re

from nogpu.ptx.ir import Entry
from nogpu.ptx.literals import integer

_DIRECTIVE = re.compile(r"\.([a-z]\w*)\s*((?:\w+\s*,\s*)*\w+)?\s*")
_SIZES = {"reqntid": "reqntid", "maxntid": "maxntid", "reqnctapercluster": "cluster"}  # name -> field of Entry
_NUMBERS = {  # name -> field of Entry; None for a directive that only guides compilation
    "maxclusterrank": "max_cluster",
    "minnctapersm": "min_ctas",
    "maxnctapersm": None,
    "maxnreg": "registers_per_thread",
}
_EXCLUSIVE = (("reqntid", "maxntid"), ("reqnctapercluster", "maxclusterrank"))
_OF_FUNCTIONS = {"noreturn": 0, "abi_preserve": 1, "abi_preserve_control": 1}  # name -> count of numbers; no effect
_LARGEST = (1 << 32) - 1


def _parsed(text: str) -> dict[str, list[int]]:
    """The numbers of each directive. Raises ValueError for unknown and repeated directives."""
    found: dict[str, list[int]] = {}
    position = 0
    text = text.strip()
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise ValueError(f"directives not understood: {text[position:][:80]!r}")
        name, values = match.groups()
        if name in found:
            raise ValueError(f"directive .{name} stands twice")
        found[name] = [integer(value) for value in values.split(",")] if values else []
        position = match.end()
    return found


def set_sizes(entry: Entry, text: str) -> None:
    """Read the directives behind an entry's parameters into the entry. Raises ValueError for a text not understood."""
    found = _parsed(text)
    for name, sizes in found.items():
        given = f"directive .{name} {', '.join(map(str, sizes))}".rstrip()
        counts = (1, 2, 3) if name in _SIZES else (1,) if name in _NUMBERS else (0,)
        if name not in (*_SIZES, *_NUMBERS, "explicitcluster") or len(sizes) not in counts:
            raise ValueError(f"{given} not understood")
        if not all(1 <= size <= _LARGEST for size in sizes):
            raise ValueError(f"{given}: sizes must be 1 to {_LARGEST}")
        if name in _SIZES:
            setattr(entry, _SIZES[name], tuple((sizes + [1, 1])[:3]))
        elif (field := _NUMBERS.get(name)) is not None:
            setattr(entry, field, sizes[0])
    for first, second in _EXCLUSIVE:
        if first in found and second in found:
            raise ValueError(f"directives .{first} and .{second} exclude each other")


def function_directives(text: str) -> None:
    """Check the directives behind a function's parameters. Raises ValueError for a text not understood."""
    for name, numbers in _parsed(text).items():
        if len(numbers) != _OF_FUNCTIONS.get(name, -1):
            raise ValueError(
                f"directive .{name} {', '.join(map(str, numbers))}".rstrip() + " of a function not understood"
            )
