"""Named barriers, warp and cluster barriers, and grid dependencies (PTX ISA, "bar", "barrier.cluster",
"griddepcontrol").

`wait` and functions named `wait_...` return False if the group has to wait. The group is then among the waiters of its
barrier or grid, and executes the instruction again when it is woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.errors import Fault
from nogpu.hardware.barriers import ClusterBarrier, NamedBarrier
from nogpu.hardware.native import NAMED_BARRIERS
from nogpu.hardware.properties import WARP_THREADS
from nogpu.hardware.tensor.order import arrives
from nogpu.ops.active_lanes import aligned_or_lenient, check_named, members, parties, whole_warp
from nogpu.ops.fences import publish

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand


def _named(
    g: ActiveGroup, mask: int, aligned: bool, number: int, threads: int | None, issuer: Issuer, instruction: str
) -> tuple[NamedBarrier, int]:
    """The barrier, and the number of threads that complete it. threads: the operand, None for all of the CTA."""
    if aligned:
        aligned_or_lenient(issuer, mask, instruction)
    if mask != g.bits:
        raise Fault(f"{instruction} whose predicate holds in a part of the active lanes, {mask:#010x}, is not modelled")
    if not 0 <= number < NAMED_BARRIERS:
        raise Fault(f"{instruction} of barrier {number}: there are {NAMED_BARRIERS} per CTA")
    if threads is not None and (threads % 32 or threads <= 0):
        raise Fault(f"{instruction} with {threads} threads: must be a positive multiple of 32 (PTX ISA, bar)")
    return g.cta.named_barrier(number), g.cta.counted_threads() if threads is None else threads


def _warp_arrives(
    issuer: Issuer, mask: int, barrier: NamedBarrier, threads: int | None, needed: int, waits: bool = False
) -> bool:
    """Makes the warp arrive with all of its threads, exited lanes included: barriers count warps (PTX ISA, "bar").

    waits: the group goes on to wait for the barrier. Returns False if the group, part of a warp that has parted, waits
    already: for the warp's other lanes, or united with the group that came first.
    """
    g, pc = issuer
    g.cta.machine.progress += 1
    ended = False
    if mask != g.warp.live or g.warp in barrier.parted:
        parted = barrier.arrive_in_part(g, mask, threads, waits)
        if parted is None:
            return False
        ended = waits and parted.unite(g.warp, g, pc)
    if g.warp.has_touched_tensor_memory:
        arrives(g)
    barrier.arrive(f"warp {g.warp.index}", WARP_THREADS, threads, needed, g.warp.known)
    return not ended


def arrive(g: ActiveGroup, mask: int, aligned: bool, number: int, threads: int, issuer: Issuer) -> None:
    """Executes bar.arrive."""
    barrier, needed = _named(g, mask, aligned, number, threads, issuer, "bar.arrive")
    g.cta.cluster.events.arrived(barrier, barrier.generation, g.warp, mask)
    _warp_arrives(issuer, mask, barrier, threads, needed)


def _await(g: ActiveGroup, barrier: NamedBarrier | ClusterBarrier) -> bool:
    """Makes the group wait for the end of a barrier's generation. Returns False."""
    g.waiting = ("", barrier, barrier.generation)
    barrier.waiters.append(g)
    return False


def go_on_waiting(g: ActiveGroup, number: int, threads: int | None) -> None:
    """Makes a group that compiled code has made wait at bar.sync wait at Python's barrier `number`.

    threads: the operand, None for all of the CTA.
    """
    barrier = g.cta.named_barrier(number)
    barrier.arrive(f"warp {g.warp.index}", WARP_THREADS, threads, threads or g.cta.counted_threads(), g.warp.known)
    _await(g, barrier)


def wait(g: ActiveGroup, mask: int, aligned: bool, number: int, threads: int | None, issuer: Issuer) -> bool:
    """Executes bar.sync."""
    events = g.cta.cluster.events
    if g.waiting is not None:
        kind, barrier, generation = g.waiting
        if barrier.generation == generation:
            barrier.waiters.append(g)
            return False
        g.waiting = None
        g.warp.synced = max(g.warp.synced, barrier.ended)
        events.met(barrier, generation, g.warp, mask)
        return True
    barrier, needed = _named(g, mask, aligned, number, threads, issuer, "bar.sync")
    generation = barrier.generation
    events.arrived(barrier, generation, g.warp, mask)
    if not _warp_arrives(issuer, mask, barrier, threads, needed, waits=True):
        return False
    if barrier.generation != generation:
        g.warp.synced = max(g.warp.synced, barrier.ended)
        g.warp.known |= barrier.news
        events.met(barrier, generation, g.warp, mask)
        return True
    return _await(g, barrier)


def wait_reduction(
    g: ActiveGroup, mask: int, aligned: bool, number: int, threads: int | None, predicate: int, issuer: Issuer
) -> bool:
    """Executes bar.red until its result is known. predicate: a bit per lane in which it holds."""
    if g.waiting is None:
        if aligned:
            whole_warp(g, mask, "bar.red")
        elif mask != g.warp.live:
            raise Fault(f"bar.red by a part of a warp, lanes {mask:#010x}, is not modelled")
        held, voters = g.cta.named_barrier(number).votes
        g.cta.named_barrier(number).votes = held + (predicate & mask).bit_count(), voters + mask.bit_count()
        g.reduced = g.cta.named_barrier(number).generation
    return wait(g, mask, aligned, number, threads, issuer)


def reduction(g: ActiveGroup, number: int, operation: str) -> int | bool:
    """The result of the bar.red for which the group has just waited."""
    held, voters = g.cta.named_barrier(number).results[g.reduced]
    return {"popc": held, "and": held == voters, "or": held > 0}[operation]


def wait_warp(g: ActiveGroup, mask: int, membermask: Operand, issuer: Issuer) -> bool:
    """bar.warp.sync: the lanes of each membermask meet, each at any bar.warp.sync with that membermask. Lanes that exit
    are not waited for (CUDA programming guide, "__syncwarp": "all non-exited threads named in mask").
    """
    events = g.cta.cluster.events
    if not isinstance(membermask, int):
        (first, named), *others = parties(mask, membermask)
        if others:
            members(g, mask, membermask, "bar.warp.sync of lanes with different membermasks")
            for lanes, _ in ((first, named), *others):
                events.joined(g.warp, lanes)
            return True
        mask, membermask = first, named
    check_named(mask, membermask, "bar.warp.sync")
    barrier = g.warp.barrier(membermask)
    if g.waiting is not None:
        generation = g.waiting[2]
        if barrier.generation != generation:
            g.waiting = None
            events.met(barrier, generation, g.warp, mask)
            return True
        barrier.waiters.append(g)
        return False
    if not membermask & g.warp.live & ~mask:
        events.joined(g.warp, mask)
        return True
    generation = barrier.generation
    events.arrived(barrier, generation, g.warp, mask)
    barrier.arrive(f"lanes {mask:#010x}", mask.bit_count(), None, (membermask & g.warp.live).bit_count())
    if barrier.generation != generation:
        events.met(barrier, generation, g.warp, mask)
        return True
    return _await(g, barrier)


# Clusters and grids


def arrive_cluster(g: ActiveGroup, mask: int, aligned: bool, relaxed: bool, issuer: Issuer) -> None:
    """barrier.cluster.arrive. Without `.relaxed` it publishes the mbarriers that the warp has initialised, and the
    warp's arrivals on mbarriers of other CTAs come before any thread passes the cluster barrier.
    """
    if aligned:
        whole_warp(g, mask, "barrier.cluster.arrive")
    again = g.warp.cluster_arrived & mask
    if again:
        raise Fault(
            f"lanes {again:#010x} arrive twice on the cluster barrier without a wait in between (PTX ISA, "
            "barrier.cluster)"
        )
    g.cta.machine.progress += 1
    if g.warp.has_touched_tensor_memory:
        arrives(g)
    if not relaxed:
        publish(g, False)
        g.cta.cluster.barrier.before += g.cta.machine.queues.arrivals_of(g.warp)
    g.cta.cluster.events.arrived(g.cta.cluster.barrier, g.cta.cluster.barrier.generation, g.warp, mask)
    g.warp.cluster_arrived |= mask
    g.warp.cluster_generation = g.cta.cluster.barrier.generation
    g.cta.cluster.barrier.arrive(mask.bit_count(), issuer)


def wait_cluster(g: ActiveGroup, mask: int, aligned: bool, issuer: Issuer) -> bool:
    """Executes barrier.cluster.wait."""
    if aligned:
        whole_warp(g, mask, "barrier.cluster.wait")
    if mask & ~g.warp.cluster_arrived:
        raise Fault("barrier.cluster.wait without a barrier.cluster.arrive before it (PTX ISA, barrier.cluster)")
    barrier = g.cta.cluster.barrier
    if barrier.generation == g.warp.cluster_generation:
        return _await(g, barrier)
    g.waiting = None
    g.warp.synced = max(g.warp.synced, barrier.ended)
    g.warp.known |= (1 << g.cta.cluster.size) - 1
    g.cta.cluster.events.met(barrier, g.warp.cluster_generation, g.warp, mask)
    g.warp.cluster_arrived &= ~mask
    return True


def wait_for_grids(g: ActiveGroup, issuer: Issuer) -> bool:
    """griddepcontrol.wait: waits until the grids before this one have ended; their writes are then visible (PTX ISA,
    griddepcontrol).
    """
    g.waiting = None
    for grid in g.grid.predecessors:
        if not grid.finished:
            g.waiting = ("", grid, None)
            grid.waiters.append(g)
            return False
    for grid in g.grid.predecessors:
        g.cta.cluster.events.waited_for(g.warp, grid.number)
    return True


def launch_dependents(g: ActiveGroup, issuer: Issuer) -> bool:
    """griddepcontrol.launch_dependents: lets dependent launches start, which may get ahead of these lanes."""
    if g.cta.allows_dependents:
        g.waiting = None
        return True
    g.cta.cluster.events.triggered(g.warp)
    g.cta.allow_dependents()
    if not g.cta.machine.pause(g):
        return True
    g.waiting = ("", "its next turn", None)
    return False
