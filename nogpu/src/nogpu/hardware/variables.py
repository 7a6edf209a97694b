"""Memory of a module's .global and .const variables: layout, initialisation, and registration with a device."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import DeviceProperties
from nogpu.ptx.ir import Scope, Variable

if TYPE_CHECKING:
    from nogpu.hardware.memory import GlobalMemory

CONSTANT_BYTES = 64 << 10  # PTX ISA, "Constant State Space"
FUNCTION_TAG = 3 << 56  # tag in the addresses of functions, which lie in no memory
_ALIGNMENT = 256  # bytes, of every variable; keeps them apart

_memories: WeakKeyDictionary[Scope, ModuleMemory] = WeakKeyDictionary()


OWN = "nogpu_launch"
"""Start of the names of what the device runtime notes, in the order of a schedule (`cuda.device_launches`)."""


class ModuleMemory:
    """Variables of a module, each an allocation of its own, so that an access past the end of one is noticed.

    They are initialised once, when the module is loaded, to zero without an initialiser (PTX ISA, "Initializers").
    """

    def __init__(self, scope: Scope):
        found = [v for v in scope.variables.values() if v.space in ("global", "const") and not v.extern and v.size]
        constant = sum(variable.size for variable in found if variable.space == "const")
        if constant > CONSTANT_BYTES:
            raise _too_many(found, "const", f"the limit is {CONSTANT_BYTES}")
        if sum(variable.size for variable in found) - constant > DeviceProperties.total_memory:
            raise _too_many(found, "global", f"the device has {DeviceProperties.total_memory}")
        offsets, end = {}, _ALIGNMENT
        for variable in found:
            align = max(variable.align, _ALIGNMENT)
            offsets[variable.name] = -(-end // align) * align
            end = offsets[variable.name] + variable.size + 1
        largest = max([_ALIGNMENT, *(variable.align for variable in found)])
        try:
            storage = np.zeros(end + largest, np.uint8)
        except MemoryError:
            raise _too_many(found, "global", "which this machine has not") from None
        base = -(-storage.ctypes.data // largest) * largest
        self.variables = {variable.name: variable for variable in found}
        self.addresses = {name: base + offset for name, offset in offsets.items()}
        self.functions = function_addresses(scope)
        start = base - storage.ctypes.data
        self.bytes = {v.name: storage[start + offsets[v.name] :][: v.size] for v in found}
        for variable in found:
            self._initialise(variable)

    def _initialise(self, variable: Variable) -> None:
        data = self.bytes[variable.name]
        if variable.initial is not None:
            data[:] = np.frombuffer(variable.initial, np.uint8)
        for place in variable.relocations:
            address = (self.addresses | self.functions)[place.name]  # the parser has refused any other name
            shift = (place.mask & -place.mask).bit_length() - 1
            value = (address + place.addend & place.mask) >> shift
            data[place.offset : place.offset + place.size] = np.frombuffer(
                value.to_bytes(place.size, "little"), np.uint8
            )

    def register(self, memory: GlobalMemory) -> None:
        """Makes the variables accessible to kernels, unless they are already."""
        for name, address in self.addresses.items():
            variable = self.variables[name]
            if memory.allocation(address) is None:
                memory.register(address, variable.size, f"variable {name}", writable=variable.space == "global")
                memory.holding(address).is_compared = not name.startswith(OWN)


def _too_many(variables: list[Variable], space: str, limit: str) -> EmulatorError:
    """EmulatorError for too many bytes of variables in a space, at the line of the largest one."""
    own = [variable for variable in variables if variable.space == space]
    largest = max(own, key=lambda variable: variable.size)
    reason = f"{sum(variable.size for variable in own)} bytes of .{space} variables, {limit}"
    return EmulatorError(reason, ptx_line=largest.line, ptx_text=largest.name)


def function_addresses(scope: Scope) -> dict[str, int]:
    """Addresses of device functions by name, for comparisons and indirect calls only."""
    return {name: FUNCTION_TAG + 16 * number for number, name in enumerate(scope.functions, 1)}


def module_memory(scope: Scope) -> ModuleMemory:
    """Memory of a module's variables, allocated at the first call. Raises EmulatorError if they are too large."""
    memory = _memories.get(scope)
    if memory is None:
        memory = _memories[scope] = ModuleMemory(scope)
    return memory


def is_constant(address: int) -> bool:
    """True for the address of a .const variable, which kernels may not write, and the host's copies may."""
    memories = list(_memories.values())
    return any(
        own.addresses[name] == address and variable.space == "const"
        for own in memories
        for name, variable in own.variables.items()
    )
