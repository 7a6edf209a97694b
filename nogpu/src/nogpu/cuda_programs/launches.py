"""Entry points for launches: <<<>>>, cudaLaunchKernelExC, cuLaunchKernel and their like."""

from __future__ import annotations

import ctypes
import sys

from nogpu import headers
from nogpu.cuda_programs import modules, status
from nogpu.cuda_programs.backends import current, strings
from nogpu.cuda_programs.entries import ADDRESS, HANDLE, QUEUE, SIZE, U64, UINT, check_queue, entry
from nogpu.errors import EmulatorError
from nogpu.execution.device import LaunchConfig
from nogpu.host import queues

# cudaLaunchAttributeID, which CUlaunchAttributeID shares
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6
# Preferences without effect on results: access policy window, synchronization policy, cluster scheduling policy,
# priority, memory synchronization domain map and domain, preferred cluster dimension, NVLink scheduling, carveout
_HINTS = {0, 1, 3, 5, 8, 9, 10, 11, 14, 16}
_BY_SIZE, _BY_POINTER, _END = 2, 1, 0  # CU_LAUNCH_PARAM_BUFFER_SIZE, _POINTER, _END

_Host = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


@headers.mirrors("host/shim.c")
class Attribute(ctypes.Structure):
    """cudaLaunchAttribute, CUlaunchAttribute."""


@headers.mirrors("host/shim.c", attributes=ctypes.POINTER(Attribute))
class Config(ctypes.Structure):
    """cudaLaunchConfig_t."""


class DriverConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("queue", ctypes.c_size_t),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint32),
    ]


def requested(kernel: modules.Kernel, config: Config | DriverConfig) -> LaunchConfig:
    """The launch that a configuration asks for. Raises EmulatorError for an attribute that is not modelled, Refused
    for a queue that does not exist.
    """
    check_queue(config.queue)
    cluster, programmatic, cooperative = (1, 1, 1), False, False
    for attribute in config.attributes[: config.count]:
        words = attribute.words
        if attribute.id == _CLUSTER:
            cluster = (words[0], words[1], words[2])
        elif attribute.id == _PROGRAMMATIC:
            programmatic = bool(words[0])
        elif attribute.id == _COOPERATIVE:
            cooperative = bool(words[0])
        elif attribute.id not in _HINTS:
            raise EmulatorError(f"launch attribute {attribute.id} is not modelled", kernel=kernel.name)
    x, y, z = config.grid
    threads_x, threads_y, threads_z = config.block
    return LaunchConfig(
        grid=(x, y, z),
        block=(threads_x, threads_y, threads_z),
        cluster=cluster,
        dynamic_shared_bytes=config.shared,
        programmatic=programmatic,
        cooperative=cooperative,
        nonportable_cluster=kernel.nonportable_cluster,
    )


def run(kernel: modules.Kernel, config: LaunchConfig, values: list[bytes], queue: int) -> None:
    """Launch on a queue, behind what the program has printed. Raises Refused and EmulatorError."""
    if config.dynamic_shared_bytes > kernel.dynamic_shared_limit:
        raise EmulatorError(
            f"launch refused: {config.dynamic_shared_bytes} bytes of dynamic shared memory; the kernel's attribute "
            f"(cudaFuncAttributeMaxDynamicSharedMemorySize) allows {kernel.dynamic_shared_limit}",
            kernel=kernel.name,
        )
    flush()
    current().launch(kernel, config, values, queues.resolved(queue))
    sys.stdout.flush()


def flush() -> None:
    """Write what C's streams have buffered: a kernel's printf comes behind it."""
    ctypes.CDLL(None).fflush(None)


def _launch(handle: int, config: Config | DriverConfig, parameters: int) -> None:
    kernel = modules.kernel(handle)
    values = strings(parameters, [p.size for p in kernel.entry.params])
    run(kernel, requested(kernel, config), values, config.queue)


def _dims(xy: int, z: int) -> tuple[int, int, int]:
    """A dim3 from its two words."""
    return xy & 0xFFFFFFFF, xy >> 32, z


@entry("cudaLaunchKernel __cudaLaunchKernel", HANDLE, U64, UINT, U64, UINT, ADDRESS, SIZE, QUEUE)
def launch(
    kernel: int, grid: int, grid_z: int, block: int, block_z: int, parameters: int, shared: int, queue: int
) -> None:
    _launch(kernel, Config(_dims(grid, grid_z), _dims(block, block_z), shared, queue), parameters)


def _cooperative() -> ctypes.Array:
    attribute = Attribute(_COOPERATIVE)
    attribute.words[0] = 1
    return (Attribute * 1)(attribute)


@entry("cudaLaunchCooperativeKernel", HANDLE, U64, UINT, U64, UINT, ADDRESS, SIZE, QUEUE)
def launch_cooperative(
    kernel: int, grid: int, grid_z: int, block: int, block_z: int, parameters: int, shared: int, queue: int
) -> None:
    config = Config(_dims(grid, grid_z), _dims(block, block_z), shared, queue, _cooperative(), 1)
    _launch(kernel, config, parameters)


@entry("cudaLaunchKernelExC", ADDRESS, HANDLE, ADDRESS)
def launch_configured(config: int, kernel: int, parameters: int) -> None:
    if not config:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for the configuration")
    _launch(kernel, Config.from_address(config), parameters)


def _arguments(kernel: modules.Kernel, parameters: int, extra: int) -> list[bytes]:
    """The bytes of each parameter of a driver's launch, from the array of their addresses or from a packed buffer."""
    if parameters or not extra:
        return strings(parameters, [p.size for p in kernel.entry.params])
    words = (ctypes.c_size_t * 5).from_address(extra)
    options = {words[i]: words[i + 1] for i in (0, 2) if words[i] != _END}
    if set(options) != {_BY_POINTER, _BY_SIZE}:
        raise status.Refused(status.INVALID_VALUE, "the launch's `extra` names no buffer with its size")
    nbytes = ctypes.c_size_t.from_address(options[_BY_SIZE]).value
    offsets = kernel.entry.param_offsets()
    if nbytes < offsets[""]:
        raise status.Refused(status.INVALID_VALUE, f"{nbytes} bytes of arguments, the kernel takes {offsets['']}")
    return [ctypes.string_at(options[_BY_POINTER] + offsets[p.name], p.size) for p in kernel.entry.params]


@entry("cuLaunchKernel", HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, QUEUE, ADDRESS, ADDRESS)
def launch_by_driver(
    handle: int, x: int, y: int, z: int, bx: int, by: int, bz: int, shared: int, queue: int, parameters: int, extra: int
) -> None:
    kernel = modules.kernel(handle)
    config = requested(kernel, DriverConfig((x, y, z), (bx, by, bz), shared))
    run(kernel, config, _arguments(kernel, parameters, extra), queue)


@entry("cuLaunchCooperativeKernel", HANDLE, UINT, UINT, UINT, UINT, UINT, UINT, UINT, QUEUE, ADDRESS)
def launch_cooperative_by_driver(
    handle: int, x: int, y: int, z: int, bx: int, by: int, bz: int, shared: int, queue: int, parameters: int
) -> None:
    _launch(handle, DriverConfig((x, y, z), (bx, by, bz), shared, queue, _cooperative(), 1), parameters)


@entry("cuLaunchKernelEx", ADDRESS, HANDLE, ADDRESS, ADDRESS)
def launch_configured_by_driver(config: int, handle: int, parameters: int, extra: int) -> None:
    if not config:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for the configuration")
    kernel = modules.kernel(handle)
    given = DriverConfig.from_address(config)
    run(kernel, requested(kernel, given), _arguments(kernel, parameters, extra), given.queue)


# Functions of the host in a queue


@entry("cudaLaunchHostFunc cuLaunchHostFunc", QUEUE, ADDRESS, ADDRESS)
def launch_on_host(queue: int, function: int, data: int) -> None:
    current().finish()
    _Host(function)(data)


@entry("cudaStreamAddCallback", QUEUE, ADDRESS, ADDRESS, UINT)
def add_callback(queue: int, function: int, data: int, flags: int) -> None:
    current().finish()
    _Callback(function)(queue, status.SUCCESS, data)
