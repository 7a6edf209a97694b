"""Progress of a run: its warp instructions, which are limited, and its CTAs that are over."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nogpu.execution.workers import Report

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster

MAX_INSTRUCTIONS = 10**11
"""Default limit of a run: hours, at the ten million per second of the simplest loops."""

COUNTED_TURNS = 256  # turns between two counts
TURNS_PER_WARP = 16  # further turns between counts for each resident warp, so that counts cost little
TURN_INSTRUCTIONS = 1 << 14  # warp instructions that few turns exceed


class Tally:
    """Warp instructions of a run."""

    def __init__(self, limit: int = MAX_INSTRUCTIONS, parts: int = 0) -> None:
        """parts: number of parts of the run, each in a forked child of this process; 0: the run is in this one."""
        self.limit = limit
        # Forked children share anonymous maps.
        self._counts = memoryview(mmap.mmap(-1, 8 * parts) if parts else bytearray(8)).cast("q")

    def set(self, part: int, count: int) -> None:
        """Sets the number of instructions that a part, by number, has executed."""
        self._counts[part] = count

    @property
    def total(self) -> int:
        return sum(self._counts)


class Meter:
    """Counts of a machine's part of a run."""

    def __init__(self, tally: Tally | None = None, part: int = 0, report: Report | None = None) -> None:
        """report: called with the number of CTAs that are over since its last call, from time to time with none."""
        self.tally = tally or Tally()
        self._part, self._report = part, report
        self._issued = 0  # number of warp instructions of clusters that are over

    def over(self, ctas: int, issued: int) -> None:
        """Counts CTAs that are over, with their warp instructions; they are not counted again."""
        self._issued += issued
        if self._report is not None:
            self._report(ctas)

    def count(self, resident: Sequence[Cluster]) -> int:
        """Counts the warp instructions. Returns the turns until the next count, negative if the limit is exceeded.

        resident: the clusters that are not over.
        """
        warps = [warp for cluster in resident for warp in cluster.warps]
        running = sum(warp.issued + sum(group.issued for group in warp.groups) for warp in warps)
        self.tally.set(self._part, self._issued + running)
        if self._report is not None:
            self._report(0)
        left = self.tally.limit - self.tally.total
        return min(COUNTED_TURNS + TURNS_PER_WARP * len(warps), left // TURN_INSTRUCTIONS)
