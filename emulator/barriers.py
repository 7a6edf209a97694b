"""Barriers: mbarrier objects in shared memory, named barriers of a CTA, and the barrier of a cluster.

Phases are integers that only grow, so that a waiter that would see its parity again two phases later is found out.
A group of lanes that has to wait is put on the barrier's list and woken when the phase ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.errors import Fault

if TYPE_CHECKING:
    from emulator.warp import Group

COUNT_LIMIT = (1 << 20) - 1  # largest expected, pending and tx count (PTX ISA, "Size and alignment of mbarrier object")


def wake(waiters: list[Group]) -> None:
    for group in waiters:
        group.wake()
    waiters.clear()


class MBarrier:
    """One mbarrier object. expected: arrivals per phase; pending: those still missing; bytes: expected minus arrived."""

    __slots__ = ("bytes", "expected", "last_arrival", "name", "pending", "phase", "waiters")

    def __init__(self, name: str, count: int):
        if not 1 <= count <= COUNT_LIMIT:
            raise Fault(f"mbarrier.init with count {count}: must be 1 to {COUNT_LIMIT} (PTX ISA, mbarrier.init)")
        self.name = name
        self.expected = self.pending = count
        self.bytes = 0
        self.phase = 0
        self.waiters: list[Group] = []
        self.last_arrival = "nobody"

    def arrive(self, count: int, who: str, drop: bool = False) -> None:
        if count > self.pending:
            raise Fault(
                f"{count} arrival(s) on {self.name}, but phase {self.phase} has {self.pending} pending of {self.expected}: "
                "the count would underflow (PTX ISA, Phase of the mbarrier object)"
            )
        self.last_arrival = who
        self.pending -= count
        if drop:
            self.expected -= count
        self._complete_phase()

    def expect(self, nbytes: int) -> None:
        self.bytes += nbytes
        self._check_bytes()

    def complete(self, nbytes: int, who: str) -> None:
        """complete_tx: bytes have arrived. They may arrive before they are expected, as long as an arrival is pending."""
        self.bytes -= nbytes
        self.last_arrival = who
        self._check_bytes()
        self._complete_phase()

    def _check_bytes(self) -> None:
        if not -COUNT_LIMIT <= self.bytes <= COUNT_LIMIT:
            raise Fault(
                f"tx-count of {self.name} would be {self.bytes}; the limit is {COUNT_LIMIT} either way (PTX ISA, Tracking asynchronous "
                "operations by the mbarrier object)"
            )

    def _complete_phase(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected
            if self.waiters:
                wake(self.waiters)

    def passed(self, parity: int) -> bool:
        """Whether the phase with that parity is over; the phase before the first one counts as such."""
        return self.phase & 1 != parity

    def __str__(self) -> str:
        outstanding = f"{self.bytes} bytes outstanding" if self.bytes >= 0 else f"{-self.bytes} bytes more than were expected"
        return (
            f"{self.name}: phase {self.phase}, {self.pending} of {self.expected} arrivals pending, {outstanding}, "
            f"last arrival by {self.last_arrival}"
        )


class NamedBarrier:
    """Barrier `number` of a CTA (bar, barrier.cta)."""

    def __init__(self, number: int):
        self.number = number
        self.threads: int | None = None  # of the current use; None while nobody has arrived
        self.arrived: list[tuple[str, int]] = []  # (warp, lanes counted)
        self.generation = 0
        self.waiters: list[Group] = []

    @property
    def count(self) -> int:
        return sum(lanes for _, lanes in self.arrived)

    def arrive(self, warp: str, lanes: int, threads: int) -> None:
        """One warp arrives with `lanes` threads; `threads` are needed in all."""
        if self.threads is not None and self.threads != threads:
            raise Fault(
                f"barrier {self.number} is used with {threads} threads while {', '.join(name for name, _ in self.arrived)} "
                f"wait(s) for {self.threads} (PTX ISA, bar)"
            )
        self.threads = threads
        self.arrived.append((warp, lanes))
        if self.count > threads:
            raise Fault(
                f"{self.count} threads have arrived on barrier {self.number}, which waits for {threads}: "
                f"{', '.join(name for name, _ in self.arrived)} (PTX ISA, bar)"
            )
        self.settle(threads)

    def settle(self, threads: int) -> None:
        """Complete the barrier if all `threads` are there."""
        if self.threads is not None and self.arrived and self.count >= threads:
            self.threads = None
            self.arrived = []
            self.generation += 1
            wake(self.waiters)

    def __str__(self) -> str:
        names = ", ".join(name for name, _ in self.arrived) or "nobody"
        return f"named barrier {self.number}: {self.count} of {self.threads} threads, arrived: {names}"


class ClusterBarrier:
    """barrier.cluster: all threads of the cluster that have not exited."""

    def __init__(self, threads: int):
        self.threads = threads
        self.arrived = 0
        self.generation = 0
        self.waiters: list[Group] = []
        self.last_arrival = "nobody"

    def arrive(self, lanes: int, who: str) -> None:
        self.arrived += lanes
        self.last_arrival = who
        self._settle()

    def leave(self, lanes: int) -> None:
        """Threads have exited."""
        self.threads -= lanes
        self._settle()

    def _settle(self) -> None:
        if self.arrived and self.arrived >= self.threads:
            self.arrived = 0
            self.generation += 1
            wake(self.waiters)

    def __str__(self) -> str:
        return f"cluster barrier: {self.arrived} of {self.threads} threads arrived, the last by {self.last_arrival}"
