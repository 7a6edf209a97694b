"""Handles in CUDA's interfaces: numbers, for a kernel also the host address of its stub."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NoReturn, TypeVar

from nogpu.cuda.modules import Kernel, Module
from nogpu.errors import Fault, UnknownHandle

T = TypeVar("T")


class Table(dict[int, T]):
    """Objects of one kind by their handles. Raises `fault` where the object of another handle is asked for."""

    def __init__(self, what: str, numbers: Iterator[int] | None = None, fault: type[Fault] = UnknownHandle):
        """what: the kind, in messages. numbers: new handles; by default from 1 on."""
        super().__init__()
        self._what, self._fault = what, fault
        self._numbers = itertools.count(1) if numbers is None else numbers

    def add(self, value: T) -> int:
        """The new handle of an object."""
        handle = next(self._numbers)
        self[handle] = value
        return handle

    def take(self, handle: int) -> T:
        """Remove and return the object of a handle."""
        found = self[handle]
        del self[handle]
        return found

    def __missing__(self, handle: int) -> NoReturn:
        raise self._fault(f"{handle:#x} is no {self._what}, or it has been destroyed")


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
