"""Kernels from PTX text: load a module, launch its entries with raw arguments, from plain Python or beside torch."""

from __future__ import annotations

import ctypes
import math
import numbers
import os
import re
import struct
import weakref
from collections.abc import Sequence

import numpy as np

from emulator.errors import EmulatorError
from emulator.execution import device
from emulator.execution.device import Device
from emulator.hardware.properties import DeviceProperties, LaunchConfig
from emulator.hardware.variables import module_memory
from emulator.ptx.ir import Entry, Param
from emulator.ptx.module import parse

ALIGNMENT = 256  # of `array`, as of an allocation of the CUDA driver

_arrays: dict[int, weakref.ref] = {}
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def array(data) -> np.ndarray:
    """A copy of `data` (whatever np.asarray takes) in device memory: an ordinary array, 256-byte aligned, that kernels
    may access to the byte as long as it lives.
    """
    source = np.asarray(data)
    storage = np.empty(source.nbytes + ALIGNMENT, np.uint8)
    start = -storage.ctypes.data % ALIGNMENT
    result = storage[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
    result[...] = source
    if source.nbytes:
        _register(result.ctypes.data, source.nbytes, storage, f"array {source.dtype}{list(source.shape)}", True)
    return result


def _register(address: int, nbytes: int, owner: np.ndarray, name: str, writable: bool) -> None:
    memory = Device.current().memory
    memory.register(address, nbytes, name, writable)
    _arrays[address] = weakref.ref(owner)
    weakref.finalize(owner, _forget, memory, address).atexit = False


def _forget(memory, address: int) -> None:
    memory.release(address)
    _arrays.pop(address, None)


def _live_arrays() -> list[np.ndarray]:
    return [owner for owner in (reference() for reference in list(_arrays.values())) if owner is not None]


device.memory_owners.append(_live_arrays)


class Module:
    """A loaded PTX module: `module["name"]` is a kernel; iterating gives the kernels' names."""

    def __init__(self, text: str):
        self._module = parse(text)
        _check_target(self._module.target)
        self._kernels = {name: Kernel(entry) for name, entry in self._module.entries.items()}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            raise KeyError(f"the module has no kernel {name!r}; it has {', '.join(self._kernels) or 'none'}")
        return self._kernels[name]

    def __iter__(self):
        return iter(self._kernels)

    def variable(self, name: str) -> np.ndarray:
        """uint8[bytes] of a .global or .const variable, as kernels see it; what is stored to it is what they load."""
        Device.current().synchronize()
        memory = module_memory(self._module.scope)
        if name not in memory.bytes:
            raise KeyError(f"the module has no variable {name!r}; it has {', '.join(memory.bytes) or 'none'}")
        return memory.bytes[name]


class Kernel:
    """An entry of a module. name: of the entry; params: its parameters, in order."""

    def __init__(self, entry: Entry):
        self._entry = entry
        self.name = entry.name
        self.params = tuple(entry.params)

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence = (),
        *,
        shared: int = 0,
        cluster: int | Sequence[int] = 1,
        programmatic: bool = False,
        cooperative: bool = False,
        nonportable_cluster: bool = False,
        wait: bool = True,
    ) -> None:
        """Runs the kernel on the current device.

        grid: CTAs, block: threads, cluster: CTAs, each (x, y, z) or fewer of them. shared: bytes of dynamic shared
        memory. args: one per parameter of the entry:

        - an array in device memory, of which the address is passed: of `emulator.array`, another NumPy array (which is
          made known to the device as far as it owns memory, views with what they look into), or a torch tensor
          on device "cuda";
        - an int for an integer parameter, an int or float for a floating-point one; a NumPy scalar of the parameter's
          size for either;
        - bytes, an array of as many bytes or a ctypes structure for an array of bytes: structures, tensor maps.

        wait: whether the launch is over when this returns; if not, it may be run later, beside those that follow with
        `programmatic`. Raises EmulatorError for arguments that do not fit, for what the device refuses and for
        whatever rule the kernel breaks.
        """
        if os.environ.get("EMULATOR") == "hopper":
            raise EmulatorError("PTX that is loaded as text runs on the emulated B200 only", kernel=self.name)
        if len(args) != len(self.params):
            names = ", ".join(f"{p.name} ({_declared(p)})" for p in self.params) or "none"
            raise self._fail(f"{len(args)} arguments for {len(self.params)} parameters: {names}")
        config = LaunchConfig(
            grid=self._sizes("grid", grid),
            block=self._sizes("block", block),
            cluster=self._sizes("cluster", cluster),
            dynamic_shared_bytes=shared,
            programmatic=programmatic,
            cooperative=cooperative,
            nonportable_cluster=nonportable_cluster,
        )
        values = [self._packed(param, value) for param, value in zip(self.params, args)]
        current = Device.current()
        current.launch(self._entry, config, values)
        if wait:
            current.synchronize()

    def _fail(self, reason: str) -> EmulatorError:
        return EmulatorError(f"launch refused: {reason}", kernel=self.name)

    def _sizes(self, what: str, sizes: int | Sequence[int]) -> tuple[int, int, int]:
        given = (sizes,) if isinstance(sizes, numbers.Integral) else tuple(sizes)
        if not 1 <= len(given) <= 3 or not all(isinstance(size, numbers.Integral) for size in given):
            raise self._fail(f"{what} {sizes}: one to three integers are expected")
        return tuple(map(int, (*given, 1, 1)[:3]))

    def _packed(self, param: Param, value: object) -> bytes:
        try:
            return _packed_array(param, value) if param.array else _packed_value(param, value)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise self._fail(f"argument for parameter {param.name} ({_declared(param)}): {error}") from None


def load_ptx(text: str) -> Module:
    """Parse PTX for sm_100a (or a target it runs). Raises EmulatorError with the line for what is not understood;
    instructions that are not modelled are refused when a kernel that has them is launched first.
    """
    return Module(text)


def _check_target(target: str) -> None:
    """PTX runs on its own and on later devices, that for sm_NNa on no other, for sm_NNf on the family only (PTX ISA,
    ".target").
    """
    major, minor = DeviceProperties.capability
    name = target.partition(",")[0].strip()
    number, specific = re.fullmatch(r"sm_(\d+)([af]?)", name).groups()
    if int(number) > 10 * major + minor or (specific and int(number) != 10 * major + minor):
        raise EmulatorError(f"PTX for {name}: a device of compute capability {major}.{minor} does not run it")


def _declared(param: Param) -> str:
    return f".{param.type}[{param.size // (int(param.type[1:]) // 8)}]" if param.array else f".{param.type}"


def _packed_array(param: Param, value: object) -> bytes:
    data = value.numpy() if hasattr(value, "data_ptr") else value
    if isinstance(data, ctypes.Structure | ctypes.Array | bytes | bytearray | memoryview):
        data = bytes(data)
    elif isinstance(data, np.ndarray | np.generic):
        data = data.tobytes()
    else:
        raise TypeError(f"{type(value).__name__} given, bytes expected")
    if len(data) != param.size:
        raise ValueError(f"{len(data)} bytes given, {param.size} expected")
    return data


def _packed_value(param: Param, value: object) -> bytes:
    size, kind = param.size, param.type[0]
    if hasattr(value, "data_ptr") or isinstance(value, np.ndarray):
        if size != 8 or kind == "f":
            raise TypeError("an array given; its address needs a 64-bit integer parameter")
        return _address(value).to_bytes(8, "little")
    if isinstance(value, np.generic):
        if value.nbytes != size:
            raise ValueError(f"{value.dtype} has {value.nbytes} bytes, {size} expected")
        if (kind == "f") != (value.dtype.kind not in "biu") and kind != "b":
            raise TypeError(f"{value.dtype} given")
        return value.tobytes()
    if isinstance(value, ctypes._SimpleCData):
        value = value.value
    if kind == "f" and isinstance(value, numbers.Real):
        return struct.pack(_FLOATS[param.type], value)
    if isinstance(value, numbers.Integral):
        low, high = (0 if kind == "u" and value >= 0 else -(1 << 8 * size - 1)), 1 << 8 * size
        if not low <= value < high:
            raise OverflowError(f"{value} does not fit {8 * size} bits")
        return (int(value) & high - 1).to_bytes(size, "little")
    raise TypeError(f"{type(value).__name__} given")


def _address(value: object) -> int:
    """The device address of an array or tensor."""
    memory = Device.current().memory
    if hasattr(value, "data_ptr"):
        address = value.data_ptr()
        if value.numel() and memory.allocation(address) is None:
            raise ValueError(
                'the tensor is not on the emulated device: start the program by `python -m emulator` and take device "cuda"'
            )
        return address
    address = value.ctypes.data
    if value.size and memory.allocation(address) is None:
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if not owner.flags.c_contiguous and not owner.flags.f_contiguous:
            raise ValueError("the array's memory is not contiguous")
        name = f"array {owner.dtype}{list(owner.shape)}"
        _register(owner.ctypes.data, math.prod(owner.shape) * owner.itemsize, owner, name, owner.flags.writeable)
    return address
