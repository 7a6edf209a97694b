"""tcgen05.cp, mma and commit: asynchronous operations of the issuing thread (PTX ISA, "TensorCore 5th Generation
Family Instructions").
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from nogpu.arithmetic.lanes import lane_list
from nogpu.errors import Fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.mbarriers import COMMIT, MBarrier
from nogpu.hardware.tensor.copy import Copy
from nogpu.hardware.tensor.core import Mma, MmaForm, MmaOperands
from nogpu.hardware.tensor.order import IssuedAccess, Release
from nogpu.hardware.tensor.work import BY_PLAN
from nogpu.ops import tmem
from nogpu.ops.active_lanes import one_lane, pick
from nogpu.ops.mbarrier import deliver, remote
from nogpu.ops.memory import shared_target
from nogpu.ops.peers import check_started, multicast_ranks, started
from nogpu.ops.tmem import accesses, commits, finish_stores, group_ctas

if TYPE_CHECKING:
    from collections.abc import Callable

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.tensor.work import IssuedWork, PendingArrival, TensorPlans, TensorWork
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.ops.active_lanes import Operand


def _submit(g: ActiveGroup, mask: int, cta_group: int, issuer: Issuer, action: Callable[[], None]) -> None:
    g.cta.use_cta_group(cta_group)
    g.cta.machine.queues.tensor(_thread(g, mask), AsyncOperation(g, issuer, action))


def _thread(g: ActiveGroup, mask: int) -> tuple:
    """Key of a thread. Its operations run in order, and its commits track no other's (PTX ISA, "tcgen05.commit")."""
    return *g.warp.key, mask.bit_length()


def _issue(
    g: ActiveGroup, mask: int, ctas: list[Cta], operation: Mma | Copy, issuer: Issuer, repeats: bool = True
) -> None:
    """Queues an MMA or a copy, which is legal. ctas: those whose memories it uses. repeats: compiled code may issue and
    execute it the next time.
    """
    finish_stores(g)
    user, work = g.warp.tensor, g.cta.machine.compiled_work(g.grid)
    if work is not None:
        if repeats and work.missed:
            work.learn(operation, len(ctas))
        _share(g, mask, ctas, work)
    issued = IssuedAccess(issuer, user.issued, user.seen)
    _submit(g, mask, len(ctas), issuer, _execution(ctas, operation, issued))


def _share(g: ActiveGroup, mask: int, ctas: list[Cta], work: TensorWork) -> None:
    """Lets compiled code issue the thread's next work in these CTAs, and execute it."""
    tmem.share(g)
    for cta in ctas:
        cta.tmem.order.meet(g.warp)
        cta.shared.tell_tensor_memory(ctypes.addressof(cta.tmem.state))
    g.cta.tmem.state.cta_group = len(ctas)
    g.warp.tensor.share_work(work.queue(_thread(g, mask)), mask.bit_length() - 1)


def _execution(ctas: list[Cta], operation: Mma | Copy, issued: IssuedAccess) -> Callable[[], None]:
    """The tensor core's work for an MMA or a copy."""
    issuer = issued.issuer
    grid = issuer[0].grid

    def run() -> None:
        memories = [cta.operands() for cta in ctas]
        if isinstance(operation, Copy):
            operation.run(memories, issuer)
            return
        grid.counters.mma_flops += operation.run(memories, issuer, grid.multiplies)
        grid.counters.mma += 1

    return accesses(issued, ctas, run)


def pending_work(entry: IssuedWork, plans: TensorPlans, warp: Warp) -> AsyncOperation:
    """Work that compiled code has issued for a warp and does not execute."""
    g = warp.first_group
    issuer, release = (g, entry.pc), Release.at(entry.release)
    cluster = g.cta.cluster
    if entry.kind == BY_PLAN:
        operation, count = plans.operation(entry.plan)
        ctas = cluster.ctas[g.cta.rank & -count :][:count]
        action = _execution(ctas, operation, IssuedAccess(issuer, release, (entry.after, entry.synced)))
    else:
        ctas = [cluster.ctas[rank] for rank in lane_list(entry.ranks)]
        targets = [(cta, _barrier(cta, address)) for cta, address in zip(ctas, entry.targets)]
        action = commits(g.cta.machine, release, _arrivals(targets, issuer))
    async_op = AsyncOperation(g, issuer, action)
    async_op.known = entry.known
    return async_op


def pending_arrival(arrival: PendingArrival, warp: Warp) -> AsyncOperation:
    """Arrival of a commit in another CTA that compiled code does not perform."""
    g = warp.first_group
    issuer, home = (g, arrival.pc), g.cta.cluster.ctas[arrival.rank]
    barrier = _barrier(home, arrival.target)
    async_op = AsyncOperation(g, issuer, remote(barrier, COMMIT, issuer, partial(barrier.arrive, 1, COMMIT, issuer)))
    async_op.known = arrival.known
    return async_op


def _barrier(cta: Cta, address: int) -> MBarrier:
    return cast("MBarrier", cta.shared.live_barriers.by_address[address])


def started_ctas(g: ActiveGroup, cta_group: int) -> list[Cta]:
    """The CTAs whose memories are used, even one first. Raises Fault unless the warp knows that they have started."""
    if cta_group == 1:
        return [g.cta]
    ctas = group_ctas(g, cta_group)
    first = ctas[0].rank
    if g.warp.known >> first & 3 == 3:
        return ctas
    for cta in ctas:
        check_started(g, cta)
    return ctas


def copy(
    g: ActiveGroup,
    mask: int,
    cta_group: int,
    form: tuple[str, str | None, str | None],
    taddr: Operand,
    descriptor: int,
    issuer: Issuer,
) -> None:
    """Issues tcgen05.cp. Raises Fault at issue for operands that are not legal by themselves.

    form: shape, multicast, and the packed format in shared memory, None for a plain copy.
    """
    one_lane(mask, "tcgen05.cp")
    ctas = started_ctas(g, cta_group)
    operation = Copy.decode(*form, pick(taddr, mask), descriptor, g.grid.properties.is_rubin)
    operation.check([cta.operands() for cta in ctas])

    _issue(g, mask, ctas, operation, issuer, operation.compiled is not None)


def _picked(operands: MmaOperands, mask: int) -> MmaOperands:
    """The operands with the values of the active lane in place of rows."""
    if np.ndarray not in map(type, (*operands, *operands.disabled)):
        return operands
    return MmaOperands(
        d=pick(operands.d, mask),
        a=pick(operands.a, mask),
        b=pick(operands.b, mask),
        idesc=pick(operands.idesc, mask),
        sfa=pick(operands.sfa, mask),
        sfb=pick(operands.sfb, mask),
        accumulate=operands.accumulate,
        disabled=tuple(pick(word, mask) for word in operands.disabled),
        metadata=pick(operands.metadata, mask),
        zero_columns=pick(operands.zero_columns, mask),
    )


def mma(g: ActiveGroup, mask: int, form: MmaForm, operands: MmaOperands, issuer: Issuer) -> None:
    """Issues tcgen05.mma. Raises Fault at issue for operands that are not legal by themselves.

    operands: as generated code passes them; in a row the one active lane counts.
    """
    one_lane(mask, "tcgen05.mma")
    if form.cta_group == 2 and g.cta.rank & 1:
        raise Fault(
            f"tcgen05.mma.cta_group::2 issued by CTA rank {g.cta.rank}: the even CTA of the pair issues it (PTX ISA, "
            "CTA Pair)"
        )
    ctas, operands = started_ctas(g, form.cta_group), _picked(operands, mask)
    legal = g.cta.tmem.legal
    operation = legal.get((form, operands))
    if operation is None:
        operation = Mma.decode(form, operands, g.grid.properties.is_rubin)
        operation.check([cta.operands() for cta in ctas])
        if form.cta_group == 1:
            legal[form, operands] = operation

    _issue(g, mask, ctas, operation, issuer)


def commit(
    g: ActiveGroup, mask: int, cta_group: int, restricted: bool, barrier: Operand, multicast: int | None, issuer: Issuer
) -> None:
    """tcgen05.commit: arrives on the mbarrier when all earlier operations of the thread are complete.

    restricted: True with .sync_restrict::shared::read::mma::a, which waits for no more than the reads of A in shared
    memory: it orders nothing in tensor memory. multicast: a bit per CTA of the cluster with an mbarrier at that offset;
    None: the barrier's own CTA.
    """
    if restricted and not g.grid.properties.is_rubin:
        raise Fault("tcgen05.commit.sync_restrict::shared::read::mma::a needs sm_107 (ptxas 13.5)")
    if restricted and g.cta.cluster.events.is_observed:
        raise Fault("tcgen05.commit.sync_restrict::shared::read::mma::a is not modelled where accesses are followed")
    cta, offset = shared_target(g, pick(barrier, mask))
    ctas = [cta] if multicast is None else started(g, multicast_ranks(g, multicast))
    targets = [(cta, cta.mbarrier(offset)) for cta in ctas]

    one_lane(mask, COMMIT)
    arrivals = _arrivals(targets, issuer)
    if restricted:
        _submit(g, mask, cta_group, issuer, arrivals)
        return
    user = g.warp.tensor
    _submit(g, mask, cta_group, issuer, commits(g.cta.machine, user.issued, arrivals))
    user.issued = Release()
    user.supply()


def _arrivals(targets: list[tuple[Cta, MBarrier]], issuer: Issuer) -> Callable[[], None]:
    """Arrives on mbarriers, each in its CTA."""
    g = issuer[0]

    def run() -> None:
        for cta, barrier in targets:
            cta.alive(f"tcgen05.commit, an arrival on the {barrier.name},", issuer)
            deliver(g, barrier, COMMIT, issuer, partial(barrier.arrive, 1, COMMIT, issuer))

    return run
