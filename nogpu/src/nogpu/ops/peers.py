"""Other CTAs of a cluster: a warp may access their shared memory once it knows that they have started.

"Accessing data in distributed shared memory requires all the thread blocks to exist" (CUDA Programming Guide,
"Distributed Shared Memory"). A warp knows it of a CTA by a chain of causes that begins in that CTA: a cluster barrier,
an arrival or a copy's bytes on an mbarrier that it has waited for, a word that a warp with this knowledge has stored
and it has loaded (both with an order or scope: volatile, relaxed, release, acquire, or an atomic), or a named barrier
at which it has met such a warp. Progress that a schedule happens to have made does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nogpu.arithmetic.lanes import lane_list
from nogpu.errors import Fault, ordering_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup


def started(g: ActiveGroup, ranks: Iterable[int]) -> list[Cta]:
    """The CTAs of these ranks. Raises Fault unless the warp knows that each has started."""
    ctas = [g.cta.cluster.cta(rank, g.cta) for rank in ranks]
    for cta in ctas:
        check_started(g, cta)
    return ctas


def multicast_ranks(g: ActiveGroup, multicast: int) -> list[int]:
    """The ranks of a multicast mask. Raises Fault for an empty mask, and for CTAs that the cluster lacks."""
    if multicast >> g.cta.cluster.size or not multicast:
        raise Fault(f"multicast mask {multicast:#06x} for a cluster of {g.cta.cluster.size} CTAs")
    return lane_list(multicast)


def check_started(g: ActiveGroup, cta: Cta) -> None:
    """Raises Fault unless the warp knows that a CTA of its cluster, which it is about to access, has started."""
    if not g.warp.known >> cta.rank & 1:
        ordering_fault(
            f"shared memory of {cta.label} (rank {cta.rank}) is accessed where this warp has not heard of that CTA: it "
            "has to have started, and only a cluster barrier or a message of it says so (CUDA Programming Guide, "
            "Distributed Shared Memory)",
            (g.grid.entry.name, "started", g.cta.rank, cta.rank),
        )
