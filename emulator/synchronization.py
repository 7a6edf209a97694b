"""What synchronisation instructions do: mbarrier operations, named barriers, warp and cluster barriers, grid
dependencies.

Functions named `wait_...` return False where the group has to wait; it is then on the list of what it waits for, and
the instruction is executed again when it is woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.access import shared_target, whole_warp
from emulator.barriers import MBarrier, NamedBarrier
from emulator.errors import Fault
from emulator.lanes import lane_list
from emulator.memory import SHARED_BASE
from emulator.properties import WARP_THREADS

if TYPE_CHECKING:
    from emulator.warp import Group

MBARRIER_BYTES = 8


def _place(g: Group, space: str | None, address: int):
    cta, offset = shared_target(g, address)
    if cta is not g.cta and space in ("shared", "shared::cta"):
        raise Fault(
            f"address {address:#x} is in the shared memory of CTA rank {cta.rank}, the instruction takes this CTA's only"
        )
    if offset % MBARRIER_BYTES or offset < SHARED_BASE or offset + MBARRIER_BYTES > len(cta.shared.data):
        raise Fault(
            f"mbarrier at shared address {address:#x}: it must be 8-byte aligned and inside of the launch's shared memory "
            "(PTX ISA, Size and alignment of mbarrier object)"
        )
    return cta, offset


def barrier_at(g: Group, space: str | None, address: int) -> MBarrier:
    cta, offset = _place(g, space, address)
    return cta.mbarrier(offset)


def init_barrier(g: Group, mask: int, space: str | None, address, count, who) -> None:
    """Lanes of one instruction may name the same barrier as long as they give it the same count."""
    counts: dict[int, int] = {}
    for lane in lane_list(mask):
        place, expected = (int(x[lane]) if isinstance(x, np.ndarray) else x for x in (address, count))
        if counts.setdefault(place, expected) != expected:
            raise Fault(
                f"mbarrier.init of the barrier at {place:#x} with counts {counts[place]} and {expected} by lanes of one "
                "instruction"
            )
    g.cta.machine.progress += 1
    for place, expected in counts.items():
        cta, offset = _place(g, "shared", place)
        existing = cta.mbarriers.get(offset)
        if existing is not None:
            raise Fault(f"mbarrier.init of a live barrier without mbarrier.inval: {existing} (PTX ISA, mbarrier.init)")
        cta.mbarriers[offset] = MBarrier(f"mbarrier at shared offset {offset:#x} of {cta.label}", expected)


def invalidate_barrier(g: Group, mask: int, space: str | None, address: int, who) -> None:
    cta, offset = _place(g, "shared", address)
    barrier = cta.mbarrier(offset)
    if barrier.waiters:
        raise Fault(f"mbarrier.inval while somebody waits: {barrier}")
    del cta.mbarriers[offset]


def _targets(g: Group, mask: int, space: str | None, address):
    """(barrier, lanes that name it)."""
    if isinstance(address, int):
        return [(barrier_at(g, space, address), mask.bit_count())]
    counts: dict[int, int] = {}
    for lane in lane_list(mask):
        place = int(address[lane])
        counts[place] = counts.get(place, 0) + 1
    return [(barrier_at(g, space, place), lanes) for place, lanes in counts.items()]


def _per_lane(value, mask: int) -> int:
    if not isinstance(value, np.ndarray):
        return value
    values = {int(value[lane]) for lane in lane_list(mask)}
    if len(values) > 1:
        raise Fault(f"a count that differs between lanes is not modelled: {sorted(values)}")
    return values.pop()


def arrive(g: Group, mask: int, space: str | None, address, count, nbytes, drop: bool, who) -> int:
    """arrive{_drop}{.expect_tx}; every active lane arrives. Returns the state token: the phase before the arrival."""
    count = 1 if count is None else _per_lane(count, mask)
    phase = 0
    g.cta.machine.progress += 1
    for barrier, lanes in _targets(g, mask, space, address):
        phase = barrier.phase
        if nbytes is not None:
            barrier.expect(_per_lane(nbytes, mask) * lanes)
        barrier.arrive(count * lanes, "arrival", who, drop)
    return phase


def expect_bytes(g: Group, mask: int, space: str | None, address, nbytes, who) -> None:
    g.cta.machine.progress += 1
    for barrier, lanes in _targets(g, mask, space, address):
        barrier.expect(_per_lane(nbytes, mask) * lanes)


def complete_bytes(g: Group, mask: int, space: str | None, address, nbytes, who) -> None:
    g.cta.machine.progress += 1
    for barrier, lanes in _targets(g, mask, space, address):
        barrier.complete(_per_lane(nbytes, mask) * lanes, "complete_tx", who)


def _waited_for(g: Group, address: int) -> MBarrier:
    """Threads wait for barriers of their own CTA only (PTX ISA, mbarrier.test_wait)."""
    return barrier_at(g, "shared", address)


def test_parity(g: Group, mask: int, space: str | None, address: int, parity: int, who) -> bool:
    if parity not in (0, 1):
        raise Fault(f"phase parity {parity}: must be 0 or 1 (PTX ISA, mbarrier.test_wait)")
    return _waited_for(g, address).passed(parity)


def test_state(g: Group, mask: int, space: str | None, address: int, state: int, who) -> bool:
    barrier = _waited_for(g, address)
    if barrier.phase - state not in (0, 1):
        raise Fault(
            f"the state token is of phase {state}, which is neither the current one nor the one before it: {barrier} "
            "(PTX ISA, mbarrier.test_wait)"
        )
    return barrier.phase != state


def wait_parity(g: Group, mask: int, space: str | None, address: int, parity: int, who) -> bool:
    """A loop around try_wait.parity."""
    barrier = _waited_for(g, address)
    phase = barrier.phase
    started = g.waiting
    if started is not None:
        g.waiting = None
        if started[1] is barrier and phase >= started[2] + 2:
            raise Fault(f"phase {started[2]} was waited for and missed, its parity has come round again: {barrier}")
    if parity not in (0, 1):
        raise Fault(f"phase parity {parity}: must be 0 or 1 (PTX ISA, mbarrier.test_wait)")
    if phase & 1 != parity:
        return True
    g.waiting = (f"parity {parity}", barrier, phase)
    barrier.waiters.append(g)
    return False


def wait_state(g: Group, mask: int, space: str | None, address: int, state: int, who) -> bool:
    g.waiting = None
    if test_state(g, mask, space, address, state, who):
        return True
    barrier = _waited_for(g, address)
    g.waiting = (f"phase {state}", barrier, state)
    barrier.waiters.append(g)
    return False


# Named barriers


def _named(g: Group, mask: int, aligned: bool, number: int, threads: int | None, instruction: str):
    if aligned:
        whole_warp(g, mask, instruction)
    elif mask != g.warp.live:
        raise Fault(f"{instruction} without .aligned by a part of a warp, lanes {mask:#010x}, is not modelled")
    if not 0 <= number < 16:
        raise Fault(f"{instruction} of barrier {number}: there are 16 per CTA")
    if threads is not None and (threads % 32 or threads <= 0):
        raise Fault(f"{instruction} with {threads} threads: must be a positive multiple of 32 (PTX ISA, bar)")
    return g.cta.named_barrier(number), g.cta.counted_threads() if threads is None else threads


def _whole_warp_arrives(g: Group, barrier: NamedBarrier, threads: int | None, needed: int) -> None:
    """A barrier counts whole warps, however many of their lanes are left (PTX ISA, "bar")."""
    g.cta.machine.progress += 1
    barrier.arrive(f"warp {g.warp.index}", WARP_THREADS, threads, needed)


def barrier_arrive(g: Group, mask: int, aligned: bool, number: int, threads: int, who) -> None:
    barrier, needed = _named(g, mask, aligned, number, threads, "bar.arrive")
    _whole_warp_arrives(g, barrier, threads, needed)


def wait_barrier(g: Group, mask: int, aligned: bool, number: int, threads: int | None, who) -> bool:
    """bar.sync."""
    if g.waiting is not None:
        kind, barrier, generation = g.waiting
        if barrier.generation == generation:
            barrier.waiters.append(g)
            return False
        g.waiting = None
        return True
    barrier, needed = _named(g, mask, aligned, number, threads, "bar.sync")
    generation = barrier.generation
    _whole_warp_arrives(g, barrier, threads, needed)
    if barrier.generation != generation:
        return True
    g.waiting = ("", barrier, generation)
    barrier.waiters.append(g)
    return False


def wait_warp_barrier(g: Group, mask: int, membermask: int, who) -> bool:
    """bar.warp.sync: the lanes of the membermask meet here, at whichever of these instructions each of them is."""
    if mask & ~membermask:
        raise Fault(
            f"bar.warp.sync: lanes {mask & ~membermask:#010x} execute it but are not in its membermask {membermask:#010x}"
        )
    barrier = g.warp.barrier(membermask)
    if g.waiting is not None:
        generation = g.waiting[2]
        if barrier.generation != generation:
            g.waiting = None
            return True
        barrier.waiters.append(g)
        return False
    if not membermask & g.warp.live & ~mask:
        return True
    generation = barrier.generation
    needed = (membermask & g.warp.live).bit_count()
    barrier.arrive(f"lanes {mask:#010x}", mask.bit_count(), needed, needed)
    if barrier.generation != generation:
        return True
    g.waiting = ("", barrier, generation)
    barrier.waiters.append(g)
    return False


# Clusters and grids


def cluster_arrive(g: Group, mask: int, aligned: bool, who) -> None:
    if aligned:
        whole_warp(g, mask, "barrier.cluster.arrive")
    again = g.warp.cluster_arrived & mask
    if again:
        raise Fault(
            f"lanes {again:#010x} arrive twice on the cluster barrier without a wait in between (PTX ISA, barrier.cluster)"
        )
    g.cta.machine.progress += 1
    g.warp.cluster_arrived |= mask
    g.warp.cluster_generation = g.cta.cluster.barrier.generation
    g.cta.cluster.barrier.arrive(mask.bit_count(), who)


def wait_cluster(g: Group, mask: int, aligned: bool, who) -> bool:
    if aligned:
        whole_warp(g, mask, "barrier.cluster.wait")
    if mask & ~g.warp.cluster_arrived:
        raise Fault("barrier.cluster.wait without a barrier.cluster.arrive before it (PTX ISA, barrier.cluster)")
    barrier = g.cta.cluster.barrier
    if barrier.generation == g.warp.cluster_generation:
        g.waiting = ("", barrier, barrier.generation)
        barrier.waiters.append(g)
        return False
    g.waiting = None
    g.warp.cluster_arrived &= ~mask
    return True


def wait_for_grids(g: Group, who) -> bool:
    """griddepcontrol.wait: the grids that this one depends on are over and their writes visible (PTX ISA,
    griddepcontrol).
    """
    g.waiting = None
    for grid in g.grid.predecessors:
        if not grid.finished:
            g.waiting = ("", grid, None)
            grid.waiters.append(g)
            return False
    return True


def launch_dependents(g: Group, who) -> bool:
    """griddepcontrol.launch_dependents: where another launch may start now, it may get ahead of these lanes."""
    if g.cta.allows_dependents:
        g.waiting = None
        return True
    g.cta.allow_dependents()
    if not g.cta.machine.pause(g):
        return True
    g.waiting = ("", "its next turn", None)
    return False
