"""The modules of a program: what it registers before main, and what it loads through the driver.

A kernel's handle is the address of its stub on the host, or a number for one that was looked up by name; a module's
PTX is parsed when one of its kernels or variables is first used.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

from nogpu import headers
from nogpu.cuda import handles
from nogpu.cuda.backends import current
from nogpu.cuda.modules import Kernel, Module
from nogpu.cuda.programs import fatbin, status

_RUNTIME = "cuda/programs/runtime/runtime.h"
_MODULE, _FUNCTION, _VARIABLE = headers.constants(_RUNTIME, "RECORD_MODULE", "RECORD_FUNCTION", "RECORD_VARIABLE")
_MANAGED, _UNREGISTER = headers.constants(_RUNTIME, "RECORD_MANAGED", "RECORD_UNREGISTER")


@headers.mirrors(_RUNTIME)
class Record(ctypes.Structure):
    """A registration by the program before main."""


@dataclass(frozen=True)
class Variable:
    """A .global or .const variable, by its name in the PTX."""

    module: Module
    name: str

    def place(self) -> tuple[int, int]:
        """(address, bytes) on the device. Raises Refused if there is none."""
        try:
            return current().variable(self.module.parsed, self.name)
        except KeyError:
            raise status.Refused(status.INVALID_SYMBOL, f"the module has no variable {self.name!r}") from None


library: Any = None
_read = 0  # number of records that have been read
_variables: dict[int, Variable] = {}
_managed: list[tuple[int, Variable]] = []


def use(connected: Any) -> None:
    """Read registrations from this library of runtime/."""
    global library
    library = connected
    library.emulator_record.argtypes = [ctypes.c_size_t, ctypes.POINTER(Record)]


def _read_records() -> None:
    global _read
    record = Record()
    while library is not None and library.emulator_record(_read, ctypes.byref(record)):
        _read += 1
        if record.kind == _MODULE:
            handles.modules[record.module] = Module(functools.partial(fatbin.ptx, record.host))
        elif record.kind == _UNREGISTER:
            _forget(record.module)
        elif record.kind:
            module, name = handles.modules[record.module], record.name.decode()
            if record.kind == _FUNCTION:
                handles.kernels[record.host] = module.kernel(name)
            elif record.kind == _VARIABLE:
                _variables[record.host] = Variable(module, name)
            elif record.kind == _MANAGED:
                _managed.append((record.host, Variable(module, name)))


def _forget(handle: int) -> None:
    module = handles.modules.get(handle)
    handles.forget_module(handle)
    for host in [host for host, variable in _variables.items() if variable.module is module]:
        del _variables[host]


def kernel(handle: int) -> Kernel:
    """The kernel of a handle. Raises Refused if there is none."""
    if handle not in handles.kernels:
        _read_records()
    if handle not in handles.kernels:
        raise status.Refused(status.INVALID_FUNCTION, f"{handle:#x} is no kernel that has been registered or loaded")
    return handles.kernels[handle]


def variable(handle: int) -> Variable:
    """The variable with this address on the host. Raises Refused if there is none."""
    if handle not in _variables:
        _read_records()
    if handle not in _variables:
        raise status.Refused(status.INVALID_SYMBOL, f"{handle:#x} is no variable that has been registered")
    return _variables[handle]


def managed() -> list[tuple[int, Variable]]:
    """(address of the host's pointer, variable) of the __managed__ variables registered since the last call."""
    _read_records()
    found = _managed.copy()
    _managed.clear()
    return found


def load(image: int) -> int:
    """Load PTX text, or a fat binary, at an address. Returns a handle. Raises Refused for machine code."""
    if not image:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a module")
    magic = ctypes.c_uint32.from_address(image).value
    if magic == fatbin.WRAPPER_MAGIC:
        module = Module(fatbin.ptx(image))
    elif magic == fatbin.BLOCK_MAGIC:
        module = Module(fatbin.choose(list(fatbin.images(fatbin.read(image)))))
    elif ctypes.string_at(image, 4) == b"\x7fELF":
        raise status.Refused(status.NO_IMAGE, "the module is machine code: the device runs PTX")
    else:
        module = Module(ctypes.string_at(image).decode())
    module.parsed  # noqa: B018  # a module that is wrong is refused here
    return handles.add_module(module)


def module(handle: int) -> Module:
    """The module of a handle of `load`. Raises Refused if there is none."""
    if handle not in handles.modules:
        raise status.Refused(status.INVALID_HANDLE, f"{handle:#x} is no module")
    return handles.modules[handle]


def unload(handle: int) -> None:
    """Forget a module and its kernels. Raises Refused if there is none."""
    module(handle)
    _forget(handle)


def look_up(handle: int, name: str) -> int:
    """The handle of a module's kernel. Raises Refused if there is none."""
    try:
        return handles.of_kernel(module(handle)[name])
    except KeyError as missing:
        raise status.Refused(status.NOT_FOUND, missing.args[0]) from None
