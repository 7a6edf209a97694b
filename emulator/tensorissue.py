"""What tcgen05.cp, mma and commit do: jobs of the issuing thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator import tensorcore
from emulator.access import one_lane, pick, shared_target
from emulator.errors import Fault
from emulator.jobs import Job
from emulator.lanes import lane_list
from emulator.tensorops import members

if TYPE_CHECKING:
    from emulator.warp import Group

_SCALE_BLOCKS = {"scale_vec::2X": 32, "scale_vec::4X": 16, "block16": 16, "block32": 32}
_DEFAULT_BLOCK = {"mxf4": 32}


def _submit(g: Group, mask: int, cta_group: int, who, instruction: str, run) -> None:
    one_lane(mask, instruction)
    g.cta.use_cta_group(cta_group)
    # Operations of one thread run in order, and its commits count its own only (PTX ISA, "tcgen05.commit").
    thread = *g.warp.key, mask.bit_length()
    g.cta.machine.queues.tensor(thread, Job(g.grid, g.issuer(who), run))


def copy(g: Group, mask: int, cta_group: int, shape: str, multicast: str | None, taddr, descriptor, who) -> None:
    """tcgen05.cp."""
    taddr, descriptor, ctas = pick(taddr, mask), pick(descriptor, mask), members(g, cta_group)

    def run() -> None:
        tensorcore.copy(shape, multicast, taddr, descriptor, [cta.operands() for cta in ctas], who)

    _submit(g, mask, cta_group, who, "tcgen05.cp", run)


def mma(
    g: Group,
    mask: int,
    cta_group: int,
    kind: str,
    scale: str | None,
    d,
    a,
    b,
    idesc,
    sfa,
    sfb,
    accumulate: bool,
    a_in_tmem: bool,
    who,
) -> None:
    """tcgen05.mma. sfa, sfb: None without block scaling."""
    block = _SCALE_BLOCKS[scale] if scale else _DEFAULT_BLOCK.get(kind)
    if sfa is None:
        block = None
    elif block is None:
        raise Fault(f"tcgen05.mma.kind::{kind}.block_scale needs .scale_vec or .block (PTX ISA, tcgen05.mma)")
    if cta_group == 2 and g.cta.rank & 1:
        raise Fault(
            f"tcgen05.mma.cta_group::2 issued by CTA rank {g.cta.rank}: the even CTA of the pair issues it (PTX ISA, CTA Pair)"
        )
    d, a, b, idesc = (pick(value, mask) for value in (d, a, b, idesc))
    sfa, sfb = pick(sfa or 0, mask), pick(sfb or 0, mask)
    ctas = members(g, cta_group)

    def run() -> None:
        operands = [cta.operands() for cta in ctas]
        flops = tensorcore.mma(
            kind, cta_group, block, d, a, b, idesc, sfa, sfb, accumulate, operands, a_in_tmem=a_in_tmem, who=who
        )
        counters = g.grid.counters
        counters.mma += 1
        counters.mma_flops += flops

    _submit(g, mask, cta_group, who, "tcgen05.mma", run)


def all_lanes(disabled: list, mask: int) -> None:
    """The disable-output-lane operand of tcgen05.mma."""
    if any(pick(word, mask) for word in disabled):
        raise Fault("tcgen05.mma with lanes disabled by disable-output-lane is not modelled")


def commit(g: Group, mask: int, cta_group: int, barrier, multicast: int | None, who) -> None:
    """tcgen05.commit: an arrival when all earlier operations of the thread are done."""
    cta, offset = shared_target(g, pick(barrier, mask))
    if multicast is None:
        ctas = [cta]
    else:
        if multicast >> g.cta.cluster.size or not multicast:
            raise Fault(f"multicast mask {multicast:#06x} for a cluster of {g.cta.cluster.size} CTAs")
        ctas = [g.cta.cluster.cta(rank, g.cta) for rank in lane_list(multicast)]
    targets = [(cta, cta.mbarrier(offset)) for cta in ctas]

    def run() -> None:
        for cta, barrier in targets:
            cta.alive(f"tcgen05.commit, an arrival on the {barrier.name},")
            barrier.arrive(1, "tcgen05.commit", who)

    _submit(g, mask, cta_group, who, "tcgen05.commit", run)
