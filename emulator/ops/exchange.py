"""Instructions in which the lanes of a warp exchange values: elect, shfl, vote, match, redux."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.arithmetic.lanes import FULL, LANE_ID, bits_of, lanes, row_of, signed
from emulator.errors import Fault
from emulator.ops.active_lanes import members

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup


def elect(g: ActiveGroup, mask: int, membermask: int) -> int:
    """The mask of the leader: the lowest lane. PTX promises only that it is the same one for the same membermask."""
    members(g, mask, membermask, "elect.sync")
    return mask & -mask


def shuffle(g: ActiveGroup, mask: int, mode: str, a, b, c, membermask: int, instruction: str = "shfl.sync"):
    """(value row, bool row "source in range"). A source lane that is not active leaves the value undefined: that
    raises.
    """
    members(g, mask, membermask, instruction)
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
    if mask != FULL:
        absent = lanes(mask) & ~lanes(mask)[source]
        if absent.any():
            first = int(absent.argmax())
            raise Fault(f"{instruction}: lane {first} reads lane {int(source[first])}, which does not take part")
    return a[source], in_range


def vote(g: ActiveGroup, mask: int, mode: str, predicate: int, membermask: int):
    """predicate: mask of the lanes in which it holds. A mask for ballot, else a bool."""
    members(g, mask, membermask, "vote.sync")
    held = predicate & mask
    if mode == "ballot":
        return held
    return {"all": held == mask, "any": bool(held), "uni": held in (0, mask)}[mode]


def match_any(g: ActiveGroup, mask: int, value, width: int, membermask: int) -> np.ndarray:
    """Per lane the mask of the lanes that hold the same value."""
    members(g, mask, membermask, "match.sync")
    row = row_of(value, width)
    active = lanes(mask)
    equal = (row[:, None] == row[None, :]) & active[None, :]
    return np.array([bits_of(line) for line in equal], np.uint32)


def match_all(g: ActiveGroup, mask: int, value, width: int, membermask: int) -> tuple[int, bool]:
    members(g, mask, membermask, "match.sync")
    values = row_of(value, width)[lanes(mask)]
    same = bool((values == values[0]).all())
    return (mask if same else 0), same


def reduce(g: ActiveGroup, mask: int, operation: str, value, type_name: str, membermask: int) -> int:
    """redux.sync over the active lanes."""
    members(g, mask, membermask, "redux.sync")
    values = row_of(value, 32)[lanes(mask)]
    if type_name == "f32":
        numbers = values.view(np.float32)
        numbers = np.abs(numbers) if ".abs" in operation else numbers
        function = {"min": np.fmin, "max": np.fmax}[operation.partition(".")[0]]
        if ".NaN" in operation and np.isnan(numbers).any():
            return 0x7FFFFFFF
        return int(function.reduce(numbers).view(np.uint32))
    numbers = [signed(int(value), 32) if type_name == "s32" else int(value) for value in values]
    total = numbers[0]
    for number in numbers[1:]:
        total = {
            "add": total + number, "min": min(total, number), "max": max(total, number),
            "and": total & number, "or": total | number, "xor": total ^ number,
        }[operation]  # fmt: skip
    return total & FULL


def broadcast(row: np.ndarray, lane: int, mask: int) -> int:
    """shfl.sync.idx of one lane's value to all."""
    lane &= 31
    if not mask >> lane & 1:
        raise Fault(f"shfl.sync reads lane {lane}, which does not take part")
    return int(row[lane])
