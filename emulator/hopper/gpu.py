"""The CUDA driver by ctypes: what it takes to load PTX and to launch it. Failures raise EmulatorError by name."""

from __future__ import annotations

import ctypes
import threading
from functools import cache

from emulator.errors import EmulatorError
from emulator.hardware.properties import LaunchConfig

# CUjit_option
INFO_LOG, INFO_LOG_SIZE, ERROR_LOG, ERROR_LOG_SIZE = 3, 4, 5, 6
LOG_BYTES = 16384
# CUfunction_attribute
MAX_DYNAMIC_SHARED_BYTES, NONPORTABLE_CLUSTER = 8, 14
# CUlaunchAttributeID
COOPERATIVE, CLUSTER_DIMENSION, PROGRAMMATIC = 2, 4, 6


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("queue", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint32),
    ]


@cache
def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise EmulatorError(f"the Hopper device needs NVIDIA's driver: {error}") from None
    driver.cuInit(0)
    return driver


_thread = threading.local()


def call(name: str, *arguments) -> None:
    """Call a function of the driver in the primary context of device 0, torch's own."""
    driver = _driver()
    if not getattr(_thread, "ready", False):
        context = ctypes.c_void_p()
        driver.cuCtxGetCurrent(ctypes.byref(context))
        if not context:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            driver.cuCtxSetCurrent(context)
        _thread.ready = True
    status = getattr(driver, name)(*arguments)
    if status:
        raise EmulatorError(f"{name} failed: {_error_text(driver, status)}")


def _error_text(driver: ctypes.CDLL, status: int) -> str:
    parts = []
    for function in (driver.cuGetErrorName, driver.cuGetErrorString):
        text = ctypes.c_char_p()
        function(status, ctypes.byref(text))
        parts.append((text.value or b"?").decode())
    return f"{status} ({': '.join(parts)})"


class Module:
    """PTX that the driver has assembled and loaded. Never unloaded: launches may still be under way."""

    def __init__(self, ptx: str):
        self._handle = ctypes.c_void_p()
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), LOG_BYTES)
        try:
            call("cuModuleLoadDataEx", ctypes.byref(self._handle), ptx.encode() + b"\0", 2, options, values)
        except EmulatorError as error:
            raise EmulatorError(f"{error}\n{log.value.decode(errors='replace')}".rstrip()) from None

    def function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
        return function

    def write(self, variable: str, data: bytes) -> None:
        """Set a variable of the module, of exactly this size."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._handle, variable.encode())
        if size.value != len(data):
            raise ValueError(f"{variable} has {size.value} bytes, not {len(data)}")
        call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))


def set_attribute(function: ctypes.c_void_p, attribute: int, value: int) -> None:
    call("cuFuncSetAttribute", function, attribute, value)


def device_attribute(number: int) -> int:
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), int(number), 0)
    return value.value


def launch(function: ctypes.c_void_p, config: LaunchConfig, parameters: list[bytes], queue: int) -> None:
    """Launch with the cluster, cooperative and programmatic attributes of `config`, on a queue of torch's."""
    attributes = []
    if config.cluster != (1, 1, 1):
        attributes.append((CLUSTER_DIMENSION, config.cluster))
    if config.programmatic:
        attributes.append((PROGRAMMATIC, (1,)))
    if config.cooperative:
        attributes.append((COOPERATIVE, (1,)))
    array = (Attribute * max(1, len(attributes)))()
    for attribute, (number, words) in zip(array, attributes):
        attribute.id = number
        attribute.value[: len(words)] = words
    configuration = Config(
        (ctypes.c_uint32 * 3)(*config.grid),
        (ctypes.c_uint32 * 3)(*config.block),
        config.dynamic_shared_bytes,
        queue,
        array,
        len(attributes),
    )
    buffers = [ctypes.create_string_buffer(value, len(value)) for value in parameters]
    pointers = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(buffer) for buffer in buffers))
    call("cuLaunchKernelEx", ctypes.byref(configuration), function, pointers, None)
