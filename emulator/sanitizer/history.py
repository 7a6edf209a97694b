"""Accesses by item of a memory: the last write, and the reads and atomics since; what a later one is not behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emulator.sanitizer.clocks import ANYWAY, FENCED, KNOWN, LANES, ROWS, UNSCOPED, lanes_of
from emulator.sanitizer.items import Cells, Items, distinct_in, is_zero, replaced

if TYPE_CHECKING:
    from emulator.execution.replay import Step
    from emulator.hardware.warp import Issuer
    from emulator.sanitizer.clocks import Cause, Clock, Home

ALL = 255  # in place of a lane: each of the access's
CTA, CLUSTER, GRID = range(3)
"""How far the scope of a strong access reaches."""
Lanes = np.ndarray | None
_FEW = 64  # numbers that are told apart faster in Python


class Access:
    """An access: by whom, at which count, through which proxy."""

    __slots__ = (
        *("agent", "cause", "count", "fence", "is_async", "is_strong", "is_write", "issuer", "lanes", "listed"),
        *("home", "number", "polled", "reach", "several", "step"),
    )

    now: Step | None = None
    """The step that runs, where steps are followed (`races.py`)."""

    def __init__(
        self,
        agent: int,
        count: int,
        lanes: int,
        is_write: bool,
        is_async: bool,
        is_strong: bool,
        issuer: Issuer | Any,
    ) -> None:
        """agent: component of the first lane, or of an agent that is no lane. lanes: mask, 0 for no lane."""
        self.agent, self.count, self.lanes = agent, count, lanes
        self.is_write, self.is_async, self.is_strong, self.issuer = is_write, is_async, is_strong, issuer
        self.listed = lanes_of(lanes)
        self.cause: Cause | bool | None = None  # of an asynchronous operation
        self.number = 0  # in the history
        self.step = Access.now
        self.fence = FENCED  # of a clock, the row that has threads' writes which its proxy sees
        self.home: Home | None = None  # the cluster, where accesses of several meet
        self.reach = GRID  # of its scope, if it is strong
        self.polled: tuple[int, int] | None = None  # by a load: its address, and how many writes there had been
        # of instructions in a row: their indices, uint64[instructions, lanes] addresses, bytes of each
        self.several: tuple[list[int], np.ndarray, int] | None = None

    def name(self, address: int) -> None:
        """The issuer is the last of several instructions that has accessed a byte."""
        if self.several is not None:
            indices, addresses, width = self.several
            at = np.flatnonzero(((addresses <= address) & (address < addresses + np.uint64(width))).any(axis=1))
            self.issuer = self.issuer[0], indices[int(at[-1])] if len(at) else self.issuer[1]

    def is_of(self, other: Access) -> bool:
        """Whether the same lanes of a warp, or the same other agent, make both."""
        return self.agent == other.agent and self.home is other.home

    def is_fenced(self, other: Access) -> bool:
        """Whether the other's proxy sees this write behind a fence only."""
        return other.is_async and not self.is_async


class View(NamedTuple):
    """As whom an access is checked: some of its lanes, or an asynchronous operation."""

    rows: np.ndarray | None  # bool, by place: the places of these lanes; None: all
    lanes: int  # mask, 0 for an operation
    clock: Clock
    row: int = KNOWN  # of the clock, that an order needs


class Conflict(NamedTuple):
    """An earlier access that is not ordered before a later one."""

    before: Access
    missing: int | None  # what more would order it: a row of `Clock`; None: none of them
    place: tuple[int, int]  # offsets of bytes of both that lie together: the first, and behind the last
    same_warp: bool


class History:
    """Accesses to one memory, or to several whose items may be accessed by the same agents."""

    def __init__(self, limit: int | None = None) -> None:
        """limit: reads of an item that are kept."""
        self._limit = limit
        self._has_strong_writes = False
        self._accesses: list[Access | None] = [None]
        self._sets: list[tuple[Access, ...]] = [()]
        self._numbers: dict[tuple[Access, ...], int] = {(): 0}

    @property
    def accesses(self) -> list[Access | None]:
        """By number."""
        return self._accesses

    @property
    def sets(self) -> list[tuple[Access, ...]]:
        """Sets of reads and strong writes, by number."""
        return self._sets

    def access(
        self,
        access: Access,
        cells: Cells,
        lanes: Lanes,
        views: list[View],
        records: bool = True,
    ) -> list[Conflict]:
        """Records an access. Returns the earlier ones that conflict with it and are not ordered before it.

        lanes: uint8[n] for places by lane. views: who accesses; none: of a read that need not be
        checked. records: False checks only. `follows` records most of them sooner.
        """
        self._number(access)
        items, where = cells.items, cells.where
        writes, reads = items.writes[where], items.reads[where]
        has_reads = not is_zero(reads)
        found: list[Conflict] = []
        for view in views:
            found += self._check_writes(access, writes, cells, lanes, view)
            if has_reads and (access.is_write or self._has_strong_writes):
                found += self._check_reads(access, reads, cells, lanes, view)
        lane = access.listed[0] if len(access.listed) == 1 else ALL
        by_place = lane if lanes is None else lanes[:, None]
        if not records:
            pass
        elif access.is_write and not access.is_strong:
            items.pairs[where] = access.number
            if access.lanes:
                items.writers[where] = by_place
        else:  # strong writes race with others than the write before them: they stay beside that
            self._has_strong_writes |= access.is_write
            self._read(access, reads, cells, by_place, views)
        return found

    def _number(self, access: Access) -> None:
        if not access.number:
            access.number = len(self._accesses)
            self._accesses.append(access)

    def follows(self, access: Access, items: Items, where: Any, lanes: Lanes, views: list[View]) -> bool:
        """Records an access that is ordered behind all that conflict with it; else does nothing.

        items, where: as of `Cells`; lanes, views: as of `access`.
        """
        if views and views[0].rows is not None:
            return False
        found = items.pairs[where]
        if not found.size:
            return True
        pasts = distinct_in(found)
        for past in pasts:
            for view in views if past else ():
                if not self._is_behind(past & 0xFFFFFFFF, past >> 32, access, view):
                    return False
        if not access.number:
            self._number(access)
        writes = access.is_write and not access.is_strong
        if writes:
            items.pairs[where] = access.number
        else:
            self._has_strong_writes |= access.is_write
            numbers = [self._with(past >> 32, access, views) for past in pasts]
            one = numbers[0] if len(set(numbers)) == 1 else None
            items.reads[where] = replaced(found, pasts, numbers) if one is None else one
        if access.lanes:
            lane = access.listed[0] if len(access.listed) == 1 else ALL
            table = items.writers if writes else items.readers
            table[where] = lane if lanes is None else lanes[:, None]
        return True

    def _is_behind(self, write: int, reads: int, access: Access, view: View) -> bool:
        """Whether nothing of a past conflicts with an access and is not ordered before it."""
        before = self._accesses[write]
        if before is not None and not _follows(before, access, view):
            return False
        if reads and (access.is_write or self._has_strong_writes):
            for before in self._sets[reads]:
                if (before.is_write or access.is_write) and not _follows(before, access, view):
                    return False
        return True

    def _check_writes(
        self, access: Access, writes: np.ndarray, cells: Cells, lanes: Lanes, view: View
    ) -> Iterator[Conflict]:
        ids = writes if view.rows is None else writes[view.rows]
        if is_zero(ids):
            return
        for number in distinct_in(ids):
            before = self._accesses[number] if number else None
            if before is None or _are_strong(before, access):
                continue
            needs_fence = before.is_fenced(access)
            if _is_ordered(before, access, view, needs_fence):
                continue
            yield from _conflicts(
                before, access, writes == number, cells, cells.items.writers[cells.where], lanes, view, needs_fence
            )

    def _check_reads(
        self, access: Access, reads: np.ndarray, cells: Cells, lanes: Lanes, view: View
    ) -> Iterator[Conflict]:
        ids = reads if view.rows is None else reads[view.rows]
        for number in distinct_in(ids):
            members = self._sets[number]
            for before in members:
                if not (before.is_write or access.is_write) or _are_strong(before, access):
                    continue
                needs_fence = before.is_write and before.is_fenced(access)
                if _is_ordered(before, access, view, needs_fence):
                    continue
                readers = cells.items.readers[cells.where]
                if before is not members[-1]:  # which lanes have read which bytes is forgotten
                    if before.is_of(access):
                        continue
                    readers = np.full_like(readers, ALL)
                yield from _conflicts(before, access, reads == number, cells, readers, lanes, view, needs_fence)

    def _read(
        self, access: Access, reads: np.ndarray, cells: Cells, by_place: int | np.ndarray, views: list[View]
    ) -> None:
        table, where = cells.items.reads, cells.where
        distinct = distinct_in(reads)
        if len(distinct) == 1:
            number = self._with(int(distinct[0]), access, views)
            if number != distinct[0]:
                table[where] = number
        else:
            table[where] = replaced(reads, distinct, [self._with(number, access, views) for number in distinct])
        if access.lanes:
            cells.items.readers[where] = by_place

    def _with(self, number: int, access: Access, views: list[View]) -> int:
        if not number:
            return self._numbered((access,))
        members = self._sets[number]
        if members[-1] is access:
            return number
        kept = tuple(
            before
            for before in members
            if before is not access
            and (
                (before.is_write and not access.is_write)
                or not (
                    (before.is_of(access) and not before.lanes & ~access.lanes)
                    or (views and all(_is_ordered(before, access, view, False) for view in views))
                )
            )
        )
        found = (*kept, access)
        if self._limit is not None:
            found = found[-self._limit :]
        return self._numbered(found)

    def _numbered(self, found: tuple[Access, ...]) -> int:
        known = self._numbers.get(found)
        if known is None:
            known = self._numbers[found] = len(self._sets)
            self._sets.append(found)
        return known


def _column(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    return rows[:, None] if like.ndim == 2 else rows


def _is_known(before: Access, access: Access, clock: Clock, row: int) -> bool:
    """Whether all that took part in an access are known. row: of the clock."""
    agent, count = before.agent, before.count
    if before.home is not access.home:
        assert before.home is not None  # where accesses of several clusters meet each has one
        counts = clock.of(before.home, row)
    elif row >= ROWS:
        counts = clock.row(row)
    else:
        table = clock.table
        if not before.lanes:
            return table.item(row, agent) >= count
        if len(before.listed) == 1:
            return table.item(row, agent + before.listed[0]) >= count
        counts = table[row]
    if not before.lanes:
        return bool(counts[agent] >= count)
    known = counts[agent : agent + LANES] >= count
    return bool(np.logical_and.reduce(known)) or all(known[lane] for lane in before.listed)


def _are_strong(before: Access, access: Access) -> bool:
    """Whether two accesses are morally strong (PTX ISA, "Morally Strong Operations")."""
    if not (before.is_strong and access.is_strong):
        return False
    one, other = before.home, access.home
    return one is other or (before.reach == GRID and access.reach == GRID)


def _is_ordered(before: Access, access: Access, view: View, needs_fence: bool) -> bool:
    """Whether all that took part in an access are known, and what they have written is visible."""
    if not _is_known(before, access, view.clock, view.row):
        return False
    return not needs_fence or _is_known(before, access, view.clock, access.fence)


def _follows(before: Access, access: Access, view: View) -> bool:
    """Whether two accesses, one of them a write, are no conflict."""
    if access.is_strong and _are_strong(before, access):
        return True
    if not _is_known(before, access, view.clock, view.row):
        return False
    needs_fence = access.is_async and before.is_write and not before.is_async
    return not needs_fence or _is_known(before, access, view.clock, access.fence)


def _counts(before: Access, access: Access, view: View, row: int) -> np.ndarray:
    """A row of what is known of those who have made an earlier access."""
    if before.home is access.home:
        return view.clock.row(row)
    assert before.home is not None  # where accesses of several clusters meet each has one
    return view.clock.of(before.home, row)


def _conflicts(
    before: Access,
    access: Access,
    at: np.ndarray,
    cells: Cells,
    of_before: np.ndarray,
    lanes: Lanes,
    view: View,
    needs_fence: bool,
) -> Iterator[Conflict]:
    """The conflict of two accesses, if there is one. at: bool, the items of both. of_before: the lane of each."""
    if view.rows is not None:
        at = at & _column(view.rows, at)
    bad = at & _unknown(before, view, view.row, of_before, lanes, access)
    missing: int | None = None
    if bad.any():
        for row in (UNSCOPED, ANYWAY):
            if missing is None and not (bad & _unknown(before, view, row, of_before, lanes, access)).any():
                missing = row
        if missing is None and before.is_strong and access.is_strong:  # but for their scopes they would be no conflict
            missing = UNSCOPED
    elif needs_fence:
        missing, bad = access.fence, at & _unknown(before, view, access.fence, of_before, lanes, access)
    if bad.any():
        yield Conflict(before, missing, cells.place(bad), before.is_of(access))


def _unknown(before: Access, view: View, row: int, of_before: np.ndarray, lanes: Lanes, access: Access) -> np.ndarray:
    """Whether an access is not known, by item. row: of the clock. of_before: the access's lane."""
    table = _counts(before, access, view, row)
    if not before.lanes:
        return np.full_like(of_before, table[before.agent] < before.count, bool)
    known = table[before.agent : before.agent + LANES] >= before.count
    own = before.is_of(access) and bool(view.lanes)
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
