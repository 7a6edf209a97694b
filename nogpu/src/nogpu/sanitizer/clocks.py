"""Vector clocks: what lanes and asynchronous operations know of each other."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nogpu.sanitizer.maps import NO_MAPS, Maps

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.hardware.warp import Issuer

LANES = 32
FULL = 0xFFFFFFFF
HEARD = 32  # relaxed waits before a fence that count


@lru_cache(maxsize=1024)
def lanes_of(mask: int) -> list[int]:
    """The lanes of a mask; nobody may change the list."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


@lru_cache(maxsize=1024)
def repeated(mask: int, times: int) -> np.ndarray:
    """uint8[n]: the lanes of a mask, so many times; nobody may change the array."""
    return np.array(lanes_of(mask) * times, np.uint8)


KNOWN, FENCED, FENCED_GLOBAL, UNSCOPED, ANYWAY = range(5)
ROWS = 5
OF_CTA, OF_CLUSTER, OF_DEVICE = range(3)
"""Scopes of fences."""
SCOPES = 3
MAPPED = ROWS
"""In place of a row of a clock's table: that of the tensor map at an address, which is added."""
NOTHING = np.broadcast_to(np.int32(0), (1 << 30,))
EVERYTHING = np.broadcast_to(np.int32((1 << 31) - 1), (1 << 30,))


class Home:
    """A cluster, where clocks of several meet. Holds nothing, so that the cluster can be forgotten."""

    __slots__ = ("grid",)

    def __init__(self, grid: int) -> None:
        self.grid = grid  # number of its launch among those that may overlap


class Clock:
    """What somebody knows: by agent, the count up to which its accesses are ordered before.

    | row | that is so |
    |---|---|
    | KNOWN | by the memory model |
    | FENCED | and threads' writes to shared memory up to there are visible to the async proxy |
    | FENCED_GLOBAL | and threads' writes to global memory are |
    | UNSCOPED | if a scope did not matter |
    | ANYWAY | if neither scopes nor `.relaxed` did |

    What is rare is kept beside. maps: what has been released and acquired by fence.proxy.tensormap, once one has been
    executed. others: what is known of other clusters by home; rumours: what is known of them by rows from UNSCOPED on
    only. Neither these dictionaries nor their clocks ever change, so that many clocks share them. grids: bits of
    launches that are over.
    """

    __slots__ = ("grids", "maps", "others", "rumours", "table")

    def __init__(self, table: np.ndarray):
        self.table = table  # int32[ROWS, agents]
        self.maps: Maps | None = None
        self.others: dict[Home, Clock] | None = None
        self.rumours: dict[tuple[Home, int], Clock] | None = None
        self.grids = 0

    def row(self, number: int) -> np.ndarray:
        """int32[agents]: a row of the table, or what the tensormap proxy sees in a map (MAPPED and its address)."""
        if number < MAPPED:
            return self.table[number]
        return NOTHING if self.maps is None else self.maps.row(number - MAPPED, self.table.shape[1])

    def of(self, home: Home, number: int) -> np.ndarray:
        """As `row`, of another cluster's agents."""
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
        """An agent's accesses up to a count are known, whatever scopes say."""
        table = self.table
        table[KNOWN, agent] = table[UNSCOPED, agent] = table[ANYWAY, agent] = count

    def set_lanes(self, base: int, mask: int, count: int) -> None:
        """As `set`, of lanes, whose first has component `base`."""
        if mask == FULL:
            self.set(slice(base, base + LANES), count)
        else:
            for lane in lanes_of(mask):
                self.set(base + lane, count)

    def copy(self) -> Clock:
        found = Clock(self.table.copy())
        found.others, found.rumours, found.grids = self.others, self.rumours, self.grids
        found.maps = self.maps
        return found

    def join(self, other: Clock, row: int = KNOWN) -> None:
        """Both are known from now on. row: the first that the other adds to."""
        size = max(other.table.shape[1], self.table.shape[1])
        self.grow(size)
        other.grow(size)
        np.maximum(self.table[row:], other.table[row:], out=self.table[row:])
        if other.others is not None or other.rumours is not None:
            self._hear(other, row)
        if row == KNOWN:
            self.grids |= other.grids
            if other.maps is not None:
                self.maps = other.maps if self.maps is None else self.maps.join(other.maps)

    def _hear(self, other: Clock, row: int) -> None:
        """The other's knowledge of other clusters, by rows from `row` on."""
        if row == KNOWN:
            self.others = _merged(self.others, other.others)
            self.rumours = _merged(self.rumours, other.rumours)
        else:
            told = {(home, row): clock for home, clock in (other.others or {}).items()}
            for (home, first), clock in (other.rumours or {}).items():
                key = home, max(row, first)
                told[key] = clock if key not in told else _joined(told[key], clock)
            self.rumours = _merged(self.rumours, told)
        if self.others is not None and self.rumours is not None:
            kept = {key: clock for key, clock in self.rumours.items() if self.others.get(key[0]) is not clock}
            self.rumours = (self.rumours if len(kept) == len(self.rumours) else kept) or None

    def grow(self, size: int) -> None:
        """Room for `size` agents."""
        missing = size - self.table.shape[1]
        if missing > 0:
            self.table = np.pad(self.table, ((0, 0), (0, missing)))

    def weaken(self) -> None:
        """Nothing is known but by row ANYWAY."""
        self.table[:ANYWAY] = 0
        before = Clock(np.zeros((ROWS, 0), np.int32))
        before.others, before.rumours = self.others, self.rumours
        self.grids, self.maps, self.others, self.rumours = 0, None, None, None
        if before.others is not None or before.rumours is not None:
            self._hear(before, ANYWAY)

    def has(self, other: Clock) -> bool:
        """Whether the other adds nothing."""
        if self.table.shape != other.table.shape or other.grids & ~self.grids or other.maps is not self.maps:
            return False
        return bool((self.table >= other.table).all())

    def equals(self, other: Clock) -> bool:
        if self.grids != other.grids or self.others != other.others or self.rumours != other.rumours:
            return False
        if self.maps is not other.maps and not (self.maps or NO_MAPS).equals(other.maps or NO_MAPS):
            return False
        return np.array_equal(self.table, other.table)

    def at_home(self, home: Home, agents: Agents) -> Clock:
        """What is known of others, as a clock of one of these."""
        others = dict(self.others or {})
        known = others.pop(home, None)
        found = agents.clock() if known is None else agents.fit(known.copy())
        found.others, found.grids = others or None, found.grids | self.grids
        rumours = dict(self.rumours or {})
        for row in (UNSCOPED, ANYWAY):
            own = rumours.pop((home, row), None)
            if own is not None:
                found.join(own, row)
        found.rumours = rumours or None
        return found


_Key = TypeVar("_Key")


def _merged(mine: dict[_Key, Clock] | None, theirs: dict[_Key, Clock] | None) -> dict[_Key, Clock] | None:
    """What two know of others: one of the two where it has all."""
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
    """What two clocks of a cluster know: one of the two where it has all."""
    if one.has(other):
        return one
    if other.has(one):
        return other
    both = one.copy()
    both.join(other)
    return both


class Channel:
    """An agent that is no lane: its component, and its count."""

    __slots__ = ("agent", "count")

    def __init__(self, agent: int):
        self.agent, self.count = agent, 1


class Agents:
    """The components of a cluster's clocks."""

    def __init__(self, lanes: int) -> None:
        """lanes: those of all warps, which come first."""
        self._used = lanes
        self._room = lanes + 256
        self._channels: dict[Hashable, Channel] = {}

    def clock(self) -> Clock:
        """A clock that knows nothing."""
        return Clock(np.zeros((ROWS, self._room), np.int32))

    def channel(self, key: Hashable, width: int = 1) -> Channel:
        """The agent of a name. width: adjacent components that it has."""
        found = self._channels.get(key)
        if found is None:
            found = self._channels[key] = Channel(self._used)
            self._used += width
            while self._used > self._room:
                self._room *= 2
        return found

    def known(self, key: Hashable) -> Channel | None:
        """The agent of a name, if there is one."""
        return self._channels.get(key)

    def fit(self, clock: Clock) -> Clock:
        """The clock, with room for all agents."""
        clock.grow(self._room)
        return clock


class Cause:
    """What an asynchronous operation knows, and as whom it accesses memory."""

    __slots__ = ("channel", "clock", "count", "issuer", "mask", "tells", "views", "warp")

    def __init__(self, clock: Clock, issuer: Issuer, mask: int):
        self.clock, self.issuer = clock, issuer
        self.mask, self.warp = mask, issuer[0].warp  # of the lanes that have issued it
        self.channel: Channel | None = None  # None: one for each place that it writes
        self.count = 0  # of the channel, at its issue
        self.views: Any = None  # as whom it is checked (`history.View`), once it has been
        self.tells: str | None = None  # the mbarrier on which it completes, once it has
