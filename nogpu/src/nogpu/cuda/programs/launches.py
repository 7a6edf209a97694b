"""Entry points for launches: <<<>>>, cudaLaunchKernelExC, cuLaunchKernel and their like."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any

from nogpu import headers
from nogpu.cuda import graphs
from nogpu.cuda.backends import current
from nogpu.cuda.modules import Kernel
from nogpu.cuda.programs import modules, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, QUEUE, SIZE, U64, UINT, entry
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig

# cudaLaunchAttributeID, which CUlaunchAttributeID shares
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC, _PREFERRED_CLUSTER = 2, 4, 6, 11
# Preferences without effect on results: access policy window, synchronization policy, cluster scheduling policy,
# priority, memory synchronization domain map and domain, NVLink scheduling, carveout
_HINTS = {0, 1, 3, 5, 8, 9, 10, 14, 16}
_EVENTS = {7, 12}  # programmatic event and completion event, which the launch records
_MODELLED = _HINTS | _EVENTS | {_COOPERATIVE, _CLUSTER, _PROGRAMMATIC, _PREFERRED_CLUSTER}
_BY_SIZE, _BY_POINTER, _END = 2, 1, 0  # CU_LAUNCH_PARAM_BUFFER_SIZE, _POINTER, _END

_PROCESS = ctypes.CDLL(None)
_Host = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


class Attribute(ctypes.Structure):
    """cudaLaunchAttribute or CUlaunchAttribute: number and value."""

    _fields_ = headers.fields("s32 id, padding; u32 words[16]")


def _configuration_fields(shared: Any) -> list[tuple[str, Any]]:
    return [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", shared),
        ("queue", ctypes.c_size_t),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint32),
    ]


class Config(ctypes.Structure):
    """cudaLaunchConfig_t: a launch by the runtime."""

    _fields_ = _configuration_fields(ctypes.c_size_t)


class DriverConfig(ctypes.Structure):
    """CUlaunchConfig: a launch by the driver."""

    _fields_ = _configuration_fields(ctypes.c_uint32)


def _attributes(kernel: Kernel, config: Config | DriverConfig) -> dict[int, Any]:
    """Number of an attribute -> its words. Raises EmulatorError for one that is not modelled."""
    given = {attribute.id: attribute.words for attribute in config.attributes[: config.count]}
    unknown = given.keys() - _MODELLED
    if unknown:
        raise EmulatorError(f"launch attribute {min(unknown)} is not modelled", kernel=kernel.name)
    return given


def requested(kernel: Kernel, config: Config | DriverConfig) -> tuple[LaunchConfig, int]:
    """(launch, event to record or 0) of a configuration. Raises EmulatorError for an attribute that is not modelled."""
    given = _attributes(kernel, config)
    events = [words[0] | words[1] << 32 for number, words in given.items() if number in _EVENTS]
    both = {_CLUSTER, _PREFERRED_CLUSTER} <= given.keys()
    launch = LaunchConfig(
        grid=tuple(config.grid),
        block=tuple(config.block),
        cluster=tuple(given[_CLUSTER][:3]) if _CLUSTER in given else (1, 1, 1),
        dynamic_shared_bytes=config.shared,
        programmatic=_PROGRAMMATIC in given and bool(given[_PROGRAMMATIC][0]),
        cooperative=_COOPERATIVE in given and bool(given[_COOPERATIVE][0]),
        nonportable_cluster=kernel.nonportable_cluster,
        preferred_cluster=tuple(given[_PREFERRED_CLUSTER][:3]) if both else None,
    )
    return launch, events[-1] if events else 0


def run(kernel: Kernel, config: Config | DriverConfig, values: list[bytes]) -> None:
    """Launch on a queue, after the program's output has been written. Raises EmulatorError for a refused launch."""
    launch, event = requested(kernel, config)
    if launch.dynamic_shared_bytes > kernel.dynamic_shared_limit:
        raise EmulatorError(
            f"launch refused: {launch.dynamic_shared_bytes} bytes of dynamic shared memory; the kernel's attribute "
            f"(cudaFuncAttributeMaxDynamicSharedMemorySize) allows {kernel.dynamic_shared_limit}",
            kernel=kernel.name,
        )
    flush()
    kernel.submit(launch, values, config.queue, event)
    sys.stdout.flush()


def flush() -> None:
    """Write the output that C's streams have buffered, which comes before a kernel's printf."""
    _PROCESS.fflush(None)


def _values(kernel: Kernel, parameters: int) -> list[bytes]:
    """The bytes of each parameter, from the array of their addresses (void **) that a launch passes."""
    sizes = [param.size for param in kernel.params]
    if sizes and not parameters:
        raise status.Refused(status.INVALID_VALUE, f"a null pointer for the arguments of {len(sizes)} parameters")
    addresses = (ctypes.c_size_t * len(sizes)).from_address(parameters) if sizes else ()
    return [ctypes.string_at(address, size) for address, size in zip(addresses, sizes)]


def _packed_values(kernel: Kernel, extra: int) -> list[bytes]:
    """The bytes of each parameter, from the packed buffer that a driver's launch passes."""
    words = (ctypes.c_size_t * 5).from_address(extra)
    options = {words[i]: words[i + 1] for i in (0, 2) if words[i] != _END}
    if set(options) != {_BY_POINTER, _BY_SIZE}:
        raise status.Refused(status.INVALID_VALUE, "the launch's `extra` names no buffer with its size")
    nbytes = ctypes.c_size_t.from_address(options[_BY_SIZE]).value
    offsets = kernel.entry.param_offsets()
    if nbytes < offsets[""]:
        raise status.Refused(status.INVALID_VALUE, f"{nbytes} bytes of arguments, the kernel takes {offsets['']}")
    return [ctypes.string_at(options[_BY_POINTER] + offsets[p.name], p.size) for p in kernel.params]


def values(kernel: Kernel, parameters: int, extra: int = 0) -> list[bytes]:
    """The bytes of each parameter, from their addresses or, without these, from a driver's packed buffer."""
    return _packed_values(kernel, extra) if extra and not parameters else _values(kernel, parameters)


def _launch(handle: int, config: Config | DriverConfig, parameters: int, extra: int = 0) -> None:
    kernel = modules.kernel(handle)
    run(kernel, config, values(kernel, parameters, extra))


def _cooperative() -> ctypes.Array:
    attribute = Attribute(_COOPERATIVE)
    attribute.words[0] = 1
    return (Attribute * 1)(attribute)


def _by_runtime(geometry: Sequence[int], *attributes: Any) -> Config:
    """A configuration. geometry: two dim3, each as two words, bytes of shared memory and a queue."""
    xy, z, threads_xy, threads_z, shared, queue = geometry
    grid, block = ((pair & 0xFFFFFFFF, pair >> 32, last) for pair, last in ((xy, z), (threads_xy, threads_z)))
    return Config(grid, block, shared, queue, *attributes)


@entry("cudaLaunchKernel __cudaLaunchKernel", HANDLE, U64, UINT, U64, UINT, ADDRESS, SIZE, QUEUE)
def launch(kernel: int, *words: int) -> None:
    *dims, parameters, shared, queue = words
    _launch(kernel, _by_runtime((*dims, shared, queue)), parameters)


@entry("cudaLaunchCooperativeKernel", HANDLE, U64, UINT, U64, UINT, ADDRESS, SIZE, QUEUE)
def launch_cooperative(kernel: int, *words: int) -> None:
    *dims, parameters, shared, queue = words
    _launch(kernel, _by_runtime((*dims, shared, queue), _cooperative(), 1), parameters)


@entry("cuLaunchKernel", HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, QUEUE, ADDRESS, ADDRESS)
def launch_by_driver(kernel: int, *words: int) -> None:
    *geometry, shared, queue, parameters, extra = words
    _launch(kernel, DriverConfig(tuple(geometry[:3]), tuple(geometry[3:]), shared, queue), parameters, extra)


@entry("cuLaunchCooperativeKernel", HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, QUEUE, ADDRESS)
def launch_cooperative_by_driver(kernel: int, *words: int) -> None:
    *geometry, shared, queue, parameters = words
    config = DriverConfig(tuple(geometry[:3]), tuple(geometry[3:]), shared, queue, _cooperative(), 1)
    _launch(kernel, config, parameters)


def _configuration(kind: type[Config] | type[DriverConfig], address: int) -> Config | DriverConfig:
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for the configuration")
    return kind.from_address(address)


@entry("cudaLaunchKernelExC", ADDRESS, HANDLE, ADDRESS)
def launch_configured(config: int, kernel: int, parameters: int) -> None:
    _launch(kernel, _configuration(Config, config), parameters)


@entry("cuLaunchKernelEx", ADDRESS, HANDLE, ADDRESS, ADDRESS)
def launch_configured_by_driver(config: int, kernel: int, parameters: int, extra: int) -> None:
    _launch(kernel, _configuration(DriverConfig, config), parameters, extra)


# Functions of the host in a queue


@entry("cudaLaunchHostFunc cuLaunchHostFunc", QUEUE, ADDRESS, ADDRESS)
def launch_on_host(queue: int, function: int, data: int) -> None:
    graphs.submit(functools.partial(call_on_host, function, data), queue, graphs.HOST)


def call_on_host(function: int, data: int) -> None:
    """Call a function of the host after the work so far."""
    current().finish()
    _Host(function)(data)


@entry("cudaStreamAddCallback cuStreamAddCallback", QUEUE, ADDRESS, ADDRESS, UINT)
def add_callback(queue: int, function: int, data: int, flags: int) -> None:
    current().finish()
    _Callback(function)(queue, status.SUCCESS, data)
