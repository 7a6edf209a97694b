"""Handles of modules and kernels in CUDA's interfaces: numbers, for a kernel also the host address of its stub."""

from __future__ import annotations

import itertools

from nogpu.cuda.modules import Kernel, Module

modules: dict[int, Module] = {}
kernels: dict[int, Kernel] = {}
_numbers = itertools.count(1)


def add_module(module: Module) -> int:
    """The new handle of a module."""
    handle = next(_numbers)
    modules[handle] = module
    return handle


def of_kernel(kernel: Kernel) -> int:
    """The handle of a kernel, a new one if it has none."""
    known = next((handle for handle, other in kernels.items() if other is kernel), None)
    handle = next(_numbers) if known is None else known
    kernels[handle] = kernel
    return handle


def forget_module(handle: int) -> None:
    """Forget the module with this handle, if there is one, and its kernels."""
    module = modules.pop(handle, None)
    for number in [number for number, kernel in kernels.items() if kernel.module is module]:
        del kernels[number]
