"""Fences, and the visibility of initialised mbarriers (PTX ISA, "membar/fence", "fence.mbarrier_init").

The async proxy and other CTAs see an mbarrier's initialisation only after a fence of the warp that has initialised it,
or of a warp that has waited for that warp since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.arithmetic.lanes import sharers

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup
    from nogpu.ops.active_lanes import Operand


def proxy_async(g: ActiveGroup, space: str | None = None) -> None:
    """fence.proxy.async: the warp's stores to shared memory and its barriers become visible to the async proxy.

    space: the one state space that the fence names; None: all.
    """
    g.cta.cluster.events.fenced(g.warp, space)
    if space == "global":
        return
    for cta in g.cta.cluster.ctas:
        if cta.shared.marks is not None:
            cta.shared.marks.fence(g.warp)
    publish(g, True)


def publish(g: ActiveGroup, seen_by_async: bool, also_waited_for: bool = True) -> None:
    """Makes the mbarriers that this warp has initialised visible to the cluster.

    seen_by_async: visible to the async proxy, too. also_waited_for: this holds also for mbarriers that another warp had
    initialised when this warp last waited.
    """
    cta = g.cta
    if not cta.hidden_barriers:
        return
    for barrier in cta.hidden_barriers:
        assert barrier.initialiser is not None  # hidden barriers are those that mbarrier.init has made
        if barrier.initialiser[0].warp is g.warp or (also_waited_for and barrier.time <= g.warp.synced):
            barrier.hidden = None if seen_by_async else barrier.hidden and "async"
    cta.hidden_barriers = [barrier for barrier in cta.hidden_barriers if barrier.hidden is not None]


def mbarrier_init(g: ActiveGroup) -> None:
    """fence.mbarrier_init.release.cluster: publishes the barriers that the same thread has initialised."""
    g.cta.cluster.events.fenced_initialisation(g.warp)
    publish(g, True, also_waited_for=False)


def release_maps(g: ActiveGroup, mask: int) -> None:
    """fence.proxy.tensormap::generic.release: orders writes to tensor maps before what follows."""
    g.cta.cluster.events.released_maps(g.warp, mask)


def acquire_map(g: ActiveGroup, mask: int, address: Operand) -> None:
    """fence.proxy.tensormap::generic.acquire: copies that follow see the tensor map at an address."""
    for place, lanes in sharers(mask, address).items():
        g.cta.cluster.events.acquired_map(g.warp, lanes, place)


def thread(g: ActiveGroup, scope: str) -> None:
    """fence.sc, .acq_rel, .acquire, .release and membar order threads, not proxies."""
    g.cta.cluster.events.fenced_threads(g.warp, scope)
    if scope != "cta":
        publish(g, False)
