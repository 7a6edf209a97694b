"""Tables of a memory's items: numbers of the last write and of the set of reads since, by byte or by 16 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_FEW = 64  # limit below which distinct numbers are found faster in Python
_KINDS = 16  # limit of distinct numbers that are found one by one
_HALF = 4  # bytes of a number


GROUPS = {4: 64, 2: 96, 8: 128, 16: 144}
"""Number of adjacent lanes that share the 16 bytes of an item -> number that stands for a warp's first such group."""


def _lanes_of() -> np.ndarray:
    """uint8[256, 16]: lane of each byte of an item, by the number that stands for its lane or lanes."""
    found = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 16, axis=1)
    for count, first in GROUPS.items():
        for n in range(32 // count):
            found[first + n] = np.arange(count * n, count * (n + 1)).repeat(16 // count)
    return found


LANES_OF = _lanes_of()


def group_of(lanes: np.ndarray) -> np.ndarray | None:
    """uint8[n]: numbers that stand for the lanes uint8[n, count] of 16 bytes each; None if one row is no group of
    `GROUPS`.
    """
    count = lanes.shape[1]
    first = lanes[:, :1]
    if (first % count).any() or (lanes != first + np.arange(count, dtype=np.uint8)).any():
        return None
    return GROUPS[count] + first[:, 0] // count


class Items(NamedTuple):
    """Tables of a memory, or the parts of them that an access touches."""

    pairs: np.ndarray  # int64: writes (the low half) and reads, which lie side by side
    writes: np.ndarray  # int32: number of an access; 0: none
    reads: np.ndarray  # int32: number of a set of accesses; 0: the empty one
    writers: np.ndarray  # uint8: lane of the write, `conflicts.ALL`, or `group_of` of several
    readers: np.ndarray  # uint8: that of the last read

    @staticmethod
    def of(count: int) -> Items:
        """Tables of items that nobody has accessed."""
        pairs = np.zeros((count, 2), "<i4")
        return Items(
            pairs.view("<i8")[:, 0], pairs[:, 0], pairs[:, 1], np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        )

    def boxed(self, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Items:
        """Views of a box of items. first: index of the item where it begins. strides: items."""
        if len(shape) == 1:
            return Items(*(table[first : first + shape[0]] for table in self))
        size = self.pairs.itemsize
        wide, at = tuple(stride * size for stride in strides), first * size
        return Items(
            np.ndarray(shape, "<i8", self.pairs, at, wide),
            np.ndarray(shape, "<i4", self.pairs, at, wide),
            np.ndarray(shape, "<i4", self.pairs, at + _HALF, wide),
            np.ndarray(shape, np.uint8, self.writers, first, strides),
            np.ndarray(shape, np.uint8, self.readers, first, strides),
        )

    def in_rows(self, width: int) -> Items:
        """Views in rows of `width` adjacent items; a shorter rest is left out."""
        end = len(self.pairs) // width * width
        return Items(*(table[:end].reshape(-1, width) for table in self))

    def columns(self) -> Items:
        """Views in rows of one item."""
        return Items(*(table[:, None] for table in self))

    def spread(self, whole: Items, rows: np.ndarray, width: int) -> None:
        """Copies an item of another table to `width` items of each of these rows."""
        self.pairs.reshape(-1, width)[rows] = whole.pairs[rows, None]
        for table, source in ((self.writers, whole.writers), (self.readers, whole.readers)):
            table.reshape(-1, width)[rows] = LANES_OF[source[rows]]


class Cells(NamedTuple):
    """Items that an access touches."""

    items: Items
    where: Any  # an index of each of the tables
    place: Callable[[np.ndarray], tuple[int, int]]  # bool items -> offsets of the first set ones (`run_of`)


def is_zero(array: np.ndarray) -> bool:
    """True if nothing of an array is set; for few bytes faster than NumPy."""
    raw = array.tobytes()
    return raw == bytes(len(raw))


def distinct_in(numbers: np.ndarray) -> list[int]:
    """Distinct numbers of an array."""
    raw, size = numbers.tobytes(), numbers.itemsize
    if raw and raw == raw[:size] * numbers.size:
        return [numbers.item(0)]
    if numbers.size <= _FEW:
        return list(set(numbers.ravel().tolist()))
    rest = numbers.ravel()
    found: list[int] = []
    while rest.size:
        if len(found) == _KINDS:
            return found + np.unique(rest).tolist()
        found.append(rest.item(0))
        rest = rest[rest != found[-1]]
    return found


def replaced(numbers: np.ndarray, old: list[int], new: list[int]) -> np.ndarray:
    """Copy of the numbers, with each old one replaced by the new one at its place."""
    after = np.empty_like(numbers)
    for before, number in zip(old, new, strict=True):
        after[numbers == before] = number
    return after


def run_of(items: np.ndarray, grain: int) -> tuple[int, int]:
    """Offsets of the first items that lie together: (first, end). grain: bytes of an item."""
    numbers = np.unique(items)
    gaps = np.flatnonzero(np.diff(numbers) != 1)
    last = numbers[gaps[0]] if len(gaps) else numbers[-1]
    return int(numbers[0]) * grain, (int(last) + 1) * grain
