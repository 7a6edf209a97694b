"""Modifiers of an opcode, classified, for instructions that take them in any order (PTX ISA, "ld", "st", "atom")."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nogpu.compiler.code import Code

SCOPES = ("cta", "cluster", "gpu", "sys")
HINT = ("L2::cache_hint",)


def classified(code: Code, name: str, text: str, classes: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Modifiers by class: ".global.v2.b32" -> {"space": "global", "vector": "v2", "type": "b32"}.

    classes: class -> its modifiers. Raises EmulatorError for a modifier of no class, for a second modifier of a class,
    and without a type.
    """
    found: dict[str, str] = {}
    for modifier in text.split(".")[1:]:
        kind = next((kind for kind, names in classes.items() if modifier in names), None)
        if kind is None or kind in found:
            raise code.fail(f"{name} has no .{modifier} here (PTX ISA, {name})")
        found[kind] = modifier
    if "type" not in found:
        raise code.fail(f"{name} without a type (PTX ISA, {name})")
    return found
