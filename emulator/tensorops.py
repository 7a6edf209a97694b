"""What tcgen05.alloc, dealloc, ld, st and wait do when a warp issues them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emulator.access import pick, shared_target, whole_warp
from emulator.errors import Fault

if TYPE_CHECKING:
    from emulator.warp import Group


def members(g: Group, cta_group: int):
    """The CTAs that an instruction of a CTA group works in, the even one first."""
    if cta_group == 1:
        return [g.cta]
    cluster = g.cta.cluster
    if cluster.size < 2 or cluster.size % 2:
        raise Fault(f"cta_group::2 in a cluster of {cluster.size} CTA(s): CTAs pair up by rank (PTX ISA, CTA Pair)")
    return [cluster.cta(g.cta.rank & ~1, g.cta), cluster.cta(g.cta.rank | 1, g.cta)]


def wait_alloc(g: Group, mask: int, cta_group: int, destination: int, columns: int, who) -> bool:
    """tcgen05.alloc; the base address goes to shared memory. With cta_group::2 it waits for the pair's other CTA."""
    whole_warp(g, mask, "tcgen05.alloc")
    g.waiting = None
    cta, _ = shared_target(g, destination)
    if cta is not g.cta:
        raise Fault(f"tcgen05.alloc writes to shared address {destination:#x} of CTA rank {cta.rank}")
    g.cta.use_cta_group(cta_group)
    if cta_group == 2:
        ctas = members(g, cta_group)
        pair = g.cta.cluster.allocations[g.cta.rank // 2]
        base = pair.take(g.cta.rank % 2, columns, [cta.tmem for cta in ctas])
        if base is None:
            g.waiting = ("", pair, None)
            for waiters in (pair.waiters, *(cta.sm_tensor_memory.waiters for cta in ctas)):
                waiters.append(g)
            return False
    else:
        base = g.cta.tmem.alloc(columns)
        if base is None:
            g.waiting = ("tensor memory columns", g.cta.sm_tensor_memory, columns)
            g.cta.sm_tensor_memory.waiters.append(g)
            return False
    g.cta.machine.progress += 1
    g.cta.shared.store(destination & 0xFFFFFFFF, base, 4, who)
    return True


def dealloc(g: Group, mask: int, cta_group: int, address: int, columns: int, who) -> None:
    whole_warp(g, mask, "tcgen05.dealloc")
    g.cta.use_cta_group(cta_group)
    g.cta.tmem.dealloc(address, columns)
    g.cta.machine.progress += 1
    g.cta.sm_tensor_memory.wake()


def relinquish(g: Group, mask: int, cta_group: int, who) -> None:
    whole_warp(g, mask, "tcgen05.relinquish_alloc_permit")
    g.cta.use_cta_group(cta_group)
    g.cta.tmem.relinquish()


def load(g: Group, mask: int, shape: str, num: int, packed: bool, taddr, half_split: int | None, who) -> np.ndarray:
    """tcgen05.ld: uint32[registers, 32]."""
    whole_warp(g, mask, "tcgen05.ld")
    return g.cta.tmem.load(shape, num, g.warp.index % 4, pick(taddr, mask), pack=packed, half_split=half_split or 0)


def store(
    g: Group, mask: int, shape: str, num: int, unpacked: bool, taddr, half_split: int | None, values: np.ndarray, who
) -> None:
    """tcgen05.st of uint32[registers, 32]."""
    whole_warp(g, mask, "tcgen05.st")
    g.cta.machine.progress += 1
    g.cta.tmem.store(
        shape, num, g.warp.index % 4, pick(taddr, mask), values, unpack=unpacked, half_split=half_split or 0
    )


def synchronize(g: Group, mask: int, what: str) -> None:
    """tcgen05.wait: loads and stores of tensor memory are done when they are issued."""
    whole_warp(g, mask, what)
