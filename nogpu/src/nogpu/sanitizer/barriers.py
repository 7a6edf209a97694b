"""Follows barriers and synchronizing words: arrivals and stores release clocks, waits and loads acquire them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nogpu.hardware.barriers import ClusterBarrier, NamedBarrier
from nogpu.sanitizer.clocks import (
    ANYWAY,
    FENCED,
    FENCED_GLOBAL,
    FULL,
    OF_CLUSTER,
    OF_CTA,
    OF_DEVICE,
    ORDERED,
    UNSCOPED,
    Clock,
    lanes_of,
)
from nogpu.sanitizer.cluster_state import ClusterState, is_global, opcode, place_of, remnant, running, running_lanes
from nogpu.sanitizer.observed import Observed, both
from nogpu.sanitizer.orders import is_of_device, is_wide, word_size
from nogpu.sanitizer.relaxed import Weak
from nogpu.sanitizer.rules import SCOPE
from nogpu.sanitizer.words import Word, add, of_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nogpu.hardware.async_operations import AsyncOperation
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.observed import Word as ObservedWord

_FENCED_BY = {
    None: (FENCED, FENCED_GLOBAL),
    "global": (FENCED_GLOBAL,),
    "shared::cta": (FENCED,),
    "shared::cluster": (FENCED,),
}
"""State space of fence.proxy.async -> rows of a clock."""
NEVER = -1, -1
KEPT = 32  # uses of a barrier for which a warp may still wait

_Arrival = tuple[int, int, int, "Issuer"]
"""Component of the warp's first lane, mask of the lanes that arrive, their count, the instruction."""
_Source = tuple[int | None, bool]
"""Source of a release: rank of the threads' CTA (None: an operation), True for a scope wider than the CTA."""
_OPERATION: _Source = None, True
_TOTAL = ("fence.sc", "membar.gl", "membar.sys")  # fences with one total order (PTX ISA, membar/fence)
_SCOPES = {"cta": OF_CTA, "cluster": OF_CLUSTER}


class _MbarrierState:
    """Clocks that arrivals on an mbarrier have released."""

    def __init__(self, phase: int) -> None:
        self.clocks: dict[_Source, Clock] = {}  # of the current phase
        self.over: dict[_Source, Clock] = {}  # of completed phases
        self.phase = phase


class Barriers:
    """Barriers and synchronizing words of a cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._warps = state, state.warps
        self._mbarriers: dict[MBarrier, _MbarrierState] = {}
        self._uses: dict[object, dict[int, Clock]] = {}
        # by named barrier: number of its current use, arrivals of the use before, arrivals of the current one
        self._arrivals: dict[NamedBarrier, tuple[int, list[_Arrival], list[_Arrival]]] = {}
        self._met: dict[tuple[object, Warp], int] = {}  # last use of a barrier for which a warp has waited
        self._words: dict[int, Word[_Source]] = {}
        # (warp, word, instruction) -> the version of the word and the lanes at the last acquire
        self._seen: dict[tuple[Warp, int, int], tuple[tuple[int, int], int]] = {}

    def mbarrier_arrived(self, barrier: MBarrier, issuer: Issuer, running: AsyncOperation | None) -> None:
        """Releases clocks to an mbarrier (`Events.mbarrier_arrived`)."""
        clocks, by_thread = self._mbarrier_state(barrier).clocks, opcode(issuer).startswith("mbarrier.arrive")
        if by_thread:
            self._note_weak(issuer, barrier.name, True)
        if running is not None and running.cause is not None:
            running.cause.completes_on = None if by_thread else barrier.name
            add(clocks, self._source(issuer) if by_thread else _OPERATION, running.cause.clock)
        elif by_thread:
            for source, clock in self._released_by_source(issuer, running_lanes(issuer[0].warp)):
                add(clocks, source, clock)
        else:
            add(clocks, _OPERATION, self._released(issuer, running_lanes(issuer[0].warp)))

    def passed(self, barrier: MBarrier, warp: Warp) -> None:
        """Acquires what the completed phases of an mbarrier released (`Events.passed`)."""
        self._note_weak(running(warp), barrier.name, False)
        self._acquire(running(warp), running_lanes(warp), self._mbarrier_state(barrier).over)

    def _note_weak(self, issuer: Issuer, place: str, releases: bool) -> None:
        """Notes a release or an acquire that is relaxed, or has the scope of a CTA."""
        name = opcode(issuer)
        has_order = self._state.releases(issuer) if releases else self._state.acquires(issuer)
        is_narrow = not is_wide(name) and (issuer[0].cta.cluster.size > 1 or place.startswith("word"))
        if not has_order or is_narrow:
            count = self._warps[issuer[0].warp].now
            self._state.reporter.relaxed.note(Weak(count, not has_order, is_narrow, remnant(issuer), place), releases)

    def _source(self, issuer: Issuer) -> _Source:
        """Source of a release by an instruction of threads; where scopes are waived, that of an operation."""
        if self._state.reporter.allows(SCOPE, issuer):
            return _OPERATION
        return issuer[0].cta.rank, is_wide(opcode(issuer))

    def _first_row(self, issuer: Issuer, source: _Source) -> int:
        """First row of a released clock that a waiting or loading instruction acquires."""
        (rank, wide), state = source, self._state
        if rank is None or rank == issuer[0].cta.rank or not state.reporter.follows_scopes(state.kernel):
            return ORDERED
        return ORDERED if wide and is_wide(opcode(issuer)) or state.reporter.allows(SCOPE, issuer) else UNSCOPED

    def _mbarrier_state(self, barrier: MBarrier) -> _MbarrierState:
        state = self._mbarriers.get(barrier)
        if state is None:
            state = self._mbarriers[barrier] = _MbarrierState(barrier.phase)
        if barrier.phase > state.phase:
            for source, clock in state.clocks.items():
                add(state.over, source, clock)
            state.clocks, state.phase = {}, barrier.phase
        return state

    def _released(self, issuer: Issuer, mask: int, scope: int = OF_CTA) -> Clock:
        """Clock that lanes release by an instruction. scope: of the fence that a relaxed instruction needs."""
        clock = self._warps[issuer[0].warp]
        return clock.release(mask) if self._state.releases(issuer) else clock.release_relaxed(mask, scope)

    def _released_by_source(self, issuer: Issuer, mask: int) -> Iterator[tuple[_Source, Clock]]:
        """Clocks that lanes release by an instruction, with their sources."""
        source = self._source(issuer)
        if source[1] and not self._state.releases(issuer) and self._warps[issuer[0].warp].has_narrow_fence(mask):
            yield (issuer[0].cta.rank, False), self._released(issuer, mask)
            yield source, self._released(issuer, mask, OF_CLUSTER)
        else:
            yield source, self._released(issuer, mask)

    def _acquirer(self, issuer: Issuer, needed: int) -> Callable[[int, Clock, int], None]:
        """Function by which lanes acquire at an instruction. needed: scope of the fence that a relaxed one needs."""
        of = self._warps[issuer[0].warp]
        if self._state.acquires(issuer):
            return of.acquire
        return partial(of.acquire_relaxed, needed=needed, together=running_lanes(issuer[0].warp))

    def _acquire(self, issuer: Issuer, mask: int, clocks: dict[_Source, Clock]) -> None:
        """Acquires clocks for lanes by an instruction."""
        for source, clock in clocks.items():
            acquire = self._acquirer(issuer, OF_CTA if source[0] in (None, issuer[0].cta.rank) else OF_CLUSTER)
            acquire(mask, clock, self._first_row(issuer, source))

    def arrived(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Releases the clock of lanes that arrive on a barrier (`Events.arrived`)."""
        scope = OF_CLUSTER if isinstance(barrier, ClusterBarrier) else OF_CTA
        if scope == OF_CLUSTER:
            self._note_weak(running(warp), "barrier of the cluster", True)
        if isinstance(barrier, NamedBarrier) and barrier.machine is not None:  # no bar.warp.sync
            self._check_use(barrier, generation, warp, mask)
        self._use(barrier, generation, self._released(running(warp), mask, scope))

    def _check_use(self, barrier: NamedBarrier, generation: int, warp: Warp, mask: int) -> None:
        """Checks that an arrival on a named barrier is ordered behind those of the use before."""
        number, last, now = self._arrivals.get(barrier, (-1, [], []))
        if generation != number:
            last, now = (now if generation == number + 1 else []), []
        clock = self._warps[warp]
        for base, lanes, count, issuer in last if self._met.get((barrier, warp)) != generation - 1 else ():
            places = [base + lane for lane in lanes_of(lanes)]
            for _, part in clock.parts(mask) if base != clock.base else ():
                if (part.table[ANYWAY, places] < count).any():
                    self._state.reporter.report_named(barrier, running(warp), issuer)
        now.append((clock.base, mask, clock.now, running(warp)))
        self._arrivals[barrier] = generation, last, now

    def excused(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Adds lanes that exit to a use of a barrier (`Events.excused`). An exit releases nothing, but no access of
        theirs comes after it.
        """
        clock = self._warps[warp].release(mask)
        clock.table[:ANYWAY] = 0
        self._use(barrier, generation, clock)

    def _use(self, barrier: object, generation: int, clock: Clock) -> None:
        uses = self._uses.setdefault(barrier, {})
        if generation in uses:
            uses[generation].join(clock)
        else:
            uses[generation] = clock
            uses.pop(generation - KEPT, None)

    def met(self, barrier: object, generation: int, warp: Warp, mask: int) -> None:
        """Acquires what arrivals on a barrier released (`Events.met`)."""
        self._met[barrier, warp] = generation
        clock = self._uses.get(barrier, {}).get(generation)
        if clock is not None:
            self._warps[warp].acquire(mask, clock)

    def joined(self, warp: Warp, mask: int) -> None:
        """Gives the lanes of a bar.warp.sync one clock (`Events.joined`)."""
        clock = self._warps[warp]
        clock.acquire(mask, clock.release(mask))

    def fenced(self, warp: Warp, space: str | None) -> None:
        """Executes fence.proxy.async (`Events.fenced`)."""
        self._warps[warp].fence_proxy(running_lanes(warp), _FENCED_BY[space])

    def released_maps(self, warp: Warp, mask: int) -> None:
        """Releases edits of tensor maps (`Events.released_maps`)."""
        self._warps[warp].release_maps(mask)

    def acquired_map(self, warp: Warp, mask: int, address: int) -> None:
        """Acquires edits of the tensor map at an address (`Events.acquired_map`)."""
        self._warps[warp].acquire_map(mask, address)

    def fenced_threads(self, warp: Warp, scope: str) -> None:
        """Executes a fence of threads (`Events.fenced_threads`)."""
        clock, mask, of = self._warps[warp], running_lanes(warp), _SCOPES.get(scope, OF_DEVICE)
        is_total = of == OF_DEVICE and opcode(running(warp)).startswith(_TOTAL)
        for lanes, part in list(clock.parts(mask)) if is_total else ():
            if part.observed is not None and part.observed.heard is not None:
                clock.acquire(lanes, part.observed.heard.at_home(self._state.home, self._state.agents))
        clock.fence(mask, of)
        if is_total:
            clock.observe(mask, Observed(None, of_others(self._state, clock.behind(of)), None))

    def word_stored(self, warp: Warp, mask: int, key: int) -> None:
        """Releases clocks by a word that lanes write (`Events.word_stored`)."""
        issuer, base = running(warp), self._warps[warp].base
        stores, releases = opcode(issuer).startswith("st."), self._state.releases(issuer)
        self._note_write(warp, mask, key, stores)
        self._note_weak(issuer, f"word at {place_of(key):#x}", True)
        word = self._word(key)
        if stores:
            word.store(base, mask)
        for source, clock in self._released_by_source(issuer, mask):
            word.release(source, clock, base, mask, releases)
        if is_global(key):
            clock, wide = self._released(issuer, mask, OF_DEVICE), is_of_device(opcode(issuer))
            if stores:
                self._state.words.store(self._state, key, base, mask)
            self._state.words.release(self._state, key, clock, wide, base, mask, releases)

    def _note_write(self, warp: Warp, mask: int, key: int, stores: bool) -> None:
        """Notes a strong write: what follows a read that observes it is ordered behind it."""
        clock, fenced = self._warps[warp], None
        for _, part in clock.parts(mask):
            fenced = both(fenced, None if part.observed is None else part.observed.fenced)
        if clock.has_written:
            clock.writes, clock.ahead, clock.has_written = {}, {}, False
        word = self._observed(key, running(warp))
        clock.ahead[word] = self._state.words.observed(word)
        clock.writes[word] = self._state.words.write(word, stores, fenced)

    def _observed(self, key: int, issuer: Issuer) -> ObservedWord:
        return (None if is_global(key) else self._state.home), place_of(key), word_size(opcode(issuer))

    def _word(self, key: int) -> Word[_Source]:
        """Clocks that lanes of this cluster have released by a word."""
        word = self._words.get(key)
        if word is None:
            word = self._words[key] = Word()
        if is_global(key):
            _, stores = self._state.words.version(key)
            if stores != word.stores:
                word.forget(stores)
        return word

    def word_loaded(self, warp: Warp, mask: int, key: int) -> None:
        """Acquires what writes of a word released (`Events.word_loaded`). Lanes that spin acquire each version once."""
        issuer = running(warp)
        word = self._word(key)
        version = word.version, self._state.words.version(key)[0]
        place = warp, key, issuer[1]
        seen, lanes = self._seen.get(place, (NEVER, 0))
        if seen == version and not mask & ~lanes:
            return
        self._seen[place] = version, mask
        self._note_weak(issuer, f"word at {place_of(key):#x}", False)
        if is_of_device(opcode(issuer)) or not is_global(key):
            self._observe(warp, mask, self._observed(key, issuer), opcode(issuer).startswith("atom"))
        if word.is_of_others(self._warps[warp].base, mask):
            self._acquire(issuer, mask, word.clocks)
        if is_global(key) and version[1]:
            self._acquire_of_others(issuer, mask, key)

    def _observe(self, warp: Warp, mask: int, word: ObservedWord, is_atomic: bool) -> None:
        """Notes what lanes observe by a strong read of a word. An atomic reads what was there ahead of it: of what
        others write to the word by the same instruction, only the last lane observes all, since the lowest goes first.
        """
        clock, found = self._warps[warp], self._state.words.observed(word)
        before = clock.ahead.get(word) if is_atomic else found
        if before is not None:
            clock.observe(mask | running_lanes(warp), before)
        if is_atomic and found is not None and mask & mask - 1:
            clock.observe(1 << mask.bit_length() - 1, found)

    def _acquire_of_others(self, issuer: Issuer, mask: int, key: int) -> None:
        """Acquires, for lanes, the clocks that other clusters have released by a word."""
        state, words, acquire = self._state, self._state.words, self._acquirer(issuer, OF_DEVICE)
        base, wide = self._warps[issuer[0].warp].base, is_of_device(opcode(issuer))
        follows_scopes = state.reporter.follows_scopes(state.kernel)
        for clock, row in words.released(state, key, wide, base, mask, follows_scopes):
            acquire(mask, clock, row)
            words.note_acquired(state.home, clock)

    def triggered(self, warp: Warp) -> None:
        """Releases to the start of the next launch what is ordered before these lanes' last fence of the device
        (`Events.triggered`; PTX ISA, griddepcontrol).
        """
        released = self._warps[warp].behind_fence(running_lanes(warp), OF_DEVICE)
        if released is not None:
            self._state.words.trigger(self._state, released)

    def started(self) -> None:
        """Acquires, at the start of the cluster, the clock that the launch before released to it."""
        released = self._state.started = self._state.words.start(self._state.home.grid)
        if released is not None:
            clock = released.at_home(self._state.home, self._state.agents)
            self._state.words.note_acquired(self._state.home, clock)
            for warp in self._warps.values():
                warp.acquire(FULL, clock)

    def waited_for(self, warp: Warp, grid: int) -> None:
        """Acquires the clock that the end of a launch releases (`Events.waited_for`)."""
        clock = self._state.words.end(grid).at_home(self._state.home, self._state.agents)
        self._warps[warp].acquire(running_lanes(warp), clock)
        self._state.words.note_acquired(self._state.home, clock)
