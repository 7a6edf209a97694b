"""Admission of clusters to the chip.

Clusters of one grid become resident one after the other, or as many at once as fit if they wait for each other.

Several grids share the chip by programmatic dependent launch (CUDA Programming Guide; PTX ISA, griddepcontrol). A grid
with that attribute starts once every CTA of the one before it has executed `griddepcontrol.launch_dependents` or has
exited, as far as SMs have room. Only `griddepcontrol.wait` waits for the end of the launch before it, and for that
launch alone: a launch that never waits may end before its predecessor.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.chip import Chip, Sm
from nogpu.hardware.cluster import Cluster
from nogpu.hardware.grid import Grid
from nogpu.hardware.properties import ctas_per_sm


class Admission:
    """Choice of the cluster that becomes resident next."""

    def __init__(
        self,
        grids: Sequence[Grid],
        schedule: Schedule,
        source: random.Random,
        start: Callable[[Grid, list[Sm] | None], Cluster | None],
    ) -> None:
        """grids: in launch order. source: for the choices of a random schedule. start: makes a grid's next cluster."""
        self._grids, self._start = grids, start
        self._chip: Chip | None = None  # chip that grids share
        self._limit, self._room = _clusters_at_once(grids[0])
        self._left = 0  # number of clusters that have left their SMs
        self._full: tuple[int, int] | None = None  # (`_left`, CTAs that allow dependents) when there was no room
        if len(grids) > 1:
            self._chip = Chip(grids[0].properties, "random" if schedule.is_random else schedule.kind, source)

    def next(self, resident: int) -> Cluster | None:
        """Next cluster, which occupies its SMs; None while there is no room, or no cluster.

        resident: number of resident clusters.
        """
        if self._chip is None:
            return self._start(self._grids[0], None) if resident < self._limit else None
        known = self._left, sum(grid.allowing for grid in self._grids)
        if known == self._full:
            return None
        for grid in self._grids:
            if not all(before.allows_dependents for before in grid.predecessors):
                break
            if grid.clusters_left:
                sms = self._chip.place(grid)
                cluster = None if sms is None else self._start(grid, sms)
                if cluster is None:
                    break
                self._chip.occupy(cluster)
                return cluster
        self._full = known
        return None

    @property
    def is_in_turn(self) -> bool:
        """True if one cluster is resident at a time, as long as the launch runs."""
        return self._chip is None and self._room == 1

    def widen(self) -> bool:
        """Admits more clusters: the resident ones may wait for others. Returns False if there is no room for more."""
        if self._chip is not None or self._limit >= self._room or not self._grids[0].clusters_left:
            return False
        self._limit = self._room
        return True

    def release(self, cluster: Cluster) -> None:
        """Ends the residence of a cluster."""
        if self._chip is not None:
            self._left += 1
            self._chip.release(cluster)

    def notes(self) -> list[str]:
        """Lines on launches that overlap and have clusters that have not started."""
        notes = []
        for grid in self._grids if self._chip is not None else ():
            left = grid.clusters_left
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


def _clusters_at_once(grid: Grid) -> tuple[int, int]:
    """Number of the grid's clusters that are resident at once while it runs alone: at first, and once they wait for
    others.
    """
    program, config, size = grid.program, grid.config, grid.cluster_size
    if not (program.awaits or grid.shares_work):
        return 1, 1
    threads = config.block[0] * config.block[1] * config.block[2]
    room = grid.sm_count * ctas_per_sm(threads, grid.shared_bytes, grid.properties) // size
    return grid.wave, room
