"""Shadow of a CTA's shared memory: the last accesses to each byte."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nogpu.sanitizer.history import History
from nogpu.sanitizer.shadow_tables import Cells, Items, is_zero, run_of

if TYPE_CHECKING:
    from nogpu.sanitizer.conflicts import Access, Conflict, View

CHUNK = 16  # bytes
_ROOM = 32  # bytes of the largest access by a lane
Where: TypeAlias = slice | np.ndarray
"""The items of a table that an access touches."""


class Shadow:
    """Accesses by byte: the last write, and the reads since."""

    def __init__(self, size: int, by_byte: bool = False) -> None:
        """size: bytes of the CTA's window. by_byte: each byte has an entry from the start."""
        self._room = room = -(-size // _ROOM) * _ROOM
        self._whole = Items.of(room // CHUNK)
        self._columns = self._whole.columns()
        self._bytes = Items.of(room) if by_byte else None  # set once chunks are split
        self._words: dict[int, Items] = {}  # by width: `_bytes` in rows
        self._by_byte = by_byte
        self._split = np.full(room // CHUNK, by_byte)  # True for chunks of which a part has been accessed
        self._is_split = by_byte  # True if any chunk is split
        self._history = History()

    def access(
        self,
        access: Access,
        place: int | np.ndarray,
        width: int,
        lanes: np.ndarray | None,
        views: list[View],
        records: bool = True,
    ) -> list[Conflict]:
        """Records an access. Returns the earlier ones that conflict with it and are not ordered before it.

        place: offset, or int64[n] multiples of `width`. lanes: uint8[n] for places by lane. views: clocks of the lanes
        or the operation. records: False checks only.
        """
        where, items, grain = self._where(place, width, lanes is None)
        if records and self._history.follows(access, items, where, lanes, views):
            return []
        return self._history.access(access, Cells(items, where, partial(_run, where, grain)), lanes, views, records)

    def follows(
        self, access: Access, place: int | np.ndarray, width: int, lanes: np.ndarray | None, views: list[View]
    ) -> bool:
        """Records an access and returns True if it is ordered behind all that conflict with it; else does nothing.

        Its parameters are those of `access`.
        """
        where, items, _ = self._where(place, width, lanes is None)
        return self._history.follows(access, items, where, lanes, views)

    def forget(self, place: np.ndarray) -> None:
        """Clears the access history of bytes."""
        for table in self._divide(place // CHUNK):
            table[place] = 0

    def _where(self, place: int | np.ndarray, width: int, is_flat: bool) -> tuple[Where, Items, int]:
        """(index, the tables to be indexed, bytes of an item).

        A chunk that has only been accessed as a whole has one entry. is_flat: the items of places that each are a chunk
        need no column.
        """
        if not isinstance(place, np.ndarray):
            if not place % CHUNK and not width % CHUNK:
                where = slice(place // CHUNK, (place + width) // CHUNK)
                if not self._is_split or is_zero(self._split[where]):
                    return where, self._whole, CHUNK
            tables = self._divide(np.arange(place // CHUNK, -(-(place + width) // CHUNK)))
            return slice(place, place + width), tables, 1
        if width == CHUNK:
            chunks = place >> 4
            if not self._is_split or is_zero(self._split[chunks]):
                return chunks, self._whole if is_flat else self._columns, CHUNK
        elif self._by_byte and width == 1 and is_flat:
            assert self._bytes is not None  # set from the start
            return place, self._bytes, 1
        elif width % CHUNK == 0:
            chunks = (place[:, None] // CHUNK + np.arange(width // CHUNK)).ravel()
        else:
            chunks = place // CHUNK
        self._divide(chunks)
        return place // width, self._by_width(width), 1

    def _by_width(self, width: int) -> Items:
        found = self._words.get(width)
        if found is None:
            assert self._bytes is not None  # a chunk is split
            found = self._words[width] = self._bytes.in_rows(width)
        return found

    def _divide(self, chunks: np.ndarray) -> Items:
        """Tables of bytes, with the chunks split into entries for each byte."""
        if self._bytes is None:
            self._bytes = Items.of(self._room)
        split = self._split[chunks]
        if not np.logical_and.reduce(split):
            new = chunks[~split]
            self._bytes.spread(self._whole, new, CHUNK)
            self._split[new] = self._is_split = True
        return self._bytes


def _run(where: Where, grain: int, bad: np.ndarray) -> tuple[int, int]:
    """Offsets of the first bad items, as `run_of` returns them."""
    found = np.nonzero(bad)
    if isinstance(where, slice):
        return run_of(where.start + found[0], grain)
    rows = where[found[0]]
    return run_of(rows if bad.ndim == 1 else rows * bad.shape[1] + found[1], grain)
