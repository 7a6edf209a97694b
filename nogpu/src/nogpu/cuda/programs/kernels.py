"""Entry points for kernels: handles, attributes, occupancy."""

from __future__ import annotations

import ctypes
import math

from nogpu import headers
from nogpu.cuda.backends import current
from nogpu.cuda.modules import Kernel
from nogpu.cuda.programs import launches, modules, status
from nogpu.cuda.programs.entries import ADDRESS, HANDLE, INT, SIZE, UINT, entry, ignored, put, store
from nogpu.hardware.properties import ctas_per_sm, shared_per_cta, with_clusters

# CUfunction_attribute, of which cudaFuncAttribute has the settable ones
MAX_THREADS, STATIC_SHARED, CONSTANT, LOCAL, REGISTERS, PTX_VERSION, BINARY_VERSION = range(7)
MAX_DYNAMIC_SHARED, CARVEOUT, CLUSTER_WIDTH, CLUSTER_HEIGHT, CLUSTER_DEPTH = 8, 9, 11, 12, 13
NONPORTABLE_CLUSTER, CLUSTER_POLICY = 14, 15
SHARED_MEMORY_MODE, MOST_MODE = 16, 4  # cudaFuncAttribute only, since CUDA 13.4; cudaSharedMemoryMode


class Attributes(ctypes.Structure):
    """cudaFuncAttributes of CUDA 13 (driver_types.h)."""

    _fields_ = headers.fields(
        "word shared_bytes, constant_bytes, local_bytes; s32 max_threads, registers, ptx_version, binary_version, "
        "cache_mode, max_dynamic_shared, carveout, cluster_required, cluster[3], cluster_policy, nonportable_cluster, "
        "reserved[16]"
    )


def attribute(kernel: Kernel, number: int) -> int:
    """The value of a CUfunction_attribute. Raises Refused for one that is not modelled."""
    cluster = kernel.entry.cluster or (0, 0, 0)
    values = {
        MAX_THREADS: lambda kernel: kernel.max_threads,
        STATIC_SHARED: lambda kernel: kernel.static_shared_bytes,
        CONSTANT: lambda kernel: 0,
        LOCAL: lambda kernel: 0,
        REGISTERS: lambda kernel: kernel.registers,
        PTX_VERSION: lambda kernel: current().properties().architecture,
        BINARY_VERSION: lambda kernel: current().properties().architecture,
        MAX_DYNAMIC_SHARED: lambda kernel: kernel.dynamic_shared_limit,
        CARVEOUT: lambda kernel: -1,
        CLUSTER_WIDTH: lambda kernel: cluster[0],
        CLUSTER_HEIGHT: lambda kernel: cluster[1],
        CLUSTER_DEPTH: lambda kernel: cluster[2],
        NONPORTABLE_CLUSTER: lambda kernel: int(kernel.nonportable_cluster),
        CLUSTER_POLICY: lambda kernel: 0,
    }
    if number not in values:
        raise status.Refused(status.NOT_SUPPORTED, f"kernel attribute {number} is not modelled")
    return values[number](kernel)


@entry("cudaFuncSetAttribute cuFuncSetAttribute", HANDLE, INT, INT)
@entry("cudaKernelSetAttributeForDevice", HANDLE, INT, INT, INT)
def set_attribute(handle: int, number: int, value: int, device: int = 0) -> None:
    kernel = modules.kernel(handle)
    if number == MAX_DYNAMIC_SHARED:
        limit = current().properties().shared_memory_per_block_optin - kernel.static_shared_bytes
        if not 0 <= value <= limit:
            reason = f"{value} bytes of dynamic shared memory for kernel {kernel.name}; the limit is {limit}"
            raise status.Refused(status.INVALID_VALUE, reason)
        kernel.dynamic_shared_limit = value
    elif number == NONPORTABLE_CLUSTER:
        kernel.nonportable_cluster = bool(value)
    elif number == SHARED_MEMORY_MODE and current().properties().is_rubin:
        if not 0 <= value <= MOST_MODE:
            raise status.Refused(status.INVALID_VALUE, f"shared memory mode {value}; limit 0 to {MOST_MODE}")
    elif number not in (CARVEOUT, CLUSTER_POLICY):
        raise status.Refused(status.INVALID_VALUE, f"kernel attribute {number} is not modelled")


@entry("cuKernelSetAttribute", INT, INT, HANDLE, INT)
def set_attribute_by_driver(number: int, value: int, handle: int, device: int) -> None:
    set_attribute(handle, number, value)


@entry("cuFuncGetAttribute", ADDRESS, INT, HANDLE)
@entry("cuKernelGetAttribute", ADDRESS, INT, HANDLE, INT)
def get_attribute(result: int, number: int, handle: int, device: int = 0) -> None:
    put(result, ctypes.c_int32, attribute(modules.kernel(handle), number))


@entry("cudaFuncGetAttributes", ADDRESS, HANDLE)
def get_attributes(result: int, handle: int) -> None:
    kernel = modules.kernel(handle)
    found = Attributes(
        shared_bytes=kernel.static_shared_bytes,
        max_threads=kernel.max_threads,
        registers=kernel.registers,
        ptx_version=current().properties().architecture,
        binary_version=current().properties().architecture,
        max_dynamic_shared=kernel.dynamic_shared_limit,
        carveout=-1,
        cluster_required=int(kernel.entry.cluster is not None),
        cluster=kernel.entry.cluster or (0, 0, 0),
        nonportable_cluster=int(kernel.nonportable_cluster),
    )
    store(result, found)


_names: dict[int, ctypes.Array] = {}


@entry("cudaFuncGetName cuFuncGetName", ADDRESS, HANDLE)
def name(result: int, handle: int) -> None:
    text = _names.setdefault(handle, ctypes.create_string_buffer(modules.kernel(handle).name.encode()))
    put(result, ctypes.c_size_t, ctypes.addressof(text))


@entry("cudaGetFuncBySymbol cudaGetKernel __cudaGetKernel cuKernelGetFunction", ADDRESS, HANDLE)
def handle_of(result: int, handle: int) -> None:
    """Stores the same handle: a kernel has one for all interfaces."""
    modules.kernel(handle)
    put(result, ctypes.c_size_t, handle)


# The device's caches and banks are fixed.
ignored("cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig cuFuncSetCacheConfig", HANDLE, INT)


# Occupancy counts threads and shared memory only: ptxas has to fit registers to launch bounds.


def _resident(kernel: Kernel, threads: int, shared: int) -> int:
    """The number of CTAs of a kernel that fit on an SM."""
    properties = current().properties()
    if not 1 <= threads <= properties.max_threads_per_block:
        raise status.Refused(status.INVALID_VALUE, f"{threads} threads; limit 1 to {properties.max_threads_per_block}")
    if threads > kernel.max_threads:
        return 0
    return ctas_per_sm(threads, kernel.static_shared_bytes + shared, properties)


_CTAS_OF = "OccupancyMaxActiveBlocksPerMultiprocessor"


@entry(f"cuda{_CTAS_OF} cu{_CTAS_OF}", ADDRESS, HANDLE, INT, SIZE)
@entry(f"cuda{_CTAS_OF}WithFlags cu{_CTAS_OF}WithFlags", ADDRESS, HANDLE, INT, SIZE, UINT)
def resident_ctas(result: int, handle: int, threads: int, shared: int, flags: int = 0) -> None:
    put(result, ctypes.c_int32, _resident(modules.kernel(handle), threads, shared))


_SHARED_OF = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int32)  # CUoccupancyB2DSize


@entry("cuOccupancyMaxPotentialBlockSize", ADDRESS, ADDRESS, HANDLE, ADDRESS, SIZE, INT)
@entry("cuOccupancyMaxPotentialBlockSizeWithFlags", ADDRESS, ADDRESS, HANDLE, ADDRESS, SIZE, INT, UINT)
def potential_cta(grid: int, block: int, handle: int, shared_of: int, shared: int, limit: int, flags: int = 0) -> None:
    """Stores the threads of a CTA, the most by which an SM is fullest, and the CTAs of the device then."""
    kernel, properties = modules.kernel(handle), current().properties()
    most = min(kernel.max_threads, limit or properties.max_threads_per_block)
    counts = [*range(properties.warp_size, most + 1, properties.warp_size), most]
    asked = _SHARED_OF(shared_of) if shared_of else lambda threads: shared
    resident = {threads: _resident(kernel, threads, asked(threads)) for threads in counts}
    best = max(counts, key=lambda threads: (threads * resident[threads], threads))
    put(block, ctypes.c_int32, best)
    put(grid, ctypes.c_int32, resident[best] * properties.sm_count)


@entry("cudaOccupancyAvailableDynamicSMemPerBlock cuOccupancyAvailableDynamicSMemPerBlock", ADDRESS, HANDLE, INT, INT)
def available_shared(result: int, handle: int, ctas: int, threads: int) -> None:
    properties = current().properties()
    if not 1 <= ctas <= properties.max_blocks_per_sm:
        raise status.Refused(status.INVALID_VALUE, f"{ctas} CTAs; limit 1 to {properties.max_blocks_per_sm}")
    free = shared_per_cta(ctas, properties) - modules.kernel(handle).static_shared_bytes
    put(result, ctypes.c_size_t, max(0, free))


def _active_clusters(handle: int, config: launches.Config | launches.DriverConfig) -> int:
    """The number of clusters that fit at once, if any SMs can form one; a B200's GPCs may hold fewer."""
    kernel = modules.kernel(handle)
    launch = with_clusters(kernel.entry, launches.requested(kernel, config)[0])
    resident = _resident(kernel, math.prod(launch.block), launch.dynamic_shared_bytes)
    return current().properties().sm_count * resident // math.prod(launch.cluster)


@entry("cudaOccupancyMaxActiveClusters", ADDRESS, HANDLE, ADDRESS)
def active_clusters(result: int, handle: int, config: int) -> None:
    put(result, ctypes.c_int32, _active_clusters(handle, launches.Config.from_address(config)))


@entry("cuOccupancyMaxActiveClusters", ADDRESS, HANDLE, ADDRESS)
def active_clusters_by_driver(result: int, handle: int, config: int) -> None:
    put(result, ctypes.c_int32, _active_clusters(handle, launches.DriverConfig.from_address(config)))


@entry("cudaOccupancyMaxPotentialClusterSize cuOccupancyMaxPotentialClusterSize", ADDRESS, HANDLE, ADDRESS)
def potential_cluster(result: int, handle: int, config: int) -> None:
    properties, kernel = current().properties(), modules.kernel(handle)
    size = properties.max_cluster if kernel.nonportable_cluster else properties.max_portable_cluster
    put(result, ctypes.c_int32, size)
