"""Words that release clocks, and the order between launches that may overlap: by words of global memory, and by the end
of a launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from nogpu.sanitizer.clocks import ORDERED, ROWS, UNSCOPED, Clock
from nogpu.sanitizer.observed import Observed, both

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.sanitizer.clocks import Home
    from nogpu.sanitizer.cluster_state import ClusterState
    from nogpu.sanitizer.observed import Chain
    from nogpu.sanitizer.observed import Word as ObservedWord


def _clock() -> Clock:
    """Clock with an empty table: it has clocks of other clusters only."""
    return Clock(np.zeros((ROWS, 0), np.int32))


_Source = TypeVar("_Source")
_Key = TypeVar("_Key")


class Word(Generic[_Source]):
    """Clocks that a load of a word acquires: those that were released by its writes, by scope.

    An atomic continues the release of the value that it changes; a store does so for what its own thread has released
    by an operation on this word before (PTX ISA, "Observation order", "Release and Acquire Patterns").
    """

    __slots__ = ("_own", "_writers", "clocks", "stores", "version")

    def __init__(self) -> None:
        self.clocks: dict[_Source, Clock] = {}
        self.version = 0  # grows with each write
        self.stores = 0  # number of stores, as opposed to atomics
        self._writers: dict[Hashable, int] = {}  # by warp: lanes that have written
        # by warp: lanes that have released by an operation, and their clocks
        self._own: dict[Hashable, tuple[int, dict[_Source, Clock]]] = {}

    def store(self, warp: Hashable, mask: int) -> None:
        """Drops what others have released by the word, before lanes of a warp store it."""
        self.stores += 1
        lanes, own = self._own.get(warp, (0, {}))
        if not lanes & mask:
            own = {}
        self.clocks = {source: clock.copy() for source, clock in own.items()}
        self._own = {warp: (lanes, own)} if own else {}
        self._writers.clear()

    def forget(self, stores: int) -> None:
        """Forgets what was released, since others have stored the word. stores: number of stores so far."""
        self.clocks, self._own, self.stores = {}, {}, stores
        self._writers.clear()

    def is_of_others(self, warp: Hashable, mask: int) -> bool:
        """True if others than these lanes have written the word: lanes acquire nothing from their own writes."""
        return len(self._writers) != 1 or self._writers.get(warp) != mask

    def release(self, source: _Source, clock: Clock, warp: Hashable, mask: int, releases: bool) -> None:
        """Releases a clock by a write of lanes. releases: the write itself releases, rather than a fence before it."""
        self.version += 1
        self._writers[warp] = self._writers.get(warp, 0) | mask
        add(self.clocks, source, clock)
        if releases:
            lanes, own = self._own.setdefault(warp, (0, {}))
            add(own, source, clock)
            self._own[warp] = lanes | mask, own


def add(clocks: dict[_Key, Clock], source: _Key, clock: Clock) -> None:
    """Joins a clock to those that a source has released."""
    if source in clocks:
        clocks[source].join(clock)
    else:
        clocks[source] = clock.copy()


def of_others(state: ClusterState, clock: Clock) -> Clock:
    """Clock of the cluster of `state` as other clusters have it."""
    found, bare = _clock(), clock.copy()
    bare.others = bare.rumours = bare.observed = None
    found.others, found.rumours = {**(clock.others or {}), state.home: bare}, clock.rumours
    found.grids, found.observed = clock.grids, clock.observed
    return found


class Words:
    """Words that release clocks between launches that may overlap, under one schedule.

    `barriers.Barriers` has the words within a cluster.
    """

    def __init__(self) -> None:
        self._words: dict[int, Word[bool]] = {}  # by address; source: True if the scope is the device
        self._ends: dict[int, Clock] = {}  # by launch: others' clocks that its lanes have acquired
        self._starts: dict[int, Clock] = {}  # by launch: clocks released to the start of the next one
        self._writes = 0  # number of strong writes so far
        # The last strong write of a word, with those before it that atomics have continued, and what was before the
        # fence.sc ahead of them
        self._chains: dict[ObservedWord, tuple[Chain, Clock | None]] = {}

    def write(self, word: ObservedWord, stores: bool, fenced: Clock | None) -> int:
        """Notes a strong write, and returns its number. stores: False for an atomic. fenced: as in `Observed`."""
        self._writes += 1
        (first, _), before = self._chains.get(word, ((0, 0), None))
        self._chains[word] = (
            ((self._writes, self._writes), fenced) if stores else ((first, self._writes), both(before, fenced))
        )
        return self._writes

    def observed(self, word: ObservedWord) -> Observed | None:
        """Observations of a strong read of a word, if anybody has written it."""
        found = self._chains.get(word)
        return None if found is None else Observed({word: found[0]}, None, found[1])

    def store(self, state: ClusterState, key: int, base: int, mask: int) -> None:
        """Handles a store of a cluster's lanes to an address. base: component of their warp's first lane."""
        self._words.setdefault(key, Word()).store((state.home, base), mask)

    def release(
        self, state: ClusterState, key: int, clock: Clock, wide: bool, base: int, mask: int, releases: bool
    ) -> None:
        """Releases a clock of a cluster's lanes at an address. wide: to the device. base: as in `store`. releases: the
        write itself does, rather than a fence before it.
        """
        word = self._words.setdefault(key, Word())
        word.release(wide, of_others(state, clock), (state.home, base), mask, releases)

    def version(self, key: int) -> tuple[int, int]:
        """Number of writes that released at an address, and of stores there."""
        word = self._words.get(key)
        return (0, 0) if word is None else (word.version, word.stores)

    def released(
        self, state: ClusterState, key: int, wide: bool, base: int, mask: int, follows_scopes: bool
    ) -> list[tuple[Clock, int]]:
        """Clocks that a cluster's lanes acquire at an address: (clock, the first row that they acquire). Other
        arguments are those of `release`.
        """
        word = self._words[key]
        if not word.is_of_others((state.home, base), mask):
            return []
        return [
            (clock.at_home(state.home, state.agents), ORDERED if wide and of_device or not follows_scopes else UNSCOPED)
            for of_device, clock in word.clocks.items()
        ]

    def note_acquired(self, home: Home, clock: Clock) -> None:
        """Notes others' clocks that a launch's lanes have acquired: a wait for the launch's end acquires them, too."""
        if clock.others is None and not clock.grids and clock.rumours is None:
            return
        end = self._ends.get(home.grid)
        if end is None:
            end = self._ends[home.grid] = _clock()
        others = _clock()
        others.others, others.rumours, others.grids = clock.others, clock.rumours, clock.grids
        end.join(others)

    def trigger(self, state: ClusterState, clock: Clock) -> None:
        """Releases a clock of a launch's lanes to the start of the next launch."""
        add(self._starts, state.home.grid, of_others(state, clock))

    def start(self, grid: int) -> Clock | None:
        """Clock that the start of a launch acquires, if there is one."""
        return self._starts.get(grid - 1)

    def end(self, grid: int) -> Clock:
        """Clock that the end of a launch releases."""
        found = _clock()
        if grid in self._ends:
            found.join(self._ends[grid])
        found.grids |= 1 << grid
        return found
