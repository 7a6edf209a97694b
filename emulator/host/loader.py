"""Kernels from PTX text: load a module, launch its entries with raw arguments, from plain Python or beside torch."""

from __future__ import annotations

import ctypes
import math
import numbers
import os
import re
import struct
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emulator.compiler.translate import translate
from emulator.errors import EmulatorError
from emulator.execution import device
from emulator.execution.device import Device
from emulator.hardware.memory import GlobalMemory
from emulator.hardware.properties import DeviceProperties, LaunchConfig
from emulator.hardware.variables import module_memory
from emulator.ptx.ir import Entry, Param
from emulator.ptx.module import parse

ALIGNMENT = 256  # bytes; the CUDA driver's

_arrays: dict[int, weakref.ref] = {}
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def array(data: npt.ArrayLike) -> np.ndarray:
    """A copy of `data` in device memory: a NumPy array, 256-byte aligned, that kernels may access while it lives."""
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


def _forget(memory: GlobalMemory, address: int) -> None:
    memory.release(address)
    _arrays.pop(address, None)


def _live_arrays() -> list[np.ndarray]:
    return [owner for owner in (reference() for reference in list(_arrays.values())) if owner is not None]


device.memory_owners.append(_live_arrays)


class Module:
    """A loaded PTX module: `module["name"]` is a kernel; iteration gives the kernels' names."""

    def __init__(self, text: str):
        self._module = parse(text)
        _check_target(self._module.target)
        self._kernels = {name: Kernel(entry) for name, entry in self._module.entries.items()}

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            raise KeyError(f"the module has no kernel {name!r}; it has {', '.join(self._kernels) or 'none'}")
        return self._kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def variable(self, name: str) -> np.ndarray:
        """uint8[bytes] of a .global or .const variable: the memory that kernels load and store. Raises KeyError."""
        Device.current().synchronize()
        memory = module_memory(self._module.scope)
        if name not in memory.bytes:
            raise KeyError(f"the module has no variable {name!r}; it has {', '.join(memory.bytes) or 'none'}")
        return memory.bytes[name]


class Kernel:
    """An entry of a module."""

    def __init__(self, entry: Entry):
        self._entry = entry
        self.name = entry.name
        self.params = tuple(entry.params)  # in the order of the entry's .param

    def check(self) -> None:
        """Translates the kernel, as its first launch does. Raises EmulatorError for what is not modelled."""
        translate(self._entry)

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
        """Run the kernel on the current device.

        grid, block and cluster are (x, y, z) or fewer sizes: CTAs, threads per CTA, CTAs per cluster. shared: bytes of
        dynamic shared memory. args: one per parameter of the entry:

        - for an address, an array: one of `emulator.array`, a torch tensor on device "cuda", or another NumPy array,
          whose memory (of a view, its base's) becomes device memory;
        - for an integer parameter an int, for a floating-point one an int or float; for either a NumPy scalar of the
          parameter's size;
        - for an array of bytes (structures, tensor maps), bytes, an array of as many bytes or a ctypes structure.

        wait: whether the launch has ended when this returns. Without it, the launch may run later, beside the
        `programmatic` launches that follow. Raises EmulatorError for arguments that do not fit, for a launch that the
        device refuses and for a rule that the kernel breaks.
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
        given = (sizes,) if isinstance(sizes, numbers.Integral) else tuple(cast(Sequence[int], sizes))
        if not 1 <= len(given) <= 3 or not all(isinstance(size, numbers.Integral) for size in given):
            raise self._fail(f"{what} {sizes}: one to three integers are expected")
        x, y, z = map(int, (*given, 1, 1)[:3])
        return x, y, z

    def _packed(self, param: Param, value: Any) -> bytes:
        try:
            return _packed_array(param, value) if param.array else _packed_value(param, value)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise self._fail(f"argument for parameter {param.name} ({_declared(param)}): {error}") from None


def load_ptx(text: str) -> Module:
    """Parse PTX for sm_100a or a target whose PTX runs there.

    Raises EmulatorError with the line for syntax that is not understood. The first launch of a kernel raises it for an
    instruction that is not modelled.
    """
    return Module(text)


def _check_target(target: str) -> None:
    """Raise EmulatorError for a target whose PTX does not run on the device (PTX ISA, ".target").

    PTX for sm_NN runs on later devices too, for sm_NNa on no other, for sm_NNf on the family only.
    """
    major, minor = DeviceProperties.capability
    name = target.partition(",")[0].strip()
    sm = re.fullmatch(r"sm_(\d+)([af]?)", name)
    number, own = (int(sm[1]) if sm else 0), 10 * major + minor
    if sm is None or number > own or (sm[2] and number != own):
        raise EmulatorError(f"PTX for {name}: a device of compute capability {major}.{minor} does not run it")


def _declared(param: Param) -> str:
    return f".{param.type}[{param.size // (int(param.type[1:]) // 8)}]" if param.array else f".{param.type}"


def _packed_array(param: Param, value: Any) -> bytes:
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


def _packed_value(param: Param, value: Any) -> bytes:
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
        integer, low, high = int(value), -(1 << 8 * size - 1), 1 << 8 * size
        if not low <= integer < high:
            raise OverflowError(f"{value} does not fit {8 * size} bits")
        return (integer & high - 1).to_bytes(size, "little")
    raise TypeError(f"{type(value).__name__} given")


def _address(value: Any) -> int:
    """The device address of an array or tensor; an array's memory becomes device memory. Raises ValueError."""
    memory = Device.current().memory
    if hasattr(value, "data_ptr"):
        address = value.data_ptr()
        if value.numel() and memory.allocation(address) is None:
            raise ValueError(
                "the tensor is not on the emulated device: start the program by `python -m emulator` and take device "
                '"cuda"'
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
