"""Launches on the Hopper GPU: lower and load a kernel once, patch its parameters, launch it.

A launch goes to torch's current queue and returns at once. A later call reports a failure on the GPU, as in CUDA.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig, with_clusters
from nogpu.hopper import MODES, gpu, library
from nogpu.hopper.lower import lower
from nogpu.hopper.maps import MapFacts, holds_maps, is_map, mark, patch, patch_members
from nogpu.ptx.module import Entry

if TYPE_CHECKING:
    from cuda.bindings.driver import CUfunction

TMEM_BYTES = 512 * 128 * 4  # bytes of the pool per CTA: [column][lane]
CTAS_PER_SM = 8  # an SM has 2048 threads; a CTA has at least one warp of its own and the tensor core's four
_CONTROL_ALIGNMENT = 16
FORWARDED = (
    "loads of a CTA pair (.cta_group::2) complete on the other CTA's barrier, on a Hopper by software that takes longer"
    " than the loads: the time of this kernel means nothing, only times of kernels without pairs do"
)


@dataclass
class Loaded:
    """A kernel on the GPU, with the facts of its lowering (lower.Lowered)."""

    function: CUfunction
    extra_threads: int
    control_bytes: int
    asks: bool
    shared_bytes: int = 0  # most dynamic shared memory of a launch so far


def mode() -> str:
    """The mode of this process, from NOGPU_HOPPER_MODE."""
    name = os.environ.get("NOGPU_HOPPER_MODE") or "exact"
    if name not in MODES:
        raise ValueError(f"NOGPU_HOPPER_MODE is {name!r}; must be one of {', '.join(MODES)}")
    return name


class Hopper:
    """The GPU, as the runtime launches on it. Kernels are kept by PTX text: entry names repeat between compilations."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
            raise EmulatorError("the Hopper device needs a GPU of compute capability 9.0, and torch with CUDA")
        torch.cuda.init()
        self._torch = torch
        self._kernels: dict[tuple[Any, ...], Loaded] = {}
        self._pool: tuple[Any, Any] | None = None

    def launch(self, ptx: str, entry: Entry, config: LaunchConfig, values: list[bytes]) -> None:
        """Launch an entry of a sm_100a module. values: bytes of each parameter, in order."""
        config = with_clusters(entry, config)
        maps: dict[str, MapFacts] = {}
        patched = []
        for param, value in zip(entry.params, values, strict=True):
            if is_map(param):
                value, facts = patch(value)
                if facts is not None:
                    maps[param.name] = facts
            elif holds_maps(param):
                value = patch_members(value)
            patched.append(value)
        cluster = math.prod(config.cluster)
        key = (ptx, entry.name, mode(), cluster, tuple(maps.items()), config.nonportable_cluster, config.block)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self._load(ptx, entry, config, maps)
        if kernel.asks:
            pairs = zip(entry.params, patched, strict=True)
            patched = [
                mark(value) if param.name in maps and maps[param.name].four_bit else value for param, value in pairs
            ]
        config = _widened(config, kernel, entry)
        if config.dynamic_shared_bytes > kernel.shared_bytes:
            gpu.set_attribute(kernel.function, gpu.MAX_DYNAMIC_SHARED_BYTES, config.dynamic_shared_bytes)
            kernel.shared_bytes = config.dynamic_shared_bytes
        gpu.launch(kernel.function, config, patched, self._queue())

    def _load(self, ptx: str, entry: Entry, config: LaunchConfig, maps: dict[str, MapFacts]) -> Loaded:
        lowered = lower(ptx, entry.name, mode(), maps, math.prod(config.cluster), library.ptx, config.block)
        if lowered.forwards and mode() != "exact":
            print(f"{entry.name}: {FORWARDED}", file=sys.stderr, flush=True)
        try:
            module = gpu.Module(lowered.ptx)
        except EmulatorError as error:
            raise EmulatorError(f"the lowered PTX was not accepted: {error.reason}", kernel=entry.name) from None
        function = module.function(entry.name)
        if config.nonportable_cluster:
            gpu.set_attribute(function, gpu.NONPORTABLE_CLUSTER, 1)
        if lowered.uses_tmem:
            module.write("hopper_pool", self._tensor_memory())
        return Loaded(function, lowered.extra_threads, lowered.control_bytes, lowered.asks)

    def _tensor_memory(self) -> bytes:
        """The library's Pool (control.cuh), with a slot for each CTA that can be resident on the GPU."""
        if self._pool is None:
            slots = CTAS_PER_SM * gpu.device_attribute(gpu.SM_COUNT)
            words = self._torch.empty(slots * TMEM_BYTES, dtype=self._torch.uint8, device="cuda")
            self._pool = words, self._torch.zeros(slots, dtype=self._torch.int32, device="cuda")
            # Kernels on other queues use the pool too.
            self._torch.cuda.synchronize()
        words, taken = self._pool
        return struct.pack("<3Q", words.data_ptr(), taken.data_ptr(), taken.numel())

    def _queue(self) -> int:
        return self._torch.cuda.current_stream().cuda_stream


def _widened(config: LaunchConfig, kernel: Loaded, entry: Entry) -> LaunchConfig:
    """The launch configuration with the extra warps and their shared memory."""
    if not kernel.extra_threads:
        return config
    x, y, z = config.block
    shared = -(-config.dynamic_shared_bytes // _CONTROL_ALIGNMENT) * _CONTROL_ALIGNMENT + kernel.control_bytes
    limit = gpu.device_attribute(gpu.SHARED_PER_BLOCK_OPTIN)
    if shared > limit:
        raise EmulatorError(
            f"{config.dynamic_shared_bytes} bytes of dynamic shared memory leave no room for the "
            f"{kernel.control_bytes} of the software that stands in for the tensor core; the limit is {limit}",
            kernel=entry.name,
        )
    return dataclasses.replace(config, block=(x + kernel.extra_threads, y, z), dynamic_shared_bytes=shared)


@functools.cache
def current() -> Hopper:
    """The GPU of this process."""
    return Hopper()


def install_runtime() -> None:
    """Make cuda.bindings.runtime.cudaLibraryUnload do nothing: the DSL calls it with handles of cuda/dsl/runtime.py."""
    import cuda.bindings.runtime as runtime

    runtime.cudaLibraryUnload = lambda library: (runtime.cudaError_t.cudaSuccess,)
