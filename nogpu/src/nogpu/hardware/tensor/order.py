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

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nogpu import headers
from nogpu.errors import Fault, doubt, ordering_fault
from nogpu.hardware.barriers import label
from nogpu.hardware.native import LANES, library

if TYPE_CHECKING:
    from nogpu.hardware.native import Context
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp

COLUMNS, MASK_WORDS, STORED_ROWS = headers.constants(
    "native/tensor_memory.h", "TMEM_COLUMNS", "MASK_WORDS", "STORED_ROWS"
)
(RELEASES,) = headers.constants("native/tensor_work.h", "RELEASES")
(HALF,) = headers.constants("native/tensor_memory.h", "HALF")
# Rows of M = 64 lie in one half of each quadrant, and another product's may in the other.
HALVES = 8
ALL_HALVES, LOWER_HALVES, UPPER_HALVES = 0xFF, 0x55, 0xAA


@lru_cache(maxsize=4096)
def columns_mask(column: int, count: int, halves: int = ALL_HALVES) -> int:
    """The mask of `count` columns from `column` on: bit COLUMNS h + c for column c of half h, lanes 16 h to 16 h + 15.

    halves: the halves of quadrants as a mask of eight bits.
    """
    columns = ((1 << count) - 1) << column
    return sum(columns << COLUMNS * h for h in range(HALVES) if halves >> h & 1)


@headers.mirrors("native/tensor_memory.h")
class Release(ctypes.Structure):
    """Release of the accesses that a warp has made since its previous release.

    Fields: `time` of the release, -1 before it; `used`, 1 if there are accesses; `arrived`, the time of the arrival on
    a barrier with all complete but no fence, or -1; `escaped`, 1 if the warp arrived on a barrier while one of its
    loads or stores was not complete.
    """

    def __init__(self) -> None:
        super().__init__(time=-1, arrived=-1)
        self.address = ctypes.addressof(self)

    @staticmethod
    def at(address: int) -> Release:
        """The release that compiled code has at this address."""
        release = Release.from_address(address)
        release.address = address
        return release


@headers.mirrors("native/tensor_memory.h", "TensorUser")
class _Shared(ctypes.Structure):
    """State of a user that compiled code shares."""


@headers.mirrors("native/tensor_memory.h")
class PendingFragment(ctypes.Structure):
    """Load or store that compiled code has issued and that is not complete."""


class TensorUser:
    """State of a warp as a user of tensor memory."""

    __slots__ = (
        "_after",
        "_context",
        "_issued",
        "_kept",
        "_own",
        "_pending",
        "_rows",
        "_shared",
        "_supply",
        "_taken_over",
        "unfenced",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shared: _Shared | None = None
        self._rows: np.ndarray | None = None  # room for the rows of stores that compiled code has issued
        self._pending: list = []  # loads and stores (ops.tmem) that are not complete, oldest first
        self._after = -1
        self._own = Release()
        self._taken_over: Callable[[PendingFragment], Any] | None = None
        self.unfenced: list[Release] = []  # releases with which it has arrived on a barrier before it executed a fence
        self._issued = Release()
        self._supply: ctypes.Array[Release] | None = None  # releases that compiled code begins
        self._kept: list = []  # releases of MMAs and copies, for as long as epochs may name them

    @property
    def after(self) -> int:
        """Releases up to this time are visible to the warp, as of its last fence::after_thread_sync."""
        return self._after

    @after.setter
    def after(self, time: int) -> None:
        self._after = time
        if self._shared is not None:
            self._shared.after = time

    @property
    def own(self) -> Release:
        """The next release of its loads and stores."""
        return self._own

    @property
    def issued(self) -> Release:
        """The next release of its MMAs and copies, by a commit."""
        shared = self._shared
        if shared is not None and shared.issued != self._issued.address:
            self._issued = Release.at(shared.issued)
        return self._issued

    @issued.setter
    def issued(self, release: Release) -> None:
        self._issued = release
        if self._shared is not None:
            self._kept.append(release)
            self._shared.issued = release.address

    def share_work(self, queue: int, lane: int) -> None:
        """Lets compiled code issue work of the tensor core for a lane, once it executes the warp's loads and
        stores. queue: address of the thread's `TensorQueue`.
        """
        shared = self._shared
        if shared is None or (shared.queue and shared.lane != lane):
            return
        if not shared.queue:
            shared.queue, shared.lane = queue, lane
        self.supply()

    def supply(self) -> None:
        """Gives compiled code new releases for its commits if it has used all."""
        shared = self._shared
        if shared is not None and shared.queue and (self._supply is None or shared.supplied == RELEASES):
            self._supply = supply = (Release * RELEASES)()
            for release in supply:
                release.time = release.arrived = -1
            self._kept.append(supply)
            shared.supply, shared.supplied = ctypes.addressof(supply), 0

    def renew(self, order: TensorOrder) -> None:
        """Begins the next release of its loads and stores."""
        self._own = Release()
        if self._shared is not None:
            order.keep(self._own)
            self._shared.own = self._own.address

    @property
    def queue(self) -> tuple:
        """Loads and stores that are not complete, oldest first. Python has those of compiled code from now on."""
        shared = self._shared
        if shared is not None and shared.count:
            assert self._taken_over is not None
            for place in range(shared.count):
                self._pending.append(self._taken_over(PendingFragment.from_buffer_copy(shared.pending[place])))
            shared.count = shared.stores = shared.rows_used = shared.rows = 0
            shared.in_python, self._rows = 1, None
        return tuple(self._pending)

    @property
    def has_stores(self) -> bool:
        """True if a store is not complete."""
        if self._shared is not None and self._shared.stores:
            return True
        return any(pending.stores for pending in self._pending)

    def add(self, pending: Any) -> None:
        """Adds a load or a store behind those of `queue`."""
        self._pending = [*self.queue, pending]
        if self._shared is not None:
            self._shared.in_python = 1

    def drop(self, count: int) -> None:
        """Removes the first loads and stores of `queue`."""
        del self._pending[:count]
        if self._shared is not None:
            self._shared.in_python = bool(self._pending)

    def share(self, g: ActiveGroup, late: bool, taken_over: Callable[[PendingFragment], Any]) -> None:
        """Lets compiled code execute the warp's loads and stores. late: they complete as late as possible, else at
        once. taken_over: makes an item of `queue`.
        """
        memory = g.cta.tmem
        self._taken_over = taken_over
        self._shared = shared = _Shared(late=late, in_python=bool(self._pending), after=self._after)
        shared.fences, shared.order = g.grid.program.traits.tensor_fences, memory.order.address
        shared.words, shared.owned, shared.own = memory.address, memory.owned_address, self._own.address
        shared.issued = self._issued.address
        self._kept.append(self._issued)
        memory.order.keep(self._own)
        memory.order.meet(g.warp)
        self._context.tensor = ctypes.addressof(shared)

    @property
    def is_shared(self) -> bool:
        """True if compiled code executes the warp's loads and stores."""
        return self._shared is not None

    def lend_rows(self) -> None:
        """Gives compiled code room for the rows of stores."""
        if self._shared is not None and self._rows is None:
            self._rows = np.empty((STORED_ROWS, LANES), np.uint32)
            self._shared.rows = self._rows.ctypes.data

    @property
    def rows(self) -> np.ndarray | None:
        """Room for the rows of stores that compiled code has issued."""
        return self._rows

    @property
    def seen(self) -> tuple[int, int]:
        """Times up to which releases are visible to the warp: by its last fence::after_thread_sync; by its waits."""
        return self._after, self._context.synced

    @property
    def touched(self) -> bool:
        """True if the warp has loads or stores that are not released."""
        return bool(self._context.touched)

    @touched.setter
    def touched(self, touched: bool) -> None:
        self._context.touched = touched


_EpochState = headers.structure("native/tensor_memory.h", "Epoch")
"""Columns that a warp has accessed under one release and that no warp has written since."""
_OrderState = headers.structure("native/tensor_memory.h", "TensorOrder")
"""Epochs of an order."""


class Epoch(NamedTuple):
    """Columns that a warp has accessed under one release and that no warp has written since."""

    warp: Warp
    release: Release
    reads: int
    """A mask of columns."""
    writes: int
    """A mask of columns."""
    pc: int
    """Instruction of the last access."""

    @property
    def issuer(self) -> Issuer:
        """Issuer of the last access."""
        return self.warp.first_group, self.pc


@lru_cache(maxsize=4096)
def _words(mask: int) -> bytes:
    """A mask of columns as compiled code takes it."""
    return mask.to_bytes(8 * MASK_WORDS, "little")


class TensorOrder:
    """Last accesses to the tensor memory columns of a CTA, by warp and release. Compiled code has them, and finds legal
    by itself what is plainly so (native/order.c).
    """

    def __init__(self) -> None:
        self._state = _OrderState()
        self.address = ctypes.addressof(self._state)
        self._epochs = (_EpochState * 0)()
        self._warps: dict[int, Warp] = {}  # by the addresses of their contexts
        self._releases: dict[int, Release] = {}  # by their addresses
        self._last: tuple = ()  # the last access by `access`, the place of its epoch, and the version behind it
        self._place = self._version = 0
        self._limit = 64  # number of releases at which those are dropped that no epoch names

    def keep(self, release: Release) -> None:
        """Keeps a release under which there may be accesses."""
        if len(self._releases) >= self._limit:
            named = {epoch.release for epoch in self._epochs[: self._state.count]}
            own = {warp.tensor.own.address for warp in self._warps.values()}
            self._releases = {each: self._releases[each] for each in self._releases.keys() & (named | own)}
            self._limit = max(64, 2 * len(self._releases))
        self._releases[release.address] = release

    def meet(self, warp: Warp) -> None:
        """Makes a warp known by whose instructions compiled code may record accesses, and room for the next of them."""
        self._warps[warp.registers.context_address] = warp
        if self._state.count == self._state.room:
            self._grow()

    def epochs(self) -> list[Epoch]:
        """The epochs, oldest first."""
        return [
            Epoch(
                self._warps[state.warp],
                self._releases.get(state.release) or Release.at(state.release),
                int.from_bytes(state.reads, "little"),
                int.from_bytes(state.writes, "little"),
                state.pc,
            )
            for state in self._epochs[: self._state.count]
        ]

    def access(
        self, issuer: Issuer, release: Release, seen: tuple[int, int], reads: int, writes: int, frees: bool = False
    ) -> None:
        """Records an access. Raises Fault if an earlier one of another warp conflicts with it.

        seen: the user's `TensorUser.seen`. reads, writes: masks of columns. frees: the access is a tcgen05.dealloc,
        which is not asynchronous: earlier accesses must be complete, but no fence is needed.
        """
        warp, state = issuer[0].warp, self._state
        access = warp, release, seen, reads, writes, frees
        if access == self._last and state.version == self._version:
            self._epochs[self._place].pc = issuer[1]
            return
        context = warp.registers.context_address
        self.meet(warp)
        if release.address not in self._releases:
            self.keep(release)
        fences = not frees and issuer[0].grid.program.traits.tensor_fences
        where = self.address, context, release.address, issuer[1], seen[0], fences, _words(reads), _words(writes)
        found = library().order_access(*where, False)
        if not found:
            for epoch in self.epochs():
                if epoch.warp is not warp and (epoch.writes & (reads | writes) or epoch.reads & writes):
                    _check(epoch, issuer, seen, frees)
            found = library().order_access(*where, True)
        self._last, self._place, self._version = access, found - 1, state.version

    def _grow(self) -> None:
        grown = (_EpochState * max(8, 2 * self._state.room))()
        ctypes.memmove(grown, self._epochs, ctypes.sizeof(self._epochs))
        self._epochs = grown
        self._state.epochs, self._state.room = ctypes.addressof(grown), len(grown)

    def free(self, issuer: Issuer, columns: int) -> None:
        """Checks tcgen05.dealloc as a write that is never released. The columns' next owner starts without earlier
        accesses.
        """
        user = issuer[0].warp.tensor
        self.access(issuer, Release(), user.seen, 0, columns, frees=True)
        library().order_forget(self.address, _words(columns), -1)


def _check(epoch: Epoch, issuer: Issuer, seen: tuple[int, int], frees: bool) -> None:
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
    if release.time >= 0:
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
            0 <= release.arrived <= synced,
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

    def __init__(self, issuer: Issuer, release: Release, seen: tuple[int, int]) -> None:
        """release, seen: `TensorUser.issued` and `TensorUser.seen` at the issue."""
        self.issuer, self.release, self.seen = issuer, release, seen

    def touch(self, order: TensorOrder, reads: int, writes: int) -> None:
        """Records that the tensor core reads and writes these columns (masks)."""
        order.access(self.issuer, self.release, self.seen, reads, writes)


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
        user.own.escaped = 1
    elif not g.grid.program.traits.tensor_fences:
        _release(g)
    elif user.own.used:
        user.own.arrived, user.own.escaped = _step(g), 0
        user.unfenced.append(user.own)
        user.renew(g.cta.tmem.order)


def _release(g: ActiveGroup) -> None:
    """Releases the warp's loads and stores, but for those that are not complete."""
    user, time = g.warp.tensor, _step(g)
    for release in user.unfenced:
        release.time = time
    user.unfenced.clear()
    if not user.queue:
        user.own.time, user.touched = time, False
        user.renew(g.cta.tmem.order)


def _step(g: ActiveGroup) -> int:
    """Time of a new event, at which nothing else has happened."""
    machine = g.cta.machine
    machine.progress += 1
    machine.quiet += 1
    return machine.progress
