"""Orders and scopes of instructions, by their text (PTX ISA, "Memory Consistency Model")."""

from __future__ import annotations

from functools import lru_cache

_WIDE = {"cluster", "gpu", "sys"}
_WORDS = ("ld", "ldu", "st", "atom", "red")  # relaxed unless they say more
_NARROW = ("mbarrier",)  # of the CTA unless they say more


@lru_cache(maxsize=4096)
def _has_order(opcode: str, order: str) -> bool:
    parts = opcode.split(".")
    if parts[0] in _WORDS:
        return order in parts or "acq_rel" in parts
    return "relaxed" not in parts


def releases(opcode: str) -> bool:
    """Whether an arrival or a store releases what is before it."""
    return _has_order(opcode, "release")


def learns(opcode: str) -> bool:
    """Whether a wait or a load acquires."""
    return _has_order(opcode, "acquire")


@lru_cache(maxsize=4096)
def is_wide(opcode: str) -> bool:
    """Whether the scope has more CTAs than the issuer's."""
    parts = set(opcode.split("."))
    if opcode.startswith(_NARROW):
        return bool(parts & _WIDE)
    return "cta" not in parts
