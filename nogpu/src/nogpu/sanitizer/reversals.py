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

from nogpu.execution.replay import Hold
from nogpu.sanitizer.turns import TESTS, WRITES, Phase, Turn

if TYPE_CHECKING:
    from nogpu.hardware.mbarriers import MBarrier

WORD, ARRIVAL = 1, 2
"""Kinds of pairs."""
LONGEST = 20_000  # pairs of a run that are looked at


class Reversal(NamedTuple):
    """Order of turns that leads to another trace."""

    kind: int
    where: tuple[int, int]  # instructions of the pair that is reversed
    holds: tuple[Hold, ...]
    texts: tuple[str, ...]  # of the holds
    past: frozenset[int]  # turns that come first
    key: Hashable  # of the order


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
        self._arrivals: dict[Phase, list[int]] = {}
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
            could_precede |= self._set(name, phase - 1)
            if (TESTS, name) in self._tested:
                words.setdefault((TESTS, name), "arrives")
        for name, phase in turn.waits:
            waits |= self._set(name, phase)
            could_precede |= self._set(name, phase - 1)
        for name, phase in turn.tests:
            waits |= self._set(name, phase - 1)
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
        for table, phases in (
            (self._arrivals, turn.arrives),
            (self._waiting, turn.waits),
            (self._expecting, turn.expects - turn.arrives.keys()),
        ):
            for phase_of in phases:
                table.setdefault(phase_of, []).append(index)
        past = frozenset(self._hashes[before] for before in _bits(on | self._direct(turn)))
        facts = turn.step, turn.ends, turn.issuer[1], frozenset(turn.arrives), frozenset(turn.waits)
        self._hashes.append(hash((facts, frozenset(turn.tests), past)))

    def _direct(self, turn: Turn) -> int:
        return sum({1 << before.index for before in turn.after if before.index >= 0})

    def _set(self, name: Hashable, phase: int) -> int:
        return sum(1 << index for index in self._arrivals.get((name, phase), ()))

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
        barrier, earlier = self._barriers.get(name), self._arrivals.get(phase_of, [])
        found = []
        if barrier is not None and barrier.phase > phase and self._ends[phase_of] == index:
            waiting = self._waiting.get((name, phase - 1), [])
            found += [x for x in waiting if not any(self._below[y] >> x & 1 for y in earlier)]
        if self._last_arrivals.get(phase_of) == index:
            counted = [y for y in earlier if self._turns[y].arrives[phase_of]]
            expecting = self._expecting.get(phase_of, [])
            found += [x for x in expecting if not any(self._below[y] >> x & 1 for y in counted)]
        return [x for x in found if not below >> x & 1]

    def traced(self) -> Traced:
        left = set[str]()
        pairs = [(*pair, True) for pair in self._pairs] + [(*pair, False) for pair in self._behind]
        if len(pairs) > LONGEST:
            left.add(f"all but {LONGEST:,} of {len(pairs):,} pairs of a run")
            del pairs[LONGEST:]
        found = [self._reversal(*pair) for pair in pairs]
        return Traced(frozenset(self._hashes), found, frozenset(left), 0, len(self._turns))

    def _reversal(self, first: int, second: int, precedes: bool) -> Reversal:
        """Reversal of a pair of turns: all that is not above the first one comes first, then the second one, then the
        rest. precedes: False for a pair of `_behind`.
        """
        above = sum(1 << index for index, below in enumerate(self._below) if below >> first & 1)
        kept = ((1 << len(self._turns)) - 1) & ~above & ~(1 << second)
        holds: dict[Hold, str] = {}
        for later in _bits(kept):
            self._keep(holds, later, self._on[later] & ~self._own[later] & kept)
        self._keep(holds, second, kept & ~self._own[second])
        inside = kept | 1 << second
        for turns in self._last.values():
            following = next((turn for turn in turns if not inside >> turn.index & 1 and not turn.ends), None)
            if following is not None and all(inside >> x.index & 1 for x in following.after if x.index >= 0):
                self._hold(holds, following.index, second)
        one, other = self._turns[first], self._turns[second]
        past = frozenset(self._hashes[index] for index in _bits(kept))
        kind = WORD if one.words.keys() & other.words.keys() else ARRIVAL
        where = one.issuer[1], other.issuer[1]
        return Reversal(kind, where, tuple(holds), tuple(holds.values()), past, (past, other.step, precedes))

    def _keep(self, holds: dict[Hold, str], later: int, before: int) -> None:
        """Holds a turn behind those turns of a set that are not below others of the set."""
        if self._turns[later].ends:
            return
        for index in sorted(_bits(before), reverse=True):
            if before >> index & 1:
                before &= ~self._below[index]
                self._hold(holds, later, index)

    def _hold(self, holds: dict[Hold, str], later: int, before: int) -> None:
        one, other = self._turns[later], self._turns[before]
        if one.step.agent != other.step.agent:
            holds[Hold(one.step, other.step)] = f"{one.text} behind {other.text}"


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
