"""Turns that compiled code gives to warps (native/turns.c): the ring of warps that can run, and their order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from nogpu import headers
from nogpu.hardware.native import Barrier, Doubts, Parted, library

if TYPE_CHECKING:
    from nogpu.execution.kept_ctas import KeptCta
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.grid import Grid
    from nogpu.hardware.warp import ActiveGroup, Warp

# Reasons for the end of compiled turns.
LOOK, SERVE, CONCLUDE = headers.constants("native/engine.h", "LOOK", "SERVE", "CONCLUDE")
(GONE,) = headers.constants("native/engine.h", "GONE")  # value of Context.queued

TurnState = headers.structure("native/engine.h", "Turns")
"""State of the turns of a machine's warps that compiled code shares."""
_INDEX = {field[0]: getattr(TurnState, field[0]).offset // 8 for field in TurnState._fields_}
PROGRESS, QUIET, TICKS, LIMIT = (_INDEX[name] for name in ("progress", "quiet", "ticks", "limit"))
EFFECTS, IDLE, DELAYED = (_INDEX[name] for name in ("effects", "idle", "delayed"))
_QUANTUM, _OVERDUE = (_INDEX[name] for name in ("quantum", "overdue"))
OUTSTANDING, ARRIVALS, STALE, CURRENT = (_INDEX[name] for name in ("outstanding", "arrivals", "stale", "current"))
LANE_COPIES, ISSUED = _INDEX["lane_copies"], _INDEX["issued"]
_HEAD, _COUNT, _ROOM = (_INDEX[name] for name in ("head", "count", "room"))


class Turns:
    """Warps that can run, in order, and the counts that Python and compiled code both keep in `words`."""

    def __init__(self) -> None:
        self._state, self._parted = TurnState(), Parted()
        self._doubts = Doubts()
        self._state.parted, self._state.doubts = ctypes.addressof(self._parted), ctypes.addressof(self._doubts)
        self.address = ctypes.addressof(self._state)
        self.words = memoryview(self._state).cast("B").cast("q")
        """The structure's fields, by the indices above."""
        self._warps: dict[int, Warp] = {}  # by the address of their contexts
        self._kept: dict[int, KeptCta] = {}  # by their addresses
        self._ring = (ctypes.c_void_p * 0)()
        self._enqueue, self._dequeue = library().enqueue, library().dequeue
        self._start_again = library().start_again

    def set_limits(self, quantum: int, overdue: int) -> None:
        """Sets the limits of turns. quantum: segments; overdue: limit of `DELAYED` for each warp."""
        self.words[_QUANTUM], self.words[_OVERDUE] = quantum, overdue

    def note_doubt(self, barrier: Barrier, pc: int) -> None:
        """Implements `hardware.machine.Machine.note_doubt`."""
        library().note_doubt(ctypes.addressof(self._doubts), barrier.address, pc)

    def use_loads(self, address: int) -> None:
        """Lets compiled code issue tile loads. address: `tile_loads.Loads.address`."""
        self._state.loads = address

    def use_work(self, address: int) -> None:
        """Lets compiled code issue and execute the tensor core's work. address: `work.TensorWork.address`."""
        self._state.work = address

    def change_program(self, grid: Grid) -> None:
        """Makes the warps go on with their grid's new program."""
        self._use(grid)
        for warp in self._warps.values():
            if warp.groups:
                warp.offer()

    def _use(self, grid: Grid) -> None:
        self._state.starts = grid.program.starts.ctypes.data
        self._state.open_points = None if grid.open_points is None else grid.open_points.ctypes.data

    def join(self, cluster: Cluster, keep: Callable[[], KeptCta | None] | None) -> None:
        """Adds the warps of a new cluster, which can all run. keep: lets compiled code keep the cluster's one CTA."""
        self._add(cluster, {warp.registers.context_address: warp for warp in cluster.warps})
        for warp in cluster.warps:
            warp.registers.context.turns = self.address
            warp.offer()
        if keep is not None:
            kept = keep()
            if kept is not None:
                self._kept[kept.address] = kept
        for warp in cluster.warps:
            self.append(warp)

    def join_again(self, kept: KeptCta) -> None:
        """Adds the warps of a kept CTA of another launch, as `KeptCta.move` has left it."""
        self._add(kept.cluster, kept.warps)
        self._kept[kept.address] = kept
        kept.cluster.warps[0].registers.look_up(kept.cluster.grid)
        self._start_again(self.address, kept.address)

    def _add(self, cluster: Cluster, warps: dict[int, Warp]) -> None:
        """Makes room for a cluster's warps, by the address of their contexts."""
        self._use(cluster.grid)
        self._warps.update(warps)
        room = 1 << len(self._warps).bit_length()
        if room > self.words[_ROOM]:
            waiting = [warp.registers.context_address for warp in self]
            self._ring = (ctypes.c_void_p * room)(*waiting)
            self._state.ready = ctypes.addressof(self._ring)
            self.words[_ROOM], self.words[_HEAD] = room, 0

    def leave(self, warps: Iterable[Warp]) -> None:
        """Removes the warps of a cluster that is over. One that was woken in vain may still be in the ring."""
        some_wait = False
        for warp in warps:
            context = warp.registers.context
            if context.queued:
                context.queued, some_wait = GONE, True
            del self._warps[warp.registers.context_address]
        if some_wait:
            library().leave_ring(self.address)

    def settle(self) -> None:
        """Copies the state of all warps from C."""
        for warp in self._warps.values():
            if warp.groups:
                warp.settle()

    @property
    def warps(self) -> Iterable[Warp]:
        """Warps that have joined."""
        return self._warps.values()

    def warp_at(self, address: int) -> Warp:
        """Warp whose context is at this address."""
        return self._warps[address]

    @property
    def current(self) -> Warp:
        """Warp whose turn it is, or was last. Python keeps its CTA from now on."""
        warp = self._warps[self.words[CURRENT]]
        if self._kept:
            kept = self._kept.pop(warp.registers.context.cta, None)
            if kept is not None:
                kept.take_over()
        return warp

    def group(self) -> ActiveGroup:
        """Group that runs, of the warp whose turn it is."""
        return self.current.running()

    @property
    def ended(self) -> KeptCta | None:
        """The kept CTA of the warp whose turn it was last, if all its warps have exited; else None."""
        kept = self._kept.get(self._warps[self.words[CURRENT]].registers.context.cta or 0)
        return kept if kept is not None and kept.has_ended else None

    def catch_up(self) -> None:
        """Hears of the CTAs that compiled code has started."""
        for kept in self._kept.values():
            kept.catch_up()

    def forget(self, kept: KeptCta) -> None:
        """Removes a kept CTA that is over, with its warps."""
        del self._kept[kept.address]
        for address in kept.warps:
            del self._warps[address]

    def take_over(self) -> None:
        """Makes Python keep all CTAs from now on, and the barriers at which their warps wait."""
        while self._kept:
            self._kept.popitem()[1].take_over()
        for cta in {warp.cta for warp in self._warps.values()}:
            cta.take_over_barriers()

    def append(self, warp: Warp) -> None:
        """Adds a warp that can run behind the others, unless it is in the ring."""
        self._enqueue(warp.registers.context_address)

    def popleft(self) -> Warp:
        """Removes and returns the warp that has waited longest."""
        return self._warps[self._dequeue(self.address)]

    def __len__(self) -> int:
        return self.words[_COUNT]

    def __iter__(self) -> Iterator[Warp]:
        head, count, mask = self.words[_HEAD], self.words[_COUNT], self.words[_ROOM] - 1
        for place in range(head, head + count):
            address = self._ring[place & mask]
            assert address is not None
            yield self._warps[address]
