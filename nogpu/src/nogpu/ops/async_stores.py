"""st.async, red.async and st.bulk (PTX ISA, "st.async", "red.async", "st.bulk").

st.async and red.async are asynchronous: the schedule decides when they write the shared memory of a CTA of the cluster
and complete their bytes on an mbarrier of that CTA. All three belong to the generic proxy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import lane_list, row_of
from nogpu.errors import Fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.mbarriers import COMPLETION
from nogpu.hardware.memory import RANK_SHIFT
from nogpu.ops.atomics import modified
from nogpu.ops.mbarrier import barrier_at
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.mbarriers import MBarrier
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

_BULK_LIMIT = 16777216  # bytes that one st.bulk may clear
_BULK_UNIT = 8


def _targets(
    g: ActiveGroup, mask: int, instruction: str, address: Operand, barrier: Operand, nbytes: int
) -> Iterator[tuple[int, Cta, int, MBarrier]]:
    """(lane, CTA, offset in its shared memory, mbarrier) of each lane. Raises Fault for places that are not legal."""
    if g.cta.cluster.size == 1:
        raise Fault(f"{instruction} in a cluster of 1 CTA: must be more (PTX ISA, {instruction})")
    addresses, barriers = row_of(address, 64).tolist(), row_of(barrier, 64).tolist()
    for lane in lane_list(mask):
        cta, offset = shared_target(g, addresses[lane])
        notified, _ = shared_target(g, barriers[lane])
        if notified is not cta:
            raise Fault(
                f"{instruction}: the barrier is in CTA rank {notified.rank}, the destination in rank {cta.rank}, must "
                f"be one CTA (PTX ISA, {instruction})"
            )
        if offset % nbytes:
            raise Fault(f"{instruction}: address {addresses[lane]:#x} is misaligned, {nbytes} bytes are stored at it")
        cta.shared.check(offset, nbytes, instruction)
        yield lane, cta, offset, barrier_at(g, None, barriers[lane])


def _submit(
    g: ActiveGroup,
    cta: Cta,
    instruction: str,
    barrier: MBarrier,
    nbytes: int,
    write: Callable[[], None],
    issuer: Issuer,
) -> None:
    def run() -> None:
        cta.alive(instruction, issuer)
        write()
        barrier.complete(nbytes, COMPLETION, issuer)

    g.cta.machine.queues.load(AsyncOperation(g, issuer, run))


def store(g: ActiveGroup, mask: int, address: Operand, values: np.ndarray, barrier: Operand, issuer: Issuer) -> None:
    """Executes st.async. values: uint[count, 32], the words of each lane, which go to the lane's own address."""
    g.cta.machine.progress += 1
    count, nbytes = len(values), values.itemsize
    for lane, cta, offset, notified in _targets(g, mask, "st.async", address, barrier, count * nbytes):
        words = tuple(values[:, lane].tolist())

        def write(cta: Cta = cta, offset: int = offset, words: tuple[int, ...] = words) -> None:
            cta.shared.store_vector(cta.rank << RANK_SHIFT | offset, words, nbytes, issuer)

        _submit(g, cta, "st.async", notified, count * nbytes, write, issuer)


def reduce(
    g: ActiveGroup,
    mask: int,
    reduction: tuple[str, str],
    address: Operand,
    value: Operand,
    barrier: Operand,
    issuer: Issuer,
) -> None:
    """Executes red.async. reduction: operation and type. value: integers of the type's width."""
    g.cta.machine.progress += 1
    width = int(reduction[1][1:])
    row = row_of(value, width)
    for lane, cta, offset, notified in _targets(g, mask, "red.async", address, barrier, width // 8):
        place, operand = cta.rank << RANK_SHIFT | offset, int(row[lane])

        def write(cta: Cta = cta, place: int = place, operand: int = operand) -> None:
            (old,) = cta.shared.load_vector(place, width // 8, 1, issuer)
            cta.shared.store_vector(place, (modified(*reduction, old, operand),), width // 8, issuer)

        _submit(g, cta, "red.async", notified, width // 8, write, issuer)


def clear(g: ActiveGroup, mask: int, address: Operand, size: Operand, issuer: Issuer) -> None:
    """st.bulk: clears `size` bytes of this CTA's shared memory."""
    g.cta.machine.progress += 1
    addresses, sizes = row_of(address, 64).tolist(), row_of(size, 64).tolist()
    for lane in lane_list(mask):
        cta, offset = shared_target(g, addresses[lane])
        if cta is not g.cta:
            raise Fault(
                f"st.bulk at {addresses[lane]:#x} is in CTA rank {cta.rank}, must be in its own (PTX ISA, st.bulk)"
            )
        for what, value in (("address", offset), ("size", sizes[lane])):
            if value % _BULK_UNIT:
                raise Fault(f"st.bulk: {what} {value:#x} is not a multiple of {_BULK_UNIT} (PTX ISA, st.bulk)")
        if sizes[lane] > _BULK_LIMIT:
            raise Fault(f"st.bulk of {sizes[lane]} bytes; the limit is {_BULK_LIMIT} (PTX ISA, st.bulk)")
        cta.shared.write(offset, np.zeros(sizes[lane], np.uint8), issuer, proxy="generic")
