"""Vector clocks of lanes and of asynchronous operations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nogpu.sanitizer.maps import NO_MAPS, Maps
from nogpu.sanitizer.observed import NOTHING_OBSERVED, Observed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.hardware.warp import Issuer

LANES = 32
FULL = 0xFFFFFFFF
RELAXED_WAITS = 32  # number of a warp's last relaxed waits that a fence acquires


@lru_cache(maxsize=1024)
def lanes_of(mask: int) -> list[int]:
    """Lanes of a mask; nobody may change the list."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


@lru_cache(maxsize=1024)
def repeated(mask: int, times: int) -> np.ndarray:
    """uint8[n]: the lanes of a mask, `times` times; nobody may change the array."""
    return np.array(lanes_of(mask) * times, np.uint8)


def lanes_meet(addresses: np.ndarray) -> bool:
    """True if two lanes access the same address, by one instruction or by two. addresses: [instructions, lanes], of
    words of one size.
    """
    first = addresses[0]
    if (first[1:] > first[:-1]).all() and not (addresses - addresses[:, :1] != first - first[0]).any():  # like rows
        starts = np.sort(addresses[:, 0])
        if (starts[1:] - starts[:-1] > first[-1] - first[0]).all():  # rows one behind the other
            return False
    if len(set(addresses.ravel().tolist())) == addresses.size:
        return False
    order = np.argsort(addresses, axis=None, kind="stable")
    found, lanes = addresses.ravel()[order], order % addresses.shape[1]
    return bool(((found[1:] == found[:-1]) & (lanes[1:] != lanes[:-1])).any())


ORDERED, FENCED, FENCED_GLOBAL, UNSCOPED, ANYWAY = range(5)
ROWS = 5
OF_CTA, OF_CLUSTER, OF_DEVICE = range(3)
"""Scopes of fences."""
SCOPES = 3
MAPPED = ROWS
"""Number of the first row beyond a clock's table. The row of a tensor map has this number plus the map's address."""
NOTHING = np.broadcast_to(np.int32(0), (1 << 30,))
EVERYTHING = np.broadcast_to(np.int32((1 << 31) - 1), (1 << 30,))


class Home:
    """Identity of a cluster where clocks of several meet. It has no reference to that cluster."""

    __slots__ = ("grid",)

    def __init__(self, grid: int) -> None:
        self.grid = grid  # number of its launch among those that may overlap


class Clock:
    """Vector clock: by agent, the count up to which its accesses happen before those under this clock.

    | row | accesses that its counts cover |
    |---|---|
    | ORDERED | those that the memory model orders before |
    | FENCED | threads' writes to shared memory that the async proxy sees, too |
    | FENCED_GLOBAL | threads' writes to global memory that it sees, too |
    | UNSCOPED | those that would be ordered if no scope mattered |
    | ANYWAY | those that would be ordered if neither scopes nor `.relaxed` mattered |

    Rare parts stand outside of the table. maps: edits of tensor maps that fence.proxy.tensormap has released and
    acquired; None before the first such fence. observed: strong writes that have been observed, and fences that they
    order. others: clocks of other clusters, by home. rumours: those of which only the rows from a first one on count,
    by home and that row. Neither these dictionaries nor their clocks ever change, so that many clocks share them.
    grids: mask of the numbers of launches that are over.
    """

    __slots__ = ("grids", "maps", "observed", "others", "rumours", "table")

    def __init__(self, table: np.ndarray):
        self.table = table  # int32[ROWS, agents]
        self.maps: Maps | None = None
        self.observed: Observed | None = None
        self.others: dict[Home, Clock] | None = None
        self.rumours: dict[tuple[Home, int], Clock] | None = None
        self.grids = 0

    def row(self, number: int) -> np.ndarray:
        """int32[agents]: a row of the table, or the edits that the tensormap proxy sees in a map (number: MAPPED plus
        the map's address).
        """
        if number < MAPPED:
            return self.table[number]
        return NOTHING if self.maps is None else self.maps.row(number - MAPPED, self.table.shape[1])

    def of(self, home: Home, number: int) -> np.ndarray:
        """int32[agents]: a row for another cluster's agents."""
        if self.grids >> home.grid & 1:
            return EVERYTHING
        found = None if self.others is None else self.others.get(home)
        counts = NOTHING if found is None else found.row(number)
        rumours = self.rumours or {}
        for row in (UNSCOPED, ANYWAY) if rumours else ():
            rumour = rumours.get((home, row))
            if rumour is not None and row <= number <= ANYWAY:
                counts = np.maximum(counts[: rumour.table.shape[1]], rumour.table[number])
        return counts

    def set(self, agent: int | slice, count: int) -> None:
        """Covers an agent's accesses up to a count, whatever their scopes."""
        table = self.table
        table[ORDERED, agent] = table[UNSCOPED, agent] = table[ANYWAY, agent] = count

    def set_lanes(self, base: int, mask: int, count: int) -> None:
        """Covers accesses of lanes up to a count, whatever their scopes. base: component of the first lane."""
        if mask == FULL:
            self.set(slice(base, base + LANES), count)
        else:
            for lane in lanes_of(mask):
                self.set(base + lane, count)

    def copy(self) -> Clock:
        found = Clock(self.table.copy())
        found.others, found.rumours, found.grids = self.others, self.rumours, self.grids
        found.maps, found.observed = self.maps, self.observed
        return found

    def join(self, other: Clock, row: int = ORDERED) -> None:
        """Joins another clock to this one. row: the first row that the other adds to."""
        size = max(other.table.shape[1], self.table.shape[1])
        self.grow(size)
        other.grow(size)
        np.maximum(self.table[row:], other.table[row:], out=self.table[row:])
        if other.others is not None or other.rumours is not None:
            self._join_others(other, row)
        if row == ORDERED:
            self.grids |= other.grids
            if other.maps is not None:
                self.maps = other.maps if self.maps is None else self.maps.join(other.maps)
            if other.observed is not None:
                self.observed = other.observed if self.observed is None else self.observed.join(other.observed)

    def _join_others(self, other: Clock, row: int) -> None:
        """Joins another clock's clocks of other clusters, in their rows from `row` on."""
        if row == ORDERED:
            self.others = _merged(self.others, other.others)
            self.rumours = _merged(self.rumours, other.rumours)
        else:
            unscoped = {(home, row): clock for home, clock in (other.others or {}).items()}
            for (home, first), clock in (other.rumours or {}).items():
                key = home, max(row, first)
                unscoped[key] = clock if key not in unscoped else _joined(unscoped[key], clock)
            self.rumours = _merged(self.rumours, unscoped)
        if self.others is not None and self.rumours is not None:
            kept = {key: clock for key, clock in self.rumours.items() if self.others.get(key[0]) is not clock}
            self.rumours = (self.rumours if len(kept) == len(self.rumours) else kept) or None

    def grow(self, size: int) -> None:
        """Extends the table to `size` agents."""
        missing = size - self.table.shape[1]
        if missing > 0:
            self.table = np.pad(self.table, ((0, 0), (0, missing)))

    def weaken(self) -> None:
        """Clears all rows but ANYWAY."""
        self.table[:ANYWAY] = 0
        before = Clock(np.zeros((ROWS, 0), np.int32))
        before.others, before.rumours = self.others, self.rumours
        self.grids, self.maps, self.observed, self.others, self.rumours = 0, None, None, None, None
        if before.others is not None or before.rumours is not None:
            self._join_others(before, ANYWAY)

    def has(self, other: Clock) -> bool:
        """True if the other clock adds nothing to this one."""
        if self.table.shape != other.table.shape or other.grids & ~self.grids or other.maps is not self.maps:
            return False
        return bool((self.table >= other.table).all())

    def equals(self, other: Clock) -> bool:
        if self.grids != other.grids or self.others != other.others or self.rumours != other.rumours:
            return False
        if self.maps is not other.maps and not (self.maps or NO_MAPS).equals(other.maps or NO_MAPS):
            return False
        if not (self.observed or NOTHING_OBSERVED).equals(other.observed or NOTHING_OBSERVED):
            return False
        return np.array_equal(self.table, other.table)

    def at_home(self, home: Home, agents: Agents) -> Clock:
        """Clock of the cluster `home` with what this one has of it and of others. agents: of that cluster."""
        others = dict(self.others or {})
        known = others.pop(home, None)
        found = agents.clock() if known is None else agents.fit(known.copy())
        found.others, found.grids, found.observed = others or None, found.grids | self.grids, self.observed
        rumours = dict(self.rumours or {})
        for row in (UNSCOPED, ANYWAY):
            own = rumours.pop((home, row), None)
            if own is not None:
                found.join(own, row)
        found.rumours = rumours or None
        return found


_Key = TypeVar("_Key")


def _merged(mine: dict[_Key, Clock] | None, theirs: dict[_Key, Clock] | None) -> dict[_Key, Clock] | None:
    """Join of two clocks' clocks of other clusters: one of the two where that covers the other."""
    if theirs is None or mine is theirs:
        return mine
    if mine is None:
        return theirs
    more = {key: clock for key, clock in theirs.items() if mine.get(key) is not clock}
    found: dict[_Key, Clock] | None = None
    for key, clock in more.items():
        own = mine.get(key)
        joined = clock if own is None else _joined(own, clock)
        if joined is not own:
            found = found or dict(mine)
            found[key] = joined
    return found or mine


def _joined(one: Clock, other: Clock) -> Clock:
    """Join of two clocks of a cluster: one of the two where that covers the other."""
    if one.has(other):
        return one
    if other.has(one):
        return other
    both = one.copy()
    both.join(other)
    return both


class Channel:
    """Agent that is no lane: its component, and its count."""

    __slots__ = ("agent", "count")

    def __init__(self, agent: int):
        self.agent, self.count = agent, 1


class Agents:
    """Components of a cluster's clocks."""

    def __init__(self, lanes: int) -> None:
        """lanes: the number of lanes of all warps, whose components come first."""
        self._used = lanes
        self._room = lanes + 256
        self._channels: dict[Hashable, Channel] = {}

    def clock(self) -> Clock:
        """Clock that covers no access."""
        return Clock(np.zeros((ROWS, self._room), np.int32))

    def channel(self, key: Hashable, width: int = 1) -> Channel:
        """Agent of a key, made at its first use. width: number of its adjacent components."""
        found = self._channels.get(key)
        if found is None:
            found = self._channels[key] = Channel(self._used)
            self._used += width
            while self._used > self._room:
                self._room *= 2
        return found

    def find(self, key: Hashable) -> Channel | None:
        """Agent of a key, if there is one."""
        return self._channels.get(key)

    def fit(self, clock: Clock) -> Clock:
        """The clock, extended to all agents."""
        clock.grow(self._room)
        return clock


class Cause:
    """Clock of an asynchronous operation, and the agent that its accesses count for."""

    __slots__ = ("channel", "clock", "count", "issuer", "mask", "completes_on", "views", "warp")

    def __init__(self, clock: Clock, issuer: Issuer, mask: int):
        self.clock, self.issuer = clock, issuer
        self.mask, self.warp = mask, issuer[0].warp  # lanes that have issued it
        self.channel: Channel | None = None  # None: one for each place that it writes
        self.count = 0  # of the channel, at its issue
        self.views: Any = None  # its views (`conflicts.View`), once it has been checked
        self.completes_on: str | None = None  # mbarrier on which it completes, once it has
