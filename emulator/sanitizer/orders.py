"""Orders and scopes of instructions, by their text (PTX ISA, "Memory Consistency Model")."""

from __future__ import annotations

from functools import lru_cache

_WIDE = {"cluster", "gpu", "sys"}
_WORDS = ("ld", "ldu", "st", "atom", "red")  # relaxed unless they say more
_NARROW = ("mbarrier",)  # of the CTA unless they say more


@lru_cache(maxsize=4096)
def releases(opcode: str) -> bool:
    """Whether an arrival or a store releases what is before it."""
    parts = opcode.split(".")
    if parts[0] in _WORDS:
        return "release" in parts or "acq_rel" in parts
    return "relaxed" not in parts


@lru_cache(maxsize=4096)
def learns(opcode: str) -> bool:
    """Whether a wait or a load acquires."""
    parts = opcode.split(".")
    if parts[0] in _WORDS:
        return "acquire" in parts or "acq_rel" in parts
    return "relaxed" not in parts


@lru_cache(maxsize=4096)
def is_wide(opcode: str) -> bool:
    """Whether the scope has more CTAs than the issuer's."""
    parts = set(opcode.split("."))
    if opcode.startswith(_NARROW):
        return bool(parts & _WIDE)
    return "cta" not in parts
