"""The shadow of a CTA's shared memory: who has accessed each byte last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from emulator.sanitizer.clocks import ANYWAY, FENCED, KNOWN, LANES, UNSCOPED, lanes_of

if TYPE_CHECKING:
    from emulator.hardware.warp import Issuer
    from emulator.sanitizer.clocks import Cause, Clock

ALL = 255  # in place of a lane: each of the access's
CHUNK = 16  # bytes
_ROOM = 32  # bytes of the largest access by a lane
Where: TypeAlias = slice | np.ndarray
"""The items of a table that an access touches."""
Rows: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Makes a table of items of a table of bytes."""
Lanes: TypeAlias = np.ndarray | None


class Access:
    """An access: by whom, at which count, through which proxy."""

    __slots__ = ("agent", "cause", "count", "is_async", "is_strong", "is_write", "issuer", "lanes", "listed", "number")

    def __init__(
        self, agent: int, count: int, lanes: int, is_write: bool, is_async: bool, is_strong: bool, issuer: Issuer
    ) -> None:
        """agent: component of the first lane, or of an agent that is no lane. lanes: mask, 0 for no lane."""
        self.agent, self.count, self.lanes = agent, count, lanes
        self.is_write, self.is_async, self.is_strong, self.issuer = is_write, is_async, is_strong, issuer
        self.listed = lanes_of(lanes)
        self.cause: Cause | None = None  # of an asynchronous operation
        self.number = 0  # in the shadow


class View(NamedTuple):
    """As whom an access is checked: some of its lanes, or an asynchronous operation."""

    rows: np.ndarray | None  # bool, by place: the places of these lanes; None: all
    lanes: int  # mask, 0 for an operation
    clock: Clock
    row: int = KNOWN  # of the clock, that an order needs


class Conflict(NamedTuple):
    """An earlier access that is not ordered before a later one."""

    before: Access
    missing: int | None  # what more would order it: FENCED, UNSCOPED, ANYWAY (`Clock`); None: none of them
    place: int  # offset of a byte of both
    same_warp: bool


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
        self._accesses: list[Access | None] = [None]
        self._sets: list[tuple[Access, ...]] = [()]
        self._numbers: dict[tuple[Access, ...], int] = {(): 0}

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
        if not access.number:
            access.number = len(self._accesses)
            self._accesses.append(access)
        writes = rows(self._writes)[where]
        found: list[Conflict] = []
        for view in views:
            found += self._check_writes(access, writes, where, rows, lanes, view)
            if access.is_write:
                found += self._check_reads(access, where, rows, lanes, view)
        lane = access.listed[0] if len(access.listed) == 1 else ALL
        by_place = lane if lanes is None else lanes[:, None]
        if not records:
            pass
        elif access.is_write:
            rows(self._writes)[where] = access.number
            if access.lanes:
                rows(self._writers)[where] = by_place
            rows(self._reads)[where] = 0
        else:
            self._read(access, where, rows, by_place, views)
        return [conflict._replace(place=conflict.place * grain) for conflict in found]

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

    def _check_writes(
        self, access: Access, writes: np.ndarray, where: Where, rows: Rows, lanes: Lanes, view: View
    ) -> Iterator[Conflict]:
        ids = writes if view.rows is None else writes[view.rows]
        for number in _distinct(ids):
            before = self._accesses[number] if number else None
            if before is None or (before.is_strong and access.is_strong):
                continue
            needs_fence = access.is_async and not before.is_async
            if _is_known(before, view.clock.table[FENCED if needs_fence else _row(before, access, view)]):
                continue
            yield from _conflicts(
                before, access, writes == number, where, rows(self._writers)[where], lanes, view, needs_fence
            )

    def _check_reads(self, access: Access, where: Where, rows: Rows, lanes: Lanes, view: View) -> Iterator[Conflict]:
        reads = rows(self._reads)[where]
        ids = reads if view.rows is None else reads[view.rows]
        for number in _distinct(ids):
            members = self._sets[number]
            for before in members:
                if (before.is_strong and access.is_strong) or _is_known(
                    before, view.clock.table[_row(before, access, view)]
                ):
                    continue
                readers = rows(self._readers)[where]
                if before is not members[-1]:  # which lanes have read which bytes is forgotten
                    if before.agent == access.agent:
                        continue
                    readers = np.full_like(readers, ALL)
                yield from _conflicts(before, access, reads == number, where, readers, lanes, view, False)

    def _read(self, access: Access, where: Where, rows: Rows, by_place: int | np.ndarray, views: list[View]) -> None:
        table = rows(self._reads)
        reads = table[where]
        distinct = _distinct(reads)
        if len(distinct) == 1:
            number = self._with(int(distinct[0]), access, views)
            if number != distinct[0]:
                table[where] = number
        else:
            after = reads.copy()
            for number in distinct:
                after[reads == number] = self._with(int(number), access, views)
            table[where] = after
        if access.lanes:
            rows(self._readers)[where] = by_place

    def _with(self, number: int, access: Access, views: list[View]) -> int:
        members = self._sets[number]
        if members and members[-1] is access:
            return number
        kept = tuple(
            before
            for before in members
            if before is not access
            and not (before.agent == access.agent and not before.lanes & ~access.lanes)
            and not all(_is_known(before, view.clock.table[view.row]) for view in views)
        )
        found = (*kept, access)
        known = self._numbers.get(found)
        if known is None:
            known = self._numbers[found] = len(self._sets)
            self._sets.append(found)
        return known


def _firsts(table: np.ndarray) -> np.ndarray:
    return table[::CHUNK]


def _first_columns(table: np.ndarray) -> np.ndarray:
    return table[::CHUNK, None]


def _distinct(numbers: np.ndarray) -> list[int]:
    flat = numbers.reshape(-1)
    if not len(flat):
        return []
    first = flat[0]
    if (flat == first).all():
        return [int(first)]
    return np.unique(flat).tolist()


def _column(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    return rows[:, None] if like.ndim == 2 else rows


def _is_known(before: Access, table: np.ndarray) -> bool:
    """Whether all that took part in an access are known."""
    if not before.lanes:
        return bool(table[before.agent] >= before.count)
    known = table[before.agent : before.agent + LANES] >= before.count
    return bool(known.all()) or all(known[lane] for lane in before.listed)


def _row(before: Access, access: Access, view: View) -> int:
    """Of a clock, the row that the order of two accesses needs. A write can't overtake what an asynchronous operation
    has done, once somebody has seen that it is complete: neither orders nor scopes behind that matter.
    """
    return ANYWAY if access.is_write and before.cause is not None else view.row


def _conflicts(
    before: Access,
    access: Access,
    at: np.ndarray,
    where: Where,
    of_before: np.ndarray,
    lanes: Lanes,
    view: View,
    needs_fence: bool,
) -> Iterator[Conflict]:
    """The conflict of two accesses, if there is one. at: bool, the items of both. of_before: the lane of each."""
    if view.rows is not None:
        at = at & _column(view.rows, at)
    bad = at & _unknown(before, view, _row(before, access, view), of_before, lanes, access)
    missing: int | None = None
    if bad.any():
        for row in (UNSCOPED, ANYWAY):
            if missing is None and not (bad & _unknown(before, view, row, of_before, lanes, access)).any():
                missing = row
    elif needs_fence:
        missing, bad = FENCED, at & _unknown(before, view, FENCED, of_before, lanes, access)
    if bad.any():
        yield Conflict(before, missing, _first(bad, where), before.agent == access.agent)


def _unknown(before: Access, view: View, row: int, of_before: np.ndarray, lanes: Lanes, access: Access) -> np.ndarray:
    """Whether an access is not known, by item. row: of the clock. of_before: the access's lane."""
    table = view.clock.table[row]
    if not before.lanes:
        return np.full_like(of_before, table[before.agent] < before.count, bool)
    known = table[before.agent : before.agent + LANES] >= before.count
    own = before.agent == access.agent and bool(view.lanes)
    everybody = all(known[lane] for lane in before.listed)
    if own:  # a lane knows what it has done itself
        everybody = everybody or not view.lanes & ~before.lanes
    by_lane = np.append(known, np.zeros(ALL + 1 - LANES, bool))
    by_lane[ALL] = everybody
    fine = by_lane[of_before]
    if own and lanes is not None:
        fine = fine | (of_before == lanes[:, None])
    elif own and view.lanes.bit_count() == 1:
        fine = fine | (of_before == view.lanes.bit_length() - 1)
    return ~fine


def _first(bad: np.ndarray, where: Where) -> int:
    """The number of the first bad item."""
    found = np.nonzero(bad)
    if isinstance(where, slice):
        return where.start + int(found[0][0])
    first = int(where[found[0][0]])
    return first if bad.ndim == 1 else first * bad.shape[1] + int(found[1][0])
