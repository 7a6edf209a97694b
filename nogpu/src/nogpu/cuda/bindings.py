"""cuda.bindings for the emulated device: the calls that programs make around their launches.

Covered: initialisation, device queries, the occupancy queries of the DSL's HardwareInfo, memory, events,
synchronisation and captured graphs (graph_bindings.py). Every other function of cuda.bindings still looks for a driver
and raises where there is none. Times of events are the host's clock (events.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, SupportsInt

from nogpu.cuda import events, graph_bindings, graphs, queues
from nogpu.cuda.backends import emulated, integer
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, run_pending
from nogpu.hardware.properties import DeviceProperties, ctas_per_sm, shared_per_cta

CUDA_VERSION = 13000  # version of the driver interface that the answers follow


def _fill_low_byte(pointer: SupportsInt, value: int, count: int, queue: int = queues.LEGACY) -> None:
    """Answers cudaMemset, whose value is an int of which the low byte counts."""
    emulated().fill(pointer, integer(value, "value", -(1 << 31), (1 << 31) - 1) & 0xFF, count, 1, queue)


def _filling(size: int) -> Callable[..., None]:
    """A function that answers cuMemsetD8, or its like for values of `size` bytes."""
    return lambda pointer, value, count, queue=queues.LEGACY: emulated().fill(pointer, value, count, size, queue)


def _queue(handle: object) -> int:
    """The handle of a queue, as an integer. Raises Fault for the handle of none."""
    number = integer(handle, "queue")
    queues.check(number)
    return number


def _event(handle: object) -> int:
    return integer(handle, "event")


def _create_queue(flags: object = 0) -> int:
    return queues.create(integer(flags, "flags"))


def _destroy_queue(queue: object) -> None:
    run_pending()
    queues.destroy(integer(queue, "queue"))


def _in_queue(function: Callable[..., None], kind: int) -> Callable[..., None]:
    """A function that takes the queue as its last argument, however many come before. kind: that of a graph's node."""

    def submit(*arguments: Any) -> None:
        queue = _queue(arguments[-1])
        graphs.submit(functools.partial(function, *arguments[:-1], queue=queue), queue, kind)

    return submit


def only_device(ordinal: object) -> int:
    """0, the only device. Raises Fault for another."""
    return integer(ordinal, "device", 0, 0)


def _record(event: object, queue: object = 0) -> None:
    emulated().record(_event(event), _queue(queue))


def _nothing(*arguments: object) -> None:
    pass


def _synchronize(*arguments: object) -> None:
    emulated().synchronize()


_NOT_READY = 600


def _query_event(event: object) -> int | None:
    """None once the event is over, else the code that says that it is not."""
    return None if emulated().is_over(event=_event(event)) else _NOT_READY


def _of_queues(module: ModuleType, prefix: str) -> dict[str, Callable[..., Any]]:
    """The functions of queues, events and graphs that the driver ("cu") and the runtime ("cuda") have alike."""
    functions: dict[str, Callable[..., Any]] = {
        "StreamDestroy": _destroy_queue,
        "StreamSynchronize": lambda queue: emulated().synchronize(_queue(queue)),
        "StreamWaitEvent": lambda queue, event, flags=0: emulated().wait(_queue(queue), _event(event)),
        "EventRecord": _record,
        "EventSynchronize": lambda event: emulated().synchronize(event=_event(event)),
        "EventQuery": _query_event,
        "EventElapsedTime": lambda start, end: events.milliseconds(_event(start), _event(end)),
        "EventDestroy": lambda event: events.destroy(_event(event)),
    }
    functions |= graph_bindings.functions(module, prefix == "cu", _queue)
    return {prefix + name: function for name, function in functions.items()}


def _replace(module: ModuleType, success: Any, functions: dict[str, Callable[..., Any]]) -> None:
    """Give a module of cuda.bindings functions in its convention: they return a tuple of the status and the result, or
    the results, if there are any. Where CUDA returns another status they raise EmulatorError, which says what is wrong.
    """

    def answering(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
            try:
                result = function(*arguments, **keywords)
            except Fault as fault:
                raise EmulatorError(f"{name}: {fault.reason}") from None
            if function is _query_event and result is not None:
                return (type(success)(result),)
            results = result if isinstance(result, tuple) else () if result is None else (result,)
            return success, *results

        return answer

    for name, function in functions.items():
        setattr(module, name, answering(name, function))


def max_active_clusters(threads: int, shared_bytes: int, size: int) -> int:
    """Clusters of `size` CTAs that fit at once if any SMs can form one; a B200's GPCs may hold fewer."""
    properties = _properties()
    return properties.sm_count * ctas_per_sm(threads, shared_bytes, properties) // size


def _max_active_clusters(kernel: object, config: Any) -> int:
    """The result of `max_active_clusters` for a CUlaunchConfig."""
    if not hasattr(config, "blockDimX"):
        raise Fault(f"config {config!r}: a CUlaunchConfig is expected")
    threads = _threads(config.blockDimX * config.blockDimY * config.blockDimZ)
    shape = [a.value.clusterDim for a in config.attrs if int(a.id) == 4]  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    return max_active_clusters(threads, config.sharedMemBytes, shape[0].x * shape[0].y * shape[0].z if shape else 1)


def _threads(count: object) -> int:
    return integer(count, "threads", 1, Device.current().properties.max_threads_per_block)


def _available_shared(count: object) -> int:
    """Bytes of dynamic shared memory for each CTA where `count` of them share an SM."""
    properties = _properties()
    return shared_per_cta(integer(count, "blocks", 1, properties.max_blocks_per_sm), properties)


def _properties() -> DeviceProperties:
    return Device.current().properties


def install_driver() -> None:
    """Replace the covered functions of cuda.bindings.driver."""
    import cuda.bindings.driver as driver

    device = emulated()
    functions: dict[str, Callable[..., Any]] = {
        "cuInit": lambda flags: None,
        "cuDriverGetVersion": lambda: CUDA_VERSION,
        "cuDeviceGetCount": lambda: 1,
        "cuDeviceGet": lambda ordinal: driver.CUdevice(only_device(ordinal)),
        "cuDeviceGetAttribute": lambda number, _: device.attribute(number),
        "cuDeviceGetName": lambda length, _: _properties().name.encode()[: integer(length, "length", 1) - 1] + b"\0",
        "cuDeviceTotalMem": lambda _: _properties().total_memory,
        "cuCtxCreate": lambda *arguments: driver.CUcontext(1),
        "cuCtxDestroy": _synchronize,
        "cuCtxGetCurrent": lambda: driver.CUcontext(1),
        "cuCtxSetCurrent": _nothing,
        "cuCtxGetDevice": lambda: driver.CUdevice(0),
        "cuCtxSynchronize": _synchronize,
        "cuDevicePrimaryCtxRetain": lambda _: driver.CUcontext(1),
        "cuDevicePrimaryCtxRelease": _nothing,
        "cuStreamCreate": lambda flags: driver.CUstream(_create_queue(flags)),
        "cuEventCreate": lambda flags=0: driver.CUevent(events.create()),
        "cuMemAlloc": lambda nbytes: driver.CUdeviceptr(device.allocate(nbytes)),
        "cuMemFree": device.free,
        "cuMemsetD8": _filling(1),
        "cuMemsetD8Async": _in_queue(_filling(1), graphs.FILL),
        "cuMemsetD32": _filling(4),
        "cuMemsetD32Async": _in_queue(_filling(4), graphs.FILL),
        # A library from here serves HardwareInfo's occupancy queries only: cubins hold no PTX to run.
        "cuLibraryLoadData": lambda *arguments: driver.CUlibrary(1),
        "cuLibraryEnumerateKernels": lambda count, library: [driver.CUkernel(1)],
        "cuLibraryUnload": _nothing,
        "cuKernelGetFunction": lambda kernel: driver.CUfunction(1),
        "cuFuncSetAttribute": _nothing,
        "cuOccupancyAvailableDynamicSMemPerBlock": lambda function, blocks, threads: _available_shared(blocks),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: ctas_per_sm(
            _threads(threads), integer(shared, "shared memory"), _properties()
        ),
        "cuOccupancyMaxActiveClusters": _max_active_clusters,
    }
    _replace(driver, driver.CUresult.CUDA_SUCCESS, {**functions, **_of_queues(driver, "cu")})


def install_runtime() -> None:
    """Replace the covered functions of cuda.bindings.runtime."""
    import cuda.bindings.runtime as runtime

    device = emulated()
    functions: dict[str, Callable[..., Any]] = {
        "cudaGetDeviceCount": lambda: 1,
        "cudaGetDevice": lambda: 0,
        "cudaSetDevice": lambda ordinal: _nothing(only_device(ordinal)),
        "cudaDriverGetVersion": lambda: CUDA_VERSION,
        "cudaRuntimeGetVersion": lambda: CUDA_VERSION,
        "cudaDeviceGetAttribute": lambda number, _: device.attribute(number),
        "cudaDeviceSynchronize": _synchronize,
        "cudaStreamCreate": lambda: runtime.cudaStream_t(queues.create()),
        "cudaStreamCreateWithFlags": lambda flags: runtime.cudaStream_t(_create_queue(flags)),
        "cudaEventCreate": lambda: runtime.cudaEvent_t(events.create()),
        "cudaEventCreateWithFlags": lambda flags: runtime.cudaEvent_t(events.create()),
        "cudaMalloc": lambda nbytes: 0 if nbytes == 0 else device.allocate(nbytes),
        "cudaFree": device.free,
        "cudaMemset": _fill_low_byte,
        "cudaMemsetAsync": _in_queue(_fill_low_byte, graphs.FILL),
        "cudaMemcpy": device.copy,
        "cudaMemcpyAsync": _in_queue(device.copy, graphs.COPY),
        "cudaLibraryUnload": _nothing,
        "cudaGetLastError": lambda: None,
    }
    _replace(runtime, runtime.cudaError_t.cudaSuccess, {**functions, **_of_queues(runtime, "cuda")})
