"""Entry points for devices, versions and errors."""

from __future__ import annotations

import ctypes
import sys

from nogpu.cuda import device_heap
from nogpu.cuda.backends import current
from nogpu.cuda.bindings import CUDA_VERSION
from nogpu.cuda.programs import modules, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, SIZE, U64, UINT, address_of_entry, entry, put, text
from nogpu.cuda.programs.properties import filled

_HEAP = 2  # cudaLimitMallocHeapSize
_SYMBOL_NOT_FOUND = 1  # cudaDriverEntryPointQueryResult


def only_device(ordinal: int) -> None:
    """Raises Refused unless the device's number is 0."""
    if ordinal != 0:
        raise status.Refused(status.INVALID_DEVICE, f"device {ordinal}: there is one, 0")


@entry("cudaGetDevice cuCtxGetDevice", ADDRESS)
def device(result: int) -> None:
    put(result, ctypes.c_int32, 0)


@entry("cudaGetDeviceCount cuDeviceGetCount", ADDRESS)
def device_count(result: int) -> None:
    put(result, ctypes.c_int32, 1)


@entry("cudaSetDevice", INT)
@entry("cudaInitDevice", INT, UINT, UINT)
def set_device(ordinal: int, *flags: int) -> None:
    only_device(ordinal)


@entry("cudaChooseDevice", ADDRESS, ADDRESS)
def choose_device(result: int, properties: int) -> None:
    put(result, ctypes.c_int32, 0)


@entry("cudaDeviceGetAttribute cuDeviceGetAttribute", ADDRESS, INT, INT)
def device_attribute(result: int, number: int, ordinal: int) -> None:
    only_device(ordinal)
    put(result, ctypes.c_int32, current().attribute(number))


@entry("cudaGetDeviceProperties", ADDRESS, INT)
def device_properties(result: int, ordinal: int) -> None:
    only_device(ordinal)
    if not result:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for the properties")
    found = filled(current().properties())
    ctypes.memmove(result, ctypes.addressof(found), ctypes.sizeof(found))


@entry("cuDeviceGet", ADDRESS, INT)
def get_device(result: int, ordinal: int) -> None:
    only_device(ordinal)
    put(result, ctypes.c_int32, 0)


@entry("cuDeviceGetName", ADDRESS, INT, INT)
def device_name(result: int, length: int, ordinal: int) -> None:
    only_device(ordinal)
    name = current().properties().name.encode()[: max(0, length - 1)] + b"\0"
    ctypes.memmove(result, name, len(name))


@entry("cudaDeviceGetPCIBusId", ADDRESS, INT, INT)
def bus_id(result: int, length: int, ordinal: int) -> None:
    only_device(ordinal)
    name = b"0000:00:00.0"[: max(0, length - 1)] + b"\0"
    ctypes.memmove(result, name, len(name))


@entry("cuDeviceTotalMem_v2", ADDRESS, INT)
def total_memory(result: int, ordinal: int) -> None:
    only_device(ordinal)
    put(result, ctypes.c_size_t, current().memory()[1])


@entry("cudaDeviceCanAccessPeer", ADDRESS, INT, INT)
def can_access_peer(result: int, ordinal: int, peer: int) -> None:
    put(result, ctypes.c_int32, 0)


@entry("cudaDeviceGetStreamPriorityRange", ADDRESS, ADDRESS)
def priorities(least: int, greatest: int) -> None:
    for result in (least, greatest):
        if result:
            put(result, ctypes.c_int32, 0)


@entry("cudaGetDeviceFlags", ADDRESS)
@entry("cudaDeviceGetCacheConfig", ADDRESS)
def zero(result: int) -> None:
    put(result, ctypes.c_int32, 0)


@entry("cudaDeviceGetLimit", ADDRESS, INT)
def limit(result: int, number: int) -> None:
    values = {0: 1024, 1: 1 << 20, _HEAP: device_heap.limit}  # stack, printf buffer
    if number not in values:
        raise status.Refused(status.NOT_SUPPORTED, f"limit {number} is not modelled")
    put(result, ctypes.c_size_t, values[number])


@entry("cudaDeviceSetLimit", INT, SIZE)
def set_limit(number: int, value: int) -> None:
    """Sets the heap's, for modules that no kernel has run of; others have no effect on results."""
    if number == _HEAP:
        device_heap.limit = value


@entry("cudaSetDeviceFlags cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig", INT)
@entry("cudaProfilerStart cudaProfilerStop cudaCtxResetPersistingL2Cache cuProfilerStart cuProfilerStop")
def nothing(*arguments: int) -> None:
    """Settings without effect on results."""


@entry("cudaDeviceReset", always=True)
def reset() -> None:
    status.reset()


@entry("cudaDriverGetVersion cudaRuntimeGetVersion cuDriverGetVersion", ADDRESS)
def version(result: int) -> None:
    put(result, ctypes.c_int32, CUDA_VERSION)


# Errors


@entry("cudaGetLastError", always=True)
def last_error() -> int:
    return status.take_last()


@entry("cudaPeekAtLastError", always=True)
def peek_error() -> int:
    return status.peek_last()


@entry("cudaGetErrorName", INT, always=True)
def error_name(code: int) -> int:
    return status.text_address(code, 0)


@entry("cudaGetErrorString", INT, always=True)
def error_text(code: int) -> int:
    return status.text_address(code, 2)


@entry("cuGetErrorName", INT, ADDRESS, always=True)
def driver_error_name(code: int, result: int) -> None:
    put(result, ctypes.c_size_t, status.text_address(code, 1))


@entry("cuGetErrorString", INT, ADDRESS, always=True)
def driver_error_text(code: int, result: int) -> None:
    put(result, ctypes.c_size_t, status.text_address(code, 2))


# Entry points by name


def _find(symbol: int, result: int, outcome: int) -> None:
    name = text(symbol)
    found = address_of_entry(modules.library, name)
    put(result, ctypes.c_size_t, found)
    if outcome:
        put(outcome, ctypes.c_int32, 0 if found else _SYMBOL_NOT_FOUND)
    if not found:
        print(f"the driver's entry point {name} is not modelled by the emulator", file=sys.stderr, flush=True)


@entry("cudaGetDriverEntryPoint", ADDRESS, ADDRESS, U64, ADDRESS)
def driver_entry_point(symbol: int, result: int, flags: int, outcome: int) -> None:
    _find(symbol, result, outcome)


@entry("cudaGetDriverEntryPointByVersion", ADDRESS, ADDRESS, UINT, U64, ADDRESS)
def driver_entry_point_by_version(symbol: int, result: int, wanted: int, flags: int, outcome: int) -> None:
    _find(symbol, result, outcome)


@entry("cuGetProcAddress_v2", ADDRESS, ADDRESS, INT, U64, ADDRESS)
def procedure_address(symbol: int, result: int, wanted: int, flags: int, outcome: int) -> int:
    _find(symbol, result, outcome)
    return status.SUCCESS if ctypes.c_size_t.from_address(result).value else status.NOT_FOUND


# Contexts: there is one.


@entry("cuInit", UINT)
@entry("cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxDestroy_v2", HANDLE)
@entry("cuDevicePrimaryCtxRelease_v2", INT)
def keep_context(*arguments: int) -> None:
    pass


@entry("cuCtxGetCurrent cuCtxPopCurrent_v2", ADDRESS)
@entry("cuDevicePrimaryCtxRetain", ADDRESS, INT)
@entry("cuCtxCreate_v2", ADDRESS, UINT, INT)
@entry("cuCtxCreate_v4", ADDRESS, ADDRESS, UINT, INT)
def context(result: int, *arguments: int) -> None:
    put(result, ctypes.c_size_t, 1)
