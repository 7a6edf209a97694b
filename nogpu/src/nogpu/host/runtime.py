"""The runtime library of CuTe DSL's host code: it loads libraries, gives kernels their attributes and launches them.

The host code of a compiled function (grid, cluster, shared memory, tensor maps, parameters) runs as compiled. It calls
shim.c, which calls the functions here; `_launch` hands the kernel to the device. The code image that the host code
loads holds no PTX, so the PTX of the compilation is kept: `loading` names the compiled function that a new library
handle stands for. Entry names repeat between compilations; handles do not. Where NOGPU is "hopper", launches go to
nogpu.hopper.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nogpu import headers, toolchain
from nogpu.compiler import stored
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device, LaunchConfig
from nogpu.hardware.tma.encode import encode_tiled
from nogpu.host import driver, events, graphs, queues
from nogpu.ptx.ir import Entry, Module

if TYPE_CHECKING:
    from nogpu.hopper.launch import Hopper

    Pointer = ctypes._Pointer[ctypes.c_void_p]

SUCCESS, LAUNCH_FAILURE = 0, 719  # cudaError_t
# cudaFuncAttribute
MAX_DYNAMIC_SHARED_BYTES, SHARED_CARVEOUT, NONPORTABLE_CLUSTER = 8, 9, 14
_LONGS, _WORDS = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)


@headers.mirrors("host/shim.c")
class Launch(ctypes.Structure):
    """A launch that the host code has asked for."""


@headers.mirrors("host/shim.c", dims=_LONGS, strides=_LONGS, box=_WORDS, element_strides=_WORDS)
class TensorMapArguments(ctypes.Structure):
    """The arguments of cuTensorMapEncodeTiled."""


@dataclass
class Kernel:
    """The kernel that a handle of the host code stands for."""

    name: str
    ptx: str
    nonportable_cluster: bool = False

    @functools.cached_property
    def entry(self) -> Entry:
        return module(self.ptx).entries[self.name]


@functools.cache
def module(ptx: str) -> Module:
    """The parsed PTX. The same text gives the same object: the device keeps one translation per object."""
    return stored.module(ptx)


class _State(threading.local):
    """The state of a thread's call into host code."""

    compiled: object = None  # the function whose library the host code loads
    failure: BaseException | None = None  # the first exception in a callback


_state = _State()
_handles = itertools.count(1)
_libraries: dict[int, str] = {}
_kernels: dict[int, Kernel] = {}


@contextlib.contextmanager
def loading(compiled: object) -> Iterator[None]:
    """Within the context, a library that the host code loads holds the PTX of `compiled`."""
    before, _state.compiled = _state.compiled, compiled
    try:
        yield
    finally:
        _state.compiled = before


def _raise_failure() -> None:
    """Raise the exception that a callback has caught; exceptions cannot pass through the host code."""
    failure, _state.failure = _state.failure, None
    if isinstance(failure, EmulatorError):
        # The error names the place in the kernel; the place in the emulator helps nobody.
        raise failure.with_traceback(None) from None
    if failure is not None:
        raise failure


def raising(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls host code, as one that raises the exceptions of the callbacks."""

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        _state.failure = None
        try:
            result = original(*args, **kwargs)
        except Exception:
            # After a failure in a callback, this is only the DSL's report that the call has failed.
            if _state.failure is None:
                raise
            result = None
        _raise_failure()
        return result

    return method


def _callback(function: Callable[..., int]) -> Callable[..., int]:
    """A function for C: exceptions are kept for `raising`, and become an error code."""

    @functools.wraps(function)
    def guarded(*arguments: Any) -> int:
        if _state.failure is not None:  # the host code continues after an error, but the call has failed
            return LAUNCH_FAILURE
        try:
            return function(*arguments)
        except BaseException as failure:  # raised again when the host code has returned
            _state.failure = failure
            return LAUNCH_FAILURE

    return guarded


def _load(library: Pointer) -> int:
    artifacts = getattr(_state.compiled, "artifacts", None)
    if artifacts is None or artifacts.PTX is None:
        raise EmulatorError(
            "the code to load has no PTX: the emulator runs functions that were compiled in this process, not object "
            "files or cubins"
        )
    library[0] = handle = next(_handles)
    _libraries[handle] = artifacts.PTX
    return SUCCESS


def _get_kernel(kernel: Pointer, library: int, name: bytes) -> int:
    ptx = _libraries[library]
    if name.decode() not in module(ptx).entries:
        raise EmulatorError(
            f"the compiled function's PTX has no entry of this name: {', '.join(module(ptx).entries)}",
            kernel=name.decode(),
        )
    kernel[0] = handle = next(_handles)
    _kernels[handle] = Kernel(name.decode(), ptx)
    return SUCCESS


def _hopper() -> Hopper | None:
    """The Hopper GPU if this process's launches go to one, else None."""
    if os.environ.get("NOGPU") != "hopper":
        return None
    from nogpu.hopper import launch  # needs the driver, and torch with CUDA

    return launch.current()


def _set_attribute(kernel: int, attribute: int, value: int) -> int:
    gpu = _hopper()
    limit = gpu.shared_memory_limit if gpu else Device.current().properties.shared_memory_per_block_optin
    if attribute == NONPORTABLE_CLUSTER:
        _kernels[kernel].nonportable_cluster = bool(value)
    elif attribute == MAX_DYNAMIC_SHARED_BYTES and value > limit:
        raise EmulatorError(
            f"{value} bytes of dynamic shared memory requested; the limit is {limit}", kernel=_kernels[kernel].name
        )
    elif attribute not in (MAX_DYNAMIC_SHARED_BYTES, SHARED_CARVEOUT):
        raise EmulatorError(f"kernel attribute {attribute} is not modelled", kernel=_kernels[kernel].name)
    return SUCCESS


def _run(entry: Entry, config: LaunchConfig, values: list[bytes], queue: int, event: int | None) -> None:
    Device.current().launch(entry, config, values, queue=queue)
    if event:
        # On a GPU it may be recorded once every CTA has begun. Waiting for the end of the launch is safe: it is later.
        events.record(event, queue)


def _launch(handle: int, pointer: ctypes._Pointer[Launch], parameters: Pointer) -> int:
    kernel, launch = _kernels[handle], pointer[0]
    if launch.unknown_attribute:
        raise EmulatorError(f"launch attribute {launch.unknown_attribute} is not modelled", kernel=kernel.name)
    check_queue(kernel, launch.queue)
    config = LaunchConfig(
        grid=tuple(launch.grid),
        block=tuple(launch.block),
        cluster=tuple(launch.cluster),
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        programmatic=bool(launch.programmatic),
        cooperative=bool(launch.cooperative),
        nonportable_cluster=kernel.nonportable_cluster,
    )
    # The parameters are on the host code's stack, until this call returns.
    values = [ctypes.string_at(parameters[i], parameter.size) for i, parameter in enumerate(kernel.entry.params)]
    submit(kernel, config, values, launch.queue, launch.event)
    return SUCCESS


def check_queue(kernel: Kernel, handle: int) -> None:
    """Raise EmulatorError for a launch on no queue of the emulated device. A Hopper's driver checks its own."""
    if os.environ.get("NOGPU") != "hopper":
        try:
            queues.check(handle)
        except Fault as fault:
            raise EmulatorError(f"launch refused: {fault.reason}", kernel=kernel.name) from None


def submit(
    kernel: Kernel, config: LaunchConfig, values: list[bytes], queue: int = queues.LEGACY, event: int | None = None
) -> None:
    """Launch a kernel on the device that NOGPU names, or add the launch to the graph that is being captured.

    values: bytes of each parameter, in order. queue: its handle. event: the handle of an event to record, or None.
    """
    gpu = _hopper()
    if gpu is None:
        graphs.submit(functools.partial(_run, kernel.entry, config, values, queue, event))
    elif event:
        raise EmulatorError("a launch that records an event is not modelled on a Hopper GPU", kernel=kernel.name)
    else:
        gpu.launch(kernel.ptx, kernel.entry, config, values)


def device_attribute(number: int) -> int:
    """Value of a CUdevice_attribute of the device that NOGPU names. Raises EmulatorError for an unknown number."""
    gpu = _hopper()
    return gpu.attribute(number) if gpu else driver.attribute(number)


def _device_attribute(value: ctypes._Pointer[ctypes.c_int], attribute: int) -> int:
    value[0] = device_attribute(attribute)
    return SUCCESS


def _encode(tensor_map: int, arguments: ctypes._Pointer[TensorMapArguments]) -> int:
    """cuTensorMapEncodeTiled to the address `tensor_map`."""
    a = arguments[0]
    rank = a.rank
    try:
        dims, strides, box = a.dims[:rank], a.strides[: max(rank, 1) - 1], a.box[:rank]
        kinds = a.interleave, a.swizzle, a.l2_promotion, a.fill
        raw = encode_tiled(a.data_type, a.address, dims, strides, box, a.element_strides[:rank], *kinds)
    except Fault as fault:
        raise EmulatorError(f"cuTensorMapEncodeTiled: {fault.reason}") from fault
    ctypes.memmove(tensor_map, raw, len(raw))
    return SUCCESS


_pointer = ctypes.POINTER(ctypes.c_void_p)
_CALLBACKS = [
    ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(_callback(function))
    for function, arguments in (
        (_load, (_pointer,)),
        (_get_kernel, (_pointer, ctypes.c_void_p, ctypes.c_char_p)),
        (_set_attribute, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
        (_launch, (ctypes.c_void_p, ctypes.POINTER(Launch), _pointer)),
        (_device_attribute, (ctypes.POINTER(ctypes.c_int), ctypes.c_int)),
        (_encode, (ctypes.c_void_p, ctypes.POINTER(TensorMapArguments))),
    )
]


def register() -> None:
    """Make shim.c call the functions of this module."""
    connect = toolchain.load("host/shim.c").emulator_register
    connect.argtypes = [ctypes.c_void_p] * len(_CALLBACKS)
    connect(*(ctypes.cast(callback, ctypes.c_void_p) for callback in _CALLBACKS))
