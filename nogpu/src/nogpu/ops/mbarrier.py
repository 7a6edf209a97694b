"""mbarrier operations (PTX ISA, "mbarrier").

Functions named `wait_...` return False if the group has to wait. The group is then among the barrier's waiters, and
executes the instruction again when it is woken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import sharers
from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.mbarriers import ARRIVAL, COMPLETION, MBarrier
from nogpu.hardware.native import PARITIES
from nogpu.hardware.tensor.order import arrives
from nogpu.ops.active_lanes import pick
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

MBARRIER_BYTES = 8
STATE_BITS = 32  # width of a state token's halves: the phase below, the pending count above


def _place(g: ActiveGroup, space: str | None, address: int) -> tuple[Cta, int]:
    cta, offset = shared_target(g, address)
    if cta is not g.cta and space in ("shared", "shared::cta"):
        raise Fault(
            f"address {address:#x} is in the shared memory of CTA rank {cta.rank}, the instruction takes this CTA's "
            "only"
        )
    if offset % MBARRIER_BYTES or not cta.shared.has(offset, offset + MBARRIER_BYTES):
        raise Fault(
            f"mbarrier at shared address {address:#x}: it must be 8-byte aligned and inside of the launch's shared "
            f"memory, {cta.shared.bounds} (PTX ISA, Size and alignment of mbarrier object)"
        )
    return cta, offset


def barrier_at(g: ActiveGroup, space: str | None, address: int) -> MBarrier:
    """The mbarrier at a shared::cluster or generic address. Raises Fault unless it is initialised."""
    cta, offset = _place(g, space, address)
    return cta.mbarrier(offset)


def init(g: ActiveGroup, mask: int, address: Operand, count: Operand, issuer: Issuer) -> None:
    """Executes mbarrier.init. Lanes may name the same barrier if they give it the same count."""
    counts: dict[int, int] = {}
    places = sharers(mask, address)
    for place, lanes in places.items():
        expected, *others = sharers(lanes, count)
        counts[place] = expected
        if others:
            raise Fault(
                f"mbarrier.init of the barrier at {place:#x} with counts {expected} and {others[0]} by lanes of one "
                "instruction"
            )
    g.cta.machine.progress += 1
    for place, lanes in places.items():
        expected = counts[place]
        cta, offset = _place(g, "shared", place)
        existing = cta.mbarriers.get(offset)
        if existing is not None:
            reason = f"mbarrier.init of a live barrier without mbarrier.inval: {existing} (PTX ISA, mbarrier.init)"
            if existing.is_awaited or existing.bytes:
                raise Fault(reason)
            # A second initialisation before any use leaves the same object: DSL 4.3.5 compiles that.
            report = doubt if existing.is_untouched else ordering_fault
            report(reason, (g.grid.entry.name, issuer[1], "init"))
            if existing.is_untouched:
                existing.initialise(expected, issuer)
            else:
                cta.cluster.events.invalidated(existing, g.warp, lanes)
                _remove(cta, offset)
                existing.is_replaced = True
                existing = None
        barrier = existing or MBarrier(f"mbarrier at shared offset {offset:#x} of {cta.label}", expected, cta, issuer)
        barrier.hide()
        cta.cluster.events.initialised(barrier, g.warp, lanes)
        if existing is None:
            cta.mbarriers[offset] = barrier
            cta.shared.place_barrier(offset, barrier)


def invalidate(g: ActiveGroup, mask: int, address: int, issuer: Issuer) -> None:
    """Executes mbarrier.inval."""
    cta, offset = _place(g, "shared", address)
    barrier = cta.mbarrier(offset)
    if barrier.is_awaited or barrier.bytes:
        raise Fault(f"mbarrier.inval of a barrier in use: {barrier} (PTX ISA, mbarrier.inval)")
    g.cta.machine.progress += 1
    cta.cluster.events.invalidated(barrier, g.warp, mask)
    _remove(cta, offset)


def _remove(cta: Cta, offset: int) -> None:
    """Ends the life of the mbarrier at an offset."""
    barrier, loads, work = cta.mbarriers.pop(offset), cta.machine.loads, cta.machine.work
    for warp in cta.warps:
        warp.keep_polls()  # which name the barrier by an address that another may get
    is_awaited = loads is not None and loads.awaits(barrier)
    cta.shared.remove_barrier(offset, is_awaited or (work is not None and work.awaits(barrier)))
    barrier.end()


def _targets(g: ActiveGroup, mask: int, space: str | None, address: Operand) -> list[tuple[MBarrier, int]]:
    """(mbarrier, active lanes that name it) for each that they name."""
    return [(barrier_at(g, space, place), lanes) for place, lanes in sharers(mask, address).items()]


def _total(counts: Operand, lanes: int) -> int:
    """The sum of the counts that lanes have."""
    return sum(count * holders.bit_count() for count, holders in sharers(lanes, counts).items())


def deliver(g: ActiveGroup, barrier: MBarrier, how: str, issuer: Issuer, action: Callable[[], None]) -> None:
    """Runs an action on a barrier: at once in the issuer's CTA; in another CTA the schedule decides when.

    how: the action's kind, for messages.
    """
    if barrier.home is g.cta:
        action()
        return
    g.cta.machine.queues.arrival(AsyncOperation(g, issuer, remote(barrier, how, issuer, action)))


def remote(barrier: MBarrier, how: str, issuer: Issuer, action: Callable[[], None]) -> Callable[[], None]:
    """An action of another CTA on a barrier, at the time when it happens."""
    assert barrier.home is not None  # every barrier of a CTA has one
    home = barrier.home

    def run() -> None:
        home.alive(f"an arrival on the {barrier.name}", issuer)
        barrier.check_live(how, issuer)
        action()

    return run


def arrive(
    g: ActiveGroup,
    mask: int,
    space: str | None,
    address: Operand,
    amounts: tuple[Operand | None, Operand | None],
    drop: bool,
    issuer: Issuer,
) -> int:
    """Executes mbarrier.arrive{_drop}{.expect_tx} in every active lane. Returns the state token before the arrival.

    amounts: arrivals of each lane, None for 1, and bytes that it expects, None for none.
    """
    count, nbytes = amounts
    count = 1 if count is None else count
    state = 0
    g.cta.machine.progress += 1
    if g.warp.has_touched_tensor_memory:
        arrives(g)
    for barrier, lanes in _targets(g, mask, space, address):
        state = barrier.pending << STATE_BITS | barrier.phase
        expected = 0 if nbytes is None else _total(nbytes, lanes)

        def act(barrier: MBarrier = barrier, arrivals: int = _total(count, lanes), expected: int = expected) -> None:
            if expected:
                barrier.expect(expected)
            barrier.arrive(arrivals, ARRIVAL, issuer, drop)

        deliver(g, barrier, ARRIVAL, issuer, act)
    return state


def arrive_without_completing(
    g: ActiveGroup, mask: int, space: str | None, address: Operand, count: Operand, drop: bool, issuer: Issuer
) -> int:
    """Executes mbarrier.arrive{_drop}.noComplete, as `arrive`. Raises Fault if it would complete the phase."""
    for barrier, lanes in _targets(g, mask, space, address):
        if _total(count, lanes) >= barrier.pending:
            raise Fault(f"mbarrier.arrive.noComplete would complete the phase: {barrier} (PTX ISA, mbarrier.arrive)")
    return arrive(g, mask, space, address, (count, None), drop, issuer)


def pending_count(state: int) -> int:
    """The pending count in a state token."""
    return state >> STATE_BITS


def expect_tx(g: ActiveGroup, mask: int, space: str | None, address: Operand, nbytes: Operand, issuer: Issuer) -> None:
    """Executes mbarrier.expect_tx in every active lane."""
    g.cta.machine.progress += 1
    for barrier, lanes in _targets(g, mask, space, address):
        deliver(g, barrier, "expect_tx", issuer, partial(barrier.expect, _total(nbytes, lanes)))


def complete_tx(
    g: ActiveGroup, mask: int, space: str | None, address: Operand, nbytes: Operand, issuer: Issuer
) -> None:
    """Executes mbarrier.complete_tx in every active lane."""
    g.cta.machine.progress += 1
    for barrier, lanes in _targets(g, mask, space, address):
        action = partial(barrier.complete, _total(nbytes, lanes), COMPLETION, issuer)
        deliver(g, barrier, COMPLETION, issuer, action)


def _waited_for(g: ActiveGroup, address: int) -> MBarrier:
    """The barrier at an address of the issuer's CTA: threads can wait for no other (PTX ISA, mbarrier.test_wait)."""
    return barrier_at(g, "shared", address)


def _check_parity(parity: int) -> None:
    if parity not in (0, 1):
        raise Fault(f"phase parity {parity}: must be 0 or 1 (PTX ISA, mbarrier.test_wait)")


def test_parity(g: ActiveGroup, mask: int, address: int, parity: int, issuer: Issuer) -> bool:
    """Executes mbarrier.test_wait.parity or try_wait.parity once.

    Raises Fault if the lanes have tested for this phase before, in vain, and are two phases late: they have missed it.
    """
    _check_parity(parity)
    barrier, polled = _waited_for(g, address), g.warp.polled
    key = barrier, mask, parity
    if barrier.passed(parity):
        polled.pop(key, None)
        g.warp.registers.context.polled = len(polled)
        barrier.passed_by(g.warp)
        return True
    phase = polled.setdefault(key, barrier.phase)
    g.warp.registers.context.polled = len(polled)
    if barrier.phase >= phase + 2:
        raise _missed(phase, barrier)
    g.cta.cluster.events.polled(barrier, g.warp)
    return False


def _missed(phase: int, barrier: MBarrier) -> Fault:
    return Fault(f"phase {phase} was waited for and missed, its parity has come round again: {barrier}")


def state_of(token: int | np.ndarray, mask: int) -> int:
    """The phase in the active lanes' state tokens, in which they must agree. Their pending counts may differ."""
    bits = (1 << STATE_BITS) - 1
    return token & bits if isinstance(token, int) else pick(token & np.uint64(bits), mask)


def test_state(g: ActiveGroup, mask: int, address: int, state: int, issuer: Issuer) -> bool:
    """Executes mbarrier.test_wait or try_wait with a state token once. state: the token's phase."""
    barrier = _waited_for(g, address)
    if barrier.phase - state not in (0, 1):
        raise Fault(
            f"the state token is of phase {state}, which is neither the current one nor the one before it: {barrier} "
            "(PTX ISA, mbarrier.test_wait)"
        )
    if barrier.phase != state:
        barrier.passed_by(g.warp)
        return True
    g.cta.cluster.events.polled(barrier, g.warp)
    return False


def wait_parity(g: ActiveGroup, mask: int, address: int, parity: int, issuer: Issuer) -> bool:
    """Executes a loop around mbarrier.try_wait.parity or test_wait.parity that does nothing else."""
    barrier = _waited_for(g, address)
    phase = barrier.phase
    started = g.waiting
    if started is not None:
        g.waiting = None
        if started[1] is barrier and phase >= started[2] + 2:
            raise _missed(started[2], barrier)
    _check_parity(parity)
    if phase & 1 != parity:
        polled = g.warp.polled
        if polled:
            polled.pop((barrier, mask, parity), None)
            g.warp.registers.context.polled = len(polled)
        barrier.passed_by(g.warp)
        return True
    g.cta.cluster.events.polled(barrier, g.warp)
    g.waiting = (PARITIES[parity], barrier, phase)
    barrier.await_phase(g)
    return False


def wait_state(g: ActiveGroup, mask: int, address: int, state: int, issuer: Issuer) -> bool:
    """Executes a loop around mbarrier.try_wait or test_wait with a state token that does nothing else."""
    g.waiting = None
    if test_state(g, mask, address, state, issuer):
        return True
    barrier = _waited_for(g, address)
    g.waiting = (f"phase {barrier.phase}", barrier, barrier.phase)
    barrier.await_phase(g)
    return False
