"""Orders of a run's turns that lead to other traces.

Turns that are *dependent* must keep their order for the run to be the same:

| turns | dependent |
|---|---|
| accesses to a word, with an order or atomic | unless both load it, or both add to it and look at no result |
| arrivals on a barrier | in different phases |
| a wait for a phase | with the arrivals of that phase, and those of the phase before |
| a test of a phase that does not wait | with all arrivals |

A turn is *below* another if program order, issue and dependent pairs lead to it. Runs with the same turns, and with the
same ones below each, are one trace: they differ by the order of turns that do not depend on each other, which nobody
can see. docs/explore.md, "Why a verdict holds", says why arrivals in one phase need no order of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.execution.replay import Hold
from nogpu.sanitizer.turns import TESTS, WRITES, Phase, Turn

if TYPE_CHECKING:
    from nogpu.execution.replay import Step
    from nogpu.hardware.mbarriers import MBarrier

WORD, ARRIVAL = 1, 2
"""Kinds of pairs."""
LONGEST = 20_000  # pairs of a run that are looked at
FEW = 16  # limit below which a set's turns are found faster one by one


class Turns(NamedTuple):
    """Turns of a run by index, without what they belong to: a search makes holds of them in another process.

    A set of turns is an integer that has a bit for each index.
    """

    steps: list[Step]
    texts: list[str]
    ends: list[bool]  # True: the end of a wait, which cannot be held
    hashes: list[int]
    own: list[int]  # set below each turn by program order and issue
    on: list[int]  # set on which each turn depends
    below: list[int]  # set of each turn and those below it
    of_agents: list[list[tuple[int, list[int]]]]  # turns of each agent, with those that each comes after

    def above(self, index: int) -> int:
        """Set of the turns that a turn is below, and itself."""
        return sum(1 << later for later, below in enumerate(self.below) if below >> index & 1)


class Reversal(NamedTuple):
    """Order of turns that leads to another trace: all that is not above the first of a pair, the second, the rest."""

    kind: int
    where: tuple[int, int]  # instructions of the pair that is reversed
    key: Hashable  # of the order
    pair: tuple[int, int]
    turns: Turns

    def past(self) -> frozenset[int]:
        """Hashes of the turns that come first."""
        return frozenset(self.turns.hashes[index] for index in _bits(self._kept()))

    def holds(self) -> dict[Hold, str]:
        """Holds of a run in this order, with their texts."""
        turns, (_, second), kept = self.turns, self.pair, self._kept()
        holds: dict[Hold, str] = {}
        for later in _bits(kept):
            self._keep(holds, later, turns.on[later] & ~turns.own[later] & kept)
        self._keep(holds, second, kept & ~turns.own[second])
        inside = kept | 1 << second
        for own in turns.of_agents:
            following = next(((i, after) for i, after in own if not inside >> i & 1 and not turns.ends[i]), None)
            if following is not None and all(inside >> before & 1 for before in following[1]):
                self._hold(holds, following[0], second)
        return holds

    def _kept(self) -> int:
        first, second = self.pair
        return ((1 << len(self.turns.steps)) - 1) & ~self.turns.above(first) & ~(1 << second)

    def _keep(self, holds: dict[Hold, str], later: int, before: int) -> None:
        """Holds a turn behind those turns of a set that are not below others of the set."""
        if self.turns.ends[later]:
            return
        for index in sorted(_bits(before), reverse=True):
            if before >> index & 1:
                before &= ~self.turns.below[index]
                self._hold(holds, later, index)

    def _hold(self, holds: dict[Hold, str], later: int, before: int) -> None:
        steps, texts = self.turns.steps, self.turns.texts
        if steps[later].agent != steps[before].agent:
            holds[Hold(steps[later], steps[before])] = f"{texts[later]} behind {texts[before]}"


class Traced(NamedTuple):
    """Trace of a run, and reversals that lead to others."""

    turns: frozenset[int]  # hashes: a turn with all that is below it
    reversals: list[Reversal]
    left: frozenset[str]  # what a search does not reverse
    dropped: int  # number of holds whose order was impossible
    length: int  # number of turns


class Order:
    """Order of the turns of clusters that communicate. A set of turns is an integer that has a bit for each index."""

    def __init__(self, turns: list[Turn], last: dict[str, list[Turn]], barriers: dict[Hashable, MBarrier]) -> None:
        self._turns, self._last, self._barriers = turns, last, barriers
        self._own: list[int] = []  # set below each turn by program order and issue
        self._below: list[int] = []  # set of each turn and those below it
        self._on: list[int] = []  # set on which each turn depends
        self._hashes: list[int] = []
        self._pairs: list[tuple[int, int]] = []  # (turn, a later one that could come first)
        self._behind: list[tuple[int, int]] = []  # (turn, a later one that it could come behind)
        self._arrivals: dict[Phase, int] = {}  # set of those on a phase
        self._tested = {place for turn in self._turns for place in turn.words if place[0] == TESTS}
        self._words: dict[Hashable, dict[str, int]] = {}
        self._waiting: dict[Phase, list[int]] = {}
        self._expecting: dict[Phase, list[int]] = {}
        self._ends: dict[Phase, int] = {}  # last arrival or completion of bytes
        self._last_arrivals: dict[Phase, int] = {}
        for index, turn in enumerate(self._turns):
            turn.index = index
            for phase_of, counts in turn.arrives.items():
                self._ends[phase_of] = index
                if counts:
                    self._last_arrivals[phase_of] = index
        for index, turn in enumerate(self._turns):
            self._add(index, turn)

    def _add(self, index: int, turn: Turn) -> None:
        own = 0
        for before in turn.after:
            if before.index >= 0:
                own |= self._below[before.index]
        could_precede = 0  # of those on which the turn depends
        waits = 0
        words = dict(turn.words)
        for name, phase in turn.arrives:
            could_precede |= self._arrivals.get((name, phase - 1), 0)
            if (TESTS, name) in self._tested:
                words.setdefault((TESTS, name), "arrives")
        for name, phase in turn.waits:
            waits |= self._arrivals.get((name, phase), 0)
            could_precede |= self._arrivals.get((name, phase - 1), 0)
        for name, phase in turn.tests:
            waits |= self._arrivals.get((name, phase - 1), 0)
        for place, how in words.items():
            seen = self._words.setdefault(place, {})
            for other, by in seen.items():
                if other != how or how == WRITES:
                    could_precede |= by
            seen[how] = seen.get(how, 0) | 1 << index
        if turn.ends:  # the end of a wait cannot come sooner
            waits, could_precede = waits | could_precede, 0
        on = could_precede | waits
        below = self._under(own, on)
        for phase_of in turn.arrives:
            overtaken = self._overtaken(phase_of, index, below)
            self._behind += [(before, index) for before in overtaken]
            on |= sum(1 << before for before in overtaken)
        below = self._under(below, on)
        self._own.append(own)
        self._on.append(on)
        self._below.append(below | 1 << index)
        self._pairs += [(before, index) for before in _bits(could_precede & ~own)]
        for phase_of in turn.arrives:
            self._arrivals[phase_of] = self._arrivals.get(phase_of, 0) | 1 << index
        for table, phases in ((self._waiting, turn.waits), (self._expecting, turn.expects - turn.arrives.keys())):
            for phase_of in phases:
                table.setdefault(phase_of, []).append(index)
        past = frozenset(self._hashes[before] for before in _bits(on | self._direct(turn)))
        facts = turn.step, turn.ends, turn.issuer[1], frozenset(turn.arrives), frozenset(turn.waits)
        self._hashes.append(hash((facts, frozenset(turn.tests), past)))

    def _direct(self, turn: Turn) -> int:
        found = 0
        for before in turn.after:
            if before.index >= 0:
                found |= 1 << before.index
        return found

    def _under(self, below: int, on: int) -> int:
        """Union of the set `below` with the turns below those of `on`."""
        for before in _bits(on & ~below):
            below |= self._below[before]
        return below

    def _overtaken(self, phase_of: Phase, index: int, below: int) -> list[int]:
        """Turns that only the last arrival of a phase must not precede: a wait for the phase before, which would miss
        that one, and expected bytes, without which the phase would end.
        """
        name, phase = phase_of
        barrier, earlier = self._barriers.get(name), self._arrivals.get(phase_of, 0)
        found = []
        if barrier is not None and barrier.phase > phase and self._ends[phase_of] == index:
            waiting = self._waiting.get((name, phase - 1), [])
            found += [x for x in waiting if not any(self._below[y] >> x & 1 for y in _bits(earlier))]
        if self._last_arrivals.get(phase_of) == index:
            counted = [y for y in _bits(earlier) if self._turns[y].arrives[phase_of]]
            expecting = self._expecting.get(phase_of, [])
            found += [x for x in expecting if not any(self._below[y] >> x & 1 for y in counted)]
        return [x for x in found if not below >> x & 1]

    def traced(self) -> Traced:
        left = set[str]()
        pairs = [(*pair, True) for pair in self._pairs] + [(*pair, False) for pair in self._behind]
        if len(pairs) > LONGEST:
            left.add(f"all but {LONGEST:,} of {len(pairs):,} pairs of a run")
            del pairs[LONGEST:]
        return Traced(frozenset(self._hashes), self._reversals(pairs), frozenset(left), 0, len(self._turns))

    def _reversals(self, pairs: list[tuple[int, int, bool]]) -> list[Reversal]:
        """Reversals of pairs of turns. The third item of a pair is False for those of `_behind`."""
        if not pairs:
            return []
        plain = Turns(
            [turn.step for turn in self._turns],
            [turn.text for turn in self._turns],
            [turn.ends for turn in self._turns],
            *(self._hashes, self._own, self._on, self._below),
            [[(x.index, [y.index for y in x.after if y.index >= 0]) for x in own] for own in self._last.values()],
        )
        later: dict[int, tuple[int, int]] = {}  # by turn: the set above it, and the sum of its hashes
        total, found = sum(self._hashes), []
        for first, second, precedes in pairs:
            if first not in later:
                above = plain.above(first)
                later[first] = above, sum(self._hashes[index] for index in _bits(above))
            above, hashes = later[first]
            past = total - hashes - (0 if above >> second & 1 else self._hashes[second])  # a sum stands for the set
            one, other = self._turns[first], self._turns[second]
            kind = WORD if one.words.keys() & other.words.keys() else ARRIVAL
            key = past, other.step, precedes
            found.append(Reversal(kind, (one.issuer[1], other.issuer[1]), key, (first, second), plain))
        return found


def _bits(mask: int) -> Iterable[int]:
    """Numbers of the bits that are set, in order."""
    if mask.bit_count() > FEW:
        bits = np.frombuffer(mask.to_bytes(mask.bit_length() // 8 + 1, "little"), np.uint8)
        yield from np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
