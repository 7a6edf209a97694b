"""The shadow of a CTA's shared memory: who has accessed each byte last."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from emulator.sanitizer.history import Cells, History, run_of

if TYPE_CHECKING:
    from emulator.sanitizer.history import Access, Conflict, View

CHUNK = 16  # bytes
_ROOM = 32  # bytes of the largest access by a lane
Where: TypeAlias = slice | np.ndarray
"""The items of a table that an access touches."""
Tables: TypeAlias = tuple[np.ndarray, ...]
"""writes, reads, writers, readers, pairs, as in `Cells`."""


class Shadow:
    """Accesses by byte: the last write, and the reads since."""

    def __init__(self, size: int, by_byte: bool = False) -> None:
        """size: bytes of the CTA's window. by_byte: 16 bytes never have one entry."""
        room = -(-size // _ROOM) * _ROOM
        pairs = np.zeros((room, 2), "<i4")
        # As in `Cells`: of each byte, then the same by 16 bytes, and as columns
        self._tables: Tables = (
            *(pairs[:, 0], pairs[:, 1], np.zeros(room, np.uint8), np.zeros(room, np.uint8)),
            pairs.view("<i8")[:, 0],
        )
        self._chunks = tuple(table[::CHUNK] for table in self._tables)
        self._columns = tuple(table[:, None] for table in self._chunks)
        self._words: dict[int, Tables] = {}  # by width: as rows of bytes
        self._by_byte = by_byte
        self._split = np.full(room // CHUNK, by_byte)  # chunks of which a part has been accessed
        self._is_split = by_byte  # some have
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

        place: offset, or int64[n] multiples of `width`. lanes: uint8[n] for places by lane. views: who accesses.
        records: False checks only.
        """
        where, tables, grain = self._where(place, width, lanes is None)
        writes, reads, writers, readers, pairs = tables
        cells = Cells(writes, reads, writers, readers, where, partial(_run, where, grain), pairs)
        return self._history.access(access, cells, lanes, views, records)

    def forget(self, place: np.ndarray) -> None:
        """Bytes whose next access begins afresh."""
        self._divide(place // CHUNK)
        for table in self._tables:
            table[place] = 0

    def _where(self, place: int | np.ndarray, width: int, is_flat: bool) -> tuple[Where, Tables, int]:
        """(index, the tables to be indexed, bytes of an item).

        Chunks that have been accessed as a whole only have their entry in their first byte. is_flat: the items of
        places that each are a chunk need no column.
        """
        if isinstance(place, np.ndarray):
            if self._by_byte and width == 1 and is_flat:
                return place, self._tables, 1
            if width % CHUNK == 0:
                chunks = place >> 4
                if width == CHUNK and not (self._is_split and self._split[chunks].any()):
                    return chunks, self._chunks if is_flat else self._columns, CHUNK
                self._divide((chunks[:, None] + np.arange(width // CHUNK)).ravel())
            else:
                self._divide(place // CHUNK)
            return place // width, self._by_width(width), 1
        first, end = place // CHUNK, -(-(place + width) // CHUNK)
        if place % CHUNK == 0 and width % CHUNK == 0 and not self._split[first:end].any():
            return slice(first, end), self._chunks, CHUNK
        self._divide(np.arange(first, end))
        return slice(place, place + width), self._tables, 1

    def _by_width(self, width: int) -> Tables:
        found = self._words.get(width)
        if found is None:
            end = len(self._tables[0]) // width * width
            found = self._words[width] = tuple(table[:end].reshape(-1, width) for table in self._tables)
        return found

    def _divide(self, chunks: np.ndarray) -> None:
        """The chunks have an entry for each byte from now on."""
        whole = chunks[~self._split[chunks]]
        if len(whole):
            for table in self._tables[:-1]:
                by_chunk = table.reshape(-1, CHUNK)
                by_chunk[whole, 1:] = by_chunk[whole, :1]
            self._split[whole] = self._is_split = True


def _run(where: Where, grain: int, bad: np.ndarray) -> tuple[int, int]:
    """Where the first bad items are, as `run_of`."""
    found = np.nonzero(bad)
    if isinstance(where, slice):
        return run_of(where.start + found[0], grain)
    rows = where[found[0]]
    return run_of(rows if bad.ndim == 1 else rows * bad.shape[1] + found[1], grain)
