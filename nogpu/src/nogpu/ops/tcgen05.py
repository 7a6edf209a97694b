"""tcgen05.cp, mma and commit: asynchronous operations of the issuing thread (PTX ISA, "TensorCore 5th Generation
Family Instructions").
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.async_operations import AsyncOperation
from nogpu.hardware.mbarriers import COMMIT
from nogpu.hardware.tensor.copy import Copy
from nogpu.hardware.tensor.core import Mma, MmaForm, MmaOperands
from nogpu.ops.active_lanes import one_lane, pick
from nogpu.ops.mbarrier import deliver
from nogpu.ops.memory import shared_target
from nogpu.ops.peers import check_started, multicast_ranks, started
from nogpu.ops.tmem import accesses, commits, group_ctas

if TYPE_CHECKING:
    from collections.abc import Callable

    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand


def _submit(
    g: ActiveGroup,
    mask: int,
    cta_group: int,
    issuer: Issuer,
    run: Callable[[], None],
    ctas: list[Cta] | None = None,
    restricted: bool = False,
) -> None:
    """Queues an operation. ctas: those whose tensor memory it accesses; None for a commit. restricted: as `commit`."""
    g.cta.use_cta_group(cta_group)
    # One thread's operations run in order, and its commits track no other thread's (PTX ISA, "tcgen05.commit").
    thread = *g.warp.key, mask.bit_length()
    if restricted:
        ordered = run
    else:
        ordered = commits(g, run) if ctas is None else accesses(g, ctas, run, issuer)
    g.cta.machine.queues.tensor(thread, AsyncOperation(g, issuer, ordered))


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

    def run() -> None:
        operation.run([cta.operands() for cta in ctas], issuer)

    _submit(g, mask, cta_group, issuer, run, ctas)


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

    def run() -> None:
        flops = operation.run([cta.operands() for cta in ctas], issuer, g.grid.multiplies)
        counters = g.grid.counters
        counters.mma += 1
        counters.mma_flops += flops

    _submit(g, mask, form.cta_group, issuer, run, ctas)


def commit(
    g: ActiveGroup,
    mask: int,
    cta_group: int,
    restricted: bool,
    barrier: Operand,
    multicast: int | None,
    issuer: Issuer,
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

    def run() -> None:
        for cta, barrier in targets:
            cta.alive(f"tcgen05.commit, an arrival on the {barrier.name},", issuer)
            deliver(g, barrier, COMMIT, issuer, partial(barrier.arrive, 1, COMMIT, issuer))

    one_lane(mask, COMMIT)
    _submit(g, mask, cta_group, issuer, run, restricted=restricted)
