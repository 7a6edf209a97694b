"""Runs of launches under a schedule, of one or of several that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from nogpu.execution.machine import Machine
from nogpu.execution.meter import Meter
from nogpu.execution.replay import ReplayMachine
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.grid import Grid

__all__ = ["Schedule", "run"]


def run(grids: Sequence[Grid], schedule: Schedule, meter: Meter | None = None) -> None:
    """Runs grids, in launch order, each beside its predecessor as far as that one allows. Raises EmulatorError.

    meter: as of `Machine`.
    """
    for before, grid in zip(grids, grids[1:]):
        grid.predecessors = [before]
    machine = (ReplayMachine if schedule.kind == "replay" else Machine)(schedule, grids, meter)
    with np.errstate(all="ignore"), ExitStack() as stack:
        for observer in grids[0].observers:
            stack.enter_context(observer.following(grids[0].memory))
        machine.run()
