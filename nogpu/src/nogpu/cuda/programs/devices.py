"""Entry points for devices, versions and errors."""

from __future__ import annotations

import ctypes
import sys

from nogpu.cuda import device_heap, device_launches
from nogpu.cuda.backends import Emulated, current
from nogpu.cuda.bindings import CUDA_VERSION
from nogpu.cuda.programs import modules, status
from nogpu.cuda.programs.entries import (
    ADDRESS,
    DEVICE,
    HANDLE,
    INT,
    QUEUE,
    SIZE,
    U64,
    UINT,
    address_of_entry,
    constant,
    entry,
    ignored,
    put,
    store,
    text,
)
from nogpu.cuda.programs.properties import filled
from nogpu.errors import EmulatorError

_HEAP, _LAUNCHES = 2, 4  # cudaLimitMallocHeapSize, cudaLimitDevRuntimePendingLaunchCount
_BUS = "0000:00:00.0"  # domain, bus, device, function
_SYMBOL_NOT_FOUND = 1  # cudaDriverEntryPointQueryResult


constant("cudaGetDevice cuCtxGetDevice", 0, ADDRESS)
constant("cudaGetDeviceCount cuDeviceGetCount", 1, ADDRESS)
constant("cudaChooseDevice", 0, ADDRESS, ADDRESS)
constant("cuDeviceGet", 0, ADDRESS, DEVICE)
constant("cudaDeviceCanAccessPeer cuDeviceCanAccessPeer", 0, ADDRESS, INT, INT)
constant("cudaGetDeviceFlags cudaDeviceGetCacheConfig cuCtxGetFlags cuCtxGetCacheConfig", 0, ADDRESS)
constant("cudaDriverGetVersion cudaRuntimeGetVersion cuDriverGetVersion", CUDA_VERSION, ADDRESS)
ignored("cudaSetDevice", DEVICE)
ignored("cudaInitDevice", DEVICE, UINT, UINT)
ignored("cudaSetDeviceFlags cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig", INT)
ignored("cuCtxSetCacheConfig cuCtxSetFlags", INT)
ignored("cuCtxResetPersistingL2Cache")
ignored("cudaProfilerStart cudaProfilerStop cudaCtxResetPersistingL2Cache cuProfilerStart cuProfilerStop")


def emulated(what: str) -> Emulated:
    """The device. Raises Refused unless it is the emulated one."""
    device = current()
    if not isinstance(device, Emulated):
        raise status.Refused(status.NOT_SUPPORTED, f"{what}: modelled on the emulated B200, not on a Hopper GPU")
    return device


@entry("cudaDeviceGetAttribute cuDeviceGetAttribute", ADDRESS, INT, DEVICE)
def device_attribute(result: int, number: int, ordinal: int) -> None:
    try:
        value = current().attribute(number)
    except EmulatorError as error:
        raise status.Refused(status.INVALID_VALUE, error.reason) from None
    put(result, ctypes.c_int32, value)


@entry("cudaGetDeviceProperties", ADDRESS, DEVICE)
def device_properties(result: int, ordinal: int) -> None:
    store(result, filled(current().properties()))


def _put_text(result: int, length: int, text: str) -> None:
    """Store a C string, cut off to `length` bytes with its end."""
    cut = text.encode()[: max(0, length - 1)] + b"\0"
    ctypes.memmove(result, cut, len(cut))


@entry("cuDeviceGetName", ADDRESS, INT, DEVICE)
def device_name(result: int, length: int, ordinal: int) -> None:
    _put_text(result, length, current().properties().name)


@entry("cudaDeviceGetPCIBusId cuDeviceGetPCIBusId", ADDRESS, INT, DEVICE)
def bus_id(result: int, length: int, ordinal: int) -> None:
    _put_text(result, length, _BUS)


@entry("cudaDeviceGetByPCIBusId cuDeviceGetByPCIBusId", ADDRESS, ADDRESS)
def device_by_bus(result: int, bus: int) -> None:
    if text(bus) not in (_BUS, _BUS[5:], _BUS[5:-2]):
        raise status.Refused(status.INVALID_DEVICE, f"PCI bus {text(bus)}: the device is at {_BUS}")
    put(result, ctypes.c_int32, 0)


@entry("cuDeviceGetUuid_v2", ADDRESS, DEVICE)
def unique_number(result: int, ordinal: int) -> None:
    ctypes.memmove(result, bytes(16), 16)


@entry("cuDeviceComputeCapability", ADDRESS, ADDRESS, DEVICE)
def compute_capability(major: int, minor: int, ordinal: int) -> None:
    for result, value in zip((major, minor), current().properties().capability):
        put(result, ctypes.c_int32, value)


@entry("cudaDeviceEnablePeerAccess", INT, UINT)
@entry("cudaDeviceDisablePeerAccess", INT)
def peer_access(peer: int, flags: int = 0) -> None:
    raise status.Refused(status.INVALID_DEVICE, f"device {peer} is no peer of device 0: there is one device")


@entry("cuCtxEnablePeerAccess", HANDLE, UINT)
@entry("cuCtxDisablePeerAccess", HANDLE)
def peer_access_of_context(context: int, flags: int = 0) -> None:
    raise status.Refused(status.INVALID_CONTEXT, "a context of the device itself is no peer: there is one device")


constant("cudaDeviceGetP2PAttribute cuDeviceGetP2PAttribute", 0, ADDRESS, INT, INT, INT)


@entry("cuDeviceTotalMem_v2", ADDRESS, DEVICE)
def total_memory(result: int, ordinal: int) -> None:
    put(result, ctypes.c_size_t, current().memory()[1])


@entry("cudaDeviceGetStreamPriorityRange cuCtxGetStreamPriorityRange", ADDRESS, ADDRESS)
def priorities(least: int, greatest: int) -> None:
    for result in (least, greatest):
        if result:
            put(result, ctypes.c_int32, 0)


@entry("cudaDeviceGetLimit cuCtxGetLimit", ADDRESS, INT)
def limit(result: int, number: int) -> None:
    values = {0: 1024, 1: 1 << 20, _HEAP: device_heap.limit, _LAUNCHES: device_launches.limit}  # stack, printf buffer
    if number not in values:
        raise status.Refused(status.NOT_SUPPORTED, f"limit {number} is not modelled")
    put(result, ctypes.c_size_t, values[number])


@entry("cudaDeviceSetLimit cuCtxSetLimit", INT, SIZE)
def set_limit(number: int, value: int) -> None:
    """Sets the limit of the heap or of launches by kernels, for modules of which no kernel has run; other limits have
    no effect on results.
    """
    if number == _HEAP:
        device_heap.limit = value
    elif number == _LAUNCHES:
        device_launches.limit = value


@entry("cudaDeviceReset", always=True)
def reset() -> None:
    status.reset()


# Errors


entry("cudaGetLastError", always=True)(status.take_last)
entry("cudaPeekAtLastError", always=True)(status.peek_last)
entry("cudaGetErrorName", INT, always=True)(lambda code: status.text_address(code, 0))
entry("cudaGetErrorString", INT, always=True)(lambda code: status.text_address(code, 2))


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
@entry("cudaGetDriverEntryPointByVersion", ADDRESS, ADDRESS, UINT, U64, ADDRESS)
def driver_entry_point(symbol: int, result: int, *rest: int) -> None:
    _find(symbol, result, rest[-1])


@entry("cuGetProcAddress_v2", ADDRESS, ADDRESS, INT, U64, ADDRESS)
def procedure_address(symbol: int, result: int, wanted: int, flags: int, outcome: int) -> int:
    _find(symbol, result, outcome)
    return status.SUCCESS if ctypes.c_size_t.from_address(result).value else status.NOT_FOUND


# Contexts: there is one.


ignored("cuInit", UINT)
ignored("cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxDestroy_v2", HANDLE)
ignored("cuDevicePrimaryCtxRelease_v2", INT)
constant("cuCtxGetCurrent", 1, ADDRESS, kind=HANDLE)


@entry("cuCtxPopCurrent_v2", ADDRESS)
def pop_context(result: int) -> None:
    """The context stays: there is one. A null pointer asks for no handle."""
    if result:
        put(result, HANDLE, 1)


constant("cuDevicePrimaryCtxRetain", 1, ADDRESS, INT, kind=HANDLE)
ignored("cuDevicePrimaryCtxSetFlags_v2", INT, UINT)
constant("cuCtxGetApiVersion", CUDA_VERSION, HANDLE, ADDRESS, kind=UINT, place=1)
constant("cuCtxGetId", 1, HANDLE, ADDRESS, kind=U64, place=1)
constant("cuStreamGetCtx", 1, QUEUE, ADDRESS, kind=HANDLE, place=1)


@entry("cuDevicePrimaryCtxReset_v2", INT, always=True)
def reset_context(device: int) -> None:
    status.reset()


@entry("cuDevicePrimaryCtxGetState", INT, ADDRESS, ADDRESS)
def context_state(device: int, flags: int, is_active: int) -> None:
    put(flags, ctypes.c_uint32, 0)
    put(is_active, ctypes.c_int32, 1)


constant("cuCtxCreate_v2", 1, ADDRESS, UINT, INT, kind=HANDLE)
constant("cuCtxCreate_v4", 1, ADDRESS, ADDRESS, UINT, INT, kind=HANDLE)
