"""CTAs that compiled code keeps: for each, Python has done nothing since its start (native/turns.c).

Compiled code keeps the CTA's named barrier and its warps' exits. Where the CTAs of a grid run one after the other, it
also starts those that follow in its place. Python hears of that before it does anything for one of the warps. If it
never does, the next launch of the kernel in that shape runs in the same place (`Seats`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from nogpu import headers
from nogpu.errors import Fault
from nogpu.execution import hang
from nogpu.ops.barriers import go_on_waiting

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.events import Follower
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.machine import Machine

(UNCOUNTED,) = headers.constants("native/engine.h", "UNCOUNTED")
FEW, MANY = 4, 4096  # followers of a grid's first CTA, and of any
SEATS, SEAT_BYTES = 64, 1 << 28  # CTAs that are kept for later launches, and their bytes, at most
RESIDENT_SEATS = 48  # of one launch, at most
MOST_IN_VAIN = 8  # CTAs in a row without a follower after which a grid gets no more

Report = Callable[[int, int], None]
"""Function called with (number of CTAs that are over, their warp instructions)."""

CtaState = headers.structure("native/engine.h", "KeptCta")
"""State of a CTA that compiled code keeps."""


class KeptCta:
    """CTA of a cluster, or one of those that follow in its place, as compiled code keeps it."""

    def __init__(
        self,
        cluster: Cluster,
        followers: Sequence[int],
        report: Report,
        observer: Follower | None = None,
        is_last: bool = False,
    ) -> None:
        """followers: numbers of clusters. report: hears of the CTAs that others have followed. is_last: the grid has
        no other CTA behind these. The contexts of the cluster's warps must be ready for their first turns.
        """
        self.cluster, self._report, self._observer = cluster, report, observer
        self.warps = {warp.registers.context_address: warp for warp in cluster.warps}
        """Warps by the address of their contexts."""
        self._numbers = [cluster.number, *followers]
        self._heard = 0  # followers of which Python has heard
        self._state = state = CtaState(warps=len(cluster.warps), most=len(followers))
        self.address = ctypes.addressof(state)
        if observer is not None:
            state.notes = observer.address
        registers = [warp.registers for warp in cluster.warps]
        for place, each in enumerate(registers):
            state.all[place], each.context.cta = each.context_address, self.address
        self.may_serve_again = observer is None or len(followers) > 0
        """True if others may run in the CTA's place."""
        if self.may_serve_again:
            self._slots = np.array([offset for offset, _ in cluster.grid.program.registers.by_cta], np.int64)
            self._files = cluster.grid.files[0]
            self._contexts = np.frombuffer(b"".join([bytes(each.context) for each in registers]), np.uint8)
            state.is_last, state.shared_bytes = is_last and observer is None, len(cluster.ctas[0].shared.data)
            state.specials, state.slots = len(self._slots), self._slots.ctypes.data
            state.files, state.file_bytes = self._files.ctypes.data, len(registers[0].data)
            state.contexts = self._contexts.ctypes.data
            self._set_values()

    def _set_values(self) -> None:
        """Gives compiled code the special registers of the CTAs."""
        cluster, values = self.cluster, []
        group, by_cta = cluster.warps[0].first_group, cluster.grid.program.registers.by_cta
        for number in self._numbers:
            cluster.become(number)
            values.append([value(group) for _, value in by_cta])
        cluster.become(self._numbers[0])
        self._values = np.array(values, np.uint64)
        self._state.values = self._values.ctypes.data

    @property
    def nbytes(self) -> int:
        """Bytes of the CTA's shared memory, registers and tables, if others may run in its place."""
        arrays = self._files, self._contexts, self._values
        return len(self.cluster.ctas[0].shared.data) + sum(array.nbytes for array in arrays)

    @property
    def followed(self) -> int:
        """Number of the CTAs that have followed."""
        return self._state.started

    @property
    def is_over(self) -> bool:
        """True if the grid's last CTA has ended, and Python has nothing to do for it."""
        return bool(self._state.is_over)

    @property
    def has_ended(self) -> bool:
        """True if all warps of a CTA without followers have exited."""
        return self.may_serve_again and self._observer is None and self._state.gone == self._state.warps

    @property
    def is_untouched(self) -> bool:
        """True if Python's objects of the cluster are as they were made, but for what `catch_up` changes."""
        (cta,) = self.cluster.ctas
        return cta.shared.marks is None and all(
            warp.groups == [warp.first_group] and warp.first_group.bits == warp.live for warp in self.cluster.warps
        )

    def end(self) -> int:
        """Ends the CTA, which has no followers left. Returns its warp instructions."""
        self.catch_up()
        issued = self._take_issued() + sum(warp.registers.context.issued for warp in self.cluster.warps)
        self.cluster.grid.exited += 1
        self.cluster.grid.allowing += 1
        self.cluster.grid.counters.warp_instructions += issued
        return issued

    def _take_issued(self) -> int:
        """Warp instructions of which Python's counts have not heard. Its groups start anew."""
        issued, self._state.issued = self._state.issued, 0
        for warp in self.cluster.warps:
            group = warp.first_group
            issued += group.issued
            group.pc, group.blocked, group.waiting, group.issued = 0, False, None, 0
        return issued

    def move(self, machine: Machine, grid: Grid, report: Report, numbers: list[int], is_last: bool) -> None:
        """Makes the cluster one of a grid of the same program, with CTAs of the same shape. `start_again` starts it.

        numbers: its own, and those of its followers. is_last: as for `__init__`.
        """
        state, known = self._state, (self._numbers, self.cluster.grid.clusters, self.cluster.grid.wave)
        self._report, self._heard = report, 0
        self.cluster.move(machine, grid, numbers[0])
        state.is_last, state.most = is_last, len(numbers) - 1
        if (numbers, grid.clusters, grid.wave) != known:
            self._numbers = numbers
            self._set_values()
        grid.files[0] = self._files
        words = self._files.view(np.uint64)
        groups = [warp.first_group for warp in self.cluster.warps]
        for offset, _, is_row, value in grid.program.registers.specials:
            if not is_row and value(groups[0]) != words[0, offset // 8]:
                words[:, offset // 8] = [value(group) for group in groups]

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Context that makes faults inside, which observers find, errors at their places."""
        try:
            yield
        except Fault as fault:
            raise hang.error_of(self.cluster.warps[0], fault) from fault

    def catch_up(self, at_once: bool = False) -> None:
        """Makes Python's cluster that of the CTA that runs now. at_once: its observer must hear of all notes. Raises
        EmulatorError for what the observer finds.
        """
        started = self._state.started
        if self._observer is not None:
            with self._placed():
                self._observer.hear(self._numbers, started, at_once)
        if started == self._heard:
            return
        issued = self._take_issued()
        self.cluster.become(self._numbers[started])
        if self._observer is not None:
            self._observer.renew()
        count, self._heard = started - self._heard, started
        self.cluster.grid.replaced(count, issued)
        self._report(count, issued)

    def take_over(self) -> None:
        """Makes Python keep the CTA from now on: its exits so far, and the warps that wait at its named barrier. Raises
        EmulatorError for what an observer finds.
        """
        self.catch_up(at_once=True)
        state, warps = self._state, self.warps
        for warp in warps.values():
            warp.registers.context.cta = None
        with self._placed():
            if self._observer is not None:
                self._observer.end()
            left = state.left[: state.gone]
            for address, warp in warps.items():
                gone = warp.live & ~warp.registers.context.live
                if gone and address not in left:
                    warp.first_group.bits &= ~gone
                    warp.exit(gone)
            for address in left:
                group = warps[address].settle()
                group.leave(group.bits)
        for address in state.waiting[: state.arrived]:
            group = warps[address].settle()
            go_on_waiting(group, state.number, None if state.threads == UNCOUNTED else state.threads)
            group.warp.registers.tell_of_wait(group)


class Seats:
    """Kept CTAs of launches that are over, by program, shape and order of events: the last ones."""

    def __init__(self) -> None:
        self._kept: dict[object, KeptCta] = {}

    def take(self, key: object) -> KeptCta | None:
        """Removes and returns the CTA of a key, or None."""
        return self._kept.pop(key, None)

    def put(self, key: object, kept: KeptCta) -> None:
        """Adds a CTA of a grid that has ended."""
        kept.cluster.leave_grid()
        self._kept[key] = kept
        while len(self._kept) > SEATS or sum(each.nbytes for each in self._kept.values()) > SEAT_BYTES:
            del self._kept[next(iter(self._kept))]
