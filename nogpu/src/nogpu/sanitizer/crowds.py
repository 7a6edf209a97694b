"""Accesses of an item that are too many to be handled one by one: the oldest of its reads and strong writes."""

from __future__ import annotations

from collections.abc import Iterator

from nogpu.sanitizer.conflicts import GRID, Access

FEW = 64  # size from which on a crowd drops accesses that a later one of the same lanes stands for


class Crowd:
    """List of accesses: the newest one, and the crowd of the older ones. It never changes."""

    __slots__ = ("_access", "_older", "_room", "_size", "has_writes", "is_strong")

    def __init__(self, access: Access, older: Crowd | None = None) -> None:
        self._access, self._older = access, older
        self._size: int = 1 if older is None else older._size + 1
        self._room: int = FEW if older is None else older._room
        self.has_writes: bool = access.is_write or (older is not None and older.has_writes)
        # Bytes of each word if all accesses are strong and have the scope of the device, else 0
        self.is_strong: int = access.size if access.is_strong and access.reach == GRID else 0
        if older is not None and older.is_strong != self.is_strong:
            self.is_strong = 0

    def __iter__(self) -> Iterator[Access]:
        """Yields the accesses, the last one first."""
        each: Crowd | None = self
        while each is not None:
            yield each._access
            each = each._older

    def add(self, access: Access) -> Crowd:
        """Crowd of these accesses and one more."""
        found = Crowd(access, self)
        if found._size < found._room:
            return found
        last = {(id(each.home), each.agent, each.lanes, each.is_write): each for each in reversed(list(found))}
        rest: Crowd | None = None
        for each in last.values():
            rest = Crowd(each, rest)
        assert rest is not None  # it has one access at least
        rest._room = max(FEW, 2 * rest._size)
        return rest
