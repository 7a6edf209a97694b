"""Operands of bulk and tensor copies (PTX ISA, "Asynchronous copy"): copies of the lanes, tensor maps, destinations.

The operands are checked when a warp issues the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import FULL, lane_list
from nogpu.errors import Fault, is_lenient
from nogpu.hardware.tma.known_maps import map_at
from nogpu.hardware.tma.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap
from nogpu.ops.mbarrier import barrier_at
from nogpu.ops.memory import SHARED_TAG, TAG_SHIFT, shared_target
from nogpu.ops.peers import multicast_ranks, started

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import ActiveGroup, Issuer

LOAD, STORE, REDUCTION = "load", "store", "reduction"
PATIENCE = 10_000  # looks for a barrier that has not come: its CTA may spin for ever
Place = tuple["Cta", int]
"""A CTA and an offset in its shared memory."""
Destination = tuple[Place, "MBarrier | Awaited"]
"""The place where a copy lands, and the mbarrier that it notifies."""


def issues(mask: int, kind: str, operands: tuple) -> list[tuple]:
    """The operands of each copy that the active lanes issue, as integers.

    operands: integers, rows, or None. Lanes with equal operands issue

    - one copy in a STORE: the DSL issues it from whole warps, and the hardware executes it once per warp;
    - a copy each in a REDUCTION, for which ptxas makes a loop over the lanes;
    - none in a LOAD, which raises Fault: every lane's bytes would be counted on the barrier.
    """
    if not mask & (mask - 1):
        if np.ndarray not in map(type, operands):
            return [operands]
        lane = mask.bit_length() - 1
        return [tuple(int(each[lane]) if isinstance(each, np.ndarray) else each for each in operands)]
    if np.ndarray not in map(type, operands):
        found = [operands] * mask.bit_count()
    else:
        by_lane = list(zip(*(each.tolist() if isinstance(each, np.ndarray) else repeat(each) for each in operands)))
        found = by_lane if mask == FULL else [by_lane[lane] for lane in lane_list(mask)]
    if kind == REDUCTION:
        return found
    distinct = list(dict.fromkeys(found))
    if kind == LOAD and len(distinct) < mask.bit_count():
        raise Fault(f"{mask.bit_count()} lanes ({mask:#010x}) issue the same copy; one lane must be elected")
    return distinct


def signed_coordinates(coordinates: list[int]) -> tuple[int, ...]:
    return tuple([(c & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 for c in coordinates])


class MapReader:
    """Reads a tensor map once: when the copy happens, or earlier if the issuing thread waits for the read."""

    __slots__ = ("_address", "_issuer", "_known", "_memory", "_read", "issued")

    def __init__(self, g: ActiveGroup, address: int, issuer: Issuer) -> None:
        if address >> TAG_SHIFT == SHARED_TAG:
            raise Fault(
                "a tensor map in shared memory can't be used by a copy: it must be in global, constant or parameter "
                "memory"
            )
        if address % TENSOR_MAP_ALIGNMENT:
            raise Fault(f"tensor map at {address:#x}: must be {TENSOR_MAP_ALIGNMENT}-byte aligned")
        self._memory, self._address, self._issuer = g.grid.memory, address, issuer
        self._known = map_at(self._memory, address)
        # The map as it is at issue must be valid: the hardware may read it at once.
        self.issued = self._known.decoded()
        self._read: TensorMap | None = None

    def __call__(self) -> TensorMap:
        if self._read is None:
            memory = self._memory
            if memory.refuses_copies or memory.version != self._known.version:
                raw = memory.read(self._address, TENSOR_MAP_BYTES, self._issuer, proxy="tensormap")
                self._read = TensorMap.decode(raw)
            else:
                memory.note("load", "tensormap", self._address, TENSOR_MAP_BYTES, self._issuer)
                self._read = self._known.decoded()
        return self._read

    def prepare(self) -> None:
        self()


def own_source(g: ActiveGroup, address: int) -> int:
    """The offset of a .shared::cta source. Raises Fault unless it is in the issuer's CTA."""
    cta, offset = shared_target(g, address)
    if cta is not g.cta:
        raise Fault(f".shared::cta source {address:#x} is in CTA rank {cta.rank}")
    return offset


class Awaited:
    """An mbarrier that another CTA of the cluster has not initialised yet, in a lenient run.

    The CTAs of a cluster start together on hardware, and a load lands about a microsecond after its issue: its bytes
    find the barrier, if the other CTA's way to mbarrier.init is not much longer than this one's to the load.
    """

    __slots__ = ("_cta", "_looks", "_offset")

    def __init__(self, cta: Cta, offset: int):
        self._cta, self._offset = cta, offset
        self._looks = 0

    @property
    def may_come(self) -> bool:
        """True if the mbarrier is not there yet, and a warp of its CTA that can run may initialise it.

        Each call that does not find the mbarrier is a look; after PATIENCE looks the result is False.
        """
        if self._offset in self._cta.mbarriers:
            return False
        self._looks += 1
        return self._looks < PATIENCE and any(not group.blocked for warp in self._cta.warps for group in warp.groups)

    def complete(self, nbytes: int, how: str, issuer: Issuer) -> None:
        """Calls `MBarrier.complete`. Raises Fault if the barrier has not come."""
        self._cta.mbarrier(self._offset).complete(nbytes, how, issuer)


def lands_later(places: list[Destination]) -> Callable[[], bool] | None:
    """A function that says whether a copy has to wait for mbarriers; None if all of them are there."""
    awaited = [barrier for _, barrier in places if isinstance(barrier, Awaited)]
    return (lambda: any(barrier.may_come for barrier in awaited)) if awaited else None


def _of_peer(g: ActiveGroup, cta: Cta, offset: int) -> MBarrier | Awaited:
    if is_lenient() and cta is not g.cta and not cta.exited and offset not in cta.mbarriers:
        return Awaited(cta, offset)
    return cta.mbarrier(offset)


def destinations(
    g: ActiveGroup, destination: int, barrier: int, multicast: int | None, pair: bool, own_only: bool
) -> list[Destination]:
    """(destination, mbarrier) for each CTA that receives the copy (PTX ISA, "cp.async.bulk.tensor", .multicast,
    .cta_group).

    multicast: a bit per CTA of the cluster, None without `.multicast`. pair: `.cta_group::2`. own_only: a destination
    in another CTA is refused.
    """
    target, offset = shared_target(g, destination)
    signalled, barrier_offset = shared_target(g, barrier)
    if multicast is None:
        if own_only and target is not g.cta:
            raise Fault(f".shared::cta destination {destination:#x} is in CTA rank {target.rank}")
        # .cta_group::2 allows the barrier to be in the peer CTA of the pair; without it both are in one CTA.
        if signalled is not target and not (pair and signalled.rank ^ target.rank == 1):
            raise Fault(f"the barrier is in CTA rank {signalled.rank}, the destination in rank {target.rank}")
        live = None if signalled.exited else signalled.mbarriers.get(barrier_offset)
        return [((target, offset), live or barrier_at(g, None, barrier))]
    found = []
    for rank in multicast_ranks(g, multicast):
        receiver, notified = started(g, (rank, (rank & ~1) | (signalled.rank & 1) if pair else rank))
        found.append(((receiver, offset), _of_peer(g, notified, barrier_offset)))
    return found
