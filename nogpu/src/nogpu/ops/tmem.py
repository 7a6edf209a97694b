"""tcgen05.alloc, dealloc, ld, st, wait and fence (PTX ISA, "TensorCore 5th Generation Family Instructions").

Loads and stores of tensor memory are asynchronous. The schedule "eager" completes them at once, "late" as late as
possible, "random" either way. A load completes at the latest at its warp's tcgen05.wait::ld or before an instruction
that needs its result (`compiler.tmem_uses`); a store at tcgen05.wait::st or before its warp's next access to tensor
memory.

The rows here execute what is not plainly legal, what somebody hears of, and what chance delays; compiled code does the
others (native/fragments.c).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import FULL
from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.native import library
from nogpu.hardware.tensor.order import IssuedAccess, PendingFragment, Release, columns_mask, fence_after, fence_before
from nogpu.hardware.tensor.reduction import Reduction, reduced
from nogpu.hardware.tensor.tmem import Form, Place, fragment, touched_columns
from nogpu.ops.active_lanes import pick, whole_warp
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cta
    from nogpu.hardware.machine import Machine
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand


def group_ctas(g: ActiveGroup, cta_group: int) -> list[Cta]:
    """The CTAs of the issuer's CTA group, the even one first."""
    if cta_group == 1:
        return [g.cta]
    cluster = g.cta.cluster
    if cluster.size < 2 or cluster.size % 2:
        raise Fault(f"cta_group::2 in a cluster of {cluster.size} CTA(s): CTAs pair up by rank (PTX ISA, CTA Pair)")
    return [cluster.cta(g.cta.rank & ~1, g.cta), cluster.cta(g.cta.rank | 1, g.cta)]


def wait_alloc(
    g: ActiveGroup, mask: int, cta_group: int, exclusive: bool, destination: int, columns: int, issuer: Issuer
) -> bool:
    """tcgen05.alloc: writes the base address to shared memory. With cta_group::2 it waits for the pair's other CTA."""
    whole_warp(g, mask, "tcgen05.alloc")
    g.waiting = None
    cta, offset = shared_target(g, destination)
    if cta is not g.cta or offset % 4:
        raise Fault(
            f"tcgen05.alloc writes to shared address {destination:#x} in CTA rank {cta.rank}: must be in this CTA, "
            "4-byte aligned"
        )
    g.cta.use_cta_group(cta_group)
    if cta_group == 2:
        ctas = group_ctas(g, cta_group)
        if not g.warp.known >> (g.cta.rank ^ 1) & 1:
            # Behind an arrival on the cluster barrier the other CTA is sure to come: a doubt is enough.
            report = ordering_fault if mask & ~g.warp.cluster_arrived else doubt
            report(
                "tcgen05.alloc.cta_group::2 where this warp has not heard of the other CTA: that has to have started, "
                'and only a cluster barrier or a message of it on an mbarrier says so (PTX ISA, "tcgen05.alloc")',
                (g.grid.entry.name, issuer[1], "tcgen05.alloc"),
            )
        pair = g.cta.cluster.allocations[g.cta.rank // 2]
        base = pair.take(g.cta.rank % 2, columns, exclusive, [cta.tmem for cta in ctas])
        if base is None:
            g.waiting = ("", pair, None)
            for waiters in (pair.waiters, *(cta.sm_tensor_memory.waiters for cta in ctas)):
                waiters.append(g)
            return False
    else:
        base = g.cta.tmem.alloc(columns, exclusive)
        if base is None:
            g.waiting = ("tensor memory columns", g.cta.sm_tensor_memory, columns)
            g.cta.sm_tensor_memory.waiters.append(g)
            return False
    g.cta.machine.progress += 1
    g.cta.cluster.events.allocated(g.cta, columns_mask(base & 0xFFFF, columns))
    # The write is no thread's store: nobody would fence that for the async proxy.
    g.cta.shared.write(offset, np.array([base], np.uint32).view(np.uint8), issuer, proxy="generic")
    return True


def dealloc(
    g: ActiveGroup, mask: int, cta_group: int, exclusive: bool, address: int, columns: int, issuer: Issuer
) -> None:
    """Executes tcgen05.dealloc."""
    whole_warp(g, mask, "tcgen05.dealloc")
    g.cta.use_cta_group(cta_group)
    if cta_group == 2 and not g.warp.known >> (g.cta.rank ^ 1) & 1:
        ordering_fault(
            "tcgen05.dealloc.cta_group::2 where this warp has not heard of the other CTA: that may not have allocated "
            'yet, and only a cluster barrier or a message of it on an mbarrier says so (PTX ISA, "tcgen05.dealloc")',
            (g.grid.entry.name, issuer[1], "tcgen05.dealloc"),
        )
    g.cta.tmem.dealloc(address, columns, exclusive)
    g.cta.tmem.order.free(issuer, columns_mask(address, columns))
    g.cta.cluster.events.freed(cta_group, issuer, columns_mask(address, columns))
    g.cta.machine.progress += 1
    g.cta.sm_tensor_memory.wake()


def relinquish(g: ActiveGroup, mask: int, cta_group: int, issuer: Issuer) -> None:
    """Executes tcgen05.relinquish_alloc_permit."""
    whole_warp(g, mask, "tcgen05.relinquish_alloc_permit")
    g.cta.use_cta_group(cta_group)
    g.cta.tmem.relinquish()


class _Pending:
    """A load or a store that is not complete."""

    __slots__ = ("complete", "pc", "stores")

    def __init__(self, pc: int, stores: bool, complete: Callable[[], None]) -> None:
        """pc: index of the instruction. complete: function that does the work."""
        self.pc, self.stores, self.complete = pc, stores, complete

    def matches(self, pc: int) -> bool:
        return self.pc == pc


def _access(g: ActiveGroup, mask: int, instruction: str, form: Form, taddr: Operand, issuer: Issuer) -> Place:
    """The words of tensor memory that tcgen05.ld or .st accesses (`Tmem.place`). Checks the order of the access."""
    whole_warp(g, mask, instruction)
    memory, user, quadrant, stores = g.cta.tmem, g.warp.tensor, g.warp.index % 4, instruction == "tcgen05.st"
    place = memory.place(instruction, form, quadrant, pick(taddr, mask))
    columns = touched_columns(place)
    read, written = (0, columns) if stores else (columns, 0)
    memory.order.access(issuer, user.own, user.seen, read, written)
    if g.cta.cluster.events.is_observed:
        g.cta.cluster.events.touched(g.cta, issuer, read, written)
        g.cta.cluster.events.fragment(g, issuer, place, stores=stores)
    user.touched = True
    share(g)
    return place


def share(g: ActiveGroup) -> None:
    """Lets compiled code execute the warp's next loads and stores if nobody hears of them, nor chance delays them."""
    machine, user = g.cta.machine, g.warp.tensor
    if user.is_shared or machine.always_postpones is None or g.cta.cluster.events.is_observed:
        return
    if g.grid.program.calls.watch:
        return

    def taken_over(issued: PendingFragment) -> _Pending:
        rows = user.rows  # they stay as long as the item needs them

        def complete(rows: np.ndarray | None = rows) -> None:
            library().complete_fragment(g.warp.registers.context_address, ctypes.addressof(issued))

        return _Pending(issued.pc, bool(issued.stores), complete)

    user.share(g, machine.always_postpones, taken_over)
    user.lend_rows()


def load(
    g: ActiveGroup,
    mask: int,
    form: Form,
    taddr: Operand,
    destinations: np.ndarray,
    issuer: Issuer,
    reduction: Reduction | None = None,
) -> None:
    """Issues tcgen05.ld. destinations: int32[registers], the slots that it writes at completion (`Registers.fill`).

    reduction: that of .red, whose result goes to the last slot.
    """
    if reduction is not None and not g.grid.properties.is_rubin:
        raise Fault("tcgen05.ld.red needs sm_103a or sm_107a (ptxas 13.5)")
    place = _access(g, mask, "tcgen05.ld", form, taddr, issuer)
    finish_stores(g)
    fill = partial(g.warp.registers.fill, destinations, mask, g.cta.tmem.words, place[0], fragment(form))
    if reduction is not None:
        fill = partial(_fill_reduced, g, mask, destinations, place[0], fragment(form), reduction)
    # A warp with exited lanes completes its load without a call of `postpones`, on which later random choices depend.
    if mask != FULL or not g.cta.machine.postpones():
        fill()
    else:
        g.warp.tensor.add(_Pending(issuer[1], False, fill))


def _fill_reduced(
    g: ActiveGroup, mask: int, destinations: np.ndarray, start: int, places: np.ndarray, reduction: Reduction
) -> None:
    """Completes a tcgen05.ld.red."""
    words, fill = g.cta.tmem.words, g.warp.registers.fill
    fill(destinations[:-1], mask, words, start, places)
    found = reduced(words.reshape(-1)[start + places], reduction)
    fill(destinations[-1:], mask, found, 0, np.arange(len(found))[None])


def store(g: ActiveGroup, mask: int, form: Form, taddr: Operand, values: np.ndarray, issuer: Issuer) -> None:
    """Issues tcgen05.st. values: uint32[registers, 32]."""
    g.cta.machine.progress += 1
    place, user = _access(g, mask, "tcgen05.st", form, taddr, issuer), g.warp.tensor
    user.lend_rows()
    if user.queue or g.cta.machine.postpones():
        user.add(_Pending(issuer[1], True, partial(g.cta.tmem.write, place, np.array(values))))
    else:
        g.cta.tmem.write(place, values)


def fence(g: ActiveGroup, side: str) -> None:
    """Executes tcgen05.fence::before_thread_sync or ::after_thread_sync."""
    (fence_before if side == "before" else fence_after)(g)


def accesses(issued: IssuedAccess, ctas: list[Cta], run: Callable[[], None]) -> Callable[[], None]:
    """The tensor core's work for one instruction, with its accesses to tensor memory checked against their order."""
    memories = [cta.tmem for cta in ctas]

    def ordered() -> None:
        for memory in memories:
            memory.issued = issued
        run()
        for memory in memories:
            memory.issued = None

    return ordered


def commits(machine: Machine, release: Release, run: Callable[[], None]) -> Callable[[], None]:
    """The arrival `run` of tcgen05.commit, which also releases the accesses that the warp has issued before it."""

    def released() -> None:
        release.time = machine.progress
        run()

    return released


def finish_stores(g: ActiveGroup) -> None:
    """Completes the warp's stores: its next access to tensor memory may need them."""
    if g.warp.tensor.has_stores:
        wait(g, "st")


def wait_for(g: ActiveGroup, mask: int, kind: str) -> None:
    """Executes tcgen05.wait::ld or ::st."""
    whole_warp(g, mask, "tcgen05.wait")
    wait(g, kind)
    g.cta.cluster.events.fragments_completed(g.warp, kind)


def wait(g: ActiveGroup, kind: str) -> None:
    """Completes the warp's loads ("ld") or stores ("st") and all that was issued before them."""
    _complete(g, [i for i, pending in enumerate(g.warp.tensor.queue) if pending.stores == (kind == "st")])


def settle(g: ActiveGroup, loads: tuple[int, ...]) -> None:
    """Completes the loads of these instructions, whose results are needed now. loads: indices of instructions."""
    g.cta.cluster.events.fragments_used(g, loads)
    _complete(g, [i for i, pending in enumerate(g.warp.tensor.queue) if pending.pc in loads])


def _complete(g: ActiveGroup, chosen: list[int]) -> None:
    """Completes the chosen operations, by index in the queue. A warp's loads and stores complete in order."""
    user = g.warp.tensor
    if chosen:
        for pending in user.queue[: chosen[-1] + 1]:
            pending.complete()
            g.cta.machine.progress += pending.stores
        user.drop(chosen[-1] + 1)
