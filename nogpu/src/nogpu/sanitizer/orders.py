"""Orders and scopes of instructions, by their text (PTX ISA, "Memory Consistency Model")."""

from __future__ import annotations

import re
from functools import lru_cache

from nogpu.sanitizer.conflicts import CLUSTER, CTA, GRID

_STRONG = re.compile(
    r"(?:atom|red)\.|(?:ld|st)\.(?:\S*\.)?(?:volatile|relaxed|acquire|release|mmio)(?:\.|$)|cp\.reduce\."
)
_WIDE = {"cluster", "gpu", "sys"}
_WORDS = ("ld", "ldu", "st", "atom", "red")  # instructions that are relaxed unless they name an order
_NARROW = ("mbarrier",)  # instructions that have the CTA's scope unless they name one


@lru_cache(maxsize=4096)
def _has_order(opcode: str, order: str) -> bool:
    parts = opcode.split(".")
    if parts[0] in _WORDS:
        return order in parts or "acq_rel" in parts
    return "relaxed" not in parts


def releases(opcode: str) -> bool:
    """True if an arrival or a store releases."""
    return _has_order(opcode, "release")


def acquires(opcode: str) -> bool:
    """True if a wait or a load acquires."""
    return _has_order(opcode, "acquire")


@lru_cache(maxsize=4096)
def is_wide(opcode: str) -> bool:
    """True if the scope is wider than the issuer's CTA."""
    parts = set(opcode.split("."))
    if opcode.startswith(_NARROW):
        return bool(parts & _WIDE)
    return "cta" not in parts


@lru_cache(maxsize=4096)
def is_of_device(opcode: str) -> bool:
    """True if the scope of an access to a word has all CTAs of the device, like that of a volatile access, or of an
    atomic that names none.
    """
    return not set(opcode.split(".")) & {"cta", "cluster"}


@lru_cache(maxsize=4096)
def is_strong(opcode: str) -> bool:
    """True for a strong access: an atomic, or a load or store with an order (PTX ISA, "Strong Operations")."""
    return _STRONG.match(opcode) is not None


@lru_cache(maxsize=4096)
def reach(opcode: str) -> int:
    """Extent of an access's scope: CTA, CLUSTER or GRID."""
    parts = opcode.split(".")
    return CTA if "cta" in parts else CLUSTER if "cluster" in parts else GRID


@lru_cache(maxsize=4096)
def is_read_only(opcode: str) -> bool:
    """True for a load through the read-only path."""
    return ".nc" in opcode and opcode.startswith("ld.")


@lru_cache(maxsize=4096)
def word_size(opcode: str) -> int:
    """Bytes of a word that an access names by its type; each element of a vector is an access of its own."""
    found = re.search(r"\.(bf|[a-z])(\d+)(x2)?$", opcode)
    return 0 if found is None else int(found.group(2)) // 8 * (2 if found.group(3) else 1)
