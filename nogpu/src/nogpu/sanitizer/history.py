"""Accesses by item of a memory: the last write, the reads and atomics since, and the conflicts of a later access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from nogpu.sanitizer.conflicts import (
    ALL,
    GRID,
    Access,
    Conflict,
    Lanes,
    View,
    are_strong,
    conflicts,
    follows,
    is_ordered,
)
from nogpu.sanitizer.crowds import Crowd
from nogpu.sanitizer.shadow_tables import Cells, Items, distinct_in, is_zero, replaced


class History:
    """Accesses to one memory, or to several whose items may be accessed by the same agents."""

    def __init__(self, limit: int | None = None) -> None:
        """limit: number of reads of an item that are handled one by one; the older ones are a `Crowd`."""
        self._limit = limit
        self._has_strong_writes = False
        self._accesses: list[Access | None] = [None]
        self._sets: list[tuple[Access, ...]] = [()]
        self._crowds: list[Crowd | None] = [None]  # by set: accesses that it has beside its own
        self._numbers: dict[tuple[tuple[Access, ...], Crowd | None], int] = {((), None): 0}

    @property
    def accesses(self) -> list[Access | None]:
        """Accesses by number."""
        return self._accesses

    @property
    def sets(self) -> list[tuple[Access, ...]]:
        """Sets of reads and strong writes, by number."""
        return [
            own if crowd is None else (*reversed(list(crowd)), *own)
            for own, crowd in zip(self._sets, self._crowds, strict=True)
        ]

    def access(
        self, access: Access, cells: Cells, lanes: Lanes, views: list[View], records: bool = True
    ) -> list[Conflict]:
        """Records an access. Returns the earlier ones that conflict with it and are not ordered before it.

        lanes: uint8[n] for places by lane. views: clocks of the lanes or the operation; empty for a read that need not
        be checked.
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
        else:  # A strong write races with other accesses than the write before it: both stay.
            self._has_strong_writes |= access.is_write
            self._read(access, reads, cells, by_place, views)
        return found

    def _number(self, access: Access) -> None:
        if not access.number:
            access.number = len(self._accesses)
            self._accesses.append(access)

    def follows(self, access: Access, items: Items, where: Any, lanes: Lanes, views: list[View]) -> bool:
        """Records an access and returns True if it is ordered behind all that conflict with it; else does nothing.

        items, where: as in `Cells`; lanes, views: as in `access`.
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
            if len(pasts) == 1:
                before = pasts[0] >> 32
                after = self._with(before, access, views)
                if after != before:
                    items.reads[where] = after
            else:
                numbers = [self._with(past >> 32, access, views) for past in pasts]
                one = numbers[0] if len(set(numbers)) == 1 else None
                items.reads[where] = replaced(found, pasts, numbers) if one is None else one
        if access.lanes:
            lane = access.listed[0] if len(access.listed) == 1 else ALL
            table = items.writers if writes else items.readers
            table[where] = lane if lanes is None else lanes[:, None]
        return True

    def _is_behind(self, write: int, reads: int, access: Access, view: View) -> bool:
        """True if every recorded access that conflicts with this one is ordered before it. write, reads: numbers."""
        before = self._accesses[write]
        if before is not None and not follows(before, access, view):
            return False
        if reads and (access.is_write or self._has_strong_writes):
            for before in self._members(reads, access):
                if (before.is_write or access.is_write) and not follows(before, access, view):
                    return False
        return True

    def _members(self, number: int, access: Access) -> Iterable[Access]:
        """Accesses of a set, without its crowd if no access of that conflicts with this one."""
        crowd = self._crowds[number]
        if (
            crowd is None
            or (crowd.is_strong and access.is_strong and access.reach == GRID and crowd.is_strong == access.size)
            or not (access.is_write or crowd.has_writes)
        ):
            return self._sets[number]
        return chain(self._sets[number], crowd)

    def _check_writes(
        self, access: Access, writes: np.ndarray, cells: Cells, lanes: Lanes, view: View
    ) -> Iterator[Conflict]:
        ids = writes if view.rows is None else writes[view.rows]
        if is_zero(ids):
            return
        for number in distinct_in(ids):
            before = self._accesses[number] if number else None
            if before is None or are_strong(before, access):
                continue
            needs_fence = before.is_fenced(access)
            if is_ordered(before, access, view, needs_fence):
                continue
            yield from conflicts(before, access, writes == number, cells, cells.items.writers[cells.where], lanes, view)

    def _check_reads(
        self, access: Access, reads: np.ndarray, cells: Cells, lanes: Lanes, view: View
    ) -> Iterator[Conflict]:
        ids = reads if view.rows is None else reads[view.rows]
        for number in distinct_in(ids):
            members = self._sets[number]
            for before in self._members(number, access):
                if not (before.is_write or access.is_write) or are_strong(before, access):
                    continue
                needs_fence = before.is_write and before.is_fenced(access)
                if is_ordered(before, access, view, needs_fence):
                    continue
                readers = cells.items.readers[cells.where]
                if before is not members[-1]:  # The lane that has read each byte is forgotten.
                    if before.is_of(access):
                        continue
                    readers = np.full_like(readers, ALL)
                yield from conflicts(before, access, reads == number, cells, readers, lanes, view)

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
            return self._numbered((access,), None)
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
                    or (views and all(is_ordered(before, access, view, False) for view in views))
                )
            )
        )
        found, crowd = (*kept, access), self._crowds[number]
        if crowd is not None and views and not crowd.has_writes and len(kept) < len(members):
            if all(is_ordered(before, access, view, False) for before in crowd for view in views):
                crowd = None
        if self._limit is not None and len(found) > self._limit:
            crowd = Crowd(found[0]) if crowd is None else crowd.add(found[0])
            found = found[1:]
        return self._numbered(found, crowd)

    def _numbered(self, found: tuple[Access, ...], crowd: Crowd | None) -> int:
        known = self._numbers.get((found, crowd))
        if known is None:
            known = self._numbers[found, crowd] = len(self._sets)
            self._sets.append(found)
            self._crowds.append(crowd)
        return known
