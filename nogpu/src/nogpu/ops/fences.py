"""Fences, and the visibility of initialised mbarriers (PTX ISA, "membar/fence", "fence.mbarrier_init").

The async proxy and other CTAs see an mbarrier's initialisation only after a fence of the warp that has initialised it,
or of a warp that has waited for that warp since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.arithmetic.lanes import sharers
from nogpu.hardware.native import library

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup
    from nogpu.ops.active_lanes import Operand

_BEFORE_ALL = -1  # time at which nothing has happened


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
    synced = g.warp.synced if also_waited_for else _BEFORE_ALL
    library().publish(g.cta.shared.window, g.warp.index, synced, seen_by_async)


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
