"""Cluster launch control: a running cluster takes over the work of one that has not started (PTX ISA,
"clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel").

The 16-byte response is opaque to programs. Here its four words are x, y and z of the first CTA of the cancelled
cluster, and a mark that says whether a cluster has been cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import lane_list, row_of
from nogpu.errors import Fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.ops.active_lanes import one_lane, pick
from nogpu.ops.mbarrier import barrier_at
from nogpu.ops.memory import shared_target
from nogpu.ops.peers import started

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

RESPONSE_BYTES = 16
_CANCELED, _REFUSED = 0xC1C00001, 0xC1C00000
_UNDEFINED = 0xFFFFFFFF  # coordinates in a response that refuses


def try_cancel(
    g: ActiveGroup, mask: int, response: Operand, barrier: Operand, everywhere: bool, issuer: Issuer
) -> None:
    """clusterlaunchcontrol.try_cancel: writes the response to shared memory and completes its bytes on an mbarrier.

    everywhere: `.multicast::cluster::all`: both at the same offsets in every CTA of the cluster.
    """
    one_lane(mask, "clusterlaunchcontrol.try_cancel")
    place, barrier_place = pick(response, mask), pick(barrier, mask)
    cta, offset = shared_target(g, place)
    if cta is not g.cta:
        raise Fault(f"clusterlaunchcontrol.try_cancel: response {place:#x} is in CTA rank {cta.rank}")
    if offset % RESPONSE_BYTES:
        raise Fault(
            f"clusterlaunchcontrol.try_cancel: response at shared offset {offset:#x}, must be a multiple of "
            f"{RESPONSE_BYTES} (PTX ISA, clusterlaunchcontrol.try_cancel)"
        )
    barrier_at(g, "shared", barrier_place)
    _, barrier_offset = shared_target(g, barrier_place)
    cluster = g.cta.cluster
    ranks = range(cluster.size) if everywhere else (g.cta.rank,)
    receivers = started(g, ranks)
    notified = [receiver.mbarrier(barrier_offset) for receiver in receivers]
    for receiver in receivers:
        receiver.shared.check(offset, RESPONSE_BYTES, "store")

    def run() -> None:
        first = g.cta.machine.cancel(g.grid)
        words = (_UNDEFINED,) * 3 + (_REFUSED,) if first is None else (*first, _CANCELED)
        data = np.array(words, np.uint32).view(np.uint8)
        for receiver, mbarrier in zip(receivers, notified, strict=True):
            receiver.alive("the response of clusterlaunchcontrol.try_cancel", issuer)
            receiver.shared.write(offset, data, issuer)
            mbarrier.complete(RESPONSE_BYTES, "clusterlaunchcontrol.try_cancel", issuer)

    g.cta.machine.queues.load(AsyncOperation(g, issuer, run))


def _words(response: tuple[Operand, Operand]) -> list[np.ndarray]:
    """Four words of 32 bits, as uint64[32] each. response: the low and the high half of a 128-bit register."""
    low = np.uint64(0xFFFFFFFF)
    rows = [row_of(half, 64) if isinstance(half, int) else half for half in response]
    return [word for row in rows for word in (row & low, row >> np.uint64(32))]


def canceled(mask: int, response: tuple[Operand, Operand]) -> int:
    """query_cancel.is_canceled: a bit per lane. Raises Fault for an operand that is no response."""
    marks = _words(response)[3]
    bits = 0
    for lane in lane_list(mask):
        mark = int(marks[lane])
        if mark not in (_CANCELED, _REFUSED):
            raise Fault(
                "clusterlaunchcontrol.query_cancel: the operand is no response of clusterlaunchcontrol.try_cancel (PTX "
                "ISA, clusterlaunchcontrol.query_cancel)"
            )
        bits |= (mark == _CANCELED) << lane
    return bits


def first_cta(response: tuple[Operand, Operand]) -> list[np.ndarray]:
    """query_cancel.get_first_ctaid: uint32[32] for each of x, y, z and a fourth, undefined word."""
    *coordinates, _ = _words(response)
    return [*(row.astype(np.uint32) for row in coordinates), row_of(_UNDEFINED, 32)]
