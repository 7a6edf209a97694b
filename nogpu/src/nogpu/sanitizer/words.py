"""Words that pass clocks on, and what launches that may overlap tell each other: by words of global memory, and by
their ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from nogpu.sanitizer.clocks import KNOWN, ROWS, UNSCOPED, Clock

if TYPE_CHECKING:
    from collections.abc import Hashable

    from nogpu.sanitizer.clocks import Home
    from nogpu.sanitizer.scene import Scene


def _clock() -> Clock:
    """A clock of nobody: all that it knows is of others."""
    return Clock(np.zeros((ROWS, 0), np.int32))


_Source = TypeVar("_Source")
_Key = TypeVar("_Key")


class Word(Generic[_Source]):
    """What a load of a word observes that others have released by writing it, by their scopes.

    An atomic goes on telling what the value that it changes has told; of a store that holds for what its own thread has
    released by an operation on this word before (PTX ISA, "Observation order", "Release and Acquire Patterns").
    """

    __slots__ = ("_own", "_tellers", "clocks", "stores", "version")

    def __init__(self) -> None:
        self.clocks: dict[_Source, Clock] = {}
        self.version = 0  # grows with each write
        self.stores = 0  # of these, those that were no atomics
        self._tellers: dict[Hashable, int] = {}  # by warp: lanes that have written
        # by warp: lanes that have released by an operation, and what
        self._own: dict[Hashable, tuple[int, dict[_Source, Clock]]] = {}

    def store(self, warp: Hashable, mask: int) -> None:
        """Lanes of a warp are about to store the word: what others have released is over."""
        self.stores += 1
        lanes, own = self._own.get(warp, (0, {}))
        if not lanes & mask:
            own = {}
        self.clocks = {source: clock.copy() for source, clock in own.items()}
        self._own = {warp: (lanes, own)} if own else {}
        self._tellers.clear()

    def forget(self, stores: int) -> None:
        """Others have stored the word: there have been so many stores."""
        self.clocks, self._own, self.stores = {}, {}, stores
        self._tellers.clear()

    def tells(self, warp: Hashable, mask: int) -> bool:
        """Whether others than these lanes have written it: of what is their own they learn nothing."""
        return len(self._tellers) != 1 or self._tellers.get(warp) != mask

    def tell(self, source: _Source, clock: Clock, warp: Hashable, mask: int, releases: bool) -> None:
        """Lanes write the word. releases: by an operation that does so itself, rather than behind a fence."""
        self.version += 1
        self._tellers[warp] = self._tellers.get(warp, 0) | mask
        add(self.clocks, source, clock)
        if releases:
            lanes, own = self._own.setdefault(warp, (0, {}))
            add(own, source, clock)
            self._own[warp] = lanes | mask, own


def add(clocks: dict[_Key, Clock], source: _Key, clock: Clock) -> None:
    """What a source has released is this, too."""
    if source in clocks:
        clocks[source].join(clock)
    else:
        clocks[source] = clock.copy()


def _of(scene: Scene, clock: Clock) -> Clock:
    """A cluster's clock, as one of others."""
    found, bare = _clock(), clock.copy()
    bare.others = bare.rumours = None
    found.others, found.rumours = {**(clock.others or {}), scene.home: bare}, clock.rumours
    found.grids = clock.grids
    return found


class Words:
    """Of launches that may overlap, under one schedule.

    Within a cluster words are `barriers.Barriers`'.
    """

    def __init__(self) -> None:
        self._words: dict[int, Word[bool]] = {}  # by address; source: whether the scope is the device
        self._ends: dict[int, Clock] = {}  # by launch: what its lanes have learned of others
        self._starts: dict[int, Clock] = {}  # by launch: what has been released to the start of the next one

    def tell(
        self, scene: Scene, key: int, clock: Clock, wide: bool, base: int, mask: int, stores: bool, releases: bool
    ) -> None:
        """A cluster's lanes have released a clock at an address. wide: to the device. base: component of their warp's
        first lane. stores, releases: as of `Word`.
        """
        word = self._words.setdefault(key, Word())
        warp = scene.home, base
        if stores:
            word.store(warp, mask)
        word.tell(wide, _of(scene, clock), warp, mask, releases)

    def version(self, key: int) -> tuple[int, int]:
        """How often something has been released at an address, and how often by a store."""
        word = self._words.get(key)
        return (0, 0) if word is None else (word.version, word.stores)

    def told(
        self, scene: Scene, key: int, wide: bool, base: int, mask: int, follows_scopes: bool
    ) -> list[tuple[Clock, int]]:
        """What a cluster's lanes learn at an address: (clock, the first row that they learn). Other arguments as of
        `tell`.
        """
        word = self._words[key]
        if not word.tells((scene.home, base), mask):
            return []
        return [
            (
                clock.at_home(scene.home, scene.agents),
                KNOWN if wide and of_device or not follows_scopes else UNSCOPED,
            )
            for of_device, clock in word.clocks.items()
        ]

    def learned(self, home: Home, clock: Clock) -> None:
        """A launch's lanes know this of others: so will those that wait for its end."""
        if clock.others is None and not clock.grids and clock.rumours is None:
            return
        end = self._ends.get(home.grid)
        if end is None:
            end = self._ends[home.grid] = _clock()
        others = _clock()
        others.others, others.rumours, others.grids = clock.others, clock.rumours, clock.grids
        end.join(others)

    def trigger(self, scene: Scene, clock: Clock) -> None:
        """A launch's lanes have released this to the start of the next launch."""
        add(self._starts, scene.home.grid, _of(scene, clock))

    def start(self, grid: int) -> Clock | None:
        """What a launch knows when it starts, if that is anything."""
        return self._starts.get(grid - 1)

    def end(self, grid: int) -> Clock:
        """What the end of a launch tells."""
        found = _clock()
        if grid in self._ends:
            found.join(self._ends[grid])
        found.grids |= 1 << grid
        return found
