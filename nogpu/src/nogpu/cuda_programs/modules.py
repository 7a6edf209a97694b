"""The modules of a program: what it registers before main, and what it loads through the driver.

A kernel's handle is the address of its stub on the host, or a number for one that was looked up by name; a module's
PTX is parsed when one of its kernels or variables is first used.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

from nogpu import headers
from nogpu.compiler.linking import link
from nogpu.cuda_programs import fatbin, status
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import DeviceProperties, static_shared_bytes
from nogpu.ptx.ir import Entry
from nogpu.ptx.ir import Module as Parsed
from nogpu.ptx.module import parse

_RUNTIME = "cuda_programs/runtime/runtime.h"
_MODULE, _FUNCTION, _VARIABLE = headers.constants(_RUNTIME, "RECORD_MODULE", "RECORD_FUNCTION", "RECORD_VARIABLE")
_MANAGED, _UNREGISTER = headers.constants(_RUNTIME, "RECORD_MANAGED", "RECORD_UNREGISTER")


@headers.mirrors(_RUNTIME)
class Record(ctypes.Structure):
    """What the program has registered before main."""


class Module:
    """PTX, from a fat binary at an address or given as text."""

    def __init__(self, wrapper: int = 0, text: str = ""):
        self._wrapper, self._text = wrapper, text

    @functools.cached_property
    def text(self) -> str:
        return self._text or fatbin.ptx(self._wrapper)

    @functools.cached_property
    def parsed(self) -> Parsed:
        return parse(self.text)


@dataclass
class Kernel:
    """A kernel and the attributes that the program has given it."""

    module: Module
    name: str
    nonportable_cluster: bool = False
    _dynamic_shared_limit: int | None = field(default=None)

    @functools.cached_property
    def entry(self) -> Entry:
        """Raises EmulatorError if the module's PTX has no such entry."""
        entries = self.module.parsed.entries
        if self.name not in entries:
            raise EmulatorError(f"the module's PTX has no entry of this name: {', '.join(entries)}", kernel=self.name)
        return entries[self.name]

    @functools.cached_property
    def static_shared_bytes(self) -> int:
        """Bytes of its shared variables, of its module and the functions that it calls included."""
        return static_shared_bytes(link(self.entry))

    @property
    def dynamic_shared_limit(self) -> int:
        """The most bytes of dynamic shared memory of a launch: what the program has set, else 48 KiB less static."""
        if self._dynamic_shared_limit is not None:
            return self._dynamic_shared_limit
        return max(0, DeviceProperties.shared_memory_per_block - self.static_shared_bytes)

    @dynamic_shared_limit.setter
    def dynamic_shared_limit(self, nbytes: int) -> None:
        self._dynamic_shared_limit = nbytes


@dataclass(frozen=True)
class Variable:
    """A .global or .const variable, by its name in the PTX."""

    module: Module
    name: str


_library: Any = None
_read = 0  # records that have been read
_modules: dict[int, Module] = {}
_kernels: dict[int, Kernel] = {}
_variables: dict[int, Variable] = {}
_managed: list[tuple[int, Variable]] = []
_handles = itertools.count(1)


def use(library: Any) -> None:
    """Read the records of this library of runtime/."""
    global _library
    _library = library
    library.emulator_record.argtypes = [ctypes.c_size_t, ctypes.POINTER(Record)]


def _read_records() -> None:
    global _read
    record = Record()
    while _library is not None and _library.emulator_record(_read, ctypes.byref(record)):
        _read += 1
        if record.kind == _MODULE:
            _modules[record.module] = Module(record.host)
        elif record.kind == _UNREGISTER:
            _forget(_modules.pop(record.module, None))
        elif record.kind:
            module, name = _modules[record.module], record.name.decode()
            if record.kind == _FUNCTION:
                _kernels[record.host] = Kernel(module, name)
            elif record.kind == _VARIABLE:
                _variables[record.host] = Variable(module, name)
            elif record.kind == _MANAGED:
                _managed.append((record.host, Variable(module, name)))


def _forget(module: Module | None) -> None:
    for table in (_kernels, _variables):
        for handle in [handle for handle, item in table.items() if item.module is module]:
            del table[handle]


def kernel(handle: int) -> Kernel:
    """The kernel of a handle. Raises Refused."""
    if handle not in _kernels:
        _read_records()
    if handle not in _kernels:
        raise status.Refused(status.INVALID_FUNCTION, f"{handle:#x} is no kernel that has been registered or loaded")
    return _kernels[handle]


def variable(handle: int) -> Variable:
    """The variable with this address on the host. Raises Refused."""
    if handle not in _variables:
        _read_records()
    if handle not in _variables:
        raise status.Refused(status.INVALID_SYMBOL, f"{handle:#x} is no variable that has been registered")
    return _variables[handle]


def managed() -> list[tuple[int, Variable]]:
    """(address of the host's pointer, variable) of the __managed__ variables that have been registered since."""
    _read_records()
    found = _managed.copy()
    _managed.clear()
    return found


def load(image: int) -> int:
    """Load PTX text, or a fat binary with or without its wrapper, at an address. Returns a handle."""
    if not image:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a module")
    magic = ctypes.c_uint32.from_address(image).value
    if magic == fatbin.WRAPPER_MAGIC:
        module = Module(image)
    elif magic == fatbin.BLOCK_MAGIC:
        module = Module(text=fatbin.choose(list(fatbin.images(fatbin.read(image)))))
    elif ctypes.string_at(image, 4) == b"\x7fELF":
        raise status.Refused(status.NO_IMAGE, "the module is machine code: the device runs PTX")
    else:
        module = Module(text=ctypes.string_at(image).decode())
    module.parsed  # noqa: B018  # a module that is wrong is refused here
    handle = next(_handles)
    _modules[handle] = module
    return handle


def module(handle: int) -> Module:
    """The module of a handle of `load`. Raises Refused."""
    if handle not in _modules:
        raise status.Refused(status.INVALID_HANDLE, f"{handle:#x} is no module")
    return _modules[handle]


def unload(handle: int) -> None:
    """Forget a module and its kernels."""
    _forget(module(handle))
    del _modules[handle]


def look_up(handle: int, name: str) -> int:
    """The handle of a module's kernel. Raises Refused."""
    found = module(handle)
    if name not in found.parsed.entries:
        names = ", ".join(found.parsed.entries) or "none"
        raise status.Refused(status.NOT_FOUND, f"the module has no kernel {name!r}; it has {names}")
    known = [number for number, kernel in _kernels.items() if kernel.module is found and kernel.name == name]
    if known:
        return known[0]
    number = next(_handles)
    _kernels[number] = Kernel(found, name)
    return number
