"""cp.async: small copies from global to shared memory by each thread, in groups of that thread (PTX ISA, "cp.async",
"cp.async.commit_group", "cp.async.wait_group", "cp.async.mbarrier.arrive").

One instruction of a warp is one asynchronous operation. A lane that waits completes its own copy; the copies of the
other lanes stay outstanding, so that a schedule may keep the old bytes in shared memory until their lanes wait.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import FULL, lane_list, lanes, row_of
from nogpu.errors import Fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.lane_copies import REFUSED, LaneCopies
from nogpu.hardware.mbarriers import ARRIVAL
from nogpu.hardware.memory import RANK_SHIFT
from nogpu.hardware.native import library
from nogpu.ops.mbarrier import barrier_at
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.ops.active_lanes import Operand

_WORDS = {4: (4, 1), 8: (8, 1), 16: (8, 2)}  # size of a copy -> bytes and number of its words


class Copies:
    """Copies that are outstanding."""

    __slots__ = ("_found", "async_op", "due", "issuer", "left")

    def __init__(self, mask: int, found: LaneCopies, issuer: Issuer) -> None:
        """mask: lanes that copy."""
        g = issuer[0]
        self._found, self.issuer = found, issuer
        self.left = mask  # lanes whose copy is outstanding
        self.due = 0  # lanes that wait for their copy
        self.async_op = AsyncOperation(g, issuer, self.run, self.run_due)

    def run(self) -> None:
        self._copy(self.left)

    def run_due(self) -> None:
        self._copy(self.left & self.due)

    def _copy(self, mask: int) -> None:
        self.left &= ~mask
        if not mask:
            return
        self.async_op.lanes = mask
        g, index = self.issuer
        registers, time = g.warp.registers, g.cta.machine.progress
        registers.look_up(g.grid)
        found = ctypes.addressof(self._found)
        answer = library().copy_lanes(registers.context_address, index, found, mask, time)
        if answer == REFUSED:
            self._copy_observed(mask)
            return
        events = g.cta.cluster.events
        if answer or events.is_observed:
            places = np.ctypeslib.as_array(self._found.places)[lanes(mask)]
            if answer and g.cta.shared.marks is not None:
                g.cta.shared.marks.stored(places, self.issuer)
            events.landed(g.cta, places & 0xFFFFFF, self._found.size, self.issuer)

    def _copy_observed(self, mask: int) -> None:
        """Performs the copies of these lanes by accesses that observers see. Raises Fault for illegal ones."""
        size, (g, _) = self._found.size, self.issuer
        places, sources, counts = (
            np.ctypeslib.as_array(getattr(self._found, x)) for x in ("places", "sources", "counts")
        )
        nbytes, count = _WORDS[size]
        values = np.zeros((count, 32), f"u{nbytes}")
        whole = lanes(mask) & (counts == size)
        if whole.any():
            values = np.where(whole, g.grid.memory.gather(sources, nbytes, count, whole, self.issuer), values)
        for lane in np.flatnonzero(lanes(mask) & ~whole & (counts > 0)).tolist():
            part = g.grid.memory.read(int(sources[lane]), int(counts[lane]), self.issuer, proxy="generic")
            values[:, lane] = np.frombuffer(part.tobytes().ljust(size, b"\0"), f"u{nbytes}")
        g.cta.shared.scatter(places, values, lanes(mask), self.issuer)
        g.cta.cluster.events.landed(g.cta, places[lanes(mask)] & 0xFFFFFF, size, self.issuer)


def copy(
    g: ActiveGroup,
    mask: int,
    destination: Operand,
    source: Operand,
    sizes: tuple[int, Operand | None],
    ignored: np.ndarray | None,
    issuer: Issuer,
) -> None:
    """cp.async.{ca,cg}: each lane copies bytes and writes zeros behind them.

    sizes: bytes that are written, and those that are read, None for all. ignored: bool[32], lanes that read nothing;
    None: no lane.
    """
    warp, machine = g.warp, g.cta.machine
    found, context, legal = LaneCopies(), warp.registers.context, warp.registers.context.copies
    if legal and library().keep_copies(warp.registers.context_address, issuer[1], legal):
        machine.progress = context.progress
        return
    take_over(warp)
    if legal:
        ctypes.memmove(ctypes.addressof(found), legal, ctypes.sizeof(found))
    else:
        size, source_size = sizes
        places, sources = _own_places(g, mask, row_of(destination, 64), size), row_of(source, 64)
        counts = row_of(size if source_size is None else source_size, 32)
        if ignored is not None:
            counts = np.where(ignored, np.uint32(0), counts)
        _check(lanes(mask), places, sources, size, counts)
        found.size = size
        for name, row in (("places", places), ("sources", sources), ("counts", counts)):
            np.ctypeslib.as_array(getattr(found, name))[:] = row
    machine.progress += 1
    copies = Copies(mask, found, issuer)
    warp.lane_copies_open.append((mask, copies))
    machine.queues.load(copies.async_op)
    _settle(warp)


def take_over(warp: Warp) -> None:
    """Queues the copies that compiled code has kept for a warp, at their places in the order of issue."""
    compiled, groups = warp.cta.compiled_copies, warp.lane_copy_groups
    for each, later in compiled.take(warp) if compiled is not None else ():
        copies = Copies(each.left, LaneCopies.from_buffer_copy(each.copies), (warp.first_group, each.pc))
        if later:
            groups[:0] = [(FULL, []) for _ in range(later - len(groups))]
            groups[-later][1].append(copies)
        else:
            warp.lane_copies_open.append((each.left, copies))
        warp.cta.machine.queues.insert_load(copies.async_op, each.number)
    _settle(warp)


def _settle(warp: Warp) -> None:
    """Forgets copies and groups that are complete. While there are others, Python keeps all copies of the warp."""
    groups = warp.lane_copy_groups
    while groups and not any(copies.left & groups[0][0] for copies in groups[0][1]):
        del groups[0]
    if not groups:
        warp.lane_copies_open = [(lanes, copies) for lanes, copies in warp.lane_copies_open if copies.left & lanes]
    if warp.cta.compiled_copies is not None:
        warp.cta.compiled_copies.tell(warp, bool(groups or warp.lane_copies_open))


def _own_places(g: ActiveGroup, mask: int, destination: np.ndarray, size: int) -> np.ndarray:
    """uint32[32]: 32-bit addresses in this CTA's shared memory. destination: 32-bit or generic addresses."""
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


def _finish(g: ActiveGroup, mask: int, copies: Iterable[Copies]) -> None:
    """Completes these copies for the lanes of the mask."""
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
    """cp.async.commit_group: the copies that a lane has issued since its last commit form a group."""
    warp = g.warp
    take_over(warp)
    warp.lane_copy_groups.append((mask, [copies for issued, copies in warp.lane_copies_open if issued & mask]))
    warp.lane_copies_open = [(left, copies) for issued, copies in warp.lane_copies_open if (left := issued & ~mask)]
    _settle(warp)
    g.cta.cluster.events.lane_copies_committed(warp, mask)


def wait_groups(g: ActiveGroup, mask: int, newest: int) -> None:
    """cp.async.wait_group: completes all but each lane's `newest` groups."""
    take_over(g.warp)
    groups = g.warp.lane_copy_groups
    parts = [mask]  # masks of lanes that have committed the same groups
    for committed, _ in groups:
        parts = [part for whole in parts for part in (whole & committed, whole & ~committed) if part]
    for part in parts:
        own = [group for committed, group in groups if committed & part]
        for group in own[: max(0, len(own) - newest)]:
            _finish(g, part, group)
    _settle(g.warp)
    g.cta.cluster.events.lane_copies_completed(g.warp, mask, newest)


def wait_copies(g: ActiveGroup, mask: int) -> None:
    """cp.async.wait_all: completes all copies of these lanes, in a group or not."""
    take_over(g.warp)
    _finish(g, mask, _outstanding(g, mask))
    _settle(g.warp)
    g.cta.cluster.events.lane_copies_completed(g.warp, mask, None)


def _outstanding(g: ActiveGroup, mask: int) -> list[Copies]:
    grouped = [copies for _, group in g.warp.lane_copy_groups for copies in group]
    found = [*grouped, *(copies for _, copies in g.warp.lane_copies_open)]
    return [copies for copies in dict.fromkeys(found) if copies.left & mask]


def arrive(g: ActiveGroup, mask: int, counted: bool, address: Operand, issuer: Issuer) -> None:
    """cp.async.mbarrier.arrive: each lane arrives when the copies that it has issued before are complete.

    counted: `.noinc`: the barrier's expected arrivals include these; else each lane first adds one to the pending ones.
    """
    take_over(g.warp)
    g.cta.machine.progress += 1
    for lane in lane_list(mask):
        place = address if isinstance(address, int) else int(address[lane])
        barrier = barrier_at(g, "shared", place)
        if not counted:
            barrier.expect_arrival()
        before = _outstanding(g, 1 << lane)

        def run(barrier: MBarrier = barrier, before: list[Copies] = before, lane: int = lane) -> None:
            _finish(g, 1 << lane, before)
            barrier.arrive(1, ARRIVAL, issuer)

        g.cta.machine.queues.load(AsyncOperation(g, issuer, run))
