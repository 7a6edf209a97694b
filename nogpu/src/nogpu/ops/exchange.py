"""elect, shfl, vote, match, redux: the lanes of a warp exchange values (PTX ISA, "elect.sync", "shfl.sync",
"vote.sync", "match.sync", "redux.sync").
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import FULL, LANE_ID, bits_of, lanes, row_of, signed
from nogpu.errors import Fault
from nogpu.ops.active_lanes import members, parties

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup
    from nogpu.ops.active_lanes import Operand


_REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def elect(g: ActiveGroup, mask: int, membermask: int) -> int:
    """elect.sync: the mask of the leader, here the lowest lane.

    PTX promises only that the same membermask elects the same lane.
    """
    members(g, mask, membermask, "elect.sync")
    return mask & -mask


def shuffle(
    g: ActiveGroup, mask: int, mode: str, a: Operand, b: Operand, c: Operand, membermask: Operand
) -> tuple[np.ndarray, np.ndarray]:
    """shfl.sync: (uint32[32] values, bool[32] whether the source lane is in range).

    A value from a lane that is not active, or has another membermask, is undefined and raises Fault.
    """
    members(g, mask, membermask, "shfl.sync")
    a, b, c = row_of(a, 32), row_of(b, 32), row_of(c, 32)
    clamp, segment = c & np.uint32(31), c >> np.uint32(8) & np.uint32(31)
    lane = LANE_ID.astype(np.int64)
    b, clamp, segment = (b & np.uint32(31)).astype(np.int64), clamp.astype(np.int64), segment.astype(np.int64)
    highest = (lane & segment) | (clamp & ~segment)
    lowest = lane & segment
    if mode == "up":
        source = lane - b
        in_range = source >= highest
    elif mode == "down":
        source = lane + b
        in_range = source <= highest
    elif mode == "bfly":
        source = lane ^ b
        in_range = source <= highest
    else:
        source = lowest | (b & ~segment)
        in_range = source <= highest
    source = np.where(in_range, source, lane)
    for party, _ in parties(mask, membermask) if mask != FULL or not isinstance(membermask, int) else ():
        absent = lanes(party) & ~lanes(party)[source]
        if absent.any():
            first = int(absent.argmax())
            raise Fault(f"shfl.sync: lane {first} reads lane {int(source[first])}, which does not take part")
    return a[source], in_range


def _by_party(mask: int, membermask: np.ndarray, dtype: type, result: Callable[[int, int], int | bool]) -> np.ndarray:
    """dtype[32]: the result of (lanes, their membermask) in the lanes of each membermask."""
    row: np.ndarray = np.zeros(32, dtype)
    for party, named in parties(mask, membermask):
        row[lanes(party)] = result(party, named)
    return row


def vote(g: ActiveGroup, mask: int, mode: str, predicate: int, membermask: Operand) -> int | bool | np.ndarray:
    """vote.sync: a mask for mode ballot, else a bool. predicate: a bit per lane in which it holds.

    If the membermask is a row, so is the result: uint32[32] or bool[32].
    """
    if not isinstance(membermask, int):
        dtype = np.uint32 if mode == "ballot" else np.bool_
        return _by_party(mask, membermask, dtype, lambda *party: _vote(g, mode, predicate, *party))
    return _vote(g, mode, predicate, mask, membermask)


def _vote(g: ActiveGroup, mode: str, predicate: int, mask: int, membermask: int) -> int | bool:
    members(g, mask, membermask, "vote.sync")
    held = predicate & mask
    if mode == "ballot":
        return held
    return {"all": held == mask, "any": bool(held), "uni": held in (0, mask)}[mode]


def match_any(g: ActiveGroup, mask: int, value: Operand, width: int, membermask: int) -> np.ndarray:
    """match.any.sync: uint32[32], for each lane the mask of the lanes that hold the same value."""
    members(g, mask, membermask, "match.sync")
    row = row_of(value, width)
    active = lanes(mask)
    equal = (row[:, None] == row[None, :]) & active[None, :]
    return np.array([bits_of(line) for line in equal], np.uint32)


def match_all(g: ActiveGroup, mask: int, value: Operand, width: int, membermask: int) -> tuple[int, bool]:
    """match.all.sync: the mask if all active lanes hold the same value, else 0; and whether they do."""
    members(g, mask, membermask, "match.sync")
    values = row_of(value, width)[lanes(mask)]
    same = bool((values == values[0]).all())
    return (mask if same else 0), same


def reduce(
    g: ActiveGroup, mask: int, operation: str, value: Operand, type_name: str, membermask: Operand
) -> int | np.ndarray:
    """redux.sync over the active lanes: one value, or uint32[32] if the membermask is a row."""
    if not isinstance(membermask, int):
        return _by_party(mask, membermask, np.uint32, lambda *party: _reduce(g, operation, value, type_name, *party))
    return _reduce(g, operation, value, type_name, mask, membermask)


def _reduce(g: ActiveGroup, operation: str, value: Operand, type_name: str, mask: int, membermask: int) -> int:
    members(g, mask, membermask, "redux.sync")
    values = row_of(value, 32)[lanes(mask)]
    if type_name == "f32":
        words = values & (0x7FFFFFFF if ".abs" in operation else FULL)
        numbers = words[~np.isnan(words.view(np.float32))]
        if not len(numbers) or (".NaN" in operation and len(numbers) < len(words)):
            return 0x7FFFFFFF
        choose = min if operation.startswith("min") else max
        return choose(map(int, numbers), key=lambda word: ~(word & 0x7FFFFFFF) if word >> 31 else word)
    integers = [signed(int(number), 32) if type_name == "s32" else int(number) for number in values]
    return functools.reduce(_REDUCTIONS[operation], integers) & FULL


def broadcast(row: np.ndarray, lane: int, mask: int) -> int:
    """The value of one lane, which shfl.sync.idx gives to all lanes. Raises Fault if that lane is not active."""
    lane &= 31
    if not mask >> lane & 1:
        raise Fault(f"shfl.sync reads lane {lane}, which does not take part")
    return int(row[lane])
