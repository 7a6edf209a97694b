"""Conditions on the active lanes of an instruction: their number, and the values in which they must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import FULL, lanes, sharers
from nogpu.errors import Fault, ordering_fault

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer

Operand = int | np.ndarray
"""A source operand as generated code passes it: an integer if it is uniform in the warp, else a row of 32 lanes."""
Operands = tuple[Operand | None, ...]
"""Operands of an instruction in its order; None for one that it does not have."""


def pick(row: Operand, mask: int) -> int:
    """The one value that all active lanes hold. Raises Fault if they differ."""
    if isinstance(row, int):
        return row
    if not mask & (mask - 1):
        return int(row[mask.bit_length() - 1])
    active = row if mask == FULL else row[lanes(mask)]
    first = active[0]
    if not (active == first).all():
        raise Fault(f"the operand must be the same in all active lanes, it is {sorted(set(active.tolist()))[:4]}")
    return int(first)


def agreed(bits: int, mask: int) -> bool:
    """The one value of a predicate in all active lanes. Raises Fault if they differ.

    bits: a bit per lane in which the predicate holds.
    """
    held = bits & mask
    if held and held != mask:
        raise Fault(f"the predicate must be the same in all active lanes, it holds in {held:#010x} of {mask:#010x}")
    return bool(held)


def one_lane(mask: int, instruction: str) -> None:
    """Raises Fault unless exactly one lane executes the instruction."""
    if mask & (mask - 1):
        raise Fault(f"{instruction} is executed by {mask.bit_count()} lanes ({mask:#010x}); it must be issued by one")


def whole_warp(g: ActiveGroup, mask: int, instruction: str) -> None:
    """Raises Fault unless all live lanes of the warp are active: `.sync.aligned` instructions need them together."""
    if mask != g.warp.live:
        raise Fault(_parted(g, mask, instruction))


def all_lanes(g: ActiveGroup, mask: int, instruction: str) -> None:
    """Does as `whole_warp`, and raises Fault for a warp with less than 32 live lanes."""
    whole_warp(g, mask, instruction)
    if mask != FULL:
        raise Fault(f"{instruction} needs all 32 lanes, {mask:#010x} are live")


def _parted(g: ActiveGroup, mask: int, instruction: str) -> str:
    return (
        f"{instruction} is executed by lanes {mask:#010x} of {g.warp.live:#010x}: the warp has diverged, and all of "
        "its threads must execute the same .aligned instruction"
    )


def same_in_all_lanes(g: ActiveGroup, mask: int, operands: Operands, instruction: str) -> None:
    """Does as `all_lanes`, and raises Fault for an operand that is not the same in all of them."""
    all_lanes(g, mask, instruction)
    for operand in operands:
        if operand is not None:
            pick(operand, mask)


def aligned_or_lenient(issuer: Issuer, mask: int, instruction: str) -> None:
    """Does as `whole_warp`, but warns in a lenient run: on hardware the lanes of a warp wait for each other there."""
    g, pc = issuer
    if mask != g.warp.live:
        ordering_fault(_parted(g, mask, instruction), (g.grid.entry.name, pc, "parted"))


def parties(mask: int, membermask: Operand) -> list[tuple[int, int]]:
    """(lanes, their membermask) for each membermask that active lanes name: tiles that run together have their own."""
    return [(lanes, named) for named, lanes in sorted(sharers(mask, membermask).items())]


def members(g: ActiveGroup, mask: int, membermask: Operand, instruction: str) -> None:
    """Raises Fault unless the active lanes of each membermask of a `.sync` instruction are exactly its live lanes."""
    for party, named in parties(mask, membermask):
        _members(g, party, named, instruction)


def check_named(mask: int, membermask: int, instruction: str) -> None:
    """Raises Fault unless the membermask of a `.sync` instruction names all lanes that execute it."""
    if mask & ~membermask:
        raise Fault(
            f"{instruction}: lanes {mask & ~membermask:#010x} execute it but are not in its membermask "
            f"{membermask:#010x}"
        )


def _members(g: ActiveGroup, mask: int, membermask: int, instruction: str) -> None:
    check_named(mask, membermask, instruction)
    missing = membermask & g.warp.live & ~mask
    if missing:
        raise Fault(
            f"{instruction}: membermask {membermask:#010x} names lanes {missing:#010x}, which have diverged and are "
            "elsewhere"
        )
