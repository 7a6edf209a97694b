"""Vector clocks: what lanes and asynchronous operations know of each other."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from emulator.hardware.warp import Issuer

LANES = 32
FULL = 0xFFFFFFFF
HEARD = 32  # relaxed waits before a fence that count


@lru_cache(maxsize=1024)
def lanes_of(mask: int) -> list[int]:
    """The lanes of a mask; nobody may change the list."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


KNOWN, FENCED, UNSCOPED, ANYWAY = range(4)


class Clock:
    """What somebody knows: by agent, the count up to which its accesses are ordered before.

    | row | that is so |
    |---|---|
    | KNOWN | by the memory model |
    | FENCED | and threads' writes up to there are visible to the async proxy |
    | UNSCOPED | if a scope did not matter |
    | ANYWAY | if neither scopes nor `.relaxed` did |
    """

    __slots__ = ("table",)

    def __init__(self, table: np.ndarray):
        self.table = table  # int32[4, agents]

    @property
    def known(self) -> np.ndarray:
        return self.table[KNOWN]

    @property
    def fenced(self) -> np.ndarray:
        return self.table[FENCED]

    def set(self, agent: int | list[int], count: int) -> None:
        """An agent's accesses up to a count are known, whatever scopes say."""
        table = self.table
        table[KNOWN, agent] = table[UNSCOPED, agent] = table[ANYWAY, agent] = count

    def copy(self) -> Clock:
        return Clock(self.table.copy())

    def join(self, other: Clock, row: int = KNOWN) -> None:
        """Both are known from now on. row: the first that the other adds to."""
        size = max(other.table.shape[1], self.table.shape[1])
        self.grow(size)
        other.grow(size)
        np.maximum(self.table[row:], other.table[row:], out=self.table[row:])

    def grow(self, size: int) -> None:
        """Room for `size` agents."""
        missing = size - self.table.shape[1]
        if missing > 0:
            self.table = np.pad(self.table, ((0, 0), (0, missing)))

    def equals(self, other: Clock) -> bool:
        return np.array_equal(self.table, other.table)


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
        return Clock(np.zeros((4, self._room), np.int32))

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

    __slots__ = ("channel", "clock", "count", "issuer", "mask")

    def __init__(self, clock: Clock, issuer: Issuer, mask: int):
        self.clock, self.issuer = clock, issuer
        self.mask = mask  # of the lanes that have issued it
        self.channel: Channel | None = None  # None: one for each place that it writes
        self.count = 0  # of the channel, at its issue


class _Part:
    """Lanes of a warp that know the same."""

    __slots__ = ("clock", "mask")

    def __init__(self, mask: int, clock: Clock):
        self.mask, self.clock = mask, clock


class WarpClock:
    """What the lanes of a warp know."""

    def __init__(self, agents: Agents, base: int) -> None:
        """base: component of the first lane."""
        self._agents = agents
        self.base = base
        self.now = 1  # the count of all of its lanes
        self.changes = 0  # grows with what they learn, release and access
        self._parts = [_Part(FULL, agents.clock())]
        self._behind = 0, agents.clock()  # lanes that have executed a fence of threads last, what they knew then
        self._heard: list[tuple[int, Clock, int]] = []  # by relaxed waits that no fence has followed
        self.commits: list[tuple[int, int]] = []  # cp.async.commit_group: (lanes, instructions so far), oldest first

    def parts(self, mask: int) -> Iterator[tuple[int, Clock]]:
        """(lanes, what they know), for lanes of the mask. Each lane also knows what it has done itself."""
        for part in self._parts:
            common = part.mask & mask
            if common:
                yield common, self._agents.fit(part.clock)

    def release(self, mask: int) -> Clock:
        """What the lanes of the mask know together and have done: a copy. Later accesses have a new count."""
        result: Clock | None = None
        for _, clock in self.parts(mask):
            if result is None:
                result = clock.copy()
            else:
                result.join(clock)
        assert result is not None  # the parts have all lanes, and some lane releases
        result.set([self.base + lane for lane in lanes_of(mask)], self.now)
        self.now += 1
        self.changes += 1
        return result

    def acquire(self, mask: int, clock: Clock, row: int = KNOWN) -> None:
        """The lanes of the mask know as much as the clock, too. row: as of `Clock.join`."""
        self.changes += 1
        for part in list(self._parts):
            common = part.mask & mask
            if not common:
                continue
            if common != part.mask:
                part.mask &= ~common
                part = _Part(common, part.clock.copy())
                self._parts.append(part)
            part.clock.join(clock, row)
        if len(self._parts) > 1:
            self._unite()

    def _unite(self) -> None:
        kept: list[_Part] = []
        for part in self._parts:
            same = next((other for other in kept if other.clock.equals(part.clock)), None)
            if same is None:
                kept.append(part)
            else:
                same.mask |= part.mask
        self._parts = kept

    def fence_proxy(self, mask: int) -> None:
        """fence.proxy.async: what lanes know and have done is visible to the async proxy."""
        for common, clock in list(self.parts(mask)):
            fenced = clock.copy()
            np.maximum(fenced.fenced, fenced.known, out=fenced.fenced)
            fenced.fenced[[self.base + lane for lane in lanes_of(common)]] = self.now
            self.acquire(common, fenced)
        self.now += 1

    def fence(self, mask: int) -> None:
        """A fence of threads: relaxed waits before it acquire, relaxed arrivals behind it release what is before."""
        for lanes, clock, row in self._heard:
            if lanes & mask:
                self.acquire(lanes & mask, clock, row)
        self._heard = [(lanes & ~mask, clock, row) for lanes, clock, row in self._heard if lanes & ~mask]
        self._behind = mask, self.release(mask)

    def hear(self, mask: int, clock: Clock, row: int) -> None:
        """A relaxed wait: the lanes will know as much as the clock behind a fence."""
        self.acquire(mask, clock, ANYWAY)
        self._heard = [*self._heard[1 - HEARD :], (mask, clock.copy(), row)]

    def release_relaxed(self, mask: int) -> Clock:
        """As `release`, of a relaxed arrival: what lanes knew and had done at their last fence."""
        result, (lanes, behind) = self.release(mask), self._behind
        result.table[:ANYWAY] = 0
        if not mask & ~lanes:
            before = self._agents.fit(behind.copy())
            before.table[ANYWAY] = 0
            result.join(before)
        return result
