"""Clocks of the lanes of a warp, and their releases, acquires and fences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.sanitizer.clocks import (
    ANYWAY,
    FENCED_GLOBAL,
    FULL,
    OF_CLUSTER,
    OF_CTA,
    ORDERED,
    RELAXED_WAITS,
    ROWS,
    SCOPES,
    UNSCOPED,
    Agents,
    Clock,
    lanes_of,
)
from nogpu.sanitizer.maps import NO_MAPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nogpu.sanitizer.access_log import AccessLog
    from nogpu.sanitizer.observed import Observed, Word


def _fenced(clock: Clock) -> Clock:
    """Another cluster's clock, with its writes visible to the async proxy."""
    found = clock.copy()
    np.maximum(found.table[FENCED_GLOBAL], found.table[ORDERED], out=found.table[FENCED_GLOBAL])
    return found


def _acquired(clock: Clock, address: int) -> Clock:
    """Another cluster's clock, with one of its released tensor maps acquired."""
    if clock.maps is None:
        return clock
    found = clock.copy()
    found.maps = clock.maps.acquire(address)
    return found


_NOBODY = Clock(np.zeros((ROWS, 0), np.int32))
"""Clock that covers nothing; nobody may change it."""


class _Part:
    """Lanes of a warp that share a clock."""

    __slots__ = ("clock", "mask")

    def __init__(self, mask: int, clock: Clock):
        self.mask, self.clock = mask, clock


class WarpClock:
    """Clocks of the lanes of a warp."""

    def __init__(self, agents: Agents, base: int) -> None:
        """base: component of the first lane."""
        self._agents = agents
        self.base = base
        self.now = 1  # count of all of its lanes
        self.log: AccessLog | None = None  # accesses under this clock that are still to be checked
        self.identity: Any = None  # its warp in reports (`cluster_state.remnant`), once that is needed
        # by word: numbers of strong writes of the instruction that runs or ran last; True once its accesses have them
        self.writes: dict[Word, int] = {}
        self.ahead: dict[Word, Observed | None] = {}  # observations of these words ahead of those writes
        self.has_written = True
        self.changes = 0  # grows with acquires, releases and accesses
        self._parts = [_Part(FULL, agents.clock())]
        # Lanes of the last fence of threads of at least a scope, and their clock at that fence, by scope
        self._behind = [(0, _NOBODY)] * SCOPES
        # Relaxed waits that no fence has followed: (lanes, clock, its first row, scope that a fence needs)
        self._relaxed_waits: list[tuple[int, Clock, int, int]] = []
        self.commits: list[tuple[int, int]] = []  # cp.async.commit_group: (lanes, instructions so far), oldest first

    def parts(self, mask: int) -> Iterator[tuple[int, Clock]]:
        """Yields (lanes, clock) of each part with lanes of the mask. Program order adds a lane's own accesses."""
        for part in self._parts:
            common = part.mask & mask
            if common:
                yield common, self._agents.fit(part.clock)

    def settle(self) -> None:
        """Checks the accesses so far under the present clocks."""
        if self.log is not None:
            self.log.settle()

    def release(self, mask: int) -> Clock:
        """Clock that lanes release: the join of their clocks and own accesses. Later accesses have a new count."""
        self.settle()
        result: Clock | None = None
        for _, clock in self.parts(mask):
            if result is None:
                result = clock.copy()
            else:
                result.join(clock)
        assert result is not None  # set: the parts have all lanes, and some lane releases
        result.set_lanes(self.base, mask, self.now)
        self.now += 1
        self.changes += 1
        return result

    def acquire(self, mask: int, clock: Clock, row: int = ORDERED) -> None:
        """Acquires a clock for the lanes of the mask. row: as in `Clock.join`."""
        self.settle()
        self.changes += 1
        acquired = self._parted(mask)
        for part in acquired:
            part.clock.join(clock, row)
        self._unite(acquired)

    def _parted(self, mask: int) -> list[_Part]:
        """Parts that have exactly the lanes of the mask, split off where needed."""
        parts, found = self._parts, []
        for part in list(parts):
            common = part.mask & mask
            if not common:
                continue
            if common != part.mask:
                part.mask &= ~common
                part = _Part(common, part.clock.copy())
                parts.append(part)
            found.append(part)
        return found

    def observe(self, mask: int, found: Observed) -> None:
        """Notes for the lanes of the mask what they observe."""
        if all(part.clock.observed and part.clock.observed.has(found) for part in self._parts if part.mask & mask):
            return
        self.settle()
        acquired = self._parted(mask)
        for part in acquired:
            part.clock.observed = found if part.clock.observed is None else part.clock.observed.join(found)
        self._unite(acquired)

    def acquire_count(self, mask: int, agent: int, count: int) -> None:
        """Orders an agent's accesses up to a count before later ones of the mask's lanes. The agent accesses neither
        shared nor global memory, so that no noted access depends on it.
        """
        if len(self._parts) == 1 and not self._parts[0].mask & ~mask:
            self.changes += 1
            self._agents.fit(self._parts[0].clock).set(agent, count)
            return
        clock = self._agents.clock()
        clock.set(agent, count)
        self.acquire(mask, clock)

    def _unite(self, acquired: list[_Part]) -> None:
        """Unites parts that have acquired something with others of the same clock."""
        if len(self._parts) == 1:
            return
        for part in acquired:
            for other in self._parts:
                if other is not part and other.clock.equals(part.clock):
                    other.mask |= part.mask
                    self._parts.remove(part)
                    break

    def fence_proxy(self, mask: int, rows: tuple[int, ...]) -> None:
        """Executes fence.proxy.async: writes that are ordered before the lanes are visible to the async proxy.

        rows: FENCED, FENCED_GLOBAL or both.
        """
        for common, clock in list(self.parts(mask)):
            fenced = clock.copy()
            for row in rows:
                np.maximum(fenced.table[row], fenced.table[ORDERED], out=fenced.table[row])
                fenced.table[row, [self.base + lane for lane in lanes_of(common)]] = self.now
            if fenced.others is not None and FENCED_GLOBAL in rows:
                fenced.others = {home: _fenced(other) for home, other in fenced.others.items()}
            self.acquire(common, fenced)
        self.now += 1

    def release_maps(self, mask: int) -> None:
        """Executes fence.proxy.tensormap::generic.release of the edits that are ordered before the lanes."""
        for common, clock in list(self.parts(mask)):
            counts = clock.table[ORDERED].copy()
            counts[[self.base + lane for lane in lanes_of(common)]] = self.now
            found = clock.copy()
            found.maps = (clock.maps or NO_MAPS).release(counts)
            self.acquire(common, found)
        self.now += 1

    def acquire_map(self, mask: int, address: int) -> None:
        """Executes fence.proxy.tensormap::generic.acquire of the tensor map at an address."""
        for common, clock in list(self.parts(mask)):
            found = clock.copy()
            found.maps = (clock.maps or NO_MAPS).acquire(address)
            if found.others is not None:
                found.others = {home: _acquired(other, address) for home, other in found.others.items()}
            self.acquire(common, found)

    def fence(self, mask: int, scope: int) -> None:
        """Executes a fence of threads: relaxed waits before it acquire, relaxed arrivals behind it release what is
        before it.
        """
        left = []
        for lanes, clock, row, needed in self._relaxed_waits:
            if lanes & mask:
                self.acquire(lanes & mask, clock, row if scope >= needed else max(row, UNSCOPED))
            kept = lanes if scope < needed else lanes & ~mask
            if kept:
                left.append((kept, clock, row, needed))
        self._relaxed_waits = left
        released = self.release(mask)
        self._behind = [(mask, released)] * (scope + 1) + self._behind[scope + 1 :]

    def acquire_relaxed(self, mask: int, clock: Clock, row: int, needed: int = OF_CTA, together: int = 0) -> None:
        """Executes a relaxed wait: a later fence of the scope `needed` acquires the clock. together: lanes that execute
        the wait. They acquire row ANYWAY at once, so that the warp need not be parted.
        """
        self.acquire(mask | together, clock, ANYWAY)
        self._relaxed_waits = [*self._relaxed_waits[1 - RELAXED_WAITS :], (mask, clock.copy(), row, needed)]

    def release_relaxed(self, mask: int, scope: int = OF_CTA) -> Clock:
        """Clock that a relaxed arrival releases: that of the lanes at their last fence of this scope, and, from the row
        UNSCOPED on, at their last one of any scope.
        """
        result = self.release(mask)
        result.weaken()
        for row, of in ((ORDERED, scope), (UNSCOPED, OF_CTA)):
            lanes, behind = self._behind[of]
            if not mask & ~lanes:
                before = self._agents.fit(behind.copy())
                before.table[ANYWAY] = 0
                result.join(before, row)
        return result

    def behind(self, scope: int) -> Clock:
        """Clock of the lanes that have executed the last fence of a scope, at that fence."""
        return self._behind[scope][1]

    def behind_fence(self, mask: int, scope: int) -> Clock | None:
        """Clock at the last fence of a scope; None if no lane of the mask has executed it."""
        lanes, behind = self._behind[scope]
        return self._agents.fit(behind.copy()) if lanes & mask else None

    def has_narrow_fence(self, mask: int) -> bool:
        """True if the last fence of all lanes of the mask has the scope of the CTA."""
        lanes, behind = self._behind[OF_CTA]
        return not mask & ~lanes and self._behind[OF_CLUSTER][1] is not behind
