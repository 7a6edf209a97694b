"""Strong writes that a clock has observed, and what fence.sc orders by them.

| of the memory model | here |
|---|---|
| causality order: a write that a read observes precedes all that follows the read, whatever their orders | `seen` |
| fence.sc X precedes Y if what X precedes is observed by what precedes Y, and synchronizes with it | the next two |
| what is before each X | `fenced` |
| what is before those X that precede observed writes | `heard` |

A read observes the write whose value it has, and those before it whose values atomics have changed in between (PTX ISA,
"Observation Order", "Causality Order", "Fence-SC").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nogpu.sanitizer.clocks import Clock, Home

Word = tuple["Home | None", int, int]
"""Cluster of a word in shared memory (None: global memory), its address and its size in bytes."""
Chain = tuple[int, int]
"""Numbers of the first and of the last of strong writes, each of which has changed what the one before it wrote."""
KEPT = 64  # words of shared and of global memory whose observed writes a clock knows, at least


class Observed:
    """Observations that a clock has. It never changes, so that clocks share it."""

    __slots__ = ("fenced", "heard", "seen")

    def __init__(
        self, seen: dict[Word, Chain] | None = None, fenced: Clock | None = None, heard: Clock | None = None
    ) -> None:
        """fenced, heard: clocks as other clusters have them (`words.of_others`)."""
        self.seen, self.fenced, self.heard = seen or {}, fenced, heard

    def join(self, other: Observed) -> Observed:
        """Union of both observations."""
        if other is self:
            return self
        seen = self.seen
        for word, chain in other.seen.items():
            if seen.get(word, (-1, -1)) < chain:  # a later chain, or more of the same one
                seen = dict(seen) if seen is self.seen else seen
                seen[word] = chain
        if len(seen) > 2 * KEPT:
            seen = {**_newest(seen, False), **_newest(seen, True)}
        return Observed(seen, both(self.fenced, other.fenced), both(self.heard, other.heard))

    def equals(self, other: Observed) -> bool:
        """True if both have the same observations."""
        if other is self:
            return True
        return self.fenced is other.fenced and self.heard is other.heard and self.seen == other.seen

    def has(self, other: Observed) -> bool:
        """True if the other adds nothing to this one."""
        for mine, theirs in ((self.fenced, other.fenced), (self.heard, other.heard)):
            if theirs is not None and theirs is not mine:
                return False
        return all(self.seen.get(word, (-1, -1)) >= chain for word, chain in other.seen.items())


NOTHING_OBSERVED = Observed()


def _newest(seen: dict[Word, Chain], is_global: bool) -> dict[Word, Chain]:
    """The words of one memory, the last KEPT of them. Those of the other one, which may be many, displace none."""
    found = [each for each in seen.items() if (each[0][0] is None) == is_global]
    return dict(sorted(found, key=lambda each: each[1][1])[-KEPT:])


def both(one: Clock | None, other: Clock | None) -> Clock | None:
    """Join of two clocks as other clusters have them."""
    if one is None or other is None or one is other:
        return other if one is None else one
    found = one.copy()
    found.join(other)
    return found
