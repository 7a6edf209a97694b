"""A Blackwell GPU (NVIDIA B200, sm_100a) in software: runs torch and CuTe DSL programs for device "cuda" on a CPU.

    python -m emulator SCRIPT ARGS...       the program, its child processes included, on the emulated device
    emulator.counters()                     in the program: what each launch did, counted
    emulator.load_ptx(text)["kernel"].launch(grid, block, args)     a kernel of PTX text, without torch and DSL, too
    emulator.EmulatorError                  what a launch raises when its kernel breaks a rule of the hardware

Torch tensors of the device are host memory that is registered as a device allocation. A launch runs the DSL's own
host code, which hands its kernel's PTX, grid and parameters over at the runtime library. The PTX executes warp by warp,
32 lanes at a time, with divergence; copies and tensor-core work are queued and drained by a schedule, either as soon or
as late as the hardware may, or in a random order under a seed. Launches are complete when the launching call returns,
except those that let the next launch start early: they run when it is known whether it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.activation import activate
from emulator.errors import EmulatorError

if TYPE_CHECKING:
    import numpy as np

    from emulator.hardware.counters import LaunchCounters
    from emulator.host.loader import Module

__all__ = ["EmulatorError", "activate", "array", "counters", "load_ptx", "reset_counters", "synchronize"]


def load_ptx(text: str) -> Module:
    """A module of PTX text: `load_ptx(text)["kernel"].launch(grid, block, args, shared=..., cluster=...)` (see
    `loader.Kernel.launch`). Raises EmulatorError with the line for what is not understood.
    """
    from emulator.host import loader

    return loader.load_ptx(text)


def array(data) -> np.ndarray:
    """A copy of `data` in device memory, for launches of `load_ptx`: a NumPy array, 256-byte aligned."""
    from emulator.host import loader

    return loader.array(data)


def synchronize() -> None:
    """Returns when no launch of this process is pending. Raises what they raise."""
    from emulator.execution.device import Device

    Device.current().synchronize()


def counters() -> list[LaunchCounters]:
    """Counters of the launches of this process since the start or the last reset, in launch order."""
    from emulator.execution.device import Device

    return Device.current().counters()


def reset_counters() -> None:
    """Forgets the counters of all launches so far."""
    from emulator.execution.device import Device

    Device.current().reset_counters()
