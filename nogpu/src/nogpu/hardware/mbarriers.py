"""mbarrier objects in shared memory (PTX ISA, "mbarrier").

Phases are integers that only grow, so that a wait that sees its parity again two phases later is noticed. An active
group that has to wait is put on the barrier's list and woken when the phase ends.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from nogpu import headers
from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.barriers import label
from nogpu.hardware.native import RANKS_OF_CLUSTER, WARPS, Barrier, library

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

(COUNT_LIMIT,) = headers.constants("native/engine.h", "COUNT_LIMIT")  # largest expected, pending and tx count
(FROM_ASYNC,) = headers.constants("native/engine.h", "FROM_ASYNC")  # value of `hidden`
# Names of arrivals, in messages.
ARRIVAL, COMPLETION, TILE_LOAD, COMMIT = "arrival", "complete_tx", "tensor copy", "tcgen05.commit"
KINDS = dict(
    zip(headers.constants("native/engine.h", "BY_THREAD", "BY_TILE_LOAD", "BY_COMMIT"), (ARRIVAL, TILE_LOAD, COMMIT))
)
"""Compiled code's number -> kind, of the arrivals that it performs."""
BY_THREAD = (ARRIVAL, COMPLETION)  # arrivals that a thread performs itself

_NEW = bytes(Barrier(last_pc=-1, warp_phases=(-1,) * WARPS, rank_phases=(-1,) * RANKS_OF_CLUSTER))
"""Bytes that compiled code shares of a new barrier: to copy them is ten times as fast as to set the fields."""


class MBarrier(Barrier):
    """mbarrier object (PTX ISA, "mbarrier").

    Fields, which compiled code reads and changes, too: `expected`, arrivals per phase; `pending`, arrivals still
    missing in this phase; `bytes`, the tx-count: bytes expected minus bytes arrived; `delivered`, 1 if bytes have
    arrived in this phase; `phase`; `ended`, the time when the last phase ended; `heard`, the join of `Warp.known` of
    the arrivals, and `news`, its value at the end of the last phase; `waiting`, the number of `waiters`, and `first`,
    the list of those that compiled code keeps.
    """

    __hash__ = object.__hash__  # ctypes structures have no hash

    def __init__(self, name: str, count: int, home: Cta | None = None, initialiser: Issuer | None = None):
        super().__init__()
        self.address = ctypes.addressof(self)
        ctypes.memmove(self.address, _NEW, len(_NEW))
        self.name = name  # text in messages
        self._phases: dict[Warp, int] = {}  # phases of arrivals that compiled code has not performed
        self.waiters: list[ActiveGroup] = []
        self._last: tuple[str, Issuer] | None = None
        self.home = home  # CTA in whose shared memory it lies
        self.initialiser: Issuer | None = None
        self.initialise(count, initialiser)
        self.is_replaced = False  # True once another has been initialised in its place without mbarrier.inval

    def initialise(self, count: int, initialiser: Issuer | None) -> None:
        """Sets the arrivals per phase of a new or unused barrier. Raises Fault if the count is out of range."""
        if not 1 <= count <= COUNT_LIMIT:
            raise Fault(f"mbarrier.init with count {count}: must be 1 to {COUNT_LIMIT} (PTX ISA, mbarrier.init)")
        self.expected = self.pending = count
        self.initialiser = initialiser

    def hide(self) -> None:
        """Hides the initialisation, which happens now, from the async proxy and other CTAs, up to a fence."""
        assert self.home is not None and self.initialiser is not None  # mbarrier.init sets both
        group, pc = self.initialiser
        self.initial_warp, self.initial_pc, self.initialised = group.warp.index, pc, self.home.machine.progress
        library().hide(self.home.shared.window, self.address)

    def end(self) -> None:
        """Ends its life: no fence need publish it."""
        if self.hidden and self.home is not None:
            library().unlist_hidden(self.home.shared.window, self.address)

    @property
    def is_untouched(self) -> bool:
        """True if nobody has arrived, waits, or has expected bytes since the initialisation."""
        idle = not (self.phase or self.bytes or self.delivered or self.is_awaited)
        return idle and self.pending == self.expected and self.last is None

    @property
    def last(self) -> tuple[str, Issuer] | None:
        """Kind and issuer of the last arrival."""
        if self.last_pc < 0 or self.home is None:
            return self._last
        warps = self.home.cluster.ctas[self.last_rank].warps
        return KINDS[self.last_kind], (warps[self.last_warp].first_group, self.last_pc)

    @last.setter
    def last(self, arrival: tuple[str, Issuer]) -> None:
        self._last, self.last_pc = arrival, -1

    @property
    def phases(self) -> dict[Warp, int]:
        """Warps that have arrived, in order -> the phase of their last arrival."""
        found = dict(self._phases)
        for warp, phase in zip(self.home.warps if self.home is not None else (), self.warp_phases):
            if phase >= 0:
                found[warp] = max(phase, found.get(warp, 0))
        for rank, phase in enumerate(self.rank_phases):
            if phase >= 0 and self.home is not None:
                warp = self.home.cluster.ctas[rank].warps[self.rank_warps[rank] - 1]
                found[warp] = max(phase, found.get(warp, 0))
        return dict(sorted(found.items(), key=lambda arrival: arrival[0].key))

    @property
    def is_awaited(self) -> bool:
        """True if a group waits for the end of the phase."""
        return self.first is not None or self.waiting > 0

    def wake(self) -> None:
        """Wakes the groups that wait for the phase."""
        if self.first:
            library().wake_listed(self.address)
        waiters, self.waiters, self.waiting = self.waiters, [], 0
        for group in waiters:
            group.blocked = False
            group.cta.machine.enqueue(group.warp)

    def await_phase(self, group: ActiveGroup) -> None:
        """Lets a group wait for the end of the phase."""
        self.waiters.append(group)
        self.waiting = len(self.waiters)

    def arrive(self, count: int, how: str, issuer: Issuer, drop: bool = False) -> None:
        """Counts `count` arrivals. Raises Fault if fewer are pending.

        how: kind of the arrivals, for messages. drop: True if later phases expect as many fewer.
        """
        self.check_live(how, issuer)
        if self.hidden:
            self._check_visible(how, issuer)
        if count > self.pending:
            raise Fault(
                f"{count} arrival(s) on {self.name}, but phase {self.phase} has {self.pending} pending of "
                f"{self.expected}: the count would underflow (PTX ISA, Phase of the mbarrier object)"
            )
        self.last = how, issuer
        if issuer is not None:
            self._arrived(issuer[0].warp)
            self._hear(issuer)
        self.pending -= count
        if drop:
            self.expected -= count
        self._complete_phase()

    def _arrived(self, warp: Warp) -> None:
        """Notes an arrival of a warp. Compiled code notes those of the first one of each other CTA from then on."""
        self._phases[warp] = self.phase
        if self.home is not None and warp.cta is not self.home and not self.rank_warps[warp.cta.rank]:
            self.rank_warps[warp.cta.rank] = warp.index + 1

    def expect_arrival(self) -> None:
        """Adds a pending arrival to this phase (PTX ISA, "cp.async.mbarrier.arrive" without .noinc)."""
        if self.pending == COUNT_LIMIT:
            raise Fault(
                f"the pending count of {self.name} would exceed {COUNT_LIMIT} (PTX ISA, cp.async.mbarrier.arrive)"
            )
        self.pending += 1

    def expect(self, nbytes: int) -> None:
        """Executes expect_tx: this phase waits for `nbytes` more bytes."""
        if self.home is not None:
            self.home.cluster.events.expected(self)
        self.bytes += nbytes
        self._check_bytes()

    def complete(self, nbytes: int, how: str, issuer: Issuer) -> None:
        """Executes complete_tx: `nbytes` bytes have arrived, maybe before an expect_tx of the same phase."""
        self.check_live(how, issuer)
        if self.hidden:
            self._check_visible(how, issuer)
        self._hear(issuer)
        self.bytes -= nbytes
        self.delivered = True
        self.last = how, issuer
        self._check_bytes()
        self._complete_phase()

    def check_live(self, how: str, issuer: Issuer) -> None:
        """Raises Fault if the barrier has been invalidated, or another one initialised in its place, since the
        instruction that acts on it was issued: but for mbarrier.init, an operation on a location without a valid
        mbarrier is undefined (PTX ISA, mbarrier.inval). A lenient run ignores an action that comes after a new
        initialisation: with hardware's latencies it arrives before. It ignores a commit to a location that nobody has
        used since mbarrier.inval: what it changes there nobody sees.
        """
        if self.home is None or self.home.mbarriers.get(self.offset) is self:
            return
        if self.is_replaced:
            ordering_fault(
                f"{how} of {label(issuer)} reaches the {self.name} after that has been initialised anew: it counts for "
                "the one before (PTX ISA, mbarrier.init)",
                (issuer[0].grid.entry.name, issuer[1], "replaced"),
            )
            return
        reason = (
            f"{how} of {label(issuer)} reaches the {self.name} after mbarrier.inval: it must have arrived before "
            "(PTX ISA, mbarrier.inval)"
        )
        if how != COMMIT or self.offset in self.home.mbarriers or not self.home.shared.is_poisoned(self.offset):
            raise Fault(reason)
        ordering_fault(reason, (issuer[0].grid.entry.name, issuer[1], "invalidated"))

    def _hear(self, issuer: Issuer) -> None:
        if self.home is not None:
            running = self.home.machine.running
            self.heard |= issuer[0].warp.known if running is None else running.known
            self.home.cluster.events.mbarrier_arrived(self, issuer, running)

    def passed_by(self, warp: Warp) -> None:
        """Notes that a warp has observed the end of the last phase."""
        warp.synced = max(warp.synced, self.ended)
        warp.known |= self.news
        warp.cta.cluster.events.passed(self, warp)

    def _check_visible(self, how: str, issuer: Issuer) -> None:
        by_thread = how in BY_THREAD
        is_own = issuer[0].cta is self.home
        if by_thread and (self.hidden == FROM_ASYNC or is_own):
            return
        assert self.initialiser is not None  # `hide` needs it
        through = "from another CTA" if by_thread else "through the async proxy"
        # A CTA barrier separates the CTA's own threads from the initialisation in everything that Triton compiles.
        report = doubt if is_own else ordering_fault
        report(
            f"{how} of {label(issuer)} reaches the {self.name} {through}, which may not see that "
            f"{label(self.initialiser)} has initialised it: fence.mbarrier_init is missing behind that "
            "(PTX ISA, membar/fence)",
            (issuer[0].grid.entry.name, self.initialiser[1], issuer[1]),
        )
        if is_own:
            issuer[0].cta.machine.note_doubt(self, issuer[1])

    def _check_bytes(self) -> None:
        if not -COUNT_LIMIT <= self.bytes <= COUNT_LIMIT:
            raise Fault(
                f"tx-count of {self.name} would be {self.bytes}; the limit is {COUNT_LIMIT} either way "
                "(PTX ISA, Tracking asynchronous operations by the mbarrier object)"
            )

    def _complete_phase(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.news = self.heard
            if self.home is not None:
                self.ended = self.home.machine.progress
            self.delivered = False
            self.pending = self.expected
            if self.is_awaited:
                self.wake()

    def passed(self, parity: int) -> bool:
        """True if the phase with that parity is over. Before the first phase ends, parity 1 has passed."""
        return self.phase & 1 != parity

    def __str__(self) -> str:
        outstanding = (
            f"{self.bytes} bytes outstanding" if self.bytes >= 0 else f"{-self.bytes} bytes more than were expected"
        )
        last = "nobody has arrived yet" if self.last is None else f"last: {self.last[0]} of {label(self.last[1])}"
        pending = f"{self.pending} of {self.expected} arrivals pending"
        return f"{self.name}: phase {self.phase}, {pending}, {outstanding}, {last}"
