"""Places of an entry's parameters and variables in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from nogpu.errors import EmulatorError
from nogpu.hardware.variables import module_memory
from nogpu.ptx.ir import Entry, Variable

LOCAL_BYTES = 512 << 10  # per thread (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")


@dataclass
class Layout:
    """Places of the symbols, and the memory that they take."""

    symbols: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name -> (space, offset in it; the address for "global")."""
    static_shared: int = 0
    """Bytes per CTA of shared variables with a size."""
    dynamic_offset: int = 0
    """Offset of dynamic shared memory behind the static variables, aligned."""
    local_bytes: int = 0
    """Bytes per thread of local variables and call parameters."""


def lay_out(entry: Entry) -> Layout:
    """The layout of an entry with its calls expanded. Raises EmulatorError for more local memory than a thread has."""
    layout = Layout({name: ("param", offset) for name, offset in entry.param_offsets().items() if name})
    dynamic = []
    for variable in entry.variables.values():
        if variable.space == "shared" and variable.size == 0:
            dynamic.append(variable)
        elif variable.space == "shared":
            offset = _aligned(layout.static_shared, variable.align)
            layout.symbols[variable.name] = ("shared", offset)
            layout.static_shared = offset + variable.size
        elif variable.space in ("local", "param"):
            offset = _aligned(layout.local_bytes, variable.align)
            layout.symbols[variable.name] = ("local", offset)
            layout.local_bytes = offset + variable.size
        elif not variable.extern:
            layout.symbols[variable.name] = ("global", _global_address(entry, variable))
    if layout.local_bytes > LOCAL_BYTES:
        reason = f"{layout.local_bytes} bytes of local memory per thread, the limit is {LOCAL_BYTES}"
        raise EmulatorError(reason, kernel=entry.name, ptx_line=entry.line or None)
    layout.dynamic_offset = _aligned(layout.static_shared, max((variable.align for variable in dynamic), default=16))
    for variable in dynamic:
        layout.symbols[variable.name] = ("shared", layout.dynamic_offset)
    return layout


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


def _global_address(entry: Entry, variable: Variable) -> int:
    assert entry.scope is not None  # only a module has global variables
    return module_memory(entry.scope).addresses[variable.name]
