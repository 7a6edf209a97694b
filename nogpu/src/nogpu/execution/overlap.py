"""Launches that overlap: programmatic dependent launch (CUDA Programming Guide; PTX ISA, griddepcontrol).

A launch with the attribute starts once every CTA of the launch before it has executed
`griddepcontrol.launch_dependents` or has exited, as far as SMs have room. Only `griddepcontrol.wait` waits for the end
of the launch before it, and for that launch alone: a launch that never waits may end before its predecessor.

The schedules decide which launch is ahead. late: the newest does all it can before an older one goes on, so that work
for which it should have waited has not happened; replay, too, but for what is held. eager: the oldest first. random,
last: any, at paces that also differ by launch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from nogpu.execution.machine import OVERDUE_TURNS, PACES, SPINNING, WAITING, Machine
from nogpu.execution.meter import Meter
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.barriers import wake
from nogpu.hardware.chip import Chip, Sm
from nogpu.hardware.cluster import Cluster
from nogpu.hardware.grid import Grid
from nogpu.hardware.properties import DeviceProperties
from nogpu.hardware.warp import ActiveGroup, Warp

PATIENCE = 50  # turns per ready warp without an effect, after which a random schedule serves warps in order


class OverlappingMachine(Machine):
    """A machine that runs grids together."""

    def __init__(
        self, schedule: Schedule, grids: Sequence[Grid], properties: DeviceProperties, meter: Meter | None = None
    ) -> None:
        """grids: in launch order, each the predecessor of the next. meter: as of `Machine`."""
        super().__init__(schedule, meter)
        self.grids = grids
        policy = "random" if schedule.is_random else schedule.kind
        self.chip = Chip(properties, policy, self.random)
        self.order = grids[::-1] if schedule.kind in ("late", "replay") else grids
        self._paces = {grid: self.random.choice(PACES) for grid in grids}
        self._paused: list[ActiveGroup] = []
        self._room_seen: tuple | None = None

    def run_grids(self) -> None:
        """Runs the grids to their end."""
        idle = look = 0  # turns without an effect; those at which the next look is due
        seen = 0  # effects: events that could have changed what a lane reads
        retired = 0
        while True:
            retired += self._retire_exited()
            for grid in self.grids:
                if not grid.finished and grid.complete:
                    self.finish(grid)
                    self.queues.forget_tensor_queues((grid.number,))
            if all(grid.finished for grid in self.grids):
                self.meter.count(())
                return
            room = retired, sum(grid.allowing for grid in self.grids)
            if room != self._room_seen:
                self._room_seen = room
                self._admit_all()
            if idle > len(self.ready) > 0 and idle >= look and not self.queues.outstanding:
                if look and self.spins_for_ever():
                    raise self.hang(SPINNING)
                look = idle + self.look_turns * (len(self.ready) + 1)
            self.act(idle)
            effects = self.progress - self.quiet
            if effects != seen:
                seen, idle, look = effects, 0, 0
                self.delayed += 1
            else:
                idle += 1

    def _admit_all(self) -> None:
        """Admits clusters in launch order while there is room and the launch before them allows it."""
        for grid in self.grids:
            if not all(before.allows_dependents for before in grid.predecessors):
                return
            while grid.admitted < grid.config.clusters:
                sms = self.chip.place(grid)
                if sms is None:
                    return
                self._admit_to(grid, sms)

    def _admit_to(self, grid: Grid, sms: list[Sm]) -> None:
        cluster = Cluster(self, grid, grid.admitted, sms)
        self.chip.occupy(cluster)
        grid.admitted += 1
        self.start(cluster, self._paces[grid])

    def next_unstarted(self, grid: Grid) -> int | None:
        if grid.admitted == grid.config.clusters:
            return None
        grid.admitted += 1
        return grid.admitted - 1

    def act(self, idle: int) -> None:
        """Gives a warp a turn, or runs one asynchronous operation. idle: turns without an effect."""
        if self.schedule.is_random:
            if self.ready and not (idle > len(self.ready) and self.queues.outstanding):
                return self.turn() if idle < PATIENCE * len(self.ready) else self.run_warp(self.ready.popleft())
            if self.queues.outstanding:
                return self.queues.run_one()
        else:
            in_order = self.gives_turns(idle)
            for grid in self.order:
                warp = None if in_order else self._first_ready(grid)
                if warp is not None:
                    assert isinstance(self.ready, deque)  # as in every run of several grids
                    self.ready.remove(warp)
                    return self.run_warp(warp)
                if grid.outstanding:
                    return self.queues.run_one_of(grid)
            if self.ready:
                return self.turn()
        raise self.hang(WAITING)

    def gives_turns(self, idle: int) -> bool:
        """Whether no grid is ahead: warps poll, or have had effects for so long that they may spin."""
        return idle > len(self.ready) or self.delayed // (OVERDUE_TURNS * (len(self.ready) + 1)) % 2 == 1

    def pause(self, group: ActiveGroup) -> bool:
        self._paused.append(group)
        return True

    def run_warp(self, warp: Warp) -> None:
        super().run_warp(warp)
        self.wake_paused()

    def wake_paused(self) -> None:
        """Groups whose turn has ended so that another launch may start have theirs again."""
        wake(self._paused)

    def notes(self) -> list[str]:
        notes = []
        for grid in self.grids:
            left = grid.config.clusters - grid.admitted
            blocked = [before for before in grid.predecessors if not before.allows_dependents]
            if left and blocked:
                missing = f"{blocked[0].config.ctas - blocked[0].allowing} of {blocked[0].config.ctas} CTAs"
                notes.append(
                    f"{grid.title} has not started: {missing} of {blocked[0].title} have neither executed "
                    "griddepcontrol.launch_dependents nor exited"
                )
            elif left:
                notes.append(f"{left} of {grid.config.clusters} clusters of {grid.title} have not found room on an SM")
        return notes

    def _first_ready(self, grid: Grid) -> Warp | None:
        return next((warp for warp in self.ready if warp.cta.grid is grid), None)

    def _retire_exited(self) -> int:
        """Frees the SMs of clusters that have exited, whose stores may still be queued. Returns their number."""
        exited = self.take_finished()
        for cluster in exited:
            self.chip.release(cluster)
        return len(exited)


def run(grids: Sequence[Grid], schedule: Schedule, meter: Meter | None = None) -> None:
    """Runs grids, in launch order, each beside its predecessor as far as that one allows. Raises EmulatorError.

    meter: as of `Machine`.
    """
    for before, grid in zip(grids, grids[1:]):
        grid.predecessors = [before]
    sanitizer = grids[0].sanitizer
    with np.errstate(all="ignore"), nullcontext() if sanitizer is None else sanitizer.following(grids[0].memory):
        _machine_of(schedule.kind)(schedule, grids, grids[0].properties, meter).run_grids()


def _machine_of(kind: str) -> type[OverlappingMachine]:
    if kind == "replay":
        from nogpu.execution.replay import OverlappingReplay

        return OverlappingReplay
    return OverlappingMachine
