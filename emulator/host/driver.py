"""cuda.bindings for the emulated device: the calls that programs make around their launches.

Covered: initialisation, device queries, the occupancy queries of the DSL's HardwareInfo, memory, events and
synchronisation. Every other function of cuda.bindings still looks for a driver and raises where there is none. Times of
events are the host's clock (events.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, SupportsInt

import numpy as np

from emulator.execution.device import Device
from emulator.hardware.properties import DeviceProperties, ctas_per_sm
from emulator.host import events

ALIGNMENT = 512  # bytes, of device allocations
CUDA_VERSION = 13000  # of the driver interface that the answers follow

# by number of CUdevice_attribute, which cudaDeviceAttr shares
ATTRIBUTES: dict[int, Callable[[DeviceProperties], int]] = {
    1: lambda p: p.max_threads_per_block,
    2: lambda p: p.max_block[0],
    3: lambda p: p.max_block[1],
    4: lambda p: p.max_block[2],
    5: lambda p: p.max_grid[0],
    6: lambda p: p.max_grid[1],
    7: lambda p: p.max_grid[2],
    8: lambda p: p.shared_memory_per_block,
    10: lambda p: p.warp_size,
    12: lambda p: p.registers_per_block,
    16: lambda p: p.sm_count,
    18: lambda p: 0,  # integrated
    31: lambda p: 1,  # concurrent kernels
    36: lambda p: p.memory_clock_rate,
    37: lambda p: p.memory_bus_width,
    38: lambda p: p.l2_bytes,
    39: lambda p: p.max_threads_per_sm,
    41: lambda p: 1,  # unified addressing
    75: lambda p: p.capability[0],
    76: lambda p: p.capability[1],
    81: lambda p: p.shared_memory_per_sm,
    82: lambda p: p.registers_per_sm,
    95: lambda p: 1,  # cooperative launch
    97: lambda p: p.shared_memory_per_block_optin,
    106: lambda p: p.max_blocks_per_sm,
    111: lambda p: p.shared_memory_reserved_per_block,
    120: lambda p: 1,  # cluster launch
}


def attribute(number: int) -> int:
    """Value of a CUdevice_attribute. NotImplementedError with the number for one that is not modelled."""
    answer = ATTRIBUTES.get(int(number))
    if answer is None:
        raise NotImplementedError(f"device attribute {number!r} is not modelled")
    return answer(Device.current().properties)


_buffers: dict[int, np.ndarray] = {}


def _allocate(nbytes: int) -> int:
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    address = buffer.ctypes.data + -buffer.ctypes.data % ALIGNMENT
    Device.current().memory.register(address, nbytes, f"cuMemAlloc({nbytes})")
    _buffers[address] = buffer
    return address


def _free(pointer: SupportsInt) -> None:
    _synchronize()
    Device.current().memory.release(int(pointer))
    del _buffers[int(pointer)]


def _fill(pointer: SupportsInt, value: int, count: int, dtype: type) -> None:
    """Store `count` values of a NumPy type."""
    _synchronize()
    words = Device.current().memory.at(int(pointer), count * np.dtype(dtype).itemsize, "store")
    first = int(pointer) - words.start
    words.data[first : first + count * np.dtype(dtype).itemsize].view(dtype)[:] = value


def _copy(target: SupportsInt, source: SupportsInt, count: int, kind: object) -> None:
    _synchronize()
    ctypes.memmove(int(target), int(source), count)


def _record(event: SupportsInt) -> None:
    _synchronize()
    events.record(int(event))


def _nothing(*arguments: object) -> None:
    pass


def _synchronize(*arguments: object) -> None:
    Device.current().synchronize()


def _answers(success: object, functions: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., tuple[Any, ...]]]:
    """Functions in cuda.bindings' convention: they return a tuple of the status and the result, if there is one."""

    def wrap(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        def answer(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
            result = function(*arguments, **keywords)
            return (success,) if result is None else (success, result)

        return answer

    return {name: wrap(function) for name, function in functions.items()}


def _max_active_clusters(kernel: object, config: Any) -> int:
    """Clusters of a CUlaunchConfig that fit at once if any SMs can form one; a B200's GPCs may hold fewer."""
    properties = Device.current().properties
    threads = config.blockDimX * config.blockDimY * config.blockDimZ
    shape = [a.value.clusterDim for a in config.attrs if int(a.id) == 4]  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size = shape[0].x * shape[0].y * shape[0].z if shape else 1
    return properties.sm_count * ctas_per_sm(threads, config.sharedMemBytes, properties) // size


def install_driver() -> None:
    """Replace the covered functions of cuda.bindings.driver."""
    import cuda.bindings.driver as driver

    def properties() -> DeviceProperties:
        return Device.current().properties

    functions: dict[str, Callable[..., Any]] = {
        "cuInit": lambda flags: None,
        "cuDriverGetVersion": lambda: CUDA_VERSION,
        "cuDeviceGetCount": lambda: 1,
        "cuDeviceGet": lambda ordinal: driver.CUdevice(ordinal),
        "cuDeviceGetAttribute": lambda number, device: attribute(number),
        "cuDeviceGetName": lambda length, device: properties().name.encode()[: length - 1] + b"\0",
        "cuDeviceTotalMem": lambda device: properties().total_memory,
        "cuCtxCreate": lambda *arguments: driver.CUcontext(1),
        "cuCtxDestroy": _synchronize,
        "cuCtxGetCurrent": lambda: driver.CUcontext(1),
        "cuCtxSetCurrent": _nothing,
        "cuCtxGetDevice": lambda: driver.CUdevice(0),
        "cuCtxSynchronize": _synchronize,
        "cuDevicePrimaryCtxRetain": lambda device: driver.CUcontext(1),
        "cuDevicePrimaryCtxRelease": _nothing,
        "cuStreamCreate": lambda flags: driver.CUstream(0),
        "cuStreamDestroy": _synchronize,
        "cuStreamSynchronize": _synchronize,
        "cuStreamWaitEvent": _nothing,
        "cuEventCreate": lambda flags=0: driver.CUevent(events.create()),
        "cuEventRecord": lambda event, queue=None: _record(event),
        "cuEventSynchronize": _synchronize,
        "cuEventQuery": _synchronize,
        "cuEventElapsedTime": lambda start, end: events.milliseconds(int(start), int(end)),
        "cuEventDestroy": lambda event: events.destroy(int(event)),
        "cuMemAlloc": lambda nbytes: driver.CUdeviceptr(_allocate(int(nbytes))),
        "cuMemFree": _free,
        "cuMemsetD8": lambda pointer, value, count: _fill(pointer, value, count, np.uint8),
        "cuMemsetD8Async": lambda pointer, value, count, queue: _fill(pointer, value, count, np.uint8),
        "cuMemsetD32": lambda pointer, value, count: _fill(pointer, value, count, np.uint32),
        "cuMemsetD32Async": lambda pointer, value, count, queue: _fill(pointer, value, count, np.uint32),
        # A library from here serves HardwareInfo's occupancy queries only: cubins hold no PTX to run.
        "cuLibraryLoadData": lambda *arguments: driver.CUlibrary(1),
        "cuLibraryEnumerateKernels": lambda count, library: [driver.CUkernel(1)],
        "cuLibraryUnload": _nothing,
        "cuKernelGetFunction": lambda kernel: driver.CUfunction(1),
        "cuFuncSetAttribute": _nothing,
        "cuOccupancyAvailableDynamicSMemPerBlock": lambda function, blocks, threads: min(
            properties().shared_memory_per_block_optin,
            properties().shared_memory_per_sm // blocks - properties().shared_memory_reserved_per_block,
        ),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: ctas_per_sm(
            threads, shared, properties()
        ),
        "cuOccupancyMaxActiveClusters": _max_active_clusters,
    }
    for name, answer in _answers(driver.CUresult.CUDA_SUCCESS, functions).items():
        setattr(driver, name, answer)


def install_runtime() -> None:
    """Replace the covered functions of cuda.bindings.runtime."""
    import cuda.bindings.runtime as runtime

    functions: dict[str, Callable[..., Any]] = {
        "cudaGetDeviceCount": lambda: 1,
        "cudaGetDevice": lambda: 0,
        "cudaSetDevice": _nothing,
        "cudaDriverGetVersion": lambda: CUDA_VERSION,
        "cudaRuntimeGetVersion": lambda: CUDA_VERSION,
        "cudaDeviceGetAttribute": lambda number, device: attribute(number),
        "cudaDeviceSynchronize": _synchronize,
        "cudaStreamSynchronize": _synchronize,
        "cudaStreamCreate": lambda: runtime.cudaStream_t(0),
        "cudaStreamDestroy": _synchronize,
        "cudaEventCreate": lambda: runtime.cudaEvent_t(events.create()),
        "cudaEventCreateWithFlags": lambda flags: runtime.cudaEvent_t(events.create()),
        "cudaEventRecord": lambda event, queue=None: _record(event),
        "cudaEventSynchronize": _synchronize,
        "cudaEventQuery": _synchronize,
        "cudaEventElapsedTime": lambda start, end: events.milliseconds(int(start), int(end)),
        "cudaEventDestroy": lambda event: events.destroy(int(event)),
        "cudaMalloc": lambda nbytes: _allocate(int(nbytes)),
        "cudaFree": _free,
        "cudaMemset": lambda pointer, value, count: _fill(pointer, value, count, np.uint8),
        "cudaMemsetAsync": lambda pointer, value, count, queue: _fill(pointer, value, count, np.uint8),
        "cudaMemcpy": _copy,
        "cudaLibraryUnload": _nothing,
        "cudaGetLastError": lambda: None,
    }
    for name, answer in _answers(runtime.cudaError_t.cudaSuccess, functions).items():
        setattr(runtime, name, answer)
