"""Trace of one run: how its warps and asynchronous operations communicate.

A *turn* is a step (`execution.replay`) with an effect that others may see or depend on. `reversals.py` says which turns
depend on each other, and which orders lead to other traces.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING

from nogpu.compiler.steps import spins
from nogpu.execution.replay import Step
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.barriers import NamedBarrier
from nogpu.hardware.mbarriers import MBarrier
from nogpu.ops.memory import shared_target
from nogpu.sanitizer.cluster_state import is_global, opcode, running, running_lanes
from nogpu.sanitizer.reversals import Order, Traced
from nogpu.sanitizer.turns import READS, TESTS, WRITES, Turn

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

_ADDS = re.compile(r"red\.(?:.*\.)?(?P<operation>add|and|or|xor|min|max)\.(?:.*\.)?(?P<type>[bus]\d+)$")
_WIDTH = re.compile(r"(?:\.v(?P<count>\d))?\.[a-z]+(?P<bits>\d+)(?:x2)?$")
_TMEM, _QUEUE = "tmem", "queue"


class Trace:
    """Turns of a run, in their order. It handles the events that others may depend on."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._last: dict[str, list[Turn]] = {}  # of each agent
        self._step: Step | None = None
        self._actor: Warp | AsyncOperation | None = None
        self._issued: dict[AsyncOperation, list[Turn]] = {}  # turns that each comes after
        self._of: dict[AsyncOperation, Turn] = {}
        self._newest: dict[Hashable, AsyncOperation] = {}  # last operation of the tensor core, by thread
        self._chained: dict[AsyncOperation, AsyncOperation] = {}  # -> the one before it
        self._parted: dict[Warp, set[tuple[int, int]]] = {}  # lanes that have had a turn, and parted ones at that time
        self._barriers: dict[Hashable, MBarrier] = {}
        self._names: dict[MBarrier, Hashable] = {}
        self._places: dict[tuple, int] = {}  # number of mbarriers that were initialised at a place
        self._triggers: dict[int, list[Turn]] = {}  # by launch
        self._spins: dict[tuple[int, int], bool] = {}  # by kernel and instruction
        self.left: set[str] = set()
        self.dropped = 0

    # Steps

    def begins(self, step: Step, actor: Warp | AsyncOperation) -> None:
        """Sets the step of the events that follow (`GridObserver.begins`)."""
        self._step, self._actor = step, actor

    def repeats(self, step: Step) -> None:
        """Takes back the turns that a warp has had since it last polled (`GridObserver.repeats`)."""
        turns = self._last.get(step.agent, [])
        gone = 0
        while turns and turns[-1].step.number >= step.number:
            turns.pop().index = -2
            gone += 1
        if gone > 1:
            self.left.add("loops that poll several words: how often each is seen")

    def _turn(self, issuer: Issuer, ends: bool = False) -> Turn:
        """Turn of the present step. ends: the end of a wait that is no step of its own."""
        step, actor = self._step, self._actor
        assert step is not None  # events happen in steps
        own = self._last.setdefault(step.agent, [])
        if own and own[-1].step == step and own[-1].ends == ends:
            return own[-1]
        if isinstance(actor, AsyncOperation):
            turn = Turn(step, issuer, self._issued.get(actor, []) + self._before(actor), ends)
            self._of[actor] = turn
        else:
            turn = Turn(step, issuer, own[-1:] or self._started(issuer), ends)
        own.append(turn)
        self._turns.append(turn)
        return turn

    def _before(self, async_op: AsyncOperation) -> list[Turn]:
        """The last turn of the tensor core before an operation of it."""
        before = self._chained.get(async_op)
        while before is not None:
            if before in self._of:
                return [self._of[before]]
            before = self._chained.get(before)
        return []

    def _part(self, warp: Warp) -> None:
        """Notes that lanes communicate while others of their warp may do so, too."""
        lanes, parted = running_lanes(warp), self._parted.setdefault(warp, set())
        if any(not lanes & some and lanes & others for some, others in parted):
            self.left.add("lanes of a warp that have parted: they take turns in one order")
        others = sum(group.bits for group in warp.groups) & ~lanes
        if others:
            parted.add((lanes, others))

    def _started(self, issuer: Issuer) -> list[Turn]:
        """Turns after which a warp's launch has started."""
        return self._triggers.get(issuer[0].grid.number - 1, [])

    # Events

    def issued(self, async_op: AsyncOperation, g: ActiveGroup, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Notes the turns that an operation comes after (`Events.issued`)."""
        step = self._step
        assert step is not None  # events happen in steps
        if running is not None:  # an arrival on its way to another CTA: no operation of the tensor core waits for it
            self._issued[async_op] = [self._turn(issuer)]
            return
        after = list(self._last.get(step.agent, [])[-1:]) or self._started(issuer)
        if opcode(issuer).startswith("tcgen05."):
            thread = g.warp, running_lanes(g.warp)
            if thread in self._newest:
                self._chained[async_op] = self._newest[thread]
            self._newest[thread] = async_op
        self._issued[async_op] = after

    def word_stored(self, warp: Warp, mask: int, key: int) -> None:
        """Adds a write of a word to the turn (`Events.word_stored`)."""
        issuer = running(warp)
        found = _ADDS.match(opcode(issuer))
        self._word(issuer, key, WRITES if found is None else found["operation"] + found["type"])

    def word_loaded(self, warp: Warp, mask: int, key: int) -> None:
        """Adds a load of a word, or an atomic, to the turn (`Events.word_loaded`)."""
        issuer = running(warp)
        self._word(issuer, key, READS if opcode(issuer).startswith("ld") else WRITES)

    def _word(self, issuer: Issuer, key: int, how: str) -> None:
        turn, first = self._turn(issuer), key
        self._part(issuer[0].warp)
        home: Hashable = None
        if not is_global(key):
            cta, first = shared_target(issuer[0], key)
            home = _cta(cta)
        for word in range(first >> 2, first + _width(opcode(issuer)) + 3 >> 2):
            place = home, word
            if turn.words.setdefault(place, how) != how:
                turn.words[place] = WRITES

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Adds an arrival on an mbarrier to the turn (`Events.mbarrier_arrived`)."""
        by_bytes = "complete_tx" in opcode(issuer)
        if running is None:
            self._part(issuer[0].warp)
        phase = self._name(barrier), barrier.phase
        arrives = self._turn(issuer).arrives
        arrives[phase] = arrives.get(phase, False) or not by_bytes
        if opcode(issuer).startswith("cp.async.mbarrier.arrive") and "noinc" not in opcode(issuer):
            self.left.add("cp.async.mbarrier.arrive without .noinc: when it adds its arrival")

    def expected(self, barrier: MBarrier) -> None:
        """Adds an expectation of bytes to the turn (`Events.expected`)."""
        actor = self._actor
        assert actor is not None  # events happen in steps
        self._turn(_issuer(actor)).expects.add((self._name(barrier), barrier.phase))

    def initialised(self, barrier: MBarrier, warp: Warp, mask: int) -> None:
        """Adds mbarrier.init to the turn, before the arrivals of the first phase (`Events.initialised`)."""
        self._names.pop(barrier, None)
        self._turn(running(warp)).arrives[self._name(barrier), barrier.phase - 1] = True

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """Adds a wait for a phase, or a test that has seen its end, to the turn (`Events.passed`)."""
        issuer, phase = running(warp), (self._name(barrier), barrier.phase - 1)
        turn = self._turn(issuer)
        self._part(warp)
        turn.waits.add(phase)
        if not self._waits(issuer):
            turn.words[TESTS, phase[0]] = READS

    def polled(self, barrier: MBarrier, warp: Warp) -> None:
        """Adds a test that has not seen the end of a phase to the turn (`Events.polled`)."""
        issuer, name = running(warp), self._name(barrier)
        if not self._waits(issuer):
            turn = self._turn(issuer)
            turn.tests.add((name, barrier.phase))
            turn.words[TESTS, name] = READS

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Adds an arrival on a named or cluster barrier to the turn (`Events.arrived`)."""
        name = _name(barrier, warp)
        if name is not None:
            self._part(warp)
            self._turn(running(warp)).arrives[name, generation] = True

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Adds a turn for the end of a wait for a named or cluster barrier (`Events.met`)."""
        name = _name(barrier, warp)
        if name is not None:
            self._turn(running(warp), ends=True).waits.add((name, generation))

    def excused(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Adds an exit to the turn, as an arrival on a barrier (`Events.excused`)."""
        name = _name(barrier, warp)
        if name is not None:
            self._turn(running(warp)).arrives[name, generation] = True

    def exited(self, cta: Cta) -> None:
        """Notes a CTA that has read the clock (`Events.exited`)."""
        if any(warp.clock_reads for warp in cta.warps):
            self.left.add("values of the clock")

    def allocated(self, cta: Cta, columns: int) -> None:
        """Adds tcgen05.alloc to the turn (`Events.allocated`)."""
        self._columns(cta)

    def freed(self, cta_group: int, issuer: Issuer, columns: int) -> None:
        """Adds tcgen05.dealloc to the turn (`Events.freed`)."""
        self._columns(issuer[0].cta)

    def _columns(self, cta: Cta) -> None:
        actor = self._actor
        if not isinstance(actor, AsyncOperation) and actor is not None:
            self._turn(running(actor)).words[_TMEM, _cta(cta)] = WRITES

    def triggered(self, warp: Warp) -> None:
        """Notes a turn behind which the next launch may start (`Events.triggered`)."""
        self._triggers.setdefault(warp.cta.grid.number, []).append(self._turn(running(warp)))

    def waited_for(self, warp: Warp, grid: int) -> None:
        """Orders the turn behind all turns of a launch (`Events.waited_for`)."""
        turn = self._turn(running(warp))
        turn.after += [each for each in self._turns if each.issuer[0].grid.number == grid]

    def cancelled(self, request: AsyncOperation) -> None:
        """Adds a request to the turn that has taken over a cluster of its launch, or found none left."""
        self._turn(_issuer(request)).words[_QUEUE, request.grid.number] = WRITES
        self.left.add("clusters that other clusters take over: which of them start by themselves")

    def _waits(self, issuer: Issuer) -> bool:
        """True for a test of an mbarrier that is repeated until the phase is over."""
        entry, index = issuer[0].grid.entry, issuer[1]
        place = id(entry), index
        if place not in self._spins:
            self._spins[place] = spins(entry, index)
        return self._spins[place]

    def _name(self, barrier: MBarrier) -> Hashable:
        """Name of an mbarrier, the same in every run."""
        name = self._names.get(barrier)
        if name is None:
            assert barrier.home is not None  # every barrier of a CTA has one
            place = _cta(barrier.home), barrier.name
            self._places[place] = number = self._places.get(place, 0) + 1
            name = self._names[barrier] = (place, number)
            self._barriers[name] = barrier
        return name

    # Order

    def sequences(self) -> dict[str, list[list[tuple[str, Hashable, int]]]]:
        """Events of each agent on barriers, turn by turn: (how, name of the barrier, phase)."""
        found = {}
        for agent, turns in self._last.items():
            by_kind = [(("arrives", x.arrives), ("waits", x.waits), ("tests", x.tests)) for x in turns]
            found[agent] = [[(how, *each) for how, phases in kinds for each in phases] for kinds in by_kind]
        return found

    def traced(self) -> Traced:
        """The trace, at the end of the run."""
        parts = self._parts()
        agents: dict[int, dict[str, list[Turn]]] = {}
        for agent, own in self._last.items():
            if own:
                agents.setdefault(parts[_cluster(own[0])], {})[agent] = own
        turns: dict[int, list[Turn]] = {part: [] for part in agents}
        for turn in self._turns:
            if turn.index != -2:
                turns[parts[_cluster(turn)]].append(turn)
        found = [Order(turns[part], agents[part], self._barriers).traced() for part in agents]
        return Traced(
            frozenset().union(*(each.turns for each in found)),
            [reversal for each in found for reversal in each.reversals],
            frozenset(self.left).union(*(each.left for each in found)),
            self.dropped,
            sum(each.length for each in found),
        )

    def _parts(self) -> dict[tuple[int, int], int]:
        """Cluster -> number of its part. Those that communicate are one part; the orders of parts combine freely."""
        parent: dict[tuple[int, int], tuple[int, int]] = {}
        users: dict[Hashable, tuple[int, int]] = {}

        def root(cluster: tuple[int, int]) -> tuple[int, int]:
            while (above := parent.setdefault(cluster, cluster)) != cluster:
                cluster = above
            return cluster

        for turn in self._turns:
            own = root(_cluster(turn))
            barriers = [name for name, _ in (*turn.arrives, *turn.waits, *turn.tests)]
            others = [users.setdefault(place, own) for place in (*turn.words, *barriers)]
            for other in (*others, *map(_cluster, turn.after)):
                parent[root(other)] = own
        numbers: dict[tuple[int, int], int] = {}
        return {cluster: numbers.setdefault(root(cluster), len(numbers)) for cluster in parent}


def _cluster(turn: Turn) -> tuple[int, int]:
    cta = turn.issuer[0].cta
    return cta.grid.number, cta.cluster.number


def _cta(cta: Cta) -> tuple[int, int]:
    return cta.grid.number, cta.cluster.number * cta.cluster.size + cta.rank


def _name(barrier: object, warp: Warp) -> Hashable:
    """Name of a barrier of a CTA or a cluster; None for one of lanes of a warp."""
    if not isinstance(barrier, NamedBarrier):
        return warp.cta.grid.number, warp.cta.cluster.number, "cluster"
    return None if barrier.number < 0 else (_cta(warp.cta), "barrier", barrier.number)


def _issuer(actor: Warp | AsyncOperation) -> Issuer:
    """Instruction that acts, or that has issued what acts."""
    if isinstance(actor, AsyncOperation):
        return actor.warp.first_group, actor.origin[2]
    return running(actor)


@lru_cache(maxsize=4096)
def _width(text: str) -> int:
    """Bytes that an instruction accesses."""
    found = _WIDTH.search(text)
    return 16 if found is None else int(found["bits"]) * int(found["count"] or 1) // 8
