"""The CUDA driver (cuda.bindings): loads PTX and launches it. Failures raise EmulatorError with the driver's names."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from cuda.bindings import driver

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig

LOG_BYTES = 16384
MAX_DYNAMIC_SHARED_BYTES = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
NONPORTABLE_CLUSTER = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
SM_COUNT = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
SHARED_PER_BLOCK_OPTIN = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

_thread = threading.local()


def _result(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """Output of a driver function, None if it has none. Raises EmulatorError with the driver's name for the failure."""
    status, *outputs = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        texts = [text(status)[1] or b"?" for text in (driver.cuGetErrorName, driver.cuGetErrorString)]
        name, meaning = (text.decode() for text in texts)
        raise EmulatorError(f"{function.__name__} failed: {int(status)} ({name}: {meaning})")
    return outputs[0] if len(outputs) == 1 else tuple(outputs) or None


@cache
def _initialize() -> None:
    try:
        _result(driver.cuInit, 0)
    except EmulatorError:
        raise
    except RuntimeError as error:  # cuda.bindings without the driver's library
        raise EmulatorError(f"the Hopper device needs NVIDIA's driver: {error}") from None


def call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """The output of a driver function, called in the thread's current context.

    A thread without one gets the primary context of device 0, which torch uses. Raises EmulatorError.
    """
    _initialize()
    if not getattr(_thread, "ready", False):
        if not int(_result(driver.cuCtxGetCurrent)):
            _result(driver.cuCtxSetCurrent, _result(driver.cuDevicePrimaryCtxRetain, 0))
        _thread.ready = True
    return _result(function, *arguments)


class Module:
    """PTX that the driver has assembled and loaded. It is never unloaded: its kernels may still be running."""

    def __init__(self, ptx: str) -> None:
        """Load PTX. Raises EmulatorError with the driver's log if it refuses the PTX."""
        log = bytearray(LOG_BYTES)
        options = {
            driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER: log,
            driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
        }
        image = ptx.encode() + b"\0"
        try:
            self._handle = call(driver.cuModuleLoadDataEx, image, len(options), list(options), list(options.values()))
        except EmulatorError as error:
            text = log.partition(b"\0")[0].decode(errors="replace")
            raise EmulatorError(f"{error}\n{text}".rstrip()) from None

    def function(self, name: str) -> driver.CUfunction:
        """The entry `name`."""
        return call(driver.cuModuleGetFunction, self._handle, name.encode())

    def write(self, variable: str, data: bytes) -> None:
        """Overwrite a variable of the module. Raises ValueError unless `data` has the variable's size."""
        address, size = call(driver.cuModuleGetGlobal, self._handle, variable.encode())
        if size != len(data):
            raise ValueError(f"{variable} has {size} bytes, not {len(data)}")
        call(driver.cuMemcpyHtoD, address, data, len(data))


def set_attribute(function: driver.CUfunction, attribute: driver.CUfunction_attribute, value: int) -> None:
    call(driver.cuFuncSetAttribute, function, attribute, value)


def device_attribute(number: int) -> int:
    """Value of a CUdevice_attribute of device 0. Raises EmulatorError for a number that has none."""
    try:
        attribute = driver.CUdevice_attribute(number)
    except ValueError:
        raise EmulatorError(f"device attribute {number} is unknown to cuda.bindings") from None
    return int(call(driver.cuDeviceGetAttribute, attribute, 0))


def launch_config(config: LaunchConfig, queue: int) -> driver.CUlaunchConfig:
    """The driver's form of `config`, with its cluster, cooperative and programmatic attributes."""
    kinds = driver.CUlaunchAttributeID
    attributes = []

    def add(kind: driver.CUlaunchAttributeID) -> driver.CUlaunchAttributeValue:
        attributes.append(driver.CUlaunchAttribute())
        attributes[-1].id = kind
        return attributes[-1].value

    if config.cluster != (1, 1, 1):
        cluster = add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        cluster.x, cluster.y, cluster.z = config.cluster
    if config.programmatic:
        value = add(kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        value.programmaticStreamSerializationAllowed = 1
    if config.cooperative:
        add(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1
    result = driver.CUlaunchConfig()
    result.gridDimX, result.gridDimY, result.gridDimZ = config.grid
    result.blockDimX, result.blockDimY, result.blockDimZ = config.block
    result.sharedMemBytes = config.dynamic_shared_bytes
    result.hStream = queue
    result.attrs = attributes
    result.numAttrs = len(attributes)
    return result


def launch(function: driver.CUfunction, config: LaunchConfig, parameters: list[bytes], queue: int) -> None:
    """Launch an entry on one of torch's queues. parameters: the bytes of each, in the order of the entry's .param."""
    buffers = [ctypes.create_string_buffer(value, len(value)) for value in parameters]
    pointers = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(buffer) for buffer in buffers))
    call(driver.cuLaunchKernelEx, launch_config(config, queue), function, ctypes.addressof(pointers), 0)
