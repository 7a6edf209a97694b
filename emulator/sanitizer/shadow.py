"""The shadow of a CTA's shared memory: who has accessed each byte last."""

from __future__ import annotations

from collections.abc import Callable
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
Rows: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Makes a table of items of a table of bytes."""


class Shadow:
    """Accesses by byte: the last write, and the reads since."""

    def __init__(self, size: int) -> None:
        """size: bytes of the CTA's window."""
        room = -(-size // _ROOM) * _ROOM
        self._writes = np.zeros(room, np.int32)  # number of an access; 0: none
        self._reads = np.zeros(room, np.int32)  # number of a set of accesses; 0: the empty one
        self._writers = np.zeros(room, np.uint8)  # lane of the write, or ALL
        self._readers = np.zeros(room, np.uint8)  # lane of the last read, or ALL
        self._split = np.zeros(room // CHUNK, bool)  # chunks of which a part has been accessed
        self._is_split = False  # some have
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
        where, rows, grain = self._where(place, width, lanes is None)
        tables = self._writes, self._reads, self._writers, self._readers
        writes, reads, writers, readers = [rows(table) for table in tables]
        cells = Cells(writes, reads, writers, readers, where, partial(_run, where, grain))
        return self._history.access(access, cells, lanes, views, records)

    def forget(self, place: np.ndarray) -> None:
        """Bytes whose next access begins afresh."""
        self._divide(place // CHUNK)
        for table in (self._writes, self._reads, self._writers, self._readers):
            table[place] = 0

    def _where(self, place: int | np.ndarray, width: int, is_flat: bool) -> tuple[Where, Rows, int]:
        """(index, what makes a table of bytes one to be indexed, bytes of an item).

        Chunks that have been accessed as a whole only have their entry in their first byte. is_flat: the items of
        places that each are a chunk need no column.
        """
        if isinstance(place, np.ndarray):
            if width % CHUNK == 0:
                chunks = place // CHUNK
                if width == CHUNK and not (self._is_split and self._split[chunks].any()):
                    return chunks, _firsts if is_flat else _first_columns, CHUNK
                self._divide((chunks[:, None] + np.arange(width // CHUNK)).ravel())
            else:
                self._divide(place // CHUNK)
            return place // width, lambda table: table[: len(table) // width * width].reshape(-1, width), 1
        first, end = place // CHUNK, -(-(place + width) // CHUNK)
        if place % CHUNK == 0 and width % CHUNK == 0 and not self._split[first:end].any():
            return slice(first, end), _firsts, CHUNK
        self._divide(np.arange(first, end))
        return slice(place, place + width), lambda table: table, 1

    def _divide(self, chunks: np.ndarray) -> None:
        """The chunks have an entry for each byte from now on."""
        whole = chunks[~self._split[chunks]]
        if len(whole):
            for table in (self._writes, self._reads, self._writers, self._readers):
                by_chunk = table.reshape(-1, CHUNK)
                by_chunk[whole, 1:] = by_chunk[whole, :1]
            self._split[whole] = self._is_split = True


def _firsts(table: np.ndarray) -> np.ndarray:
    return table[::CHUNK]


def _first_columns(table: np.ndarray) -> np.ndarray:
    return table[::CHUNK, None]


def _run(where: Where, grain: int, bad: np.ndarray) -> tuple[int, int]:
    """Where the first bad items are, as `run_of`."""
    found = np.nonzero(bad)
    if isinstance(where, slice):
        return run_of(where.start + found[0], grain)
    rows = where[found[0]]
    return run_of(rows if bad.ndim == 1 else rows * bad.shape[1] + found[1], grain)
