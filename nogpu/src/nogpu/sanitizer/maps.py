"""Edits of tensor maps that a clock has: those that a fence.proxy.tensormap has released, and those of a map that
another such fence has acquired since (PTX ISA, "membar/fence").
"""

from __future__ import annotations

import numpy as np


class Maps:
    """Released and acquired edits of tensor maps. It never changes, so that clocks share it."""

    __slots__ = ("_acquired", "_released")

    def __init__(self, released: np.ndarray, acquired: dict[int, np.ndarray]) -> None:
        """released: int32[agents], the counts before a release. acquired: by address of a map, those before a release
        that an acquire of its 128 bytes has followed.
        """
        self._released, self._acquired = released, acquired

    def row(self, address: int, size: int) -> np.ndarray:
        """int32[size]: the counts of edits that the tensormap proxy sees in the map at an address."""
        found = self._acquired.get(address)
        return np.zeros(size, np.int32) if found is None else np.pad(found, (0, max(0, size - len(found))))

    def release(self, counts: np.ndarray) -> Maps:
        """These maps, with edits up to these counts released."""
        return Maps(_highest(self._released, counts), self._acquired)

    def acquire(self, address: int) -> Maps:
        """These maps, with the map at an address acquired."""
        known = self._acquired.get(address)
        found = self._released if known is None else _highest(known, self._released)
        return Maps(self._released, {**self._acquired, address: found})

    def join(self, other: Maps) -> Maps:
        """Maps with the edits of both."""
        if other is self:
            return self
        acquired = dict(self._acquired)
        for address, counts in other._acquired.items():
            own = acquired.get(address)
            acquired[address] = counts if own is None or own is counts else _highest(own, counts)
        return Maps(_highest(self._released, other._released), acquired)

    def equals(self, other: Maps) -> bool:
        """True if both have the same edits."""
        if other is self:
            return True
        if self._acquired.keys() != other._acquired.keys() or not np.array_equal(self._released, other._released):
            return False
        return all(np.array_equal(counts, other._acquired[address]) for address, counts in self._acquired.items())


NO_MAPS = Maps(np.zeros(0, np.int32), {})


def _highest(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one is other:
        return one
    if len(one) < len(other):
        one, other = other, one
    found = one.copy()
    np.maximum(found[: len(other)], other, out=found[: len(other)])
    return found
