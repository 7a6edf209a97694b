"""Properties of the modelled device, and the check of a launch against its limits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from nogpu.errors import EmulatorError
from nogpu.ptx.ir import Entry

Dim3 = tuple[int, int, int]
"""Size or index (x, y, z)."""

_Refuse = Callable[[str], None]


@dataclass(frozen=True)
class DeviceProperties:
    """An NVIDIA B200. Sizes are in bytes, clocks in kHz.

    Memory size, bus, L2 and SM count: cudaGetDeviceProperties of a B200 (github.com/pytorch/ao, pull request 4002).
    Per-SM and per-block limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 10.0.
    """

    name: str = "NVIDIA B200 (emulated)"
    capability: tuple[int, int] = (10, 0)
    sm_count: int = 148
    total_memory: int = 182_630 << 20
    memory_bus_width: int = 7680  # bits
    memory_clock_rate: int = 3_996_000
    clock_rate: int = 1_965_000  # of the SMs, at most
    l2_bytes: int = 253 << 19
    max_access_policy_window: int = 128 << 20  # assumed: not read on a B200
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    max_block: Dim3 = (1024, 1024, 64)
    max_grid: Dim3 = (2**31 - 1, 65535, 65535)
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    shared_memory_per_sm: int = 228 << 10
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 227 << 10
    shared_memory_reserved_per_block: int = 1 << 10
    max_portable_cluster: int = 8  # CUDA C++ Programming Guide, "Thread Block Clusters"
    max_cluster: int = 16  # with cudaFuncAttributeNonPortableClusterSizeAllowed
    max_parameter_bytes: int = 32764  # CUDA C++ Programming Guide, "__global__ Function Parameters"
    tensor_memory_columns: int = 512  # PTX ISA, "Tensor Memory"

    @property
    def persisting_l2_bytes(self) -> int:
        """Most bytes of the L2 that persisting accesses can be given. 5/8 of it is assumed, not read on a B200."""
        return self.l2_bytes * 5 // 8

    @property
    def is_rubin(self) -> bool:
        """True if the device is a Rubin, sm_107."""
        return self.capability == RUBIN.capability

    @property
    def architecture(self) -> int:
        """The number of the device's target: 100 of sm_100a."""
        return 10 * self.capability[0] + self.capability[1]

    def runs(self, number: int, suffix: str) -> bool:
        """True if the device runs PTX for sm_NUMBER with suffix "a", "f" or "" (PTX ISA, ".target").

        PTX for sm_NN runs on later devices too, for sm_NNa on no other, for sm_NNf on those of the family.
        """
        if suffix == "a":
            return number == self.architecture
        return number <= self.architecture and (not suffix or number in FAMILIES[self.architecture])


RUBIN = DeviceProperties(
    name="NVIDIA Rubin (emulated)",
    capability=(10, 7),
    shared_memory_per_sm=328 << 10,
    shared_memory_per_block_optin=327 << 10,
    tensor_memory_columns=576,
)
"""Rubin, sm_107.

Shared memory: (328 - 1) KiB a CTA, in cutlass_dsl/cutlass.py of nvidia-cutlass-dsl 4.8.1, whatever mode the program has
set (cudaFuncAttributeSharedMemoryMode). Tensor memory: cute/arch/tmem.py there. Neither that package nor the PTX ISA
states the number of SMs, or the memory's size, bus, clock and L2: these are a B200's.
"""


def of_process() -> DeviceProperties:
    """Properties of the chip that this process emulates, by the environment variable NOGPU."""
    return RUBIN if os.environ.get("NOGPU") == "rubin" else DeviceProperties()


def refuse_rubin(what: str) -> None:
    """Raises EmulatorError if this process emulates a Rubin, where `what` is not modelled."""
    if of_process().is_rubin:
        raise EmulatorError(f"{what} on Rubin: CuTe DSL, CUDA C++ and load_ptx only are modelled there")


FAMILIES = {100: (100,), 107: (100, 103, 107)}
"""Architecture -> those whose family-specific PTX, sm_NNf, it runs (ptxas 13.5 compiles it for sm_107a)."""

WARP_THREADS = DeviceProperties.warp_size


@dataclass(frozen=True)
class LaunchConfig:
    """Launch as the host requests it."""

    grid: Dim3  # CTAs
    block: Dim3  # threads
    cluster: Dim3 = (1, 1, 1)  # CTAs
    dynamic_shared_bytes: int = 0
    programmatic: bool = False  # programmatic stream serialization
    cooperative: bool = False
    workspace: int = 0
    """Address of the barrier of cooperative_groups' grids, which the device sets; 0 if not cooperative."""
    nonportable_cluster: bool = False  # the kernel's attribute allows clusters of more than 8 CTAs
    preferred_cluster: Dim3 | None = None
    """CTAs of a cluster that may take the place of several (cudaLaunchAttributePreferredClusterDimension)."""

    @property
    def shape(self) -> str:
        """Grid, block and cluster in words."""
        cluster = f", clusters of {self.cluster}" if self.cluster != (1, 1, 1) else ""
        return f"grid {self.grid}, block {self.block}{cluster}"

    @cached_property
    def ctas(self) -> int:
        """Number of CTAs of the grid."""
        return math.prod(self.grid)

    @cached_property
    def clusters(self) -> int:
        """Number of clusters of the grid."""
        return self.ctas // math.prod(self.cluster)


def with_clusters(entry: Entry, config: LaunchConfig) -> LaunchConfig:
    """Launch with the kernel's required cluster shape (PTX ISA, ".reqnctapercluster") if the host requests none."""
    requested = config.cluster != (1, 1, 1)
    return config if requested or entry.cluster is None else replace(config, cluster=entry.cluster)


def with_preferred_clusters(config: LaunchConfig, properties: DeviceProperties) -> LaunchConfig:
    """Launch with clusters of the preferred shape, or with the regular ones if it has none or they are too large."""
    preferred = config.preferred_cluster
    if preferred is None or math.prod(preferred) > _largest_cluster(config, properties):
        return config
    return replace(config, cluster=preferred)


def check_launch(entry: Entry, config: LaunchConfig, properties: DeviceProperties) -> None:
    """Raises EmulatorError, with value and limit, for a launch that the device would refuse."""

    def refuse(reason: str) -> None:
        raise EmulatorError(f"launch refused: {reason}", kernel=entry.name)

    _check_grid(entry, config, properties, refuse)
    _check_cluster(entry, config, properties, refuse)
    _check_resources(entry, config, properties, refuse)


def _check_grid(entry: Entry, config: LaunchConfig, properties: DeviceProperties, refuse: _Refuse) -> None:
    for axis, size, limit in zip("xyz", config.grid, properties.max_grid):
        if not 1 <= size <= limit:
            refuse(f"grid {config.grid}: {axis} must be 1 to {limit}")
    for axis, size, limit in zip("xyz", config.block, properties.max_block):
        if not 1 <= size <= limit:
            refuse(f"block {config.block}: {axis} must be 1 to {limit}")
    threads = math.prod(config.block)
    if threads > properties.max_threads_per_block:
        refuse(f"block {config.block} has {threads} threads, the limit is {properties.max_threads_per_block}")
    if entry.reqntid is not None and tuple(entry.reqntid) != tuple(config.block):
        refuse(f"block {config.block} is not the {tuple(entry.reqntid)} that the kernel requires (.reqntid)")
    if entry.maxntid is not None and threads > math.prod(entry.maxntid):
        allowed = f"{math.prod(entry.maxntid)} that the kernel allows (.maxntid {entry.maxntid})"
        refuse(f"block {config.block} has {threads} threads, more than the {allowed}")


def _check_cluster(entry: Entry, config: LaunchConfig, properties: DeviceProperties, refuse: _Refuse) -> None:
    if min(config.cluster) < 1:
        refuse(f"cluster {config.cluster}: every axis must be at least 1")
    for axis, size, cluster in zip("xyz", config.grid, config.cluster):
        if size % cluster:
            refuse(f"grid {config.grid} is not a multiple of cluster {config.cluster} in {axis}")
    cluster_ctas = math.prod(config.cluster)
    limit = _largest_cluster(config, properties)
    if cluster_ctas > limit:
        hint = "" if config.nonportable_cluster else " without the non-portable cluster size attribute"
        refuse(f"cluster {config.cluster} has {cluster_ctas} CTAs, the limit is {limit}{hint}")
    if entry.cluster is not None and config.cluster != entry.cluster:
        refuse(f"cluster {config.cluster} is not the {entry.cluster} that the kernel requires (.reqnctapercluster)")
    if entry.max_cluster is not None and cluster_ctas > entry.max_cluster:
        refuse(
            f"cluster {config.cluster} has {cluster_ctas} CTAs, the kernel allows {entry.max_cluster} (.maxclusterrank)"
        )
    if config.preferred_cluster is not None:
        _check_preferred_cluster(entry, config, config.preferred_cluster, refuse)


def _check_preferred_cluster(entry: Entry, config: LaunchConfig, preferred: Dim3, refuse: _Refuse) -> None:
    for axis, size, cluster, larger in zip("xyz", config.grid, config.cluster, preferred):
        if larger < 1 or larger % cluster:
            refuse(f"preferred cluster {preferred} is not a multiple of cluster {config.cluster} in {axis}")
        if size % larger:
            refuse(f"grid {config.grid} is not a multiple of preferred cluster {preferred} in {axis}")
    ctas = math.prod(preferred)
    if entry.max_cluster is not None and ctas > entry.max_cluster:
        refuse(f"preferred cluster {preferred} has {ctas} CTAs, the kernel allows {entry.max_cluster}")


def _largest_cluster(config: LaunchConfig, properties: DeviceProperties) -> int:
    return properties.max_cluster if config.nonportable_cluster else properties.max_portable_cluster


def _check_resources(entry: Entry, config: LaunchConfig, properties: DeviceProperties, refuse: _Refuse) -> None:
    static = static_shared_bytes(entry)
    shared = static + config.dynamic_shared_bytes
    if config.dynamic_shared_bytes < 0 or shared > properties.shared_memory_per_block_optin:
        refuse(
            f"{config.dynamic_shared_bytes} bytes of dynamic and {static} of static shared memory, the limit of both "
            f"together is {properties.shared_memory_per_block_optin}"
        )
    parameters = entry.param_offsets()[""]
    if parameters > properties.max_parameter_bytes:
        refuse(f"{parameters} bytes of parameters, the limit is {properties.max_parameter_bytes}")
    if config.cooperative:
        resident = properties.sm_count * ctas_per_sm(math.prod(config.block), shared, properties)
        if config.ctas > resident:
            refuse(f"cooperative launch of {config.ctas} CTAs, {resident} fit on the device at once")


def static_shared_bytes(entry: Entry) -> int:
    """Bytes of the entry's `.shared` variables, laid out in order, without `.extern` ones (dynamic shared memory).

    Variables of the module and of device functions count only once the entry is linked (compiler/linking.py).
    """
    end = 0
    for variable in entry.variables.values():
        if variable.space == "shared" and not variable.extern:
            end = -(-end // variable.align) * variable.align + variable.size
    return end


def shared_per_cta(ctas: int, properties: DeviceProperties) -> int:
    """Bytes of shared memory for each of `ctas` CTAs of an SM."""
    share = properties.shared_memory_per_sm // ctas - properties.shared_memory_reserved_per_block
    return min(properties.shared_memory_per_block_optin, share)


def clusters_per_wave(config: LaunchConfig, properties: DeviceProperties) -> int:
    """Number of clusters that have SMs of their own at one time."""
    return max(1, properties.sm_count // math.prod(config.cluster))


def ctas_per_sm(threads: int, shared_bytes: int, properties: DeviceProperties) -> int:
    """Number of CTAs that fit on one SM by threads and shared memory; PTX does not say how many registers they take."""
    return min(
        properties.max_blocks_per_sm,
        properties.max_threads_per_sm // (-(-threads // properties.warp_size) * properties.warp_size),
        properties.shared_memory_per_sm // (shared_bytes + properties.shared_memory_reserved_per_block),
    )
