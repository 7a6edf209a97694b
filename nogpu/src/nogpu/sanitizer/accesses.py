"""Follows accesses to the shared memory of a cluster's CTAs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.memory import RANK_SHIFT
from nogpu.sanitizer.clocks import FULL, LANES, Cause, lanes_meet, lanes_of, repeated
from nogpu.sanitizer.cluster_state import ClusterState, opcode, running_lanes
from nogpu.sanitizer.conflicts import Access, Noted, View
from nogpu.sanitizer.orders import is_strong, word_size
from nogpu.sanitizer.report import spread
from nogpu.sanitizer.shadow import Shadow

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import Issuer, Warp
    from nogpu.sanitizer.warp_clocks import WarpClock


class Accesses:
    """Checks accesses under the clocks of the lanes or operations that make them."""

    def __init__(self, state: ClusterState) -> None:
        self._agents, self._warps, self._reporter = state.agents, state.warps, state.reporter
        self._known: dict[tuple, Access] = {}

    def access(
        self, cta: Cta, shadow: Shadow, kind: str, proxy: str, place: int | np.ndarray, width: int, issuer: Issuer
    ) -> None:
        """Checks and records an access to `width` bytes of a CTA's shared memory at an offset, or at each of several.

        kind: "load" or "store". proxy: "generic" or "async".
        """
        running, lanes = cta.machine.running, None
        views: list[View] | None = None
        if isinstance(place, np.ndarray) and proxy == "generic":
            place = (place & 0xFFFFFF).astype(np.int64)
        if running is not None and running.cause is not None:
            access, views = self._of_operation(running.cause, cta, kind, proxy, place)
            mask = (running.lanes or running.cause.mask) if access.lanes else 0
        else:
            warp = issuer[0].warp
            mask = running_lanes(warp)
            if isinstance(place, np.ndarray) and mask == FULL and len(place) < LANES:
                mask = (1 << len(place)) - 1  # rows of ldmatrix and stmatrix
            access = self._of_warp(warp, mask, kind, issuer)
        if isinstance(place, np.ndarray) and mask and len(place) == mask.bit_count():
            lanes = repeated(mask, 1)
        if views is None:
            views = _views(self._warps[issuer[0].warp], mask, lanes)
        self._check(cta, shadow, access, place, width, lanes, views)

    def noted(self, cta: Cta, shadow: Shadow, noted: Noted) -> None:
        """Checks and records accesses of a warp to its CTA's shared memory. The addresses of `noted` are int64."""
        warp, mask, kind, width, indices, addresses, by_lane = noted
        clock = self._warps[warp]
        clock.changes += 1
        addresses &= 0xFFFFFF
        addresses = addresses[:, lanes_of(mask)] if by_lane else addresses[:, :1]
        places, count = addresses.ravel(), len(indices)
        # One lane's store by one instruction may conflict with another's by the next.
        are_one = count > 1 and (kind == "load" or not by_lane or not lanes_meet(addresses))
        if are_one and not self._reporter.tells_apart(cta.grid.entry, indices):
            lanes = repeated(mask, count) if by_lane else None
            access = Access(clock.base, clock.now, mask, kind == "store", False, False, (warp.first_group, indices[-1]))
            access.several = indices, addresses, width
            if shadow.follows(access, places, width, lanes, _views(clock, mask, lanes)):
                return
        lanes = repeated(mask, 1) if by_lane else None
        for index, row in zip(indices, addresses, strict=True):
            access = Access(clock.base, clock.now, mask, kind == "store", False, False, (warp.first_group, index))
            place = row if by_lane else row.item(0)
            self._check(cta, shadow, access, place, width, lanes, _views(clock, mask, lanes))

    def _check(
        self,
        cta: Cta,
        shadow: Shadow,
        access: Access,
        place: int | np.ndarray,
        width: int,
        lanes: np.ndarray | None,
        views: list[View],
    ) -> None:
        access.origin = cta.rank << RANK_SHIFT
        for conflict in shadow.access(access, place, width, lanes, views):
            for each in (conflict.before, access):
                each.name(conflict.place[0])
            self._reporter.report(conflict, access, f"{spread('shared offset', *conflict.place)} of {cta.label}")

    def stored(self, mask: int, addresses: np.ndarray, values: np.ndarray, issuer: Issuer) -> None:
        """Reports lanes of a weak store that write different values to the same address (`Events.stored`)."""
        lanes = np.array(lanes_of(mask))
        order = lanes[np.argsort(addresses[lanes], kind="stable")]
        places, stored = addresses[order], values[:, order]
        same = places[1:] == places[:-1]
        if not same.any() or is_strong(opcode(issuer)):
            return
        clash = same & (stored[:, 1:] != stored[:, :-1]).any(axis=0)
        if clash.any():
            first = int(clash.argmax())
            pair = (int(order[first]), int(order[first + 1]))
            self._warps[issuer[0].warp].settle()  # reports of earlier accesses come first
            self._reporter.report_clash(issuer, pair, int(places[first]))

    def _of_warp(self, warp: Warp, mask: int, kind: str, issuer: Issuer) -> Access:
        clock = self._warps[warp]
        clock.changes += 1
        name = opcode(issuer)
        strong = is_strong(name)
        access = Access(clock.base, clock.now, mask, kind == "store", False, strong, issuer)
        if strong:
            access.writes, clock.has_written, access.size = clock.writes, True, word_size(name)
        return access

    def _of_operation(
        self, cause: Cause, cta: Cta, kind: str, proxy: str, place: int | np.ndarray
    ) -> tuple[Access, list[View]]:
        issuer, channel, count = cause.issuer, cause.channel, cause.count
        clock = self._agents.fit(cause.clock)
        if channel is None:
            first = int(place[0]) if isinstance(place, np.ndarray) else place
            channel = self._agents.channel(("place", cta.rank, first))
            channel.count = count = channel.count + 1
            self._agents.fit(clock).set(channel.agent, count)
        key = channel.agent, count, issuer[1], kind
        access = self._known.get(key)
        if access is None or access.issuer[0].warp is not issuer[0].warp:
            name = opcode(issuer)
            mask = cause.mask if name.startswith("cp.async.c") and cause.channel is not None else 0
            strong = kind == "store" and is_strong(name)  # what a bulk reduction reads is no word
            access = Access(channel.agent, count, mask, kind == "store", proxy == "async", strong, issuer)
            access.cause, access.size = cause, word_size(name) if access.is_strong else 0
            self._known[key] = access
        if cause.views is None:
            cause.views = [View(None, 0, clock)]
        return access, cause.views


def _views(clock: WarpClock, mask: int, lanes: np.ndarray | None) -> list[View]:
    """Views of a warp's lanes, one for each of their clocks. lanes: as in `Shadow.access`."""
    parts = list(clock.parts(mask))
    if lanes is None or len(parts) == 1:
        return [View(None, part, known) for part, known in parts]
    return [View((part >> lanes.astype(np.int64) & 1).astype(bool), part, known) for part, known in parts]
