"""Device memory from plain Python: NumPy arrays whose memory kernels may access while the arrays live."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from nogpu.errors import EmulatorError
from nogpu.execution import device
from nogpu.execution.device import Device
from nogpu.hardware.memory import GlobalMemory

ALIGNMENT = 256  # bytes; the CUDA driver's

_arrays: dict[int, weakref.ref] = {}


def array(data: npt.ArrayLike) -> np.ndarray:
    """A copy of `data` in device memory: a NumPy array, 256-byte aligned, that kernels may access while it lives.

    Raises EmulatorError for data of which NumPy makes no array, and for types that `check_type` refuses.
    """
    try:
        source = np.asarray(data)
        check_type(source.dtype)
        storage = np.empty(source.nbytes + ALIGNMENT, np.uint8)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise EmulatorError(f"array refused: {error}") from None
    start = -storage.ctypes.data % ALIGNMENT
    result = storage[start : start + source.nbytes].view(source.dtype).reshape(source.shape)
    result[...] = source
    if source.nbytes:
        _register(result.ctypes.data, source.nbytes, storage, f"array {source.dtype}{list(source.shape)}", True)
    return result


def check_type(dtype: np.dtype) -> None:
    """Raises TypeError for Python objects, whose pointers a kernel would overwrite, and for another byte order."""
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} holds Python objects: a kernel would overwrite their pointers")
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype} is big-endian, the device is little-endian")


def address_of(value: Any) -> int:
    """The device address of an array or tensor; an array's memory becomes device memory.

    Raises ValueError or TypeError for an object that has none.
    """
    if hasattr(value, "data_ptr"):
        try:
            address = value.data_ptr()
        except RuntimeError as error:
            raise TypeError(f"the tensor has no address: {error}") from None
        if value.numel() and not _is_device_memory(address):
            raise ValueError(
                'the tensor is not on the emulated device: start the program by `nogpu run` and take device "cuda"'
            )
        return address
    check_type(value.dtype)
    address = value.ctypes.data
    if value.size and not _is_device_memory(address):
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        check_type(owner.dtype)
        if not owner.flags.c_contiguous and not owner.flags.f_contiguous:
            raise ValueError("the array's memory is not contiguous")
        name = f"array {owner.dtype}{list(owner.shape)}"
        _register(owner.ctypes.data, math.prod(owner.shape) * owner.itemsize, owner, name, owner.flags.writeable)
    return address


def _is_device_memory(address: int) -> bool:
    return Device.current().memory.allocation(address) is not None


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
