"""Fences, and the visibility of initialised mbarriers (PTX ISA, "membar/fence", "fence.mbarrier_init").

What arrives through the async proxy, and other CTAs, see a barrier's initialisation only behind a fence of the warp that
initialised it, or of one that has waited for that warp since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup


def proxy_async(g: ActiveGroup) -> None:
    """fence.proxy.async."""
    for cta in g.cta.cluster.ctas:
        if cta.shared.marks is not None:
            cta.shared.marks.fence(g.warp)
    publish(g, True)


def publish(g: ActiveGroup, seen_by_async: bool, also_waited_for: bool = True) -> None:
    """Barriers that this warp has initialised are seen by the cluster, and by the async proxy if so said; those of
    another warp that it has waited for as well.
    """
    cta = g.cta
    if not cta.hidden_barriers:
        return
    for barrier in cta.hidden_barriers:
        if barrier.initialiser[0].warp is g.warp or (also_waited_for and barrier.time <= g.warp.synced):
            barrier.hidden = None if seen_by_async else barrier.hidden and "async"
    cta.hidden_barriers = [barrier for barrier in cta.hidden_barriers if barrier.hidden is not None]


def mbarrier_init(g: ActiveGroup) -> None:
    """fence.mbarrier_init.release.cluster: for the barriers that the same thread has initialised."""
    publish(g, True, also_waited_for=False)


def thread(g: ActiveGroup, scope: str) -> None:
    """fence.sc, .acq_rel or .release; membar: between threads, not between proxies."""
    if scope != "cta":
        publish(g, False)
