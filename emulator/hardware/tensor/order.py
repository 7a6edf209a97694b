"""Order of accesses to tensor memory by different warps (PTX ISA, "tcgen05.fence", "tcgen05.wait", "tcgen05.commit").

An access is over for other warps once it has been released: MMAs and copies by the arrival of a commit that follows
them; tcgen05.ld and st, once they are complete, by tcgen05.fence::before_thread_sync. Who then touches the same columns
in a conflicting way, from another warp, must have executed tcgen05.fence::after_thread_sync since.

Kernels without any tcgen05.fence are not held to it: NVIDIA's DSL emits none, and ptxas and the hardware let it be. Of
them only what no fence could mend is refused: an access to the results of an uncommitted MMA, and one over a load or a
store that was not complete when its warp last arrived on a barrier.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from emulator.errors import Fault, ordering_fault
from emulator.hardware.barriers import label

if TYPE_CHECKING:
    from emulator.hardware.warp import ActiveGroup, Warp

COLUMNS, QUADRANTS = 512, 4
ALL_QUADRANTS = (1 << QUADRANTS) - 1


@lru_cache(maxsize=4096)
def columns_mask(column: int, count: int, quadrants: int = ALL_QUADRANTS) -> int:
    """Bit 512 q + c for each quadrant q of lanes, which is bit q of `quadrants`, and each column c."""
    columns = ((1 << count) - 1) << column
    return sum(columns << COLUMNS * q for q in range(QUADRANTS) if quadrants >> q & 1)


class Release:
    """What accesses wait for together. time: when they were released, None before that; escaped: the warp has arrived
    on a barrier while one of its loads or stores was not complete.
    """

    __slots__ = ("escaped", "time")

    def __init__(self) -> None:
        self.time: int | None = None
        self.escaped = False


class TensorUser:
    """A warp as a user of tensor memory. queue: its loads and stores that are not complete, oldest first.

    after: up to when it knows of releases, since its last fence::after_thread_sync: the time when what it had waited for
    before that was there. own: release of its loads and stores since the last one; issued:
    of the MMAs and copies since the last commit. touched: it has loads or stores that are not released.
    """

    __slots__ = ("after", "issued", "own", "queue", "touched")

    def __init__(self) -> None:
        self.queue: list = []
        self.after = -1
        self.own, self.issued = Release(), Release()
        self.touched = False


class _Epoch:
    """Columns that a warp has accessed under one release and that nobody has written since."""

    __slots__ = ("reads", "release", "warp", "issuer", "writes")

    def __init__(self, warp: Warp, release: Release):
        self.warp, self.release = warp, release
        self.reads = self.writes = 0
        self.issuer: tuple = ()


class TensorOrder:
    """Who accessed which tensor memory columns of a CTA last."""

    def __init__(self) -> None:
        self._epochs: list[_Epoch] = []
        self._last: Warp | None = None  # of the last access; nothing of another warp has been added since
        self._others = 0, 0  # columns that warps other than the last one have read, and written

    def access(self, issuer: tuple, release: Release, after: int, reads: int, writes: int, frees: bool = False) -> None:
        """Raises Fault for a conflict. who: (group, instruction). reads, writes: masks of columns. frees: it is a
        tcgen05.dealloc, which only has to find all complete: it is no asynchronous operation that a fence would order.
        """
        warp = issuer[0].warp
        if warp is not self._last:
            self._last = warp
            self._gather_others()
        others_read, others_written = self._others
        if others_written & (reads | writes) or others_read & writes:
            for epoch in self._epochs:
                if epoch.warp is not warp and (epoch.writes & (reads | writes) or epoch.reads & writes):
                    _check(epoch, issuer, after, frees)
        mine = None
        for epoch in self._epochs:
            if epoch.release is release and epoch.warp is warp:
                mine = epoch
        if mine is None:
            mine = _Epoch(warp, release)
            self._epochs.append(mine)
        if writes & ~mine.writes:
            self._forget(writes, mine)
        mine.reads |= reads
        mine.writes |= writes
        mine.issuer = issuer

    def _gather_others(self) -> None:
        reads = writes = 0
        for epoch in self._epochs:
            if epoch.warp is not self._last:
                reads |= epoch.reads
                writes |= epoch.writes
        self._others = reads, writes

    def _forget(self, columns: int, kept: _Epoch | None = None) -> None:
        """What was done to columns that are written now matters no more."""
        emptied = False
        for epoch in self._epochs:
            if epoch is not kept:
                epoch.reads &= ~columns
                epoch.writes &= ~columns
                emptied |= not (epoch.reads or epoch.writes)
        if emptied:
            self._epochs = [epoch for epoch in self._epochs if epoch is kept or epoch.reads or epoch.writes]
        if self._others != (0, 0):
            self._others = self._others[0] & ~columns, self._others[1] & ~columns

    def free(self, issuer: tuple, columns: int) -> None:
        """tcgen05.dealloc: as a write to them, of which nobody learns."""
        user = issuer[0].warp.tensor
        self.access(issuer, Release(), user.after, 0, columns, frees=True)
        self._forget(columns)
        self._last = None


def _check(epoch: _Epoch, issuer: tuple, after: int, frees: bool) -> None:
    group, release = issuer[0], epoch.release
    instructions = group.grid.entry.instructions
    before, now = instructions[epoch.issuer[1]].opcode, instructions[issuer[1]].opcode
    conflict = f"{now} touches tensor memory columns of the {before} by {label(epoch.issuer)}"
    place = group.grid.entry.name, epoch.issuer[1], issuer[1]
    fences = group.grid.program.traits.tensor_fences and not frees
    if release.time is not None:
        if fences and after < release.time:
            ordering_fault(
                f"{conflict}: tcgen05.fence::after_thread_sync is missing since that was released (PTX ISA, tcgen05.fence)",
                place,
            )
        return
    if before.startswith(("tcgen05.mma", "tcgen05.cp")):
        raise Fault(f"{conflict}: no tcgen05.commit behind it has arrived (PTX ISA, tcgen05.commit)")
    incomplete = any(pending.matches(epoch.issuer[1]) for pending in epoch.warp.tensor.queue)
    if release.escaped or incomplete:
        kind = "ld" if before.startswith("tcgen05.ld") else "st"
        raise Fault(
            f"{conflict}: that warp had arrived on a barrier before it was complete, tcgen05.wait::{kind} is missing "
            "(PTX ISA, tcgen05.wait)"
        )
    if fences:
        ordering_fault(
            f"{conflict}: that warp has not executed tcgen05.fence::before_thread_sync since (PTX ISA, tcgen05.fence)",
            place,
        )


class IssuedAccess:
    """What the tensor core touches for one MMA or copy. Attached to the memories of its CTAs while it runs."""

    __slots__ = ("after", "release", "issuer")

    def __init__(self, issuer: tuple):
        user = issuer[0].warp.tensor
        self.issuer, self.release, self.after = issuer, user.issued, user.after

    def touch(self, order: TensorOrder, column: int, count: int, writes: bool) -> None:
        columns = columns_mask(column, count)
        order.access(self.issuer, self.release, self.after, *((0, columns) if writes else (columns, 0)))


def fence_before(g: ActiveGroup) -> None:
    """tcgen05.fence::before_thread_sync."""
    user = g.warp.tensor
    if user.touched and not user.queue:
        _release(g)


def fence_after(g: ActiveGroup) -> None:
    """tcgen05.fence::after_thread_sync."""
    g.warp.tensor.after = g.warp.synced


def arrives(g: ActiveGroup) -> None:
    """The warp, which has touched tensor memory, arrives on a barrier."""
    user = g.warp.tensor
    if user.queue:
        user.own.escaped = True
    elif not g.grid.program.traits.tensor_fences:
        _release(g)


def _release(g: ActiveGroup) -> None:
    machine, user = g.cta.machine, g.warp.tensor
    machine.progress += 1
    user.own.time = machine.progress
    user.own, user.touched = Release(), False
