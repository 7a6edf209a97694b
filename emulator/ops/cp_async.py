"""What cp.async does: small copies of each thread from global to shared memory, in groups of that thread (PTX ISA,
"cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive").

One instruction of a warp is one job of the queues. Lanes that wait for theirs have them done, the others' stay
outstanding: a schedule may let shared memory hold its old bytes until somebody waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.arithmetic.lanes import lane_list, lanes, row_of
from emulator.errors import Fault
from emulator.hardware.async_operations import AsyncOperation
from emulator.hardware.barriers import ARRIVAL
from emulator.hardware.memory import RANK_SHIFT
from emulator.ops.mbarrier import barrier_at
from emulator.ops.memory import shared_target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emulator.hardware.warp import ActiveGroup

_WORDS = {4: (4, 1), 8: (8, 1), 16: (8, 2)}  # size of a copy -> bytes and number of its words


class LaneCopies:
    """The copies that one instruction issued: of each lane `size` bytes, `counts` of them read, the rest zeros."""

    def __init__(
        self, g: ActiveGroup, mask: int, places: np.ndarray, sources: np.ndarray, size: int, counts: np.ndarray, issuer
    ):
        self.cta, self.memory, self.issuer = g.cta, g.grid.memory, issuer
        self.places, self.sources, self.size, self.counts = places, sources, size, counts
        self.left = mask
        self.due = 0
        self.async_op = AsyncOperation(g.grid, g.origin(issuer), self.run, self.run_due)

    def run(self) -> None:
        self._copy(self.left)

    def run_due(self) -> None:
        self._copy(self.left & self.due)

    def _copy(self, mask: int) -> None:
        self.left &= ~mask
        if not mask:
            return
        nbytes, count = _WORDS[self.size]
        values = np.zeros((count, 32), f"u{nbytes}")
        whole = lanes(mask) & (self.counts == self.size)
        if whole.any():
            found = self.memory.gather(self.sources, nbytes, count, whole, self.issuer)
            values = np.where(whole, found, values)
        for lane in np.flatnonzero(lanes(mask) & ~whole & (self.counts > 0)).tolist():
            part = self.memory.read(int(self.sources[lane]), int(self.counts[lane]), self.issuer, proxy="generic")
            values[:, lane] = np.frombuffer(part.tobytes().ljust(self.size, b"\0"), f"u{nbytes}")
        self.cta.shared.scatter(self.places, values, lanes(mask), self.issuer)


def copy(g: ActiveGroup, mask: int, destination, source, size: int, source_size, ignored, issuer) -> None:
    """cp.async.{ca,cg} of `size` bytes. source_size: None, or how many of them are read; ignored: None, or lanes of
    which none are (bool[32]).
    """
    places, sources = _own_places(g, mask, row_of(destination, 64), size), row_of(source, 64)
    counts = row_of(size if source_size is None else source_size, 32)
    if ignored is not None:
        counts = np.where(ignored, np.uint32(0), counts)
    _check(lanes(mask), places, sources, size, counts)
    g.cta.machine.progress += 1
    copies = LaneCopies(g, mask, places, sources, size, counts, issuer)
    g.warp.lane_copies_open.append((mask, copies))
    g.cta.machine.queues.load(copies.async_op)


def _own_places(g: ActiveGroup, mask: int, destination: np.ndarray, size: int) -> np.ndarray:
    """32-bit addresses in this CTA's shared memory, from 32-bit or generic ones."""
    places = np.zeros(32, np.uint32)
    for lane in lane_list(mask):
        cta, offset = shared_target(g, int(destination[lane]))
        if cta is not g.cta:
            raise Fault(
                f"cp.async destination {int(destination[lane]):#x} is in CTA rank {cta.rank}, must be in its own"
            )
        cta.shared.check(offset, size, "cp.async store")
        places[lane] = cta.rank << RANK_SHIFT | offset
    return places


def _check(active: np.ndarray, places: np.ndarray, sources: np.ndarray, size: int, counts: np.ndarray) -> None:
    for what, addresses, used in (("destination", places, active), ("source", sources, active & (counts > 0))):
        wrong = used & (addresses % addresses.dtype.type(size) != 0)
        if wrong.any():
            raise Fault(
                f"cp.async: {what} {int(addresses[wrong][0]):#x} is misaligned, it must be a multiple of the copy's "
                f"{size} bytes (PTX ISA, cp.async)"
            )
    too_large = active & (counts > size)
    if too_large.any():
        raise Fault(f"cp.async: src-size {int(counts[too_large][0])} is larger than cp-size {size} (PTX ISA, cp.async)")


def _finish(g: ActiveGroup, mask: int, copies: Iterable[LaneCopies]) -> None:
    """Have these copies done for the lanes of the mask."""
    queues = g.cta.machine.queues
    for copy in copies:
        if copy.async_op.done or not copy.left & mask:
            continue
        if copy.left & ~mask:
            copy.due = mask
            queues.prepare([copy.async_op])
        else:
            queues.force([copy.async_op])


def commit_group(g: ActiveGroup, mask: int) -> None:
    """cp.async.commit_group: what each lane has copied since its last one forms a group of that lane."""
    warp = g.warp
    warp.lane_copy_groups.append((mask, [copies for issued, copies in warp.lane_copies_open if issued & mask]))
    warp.lane_copies_open = [(left, copies) for issued, copies in warp.lane_copies_open if (left := issued & ~mask)]


def wait_groups(g: ActiveGroup, mask: int, newest: int) -> None:
    """cp.async.wait_group: all but each lane's `newest` groups are done."""
    groups = g.warp.lane_copy_groups
    parts = [mask]  # of lanes that have committed the same groups
    for committed, _ in groups:
        parts = [part for whole in parts for part in (whole & committed, whole & ~committed) if part]
    for part in parts:
        own = [group for committed, group in groups if committed & part]
        for group in own[: max(0, len(own) - newest)]:
            _finish(g, part, group)
    while groups and not any(copies.left & groups[0][0] for copies in groups[0][1]):
        del groups[0]


def wait_copies(g: ActiveGroup, mask: int) -> None:
    """cp.async.wait_all: all copies of these lanes are done, in a group or not."""
    _finish(g, mask, _outstanding(g, mask))


def _outstanding(g: ActiveGroup, mask: int) -> list[LaneCopies]:
    grouped = [copies for _, group in g.warp.lane_copy_groups for copies in group]
    found = [*grouped, *(copies for _, copies in g.warp.lane_copies_open)]
    return [copies for copies in dict.fromkeys(found) if copies.left & mask]


def arrive(g: ActiveGroup, mask: int, counted: bool, address, issuer) -> None:
    """cp.async.mbarrier.arrive: each lane arrives once its copies so far are done.

    counted: the arrivals are among those that the barrier expects (.noinc); else each adds one to them first.
    """
    g.cta.machine.progress += 1
    for lane in lane_list(mask):
        place = address if isinstance(address, int) else int(address[lane])
        barrier = barrier_at(g, "shared", place)
        if not counted:
            barrier.expect_arrival()
        before = _outstanding(g, 1 << lane)

        def run(barrier=barrier, before=before, lane=lane) -> None:
            _finish(g, 1 << lane, before)
            barrier.arrive(1, ARRIVAL, issuer)

        g.cta.machine.queues.load(AsyncOperation(g.grid, g.origin(issuer), run))
