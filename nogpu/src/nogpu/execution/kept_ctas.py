"""CTAs that compiled code keeps: for each, Python has done nothing since its start (native/turns.c).

Compiled code keeps the CTA's named barrier and its warps' exits. Where the CTAs of a grid run one after the other, it
also starts those that follow in its place. Python hears of that before it does anything for one of the warps.
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

FEW, MANY = 4, 4096  # followers of a grid's first CTA, and of any
MOST_IN_VAIN = 8  # CTAs in a row without a follower after which a grid gets no more

Report = Callable[[int, int], None]
"""Function called with (number of CTAs that are over, their warp instructions)."""


@headers.mirrors("native/engine.h", "KeptCta")
class CtaState(ctypes.Structure):
    """State of a CTA that compiled code keeps."""


class KeptCta:
    """CTA of a cluster, or one of those that follow in its place, as compiled code keeps it."""

    def __init__(
        self, cluster: Cluster, followers: Sequence[int], report: Report, observer: Follower | None = None
    ) -> None:
        """followers: numbers of clusters. report: hears of the CTAs that others have followed. The contexts of the
        cluster's warps must be ready for their first turns.
        """
        self._cluster, self._report, self._observer = cluster, report, observer
        self._numbers = [cluster.number, *followers]
        self._heard = 0  # followers of which Python has heard
        self._state = state = CtaState(warps=len(cluster.warps), most=len(followers))
        self.address = ctypes.addressof(state)
        if observer is not None:
            state.notes = observer.address
        registers = [warp.registers for warp in cluster.warps]
        for place, each in enumerate(registers):
            state.all[place], each.context.cta = each.context_address, self.address
        if followers:
            number, group = cluster.number, cluster.warps[0].first_group
            by_cta = cluster.grid.program.registers.by_cta
            values = []
            for follower in followers:
                cluster.become(follower)
                values.append([value(group) for _, value in by_cta])
            cluster.become(number)
            self._values = np.array(values, np.uint64)
            self._slots = np.array([offset for offset, _ in by_cta], np.int64)
            self._files = np.concatenate([each.data for each in registers])
            self._contexts = np.frombuffer(b"".join([bytes(each.context) for each in registers]), np.uint8)
            state.specials, state.shared_bytes = len(by_cta), len(cluster.ctas[0].shared.data)
            state.slots, state.values = self._slots.ctypes.data, self._values.ctypes.data
            state.files, state.file_bytes = self._files.ctypes.data, len(registers[0].data)
            state.contexts = self._contexts.ctypes.data

    @property
    def followed(self) -> int:
        """Number of the CTAs that have followed."""
        return self._state.started

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Context that makes faults inside, which observers find, errors at their places."""
        try:
            yield
        except Fault as fault:
            raise hang.error_of(self._cluster.warps[0], fault) from fault

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
        issued, self._state.issued = self._state.issued, 0
        for warp in self._cluster.warps:
            group = warp.first_group
            issued += group.issued
            group.pc, group.blocked, group.waiting, group.issued = 0, False, None, 0
        self._cluster.become(self._numbers[started])
        if self._observer is not None:
            self._observer.renew()
        count, self._heard = started - self._heard, started
        self._cluster.grid.replaced(count, issued)
        self._report(count, issued)

    def take_over(self) -> None:
        """Makes Python keep the CTA from now on: its exits so far, and the warps that wait at its named barrier. Raises
        EmulatorError for what an observer finds.
        """
        self.catch_up(at_once=True)
        state, warps = self._state, {warp.registers.context_address: warp for warp in self._cluster.warps}
        for warp in warps.values():
            warp.registers.context.cta = None
        with self._placed():
            if self._observer is not None:
                self._observer.end()
            for address in state.left[: state.gone]:
                group = warps[address].settle()
                group.leave(group.bits)
        for address in state.waiting[: state.arrived]:
            group = warps[address].settle()
            go_on_waiting(group, state.number)
            group.warp.registers.tell_of_wait(group)
