"""Launches that kernels make (CUDA C++ Programming Guide, "CUDA Dynamic Parallelism").

NVIDIA's device runtime, libcudadevrt, is machine code. Its functions are PTX here, at the end of the modules that
declare them: they leave a record of each launch, copy and fill in a variable of the module. That work is done when the
grid that has asked for it ends, in the order of the calls, what the tail queue got behind the rest; a grid cannot wait
for what it launches.
"""

from __future__ import annotations

import ctypes
import functools
import re
import string
import weakref
from pathlib import Path
from typing import NamedTuple

from nogpu import headers
from nogpu.cuda import device_attributes
from nogpu.errors import EmulatorError
from nogpu.execution.device import run_pending
from nogpu.hardware.properties import DeviceProperties, LaunchConfig, of_process
from nogpu.hardware.variables import module_memory
from nogpu.ptx import ir

limit = 2048
"""Most launches of a grid, for modules that are read from now on: cudaLimitDevRuntimePendingLaunchCount."""

_TAIL = 3  # cudaStreamTailLaunch
_UNKNOWN = (1 << 32) - 1  # in place of an attribute's value
_COPY, _FILL = 1, 2  # in place of a kernel's address
_KERNEL, _RECORDS, _STATE = "nogpu_kernel_", "nogpu_launches", "nogpu_launch_state"
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_DECLARED = re.compile(r"\.extern\s+\.func\s+(?:\([^()]*\)\s*)?__cudaCDP2")
_RUNTIME = Path(__file__).with_name("device_runtime.ptx")
_PER_THREAD = "_ptsz"  # end of the names of functions for which queue 0 is the thread's own


class _Record(ctypes.Structure):
    """A call leaves one. number: 1 for the grid's first launch; 0 for parameters that nobody has launched."""

    _fields_ = headers.fields("u64 kernel; u32 grid[3], block[3], shared, number; u64 queue; u8 parameters[4096]")


class _State(ctypes.Structure):
    """Counts of a grid, the last error, and the number of handles that queues and events have got."""

    _fields_ = headers.fields("u32 records, launches, error, handles")


class Launch(NamedTuple):
    """A launch that a kernel has made, with the bytes of each parameter."""

    entry: ir.Entry
    config: LaunchConfig
    values: list[bytes]


class Copy(NamedTuple):
    """A copy that a kernel has asked for: two addresses and a number of bytes."""

    target: int
    source: int
    nbytes: int


class Fill(NamedTuple):
    """A fill that a kernel has asked for: an address, a byte and a number of bytes."""

    target: int
    value: int
    nbytes: int


_entries: weakref.WeakKeyDictionary[ir.Scope, dict[str, ir.Entry]] = weakref.WeakKeyDictionary()


def made(entry: ir.Entry) -> list[Launch | Copy | Fill]:
    """The work that kernels of an entry's module have asked for since the last call, in order."""
    scope = entry.scope
    if scope is None or scope not in _entries:
        return []
    run_pending()
    entries, memory = _entries[scope], module_memory(scope)
    state = _State.from_buffer(memory.bytes[_STATE].data)
    records = [
        _Record.from_buffer_copy(memory.bytes[_RECORDS].data, i * ctypes.sizeof(_Record))
        for i in range(min(state.records, len(memory.bytes[_RECORDS]) // ctypes.sizeof(_Record)))
    ]
    state.records = state.launches = 0
    kernels = {place: name.removeprefix(_KERNEL) for name, place in memory.addresses.items() if _KERNEL in name}
    launched = sorted((record.queue == _TAIL, record.number, i) for i, record in enumerate(records) if record.number)
    return [_work(records[i], entries, kernels) for _, _, i in launched]


def _work(record: _Record, entries: dict[str, ir.Entry], kernels: dict[int, str]) -> Launch | Copy | Fill:
    if record.kernel in (_COPY, _FILL):
        target, other, nbytes = (ctypes.c_uint64 * 3).from_buffer_copy(record.parameters)
        return Copy(target, other, nbytes) if record.kernel == _COPY else Fill(target, other & 0xFF, nbytes)
    if kernels.get(record.kernel) not in entries:
        raise EmulatorError(f"a kernel launches {record.kernel:#x}, which is no kernel of its module")
    entry = entries[kernels[record.kernel]]
    offsets, given = entry.param_offsets(), bytes(record.parameters)
    config = LaunchConfig(tuple(record.grid), tuple(record.block), dynamic_shared_bytes=record.shared)
    return Launch(entry, config, [given[offsets[p.name] :][: p.size] for p in entry.params])


def read(module: ir.Module) -> ir.Module:
    """Notes the kernels of a module that may launch some. Returns the module."""
    if _RECORDS in module.scope.variables:
        _entries[module.scope] = module.entries
    return module


def with_launches(text: str) -> str:
    """A module's PTX, with the device runtime's functions if it declares some. The addresses of kernels become those
    of variables with their names.
    """
    declaration = _DECLARED.search(text)
    if declaration is None:
        return text
    text = text.rstrip("\0").replace(_PER_THREAD, "")
    taken: dict[str, None] = {}

    def replaced(match: re.Match) -> str:
        if match[1] or not match[2]:
            return match[0]
        taken[match[2]] = None
        return _KERNEL + match[2]

    kernels = "|".join(re.escape(name) for name in dict.fromkeys(_ENTRY.findall(text)))
    if kernels:
        text = re.sub(rf'"[^"\n]*"|(\.entry\s+)?(?<![\w$.%])({kernels})(?![\w$])', replaced, text)
    variables = "".join(f".global .u64 {_KERNEL}{name}; " for name in taken)  # they stand ahead of their uses
    start = declaration.start()
    return text[:start] + variables + text[start:] + _functions(limit, of_process())


@functools.cache
def _functions(limit: int, properties: DeviceProperties) -> str:
    state, record = ctypes.sizeof(_State), ctypes.sizeof(_Record)
    names = {name: getattr(_Record, name).offset for name, *_ in _Record._fields_}
    names |= {"error": _State.error.offset, "handles": _State.handles.offset}
    values = [device_attributes.value(number, properties) for number in range(max(device_attributes.NUMBERS) + 1)]
    attributes = [_UNKNOWN if value is None else value for value in values]
    names |= {"attributes": str(attributes)[1:-1], "attribute_count": len(attributes), "unknown": _UNKNOWN}
    names |= {"records_taken": _State.records.offset, "numbers": _State.launches.offset}
    names |= {"state": state, "record": record, "records": limit * record, "limit": limit, "copy": _COPY, "fill": _FILL}
    return string.Template(_RUNTIME.read_text()).substitute(names)
