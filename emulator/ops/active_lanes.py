"""Conditions on the active lanes of an instruction: how many, which, and whether they agree on an operand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.arithmetic.lanes import FULL, lanes
from emulator.errors import Fault

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup


def pick(row: np.ndarray, mask: int) -> int:
    """The value that all active lanes hold."""
    if isinstance(row, int):
        return row
    active = row if mask == FULL else row[lanes(mask)]
    first = active[0]
    if not (active == first).all():
        raise Fault(f"the operand must be the same in all active lanes, it is {sorted(set(active.tolist()))[:4]}")
    return int(first)


def agreed(bits: int, mask: int) -> bool:
    """The predicate's value if all active lanes agree on it."""
    held = bits & mask
    if held and held != mask:
        raise Fault(f"the predicate must be the same in all active lanes, it holds in {held:#010x} of {mask:#010x}")
    return bool(held)


def one_lane(mask: int, instruction: str) -> None:
    if mask & (mask - 1):
        raise Fault(f"{instruction} is executed by {mask.bit_count()} lanes ({mask:#010x}); it must be issued by one")


def whole_warp(g: ActiveGroup, mask: int, instruction: str) -> None:
    """For `.sync.aligned` instructions: all threads of the warp must execute them together."""
    if mask != g.warp.live:
        raise Fault(
            f"{instruction} is executed by lanes {mask:#010x} of {g.warp.live:#010x}: the warp has diverged, and all of its "
            "threads must execute the same .aligned instruction"
        )


def members(g: ActiveGroup, mask: int, membermask: int, instruction: str) -> None:
    """For `.sync` instructions with a membermask: the active lanes must be in it, and all of its live lanes must be
    here.
    """
    if mask & ~membermask:
        raise Fault(
            f"{instruction}: lanes {mask & ~membermask:#010x} execute it but are not in its membermask {membermask:#010x}"
        )
    missing = membermask & g.warp.live & ~mask
    if missing:
        raise Fault(
            f"{instruction}: membermask {membermask:#010x} names lanes {missing:#010x}, which have diverged and are elsewhere"
        )
