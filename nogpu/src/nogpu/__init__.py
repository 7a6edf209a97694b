"""A Blackwell GPU (NVIDIA B200, sm_100a) in software: runs torch and CuTe DSL programs for device "cuda" on a CPU.

    nogpu run SCRIPT ARGS...             the program, its child processes included, on the emulated device
    nogpu run ./a.out ARGS...            a program of CUDA C++, or a .cu file
    nogpu.counters()                     in the program: event counts of each launch
    nogpu.load_ptx(text)["kernel"].launch(grid, block, args)     a kernel of PTX text; needs no torch and no DSL
    nogpu.tensor_map(array, box)         a tensor map, as cuTensorMapEncodeTiled makes it
    nogpu.EmulatorError                  raised by a launch whose kernel breaks a rule of the hardware

Torch tensors of the device are host memory that is registered as a device allocation. A launch runs the DSL's own
host code, which passes the kernel's PTX, grid and parameters to the emulator's CUDA runtime library. The PTX executes
warp by warp, 32 lanes at a time, with divergence. Copies and tensor core operations are queued, and a schedule decides
when they happen: as soon or as late as the hardware may, or in a random order under a seed. A launch is complete when
the launching call returns, unless it lets the next launch start early: then it runs once the next call is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nogpu import lazy
from nogpu.activation import activate, environment
from nogpu.errors import EmulatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike

    from nogpu.cuda.modules import Module
    from nogpu.execution.device import Device
    from nogpu.execution.settings import schedules
    from nogpu.hardware.counters import LaunchCounters
    from nogpu.hardware.properties import LaunchConfig

__all__ = [
    "Device",
    "EmulatorError",
    "LaunchConfig",
    "activate",
    "array",
    "counters",
    "environment",
    "load_ptx",
    "preload",
    "reset_counters",
    "schedules",
    "store",
    "synchronize",
    "tensor_map",
]
__getattr__ = lazy.names(
    __name__, execution_device="Device", execution_settings="schedules", hardware_properties="LaunchConfig"
)


def load_ipython_extension(shell: Any) -> None:
    """Puts a notebook on the emulated device; IPython calls it for `%load_ext nogpu`."""
    from nogpu import notebook

    notebook.load(shell)


def preload() -> None:
    """Loads the emulator's compiled functions, for processes that are forked from this one."""
    from nogpu import toolchain
    from nogpu.cuda.programs.libraries import CUTE_DSL, library

    for source in ("native", "clock/native", "cuda/torch_allocations.c"):
        toolchain.load(source)
    toolchain.opened(library(CUTE_DSL))


def load_ptx(text: str, schedule: str | None = None, lenient: bool | None = None) -> Module:
    """A module of PTX text: `load_ptx(text)["kernel"].launch(grid, block, args, shared=..., cluster=...)`.

    launch takes what `cuda.modules.Kernel.launch` takes; schedule and lenient apply to launches that name none. Raises
    EmulatorError for anything but text, and with the line of text that is not understood.
    """
    from nogpu.cuda import loader

    return loader.load_ptx(text, schedule, lenient)


def tensor_map(array: Any, box: Sequence[int], **options: Any) -> bytes:
    """The 128 bytes of a tensor map over an array, for a kernel's parameter, as cuTensorMapEncodeTiled makes them.

    box: elements, the contiguous dimension first. options: as for `cuda.tensor_maps.tensor_map`: swizzle, element,
    dims, strides, element_strides, interleave, l2_promotion, fill. Raises EmulatorError where the driver refuses.
    """
    from nogpu.cuda import tensor_maps

    return tensor_maps.tensor_map(array, box, **options)


def array(data: ArrayLike) -> np.ndarray:
    """A copy of `data` (anything that NumPy makes an array of) in device memory, 256-byte aligned, for `load_ptx`.

    Raises EmulatorError for data that is no array, for Python objects and for a foreign byte order.
    """
    from nogpu.cuda import arrays

    return arrays.array(data)


def synchronize() -> None:
    """Runs the pending launches of this process. Raises the EmulatorError of one that fails."""
    from nogpu.execution.device import Device

    Device.current().synchronize()


def counters() -> list[LaunchCounters]:
    """Counters of the launches of this process since the start or the last reset, in launch order."""
    from nogpu.execution.device import Device

    return Device.current().counters()


def reset_counters() -> None:
    """Forgets the counters of all launches so far."""
    from nogpu.execution.device import Device

    Device.current().reset_counters()
