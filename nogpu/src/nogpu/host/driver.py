"""cuda.bindings for the emulated device: the calls that programs make around their launches.

Covered: initialisation, device queries, the occupancy queries of the DSL's HardwareInfo, memory, events and
synchronisation. Every other function of cuda.bindings still looks for a driver and raises where there is none. Times of
events are the host's clock (events.py).
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, SupportsInt

import numpy as np

from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, run_pending
from nogpu.hardware.allocations import NULL_PAGE
from nogpu.hardware.properties import DeviceProperties, ctas_per_sm
from nogpu.hardware.words import misaligned
from nogpu.host import events, queues

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
    """Value of a CUdevice_attribute. Raises EmulatorError with the number for one that is not modelled."""
    answer = ATTRIBUTES.get(number) if isinstance(number, int) else None
    if answer is None:
        raise EmulatorError(f"device attribute {number!r} is not modelled")
    return answer(Device.current().properties)


_buffers: dict[int, np.ndarray] = {}
_COPY_KINDS = ((False, False), (False, True), (True, False), (True, True), (False, False))
"""cudaMemcpyKind -> whether (source, destination) are device memory; the last one leaves it to the addresses."""


_WITHIN_DEVICE = 3  # cudaMemcpyDeviceToDevice


def _integer(value: Any, what: str, low: int = 0, high: int = (1 << 64) - 1) -> int:
    """An integer or a handle of cuda.bindings. Raises Fault unless it is within the limits."""
    try:
        number = int(value) if hasattr(value, "getPtr") else operator.index(value)
    except TypeError:
        raise Fault(f"{what} {value!r}: an integer is expected") from None
    if not low <= number <= high:
        raise Fault(f"{what} {number}: must be {low} to {high}")
    return number


def allocate(size: object) -> int:
    """The address of so many bytes of device memory. Raises Fault."""
    nbytes = _integer(size, "size", 1, Device.current().properties.total_memory)
    try:
        buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    except MemoryError:
        raise Fault(f"size {nbytes}: this machine has not that much memory") from None
    address = buffer.ctypes.data + -buffer.ctypes.data % ALIGNMENT
    Device.current().memory.register(address, nbytes, f"cuMemAlloc({nbytes})")
    Device.current().leave_unwritten(address, nbytes)
    _buffers[address] = buffer
    return address


def free(pointer: SupportsInt, queue: int | None = None) -> None:
    """Frees an allocation; a null pointer is none. The host waits for the device, or (queue) it is work of a queue."""
    run_pending()
    address = _integer(pointer, "pointer")
    if address and address not in _buffers:
        raise Fault(f"pointer {address:#x}: no allocation of this interface starts there, or it is free already")
    if queue is None:
        queues.waited()
    elif address:
        queues.accessed(queue, "the release", writes=[queues.run_of(address, _buffers[address].nbytes - ALIGNMENT)])
    if address:
        Device.current().memory.release(address)
        del _buffers[address]


def fill(pointer: SupportsInt, value: int, count: int, dtype: type, queue: int = queues.LEGACY) -> None:
    """Store `count` values of a NumPy type, as work of a queue."""
    run_pending()
    address, size = _integer(pointer, "pointer"), np.dtype(dtype).itemsize
    nbytes = size * _integer(count, "count")
    filler = _integer(value, "value", 0, (1 << 8 * size) - 1)
    if address % size:
        raise misaligned("fill", address, size)
    if nbytes:
        words = Device.current().memory.at(address, nbytes, "store")
        queues.accessed(queue, "a fill", writes=[queues.run_of(address, nbytes)])
        words.data[address - words.start :][:nbytes].view(dtype)[:] = filler


def _fill_low_byte(pointer: SupportsInt, value: int, count: int, queue: int = queues.LEGACY) -> None:
    """cudaMemset: the value is an int, of which the low byte counts."""
    fill(pointer, _integer(value, "value", -(1 << 31), (1 << 31) - 1) & 0xFF, count, np.uint8, queue)


def copy(target: SupportsInt, source: SupportsInt, count: int, kind: object, queue: int | None = None) -> None:
    """cudaMemcpy, or (queue) cudaMemcpyAsync. Device addresses are checked; host addresses must be good, as on any
    machine.

    The host waits for copies from and to its memory, asynchronous ones to pageable memory among them (CUDA Runtime API,
    "API synchronization behavior").
    """
    run_pending()
    nbytes, number = _integer(count, "count"), _integer(kind, "cudaMemcpyKind", 0, len(_COPY_KINDS) - 1)
    memory = Device.current().memory
    sides = ((_integer(source, "source"), "load"), (_integer(target, "destination"), "store"))
    for (address, access), on_device in zip(sides, _COPY_KINDS[number]):
        if nbytes and on_device:
            memory.at(address, nbytes, access)
        elif nbytes and address < NULL_PAGE:
            raise Fault(f"{access} of {nbytes} bytes at {address:#x}: null pointer")
    of = queues.LEGACY if queue is None else queue
    queues.accessed(of, "a copy", *([queues.run_of(address, nbytes)] for address, _ in sides))
    if memory.allocation(sides[1][0]) is None or (queue is None and number != _WITHIN_DEVICE):
        queues.waited(of)
    ctypes.memmove(sides[1][0], sides[0][0], nbytes)


def _check_queue(queue: object) -> None:
    queues.check(_integer(queue, "queue"))


def _synchronize_queue(queue: object) -> None:
    _check_queue(queue)
    run_pending()
    queues.waited(_integer(queue, "queue"))


def _synchronize_event(event: object) -> None:
    run_pending()
    events.waited(_integer(event, "event"))


def _wait_in_queue(queue: object, event: object, flags: object = 0) -> None:
    _check_queue(queue)
    events.wait(_integer(queue, "queue"), _integer(event, "event"))


def _create_queue(flags: object = 0) -> int:
    return queues.create(_integer(flags, "flags"))


def _destroy_queue(queue: object) -> None:
    run_pending()
    queues.destroy(_integer(queue, "queue"))


def _in_queue(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a queue for its last argument."""

    def checked(*arguments: Any) -> Any:
        _check_queue(arguments[-1])
        return function(*arguments[:-1], queue=_integer(arguments[-1], "queue"))

    return checked


def _record(event: SupportsInt, queue: object = 0) -> None:
    _check_queue(queue)
    run_pending()
    events.record(_integer(event, "event"), _integer(queue, "queue"))


def _elapsed(start: SupportsInt, end: SupportsInt) -> float:
    try:
        return events.milliseconds(_integer(start, "event"), _integer(end, "event"))
    except KeyError as missing:
        raise Fault(f"event {missing} has not been recorded") from None


def only_device(ordinal: object) -> int:
    """0, the only device. Raises Fault for another."""
    return _integer(ordinal, "device", 0, 0)


def _nothing(*arguments: object) -> None:
    pass


def _synchronize(*arguments: object) -> None:
    Device.current().synchronize()
    queues.waited()


def _answers(success: object, functions: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., tuple[Any, ...]]]:
    """Functions in cuda.bindings' convention: they return a tuple of the status and the result, if there is one.

    Instead of another status they raise EmulatorError, which says what is wrong.
    """

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        def answer(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
            try:
                result = function(*arguments, **keywords)
            except Fault as fault:
                raise EmulatorError(f"{name}: {fault.reason}") from None
            return (success,) if result is None else (success, result)

        return answer

    return {name: wrap(name, function) for name, function in functions.items()}


def max_active_clusters(threads: int, shared_bytes: int, size: int) -> int:
    """Clusters of `size` CTAs that fit at once if any SMs can form one; a B200's GPCs may hold fewer."""
    properties = Device.current().properties
    return properties.sm_count * ctas_per_sm(threads, shared_bytes, properties) // size


def _max_active_clusters(kernel: object, config: Any) -> int:
    """max_active_clusters of a CUlaunchConfig."""
    if not hasattr(config, "blockDimX"):
        raise Fault(f"config {config!r}: a CUlaunchConfig is expected")
    threads = _threads(config.blockDimX * config.blockDimY * config.blockDimZ)
    shape = [a.value.clusterDim for a in config.attrs if int(a.id) == 4]  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    return max_active_clusters(threads, config.sharedMemBytes, shape[0].x * shape[0].y * shape[0].z if shape else 1)


def _threads(count: object) -> int:
    return _integer(count, "threads", 1, Device.current().properties.max_threads_per_block)


def _available_shared(count: object) -> int:
    """Bytes of dynamic shared memory for each of so many CTAs of an SM."""
    properties = Device.current().properties
    per_cta = properties.shared_memory_per_sm // _integer(count, "blocks", 1, properties.max_blocks_per_sm)
    return min(properties.shared_memory_per_block_optin, per_cta - properties.shared_memory_reserved_per_block)


def install_driver() -> None:
    """Replace the covered functions of cuda.bindings.driver."""
    import cuda.bindings.driver as driver

    def properties() -> DeviceProperties:
        return Device.current().properties

    functions: dict[str, Callable[..., Any]] = {
        "cuInit": lambda flags: None,
        "cuDriverGetVersion": lambda: CUDA_VERSION,
        "cuDeviceGetCount": lambda: 1,
        "cuDeviceGet": lambda ordinal: driver.CUdevice(only_device(ordinal)),
        "cuDeviceGetAttribute": lambda number, device: attribute(number),
        "cuDeviceGetName": lambda length, device: (
            properties().name.encode()[: _integer(length, "length", 1) - 1] + b"\0"
        ),
        "cuDeviceTotalMem": lambda device: properties().total_memory,
        "cuCtxCreate": lambda *arguments: driver.CUcontext(1),
        "cuCtxDestroy": _synchronize,
        "cuCtxGetCurrent": lambda: driver.CUcontext(1),
        "cuCtxSetCurrent": _nothing,
        "cuCtxGetDevice": lambda: driver.CUdevice(0),
        "cuCtxSynchronize": _synchronize,
        "cuDevicePrimaryCtxRetain": lambda device: driver.CUcontext(1),
        "cuDevicePrimaryCtxRelease": _nothing,
        "cuStreamCreate": lambda flags: driver.CUstream(_create_queue(flags)),
        "cuStreamDestroy": _destroy_queue,
        "cuStreamSynchronize": _synchronize_queue,
        "cuStreamWaitEvent": _wait_in_queue,
        "cuEventCreate": lambda flags=0: driver.CUevent(events.create()),
        "cuEventRecord": _record,
        "cuEventSynchronize": _synchronize_event,
        "cuEventQuery": _synchronize_event,
        "cuEventElapsedTime": _elapsed,
        "cuEventDestroy": lambda event: events.destroy(_integer(event, "event")),
        "cuMemAlloc": lambda nbytes: driver.CUdeviceptr(allocate(nbytes)),
        "cuMemFree": free,
        "cuMemsetD8": lambda pointer, value, count: fill(pointer, value, count, np.uint8),
        "cuMemsetD8Async": _in_queue(lambda pointer, value, count, queue: fill(pointer, value, count, np.uint8, queue)),
        "cuMemsetD32": lambda pointer, value, count: fill(pointer, value, count, np.uint32),
        "cuMemsetD32Async": _in_queue(
            lambda pointer, value, count, queue: fill(pointer, value, count, np.uint32, queue)
        ),
        # A library from here serves HardwareInfo's occupancy queries only: cubins hold no PTX to run.
        "cuLibraryLoadData": lambda *arguments: driver.CUlibrary(1),
        "cuLibraryEnumerateKernels": lambda count, library: [driver.CUkernel(1)],
        "cuLibraryUnload": _nothing,
        "cuKernelGetFunction": lambda kernel: driver.CUfunction(1),
        "cuFuncSetAttribute": _nothing,
        "cuOccupancyAvailableDynamicSMemPerBlock": lambda function, blocks, threads: _available_shared(blocks),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: ctas_per_sm(
            _threads(threads), _integer(shared, "shared memory"), properties()
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
        "cudaSetDevice": lambda ordinal: _nothing(only_device(ordinal)),
        "cudaDriverGetVersion": lambda: CUDA_VERSION,
        "cudaRuntimeGetVersion": lambda: CUDA_VERSION,
        "cudaDeviceGetAttribute": lambda number, device: attribute(number),
        "cudaDeviceSynchronize": _synchronize,
        "cudaStreamSynchronize": _synchronize_queue,
        "cudaStreamCreate": lambda: runtime.cudaStream_t(queues.create()),
        "cudaStreamCreateWithFlags": lambda flags: runtime.cudaStream_t(_create_queue(flags)),
        "cudaStreamWaitEvent": _wait_in_queue,
        "cudaStreamDestroy": _destroy_queue,
        "cudaEventCreate": lambda: runtime.cudaEvent_t(events.create()),
        "cudaEventCreateWithFlags": lambda flags: runtime.cudaEvent_t(events.create()),
        "cudaEventRecord": _record,
        "cudaEventSynchronize": _synchronize_event,
        "cudaEventQuery": _synchronize_event,
        "cudaEventElapsedTime": _elapsed,
        "cudaEventDestroy": lambda event: events.destroy(_integer(event, "event")),
        "cudaMalloc": lambda nbytes: 0 if nbytes == 0 else allocate(nbytes),
        "cudaFree": free,
        "cudaMemset": lambda pointer, value, count: _fill_low_byte(pointer, value, count),
        "cudaMemsetAsync": _in_queue(_fill_low_byte),
        "cudaMemcpy": copy,
        "cudaMemcpyAsync": _in_queue(copy),
        "cudaLibraryUnload": _nothing,
        "cudaGetLastError": lambda: None,
    }
    for name, answer in _answers(runtime.cudaError_t.cudaSuccess, functions).items():
        setattr(runtime, name, answer)
