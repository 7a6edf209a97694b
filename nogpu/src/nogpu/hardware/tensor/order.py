"""Order of accesses to tensor memory by different warps (PTX ISA, "tcgen05.fence", "tcgen05.wait", "tcgen05.commit").

Other warps may rely on an access once it has been released: an MMA or copy is released when a later commit arrives on
its mbarrier; a tcgen05.ld or st, once it is complete, by tcgen05.fence::before_thread_sync. A warp that then makes a
conflicting access to the same columns must have executed tcgen05.fence::after_thread_sync since the release.

A missing fence alone is a doubt: the PTX ISA asks for fences around a barrier, but shipped kernels leave them out.
Kernels without any tcgen05.fence, which is what NVIDIA's DSL compiles, are exempt. Errors remain that no fence could
mend: an access to the columns of an uncommitted MMA, an access to the columns of a load or store that was not complete
when its warp last arrived on a barrier, and, in a kernel with fences, an access that no barrier separates from the one
before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from nogpu import headers
from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.barriers import label

if TYPE_CHECKING:
    from nogpu.hardware.native import Context
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

(COLUMNS,) = headers.constants("native/mma.h", "TMEM_COLUMNS")
HALF = 16  # lanes of half a quadrant: rows of M = 64 lie in one half of each, and another product's may in the other
HALVES = 8
ALL_HALVES, LOWER_HALVES, UPPER_HALVES = 0xFF, 0x55, 0xAA


@lru_cache(maxsize=4096)
def columns_mask(column: int, count: int, halves: int = ALL_HALVES) -> int:
    """The mask of `count` columns from `column` on: bit COLUMNS h + c for column c of half h, lanes 16 h to 16 h + 15.

    halves: the halves of quadrants as a mask of eight bits.
    """
    columns = ((1 << count) - 1) << column
    return sum(columns << COLUMNS * h for h in range(HALVES) if halves >> h & 1)


class Release:
    """Release of the accesses that a warp has made since its previous release."""

    __slots__ = ("arrived", "escaped", "time", "used")

    def __init__(self) -> None:
        self.time: int | None = None  # time of the release; None: not yet
        self.used = False  # True if there are accesses
        self.arrived: int | None = None  # time of the arrival on a barrier with all complete but no fence
        self.escaped = False  # True if the warp arrived on a barrier while one of its loads or stores was not complete


class TensorUser:
    """State of a warp as a user of tensor memory."""

    __slots__ = ("_context", "after", "issued", "own", "queue", "unfenced")

    def __init__(self, context: Context) -> None:
        self._context = context
        self.queue: list = []  # loads and stores (ops.tmem) that are not complete, oldest first
        self.after = -1  # releases up to this time are visible to the warp, as of its last fence::after_thread_sync
        self.own = Release()  # the next release of its loads and stores
        self.unfenced: list[Release] = []  # releases with which it has arrived on a barrier before it executed a fence
        self.issued = Release()  # the next release of its MMAs and copies, by a commit

    @property
    def seen(self) -> tuple[int, int]:
        """Times up to which releases are visible to the warp: by its last fence::after_thread_sync; by its waits."""
        return self.after, self._context.synced

    @property
    def touched(self) -> bool:
        """True if the warp has loads or stores that are not released."""
        return bool(self._context.touched)

    @touched.setter
    def touched(self, touched: bool) -> None:
        self._context.touched = touched


class _Epoch:
    """Columns that a warp has accessed under one release and that no warp has written since."""

    __slots__ = ("issuer", "reads", "release", "warp", "writes")

    def __init__(self, issuer: Issuer, release: Release):
        self.warp, self.release = issuer[0].warp, release
        release.used = True
        self.reads = self.writes = 0  # masks of columns
        self.issuer = issuer  # issuer of the last access


class TensorOrder:
    """Last accesses to the tensor memory columns of a CTA, by warp and release."""

    def __init__(self) -> None:
        self._epochs: list[_Epoch] = []
        self._last: Warp | None = None  # warp of the last access
        self._mine: _Epoch | None = None  # epoch of the last access
        # (columns read, columns written) of accesses in `_mine` that touch none of the columns in `_others`.
        self._clear: set[tuple[int, int]] = set()
        self._others = 0, 0  # columns that warps other than the last one have read, and written

    def access(
        self,
        issuer: Issuer,
        release: Release,
        seen: tuple[int, int],
        reads: int,
        writes: int,
        frees: bool = False,
    ) -> None:
        """Records an access. Raises Fault if an earlier one of another warp conflicts with it.

        seen: the user's `TensorUser.seen`. reads, writes: masks of columns. frees: the access is a tcgen05.dealloc,
        which is not asynchronous: earlier accesses must be complete, but no fence is needed.
        """
        warp = issuer[0].warp
        if warp is not self._last:
            self._last = warp
            self._gather_others()
        others_read, others_written = self._others
        if others_written & (reads | writes) or others_read & writes:
            for epoch in self._epochs:
                if epoch.warp is not warp and (epoch.writes & (reads | writes) or epoch.reads & writes):
                    _check(epoch, issuer, seen, frees)
        mine = self._mine
        if mine is None or mine.release is not release or mine.warp is not warp:
            mine = None
            for epoch in self._epochs:
                if epoch.release is release and epoch.warp is warp:
                    mine = epoch
            if mine is None:
                mine = _Epoch(issuer, release)
                self._epochs.append(mine)
            self._mine = mine
            self._clear.clear()
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
        """Drops earlier accesses to columns that are now written: they cannot conflict with later ones."""
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

    def free(self, issuer: Issuer, columns: int) -> None:
        """Checks tcgen05.dealloc as a write that is never released. The columns' next owner starts without earlier
        accesses.
        """
        user = issuer[0].warp.tensor
        self.access(issuer, Release(), user.seen, 0, columns, frees=True)
        self._forget(columns)
        self._last = None

    def touch(self, issuer: Issuer, release: Release, seen: tuple[int, int], reads: int, writes: int) -> None:
        """Records an access of the tensor core (`access`), in less time if it repeats an earlier one."""
        mine, place = self._mine, (reads, writes)
        if mine is not None and mine.release is release and mine.warp is issuer[0].warp and place in self._clear:
            mine.issuer = issuer
            return
        self.access(issuer, release, seen, reads, writes)
        if not (reads | writes) & (self._others[0] | self._others[1]):
            self._clear.add(place)


def _check(epoch: _Epoch, issuer: Issuer, seen: tuple[int, int], frees: bool) -> None:
    """Raises Fault if the order of an access after a conflicting epoch of another warp is not ensured.

    If a barrier ensures it and only the fence beside that barrier is missing, a doubt is reported instead.
    """
    after, synced = seen
    group, release = issuer[0], epoch.release
    instructions = group.grid.entry.instructions
    before, now = instructions[epoch.issuer[1]].opcode, instructions[issuer[1]].opcode
    conflict = f"{now} touches tensor memory columns of the {before} by {label(epoch.issuer)}"
    place = group.grid.entry.name, epoch.issuer[1], issuer[1], "tcgen05.fence"
    fences = group.grid.program.traits.tensor_fences and not frees
    if release.time is not None:
        if fences and after < release.time:
            _report_fence(
                f"{conflict}: tcgen05.fence::after_thread_sync is missing since that was released",
                synced >= release.time,
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
        _report_fence(
            f"{conflict}: that warp has not executed tcgen05.fence::before_thread_sync since",
            release.arrived is not None and synced >= release.arrived,
            place,
        )


def _report_fence(missing: str, synced: bool, place: tuple) -> None:
    """Reports a missing fence. synced: the later warp has waited for an event behind the earlier access."""
    if synced:
        doubt(f"{missing} (PTX ISA, tcgen05.fence)", place)
    else:
        ordering_fault(f"{missing}, and no barrier separates the two (PTX ISA, tcgen05.fence)", place)


class IssuedAccess:
    """Accesses of one MMA or copy, attached to the tensor memories of its CTAs while it runs."""

    __slots__ = ("issuer", "release", "seen")

    def __init__(self, issuer: Issuer):
        user = issuer[0].warp.tensor
        self.issuer, self.release, self.seen = issuer, user.issued, user.seen  # values at the issue

    def touch(self, order: TensorOrder, reads: int, writes: int) -> None:
        """Records that the tensor core reads and writes these columns (masks)."""
        order.touch(self.issuer, self.release, self.seen, reads, writes)


def fence_before(g: ActiveGroup) -> None:
    """Executes tcgen05.fence::before_thread_sync."""
    user = g.warp.tensor
    if user.touched and (user.unfenced or not user.queue):
        _release(g)


def fence_after(g: ActiveGroup) -> None:
    """Executes tcgen05.fence::after_thread_sync."""
    g.warp.tensor.after = g.warp.synced


def arrives(g: ActiveGroup) -> None:
    """Handles an arrival on a barrier of the warp, which has touched tensor memory."""
    user = g.warp.tensor
    if user.queue:
        user.own.escaped = True
    elif not g.grid.program.traits.tensor_fences:
        _release(g)
    elif user.own.used:
        user.own.arrived, user.own.escaped = _step(g), False
        user.unfenced.append(user.own)
        user.own = Release()


def _release(g: ActiveGroup) -> None:
    """Releases the warp's loads and stores, but for those that are not complete."""
    user, time = g.warp.tensor, _step(g)
    for release in user.unfenced:
        release.time = time
    user.unfenced.clear()
    if not user.queue:
        user.own.time = time
        user.own, user.touched = Release(), False


def _step(g: ActiveGroup) -> int:
    """Time of a new event, at which nothing else has happened."""
    machine = g.cta.machine
    machine.progress += 1
    machine.quiet += 1
    return machine.progress
