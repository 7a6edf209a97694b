"""What launches that may overlap tell each other: by words of global memory, and by their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.sanitizer.clocks import KNOWN, ROWS, UNSCOPED, Clock

if TYPE_CHECKING:
    from emulator.sanitizer.clocks import Home
    from emulator.sanitizer.scene import Scene


def _clock() -> Clock:
    """A clock of nobody: all that it knows is of others."""
    return Clock(np.zeros((ROWS, 0), np.int32))


class _Word:
    """What those knew who have stored a word with an order, or changed it by an atomic."""

    __slots__ = ("narrow", "version", "wide")

    def __init__(self) -> None:
        self.wide = _clock()  # with the scope of the device
        self.narrow: Clock | None = None  # with a smaller one
        self.version = 0  # grows with each


class Words:
    """Of launches that may overlap, under one schedule.

    Within a cluster words are `barriers.Barriers`'.
    """

    def __init__(self) -> None:
        self._words: dict[int, _Word] = {}
        self._ends: dict[int, Clock] = {}  # by launch: what its lanes have learned of others

    def tell(self, scene: Scene, key: int, clock: Clock, wide: bool) -> None:
        """A cluster's lanes have released a clock at an address. wide: to the device."""
        word = self._words.setdefault(key, _Word())
        word.version += 1
        told = _clock()
        bare = clock.copy()
        bare.others = bare.rumours = None
        told.others, told.rumours = {**(clock.others or {}), scene.home: bare}, clock.rumours
        told.grids = clock.grids
        if wide:
            word.wide.join(told)
        elif word.narrow is None:
            word.narrow = told
        else:
            word.narrow.join(told)

    def version(self, key: int) -> int:
        """How often something has been released at an address."""
        word = self._words.get(key)
        return 0 if word is None else word.version

    def told(self, scene: Scene, key: int, wide: bool, follows_scopes: bool) -> list[tuple[Clock, int]]:
        """What a cluster's lanes learn at an address: (clock, the first row that they learn)."""
        word = self._words[key]
        found = [(word.wide.at_home(scene.home, scene.agents), KNOWN if wide or not follows_scopes else UNSCOPED)]
        if word.narrow is not None:
            row = UNSCOPED if follows_scopes else KNOWN
            found.append((word.narrow.at_home(scene.home, scene.agents), row))
        return found

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

    def end(self, grid: int) -> Clock:
        """What the end of a launch tells."""
        found = _clock()
        if grid in self._ends:
            found.join(self._ends[grid])
        found.grids |= 1 << grid
        return found
