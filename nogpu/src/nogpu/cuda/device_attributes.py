"""Attributes of the emulated device by their numbers in CUDA: CUdevice_attribute, which cudaDeviceAttr shares."""

from __future__ import annotations

from collections.abc import Callable

from nogpu.errors import EmulatorError
from nogpu.hardware import textures
from nogpu.hardware.properties import DeviceProperties

_MODELLED: dict[int, Callable[[DeviceProperties], int]] = {
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
    13: lambda p: p.clock_rate,
    16: lambda p: p.sm_count,
    36: lambda p: p.memory_clock_rate,
    37: lambda p: p.memory_bus_width,
    38: lambda p: p.l2_bytes,
    39: lambda p: p.max_threads_per_sm,
    75: lambda p: p.capability[0],
    76: lambda p: p.capability[1],
    81: lambda p: p.shared_memory_per_sm,
    82: lambda p: p.registers_per_sm,
    97: lambda p: p.shared_memory_per_block_optin,
    106: lambda p: p.max_blocks_per_sm,
    108: lambda p: p.persisting_l2_bytes,
    109: lambda p: p.max_access_policy_window,
    111: lambda p: p.shared_memory_reserved_per_block,
}
_FIXED = {  # values of a B200, but for the place: PCI bus, device and domain
    9: 64 << 10,  # constant memory
    11: 2**31 - 1,  # pitch
    14: textures.ALIGNMENT,
    15: 1,  # copies beside kernels
    17: 0,  # time limit of kernels
    18: 0,  # integrated
    19: 1,  # host memory is mapped
    20: 0,  # compute mode: any number of processes
    30: textures.ALIGNMENT,  # of surfaces
    31: 1,  # concurrent kernels
    32: 1,  # ECC
    21: textures.LIMITS[1][0],
    **dict(zip((22, 23), textures.LIMITS[2])),
    **dict(zip((24, 25, 26), textures.LIMITS[3])),
    **dict(zip((27, 28, 29), textures.LAYERED_LIMITS[2])),
    **dict.fromkeys((33, 34, 50), 0),  # PCI bus, device, domain
    35: 0,  # TCC
    40: 4,  # copy engines
    41: 1,  # unified addressing
    42: textures.LAYERED_LIMITS[1][0],
    43: textures.LAYERED_LIMITS[1][2],
    51: textures.PITCH_ALIGNMENT,
    **dict.fromkeys((52, 53), textures.CUBEMAP_LIMIT),
    54: textures.FACES * textures.MOST_CUBEMAPS,
    69: textures.MOST_LINEAR,
    **dict.fromkeys((78, 79, 80), 1),  # priorities, global and local memory in L1
    83: 1,  # managed memory
    **dict.fromkeys((84, 85), 0),  # several GPUs on a board
    86: 0,  # atomics of the host, as beside x86-64
    87: 2,  # times the throughput of float64 is that of float32
    88: 0,  # pageable memory is accessible
    89: 1,  # managed memory beside kernels
    90: 1,  # preemption
    91: 1,  # registered memory has one address
    **dict.fromkeys((92, 93, 94, 122, 123), 0),  # operations of queues on memory
    95: 1,  # cooperative launch
    96: 0,  # of several devices
    98: 0,  # flushes of remote writes
    99: 1,  # host memory can be registered,
    113: 0,  # not as read-only
    **dict.fromkeys((100, 101), 0),  # page tables of the host, its access to managed memory of the device
    **dict.fromkeys((102, 103), 1),  # virtual memory management; its handles are file descriptors,
    **dict.fromkeys((104, 105, 128), 0),  # not Windows' or a fabric's
    **dict.fromkeys((107, 112, 121), 0),  # compressible memory, sparse and deferred arrays
    **dict.fromkeys((110, 116, 117, 118, 124), 0),  # GPUDirect RDMA
    114: 0,  # timeline semaphores
    115: 1,  # memory pools
    119: 0,  # without handles
    120: 1,  # cluster launch
    125: 1,  # events for other processes
    127: 1,  # tensor maps
    129: 0,  # unified function pointers
    **dict.fromkeys((130, 132, 133), 0),  # NUMA, multicast, MPS
}


NUMBERS = frozenset((*_MODELLED, *_FIXED))
"""Numbers of the attributes that are modelled."""


def value(number: int, properties: DeviceProperties) -> int | None:
    """The value of an attribute, or None for one that is not modelled."""
    return _MODELLED[number](properties) if number in _MODELLED else _FIXED.get(number)


def attribute(number: object, properties: DeviceProperties) -> int:
    """The value of an attribute. Raises EmulatorError with the number of one that is not modelled."""
    found = value(number, properties) if isinstance(number, int) else None
    if found is None:
        raise EmulatorError(f"device attribute {number!r} is not modelled")
    return found
