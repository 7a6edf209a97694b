"""torch.cuda for the emulated device.

Torch operations are complete when the call returns. So are launches, except those that the next launch may overlap,
which are pending until a call asks a queue or an event. `Event.elapsed_time` is the time on the host's clock between
two records: that of the emulation, not of a kernel.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from nogpu.cuda import graphs, torch_queues
from nogpu.cuda.backends import emulated
from nogpu.cuda.bindings import CUDA_VERSION
from nogpu.execution.device import Device, run_pending


class MemoryInUse:
    """The number of bytes of live device allocations, and its peak."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)


memory_in_use = MemoryInUse()

# A device as torch's functions take it; None is the current one.
DeviceLike = torch.device | torch.cuda.device | str | int | None


class Generator(torch._C.Generator):
    """torch.Generator whose device "cuda" draws by the CPU's algorithm."""

    _device: torch.device

    def __new__(cls, device: torch.device | str = "cpu") -> Generator:
        wanted = torch.device(device)
        # torch's stub has no __new__ for Generator.
        self = super().__new__(cls, device="cpu" if wanted.type == "cuda" else wanted)  # type: ignore[call-arg]
        self._device = torch.device("cuda", 0) if wanted.type == "cuda" else wanted
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # a plain attribute in torch's stub, read-only in torch
        return self._device


class DefaultGenerator(Generator):
    """The device's default generator: torch's own, whose states are a seed and an offset here, as those of a GPU are.

    A state that no draw has led to, which the program made, seeds torch's generator with both.
    """

    _states: dict[tuple[int, ...], torch.Tensor]  # (seed, offset) -> state of torch's generator
    _now: tuple[int, ...]
    _seed: int | None  # of torch's generator when _now was its state

    def __new__(cls) -> DefaultGenerator:
        self = super().__new__(cls, "cuda")
        self._states, self._now, self._seed = {}, (0, 0), None  # type: ignore[attr-defined]
        return self  # type: ignore[return-value]  # Generator.__new__ makes one of cls

    def get_state(self) -> torch.Tensor:
        """uint8 (16,): the seed and the offset as int64; the offset grows by 4 if something was drawn since."""
        state, seed = torch.default_generator.get_state(), torch.default_generator.initial_seed()
        if seed != self._seed:
            self._now = ((seed + (1 << 63)) % (1 << 64) - (1 << 63), 0)
        elif not torch.equal(self._states[self._now], state):
            self._now = (self._now[0], self._now[1] + 4)
        self._states[self._now], self._seed = state, seed
        return torch.tensor(self._now, dtype=torch.int64, device="cpu").view(torch.uint8)

    def set_state(self, new_state: torch.Tensor) -> DefaultGenerator:
        """Take a state of the form of get_state's. Raises RuntimeError for another size."""
        if new_state.nbytes != 16:
            raise RuntimeError(f"a CUDA generator's state has 16 bytes, a seed and an offset; got {new_state.nbytes}")
        self._now = tuple(new_state.view(torch.int64).tolist())
        if self._now not in self._states:
            torch.default_generator.manual_seed(hash(self._now))
            self._states[self._now] = torch.default_generator.get_state()
        torch.default_generator.set_state(self._states[self._now])
        self._seed = torch.default_generator.initial_seed()
        return self

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Seed torch's generator."""
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        """A new seed of torch's generator, which takes it."""
        return torch.default_generator.seed()

    def initial_seed(self) -> int:
        """The seed of the state."""
        self.get_state()
        return self._now[0] % (1 << 64)


@functools.cache
def default_generator() -> DefaultGenerator:
    """The device's generator, made at its first use: torch makes none while it is being imported."""
    return DefaultGenerator()


class _Generators(Sequence[DefaultGenerator]):
    """Answers torch.cuda.default_generators."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return (default_generator,)[index]()


@contextlib.contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _ordinal(device: DeviceLike) -> int:
    """0, the only device, which any object that names none stands for, a stream too, as in torch. Raises RuntimeError
    for another device.
    """
    if isinstance(device, str):
        device = torch.device(device)
    index = (
        device.idx
        if isinstance(device, torch.cuda.device)
        else getattr(device, "index", device if isinstance(device, int) else None)
    )
    if index not in (None, 0, -1):
        raise RuntimeError(f"CUDA error: invalid device ordinal\nThere is one emulated device, cuda:0; got {device}")
    return 0


def synchronize(device: DeviceLike = None) -> None:
    """Answers torch.cuda.synchronize: runs the pending launches."""
    _ordinal(device)
    emulated().synchronize()


def get_device_properties(device: DeviceLike = None) -> SimpleNamespace:
    """Answers torch.cuda.get_device_properties with the names of torch's struct; sizes in bytes, clock rates in kHz."""
    _ordinal(device)
    properties = Device.current().properties
    return SimpleNamespace(
        name=properties.name,
        major=properties.capability[0],
        minor=properties.capability[1],
        total_memory=properties.total_memory,
        multi_processor_count=properties.sm_count,
        L2_cache_size=properties.l2_bytes,
        clock_rate=properties.clock_rate,
        memory_clock_rate=properties.memory_clock_rate,
        memory_bus_width=properties.memory_bus_width,
        max_threads_per_block=properties.max_threads_per_block,
        max_threads_per_multi_processor=properties.max_threads_per_sm,
        regs_per_multiprocessor=properties.registers_per_sm,
        shared_memory_per_block=properties.shared_memory_per_block,
        shared_memory_per_block_optin=properties.shared_memory_per_block_optin,
        shared_memory_per_multiprocessor=properties.shared_memory_per_sm,
        warp_size=properties.warp_size,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def _memory() -> MemoryInUse:
    run_pending()  # pending launches keep memory that the program has freed
    return memory_in_use


def _memory_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes."""
    total = Device.current().properties.total_memory
    return total - _memory().now, total


def _reset_peak(device: DeviceLike = None) -> None:
    memory_in_use.peak = _memory().now


def _no_graphs(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError("CUDA graphs of torch operations are not modelled by the emulated device")


def _seed_all() -> None:
    torch.default_generator.seed()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Stream": torch_queues.Stream,
    "ExternalStream": torch_queues.ExternalStream,
    "Event": torch_queues.Event,
    "CUDAGraph": graphs.CUDAGraph,
    "graph": torch_queues.graph,
    "graph_pool_handle": lambda: (0, 0),
    "make_graphed_callables": _no_graphs,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": lambda: None,
    "_lazy_init": lambda: None,
    "_is_compiled": lambda: True,
    "_is_in_bad_fork": lambda: False,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_tf32_supported": lambda: True,
    "is_current_stream_capturing": graphs.capturing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _ordinal,
    "_exchange_device": _ordinal,
    "_maybe_exchange_device": _ordinal,
    "set_stream": torch_queues.choose,
    "current_stream": torch_queues.current,
    "default_stream": lambda device=None: torch_queues.DEFAULT,
    "synchronize": synchronize,
    "get_device_properties": get_device_properties,
    "get_device_capability": lambda device=None: Device.current().properties.capability,
    "get_device_name": lambda device=None: Device.current().properties.name,
    "get_arch_list": lambda: [f"sm_{Device.current().properties.architecture}"],
    "can_device_access_peer": lambda device, peer: False,
    "empty_cache": lambda: None,
    "ipc_collect": lambda: None,
    "mem_get_info": _memory_info,
    "memory_allocated": lambda device=None: _memory().now,
    "memory_reserved": lambda device=None: _memory().now,
    "max_memory_allocated": lambda device=None: _memory().peak,
    "max_memory_reserved": lambda device=None: _memory().peak,
    "reset_peak_memory_stats": _reset_peak,
    "reset_max_memory_allocated": _reset_peak,
    "manual_seed": lambda seed: torch.default_generator.manual_seed(int(seed)) and None,
    "manual_seed_all": lambda seed: torch.default_generator.manual_seed(int(seed)) and None,
    "seed": _seed_all,
    "seed_all": _seed_all,
    "initial_seed": torch.initial_seed,
    "get_rng_state": lambda device="cuda": default_generator().get_state(),
    "get_rng_state_all": lambda: [default_generator().get_state()],
    "set_rng_state": lambda new_state, device="cuda": default_generator().set_state(new_state) and None,
    "set_rng_state_all": lambda new_states: default_generator().set_state(new_states[0]) and None,
}


def _stats(device_index: int) -> dict[str, Any]:
    """Bytes in use, by the names of torch's allocator. Its counts of blocks are 0: the device has none."""
    in_use, none = _memory(), {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    stats: dict[str, Any] = {
        f"{what}{unit}": {"all": none, "small_pool": none, "large_pool": none}
        for what in ("active", "inactive_split")
        for unit in ("", "_bytes")
    }
    for name in ("allocation", "segment", "oversize_allocations", "oversize_segments"):
        stats[name] = none if name.startswith("oversize") else stats["active"]
    all_of = none | {"current": in_use.now, "peak": in_use.peak, "allocated": in_use.now}
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        stats[name] = {"all": all_of, "small_pool": none, "large_pool": all_of}
    return stats | {"num_alloc_retries": 0, "num_ooms": 0, "max_split_size": -1}


class _Cudart:
    """Functions of the CUDA runtime, which return its status: torch.cuda.cudart() has them."""

    class cudaError(int):
        success = 0

    @staticmethod
    def cudaGetErrorString(error: int) -> str:
        return "no error" if not error else f"CUDA error {int(error)}"

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        return _memory_info(device)

    @staticmethod
    def cudaProfilerStart() -> int:
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:
        return 0


class _TensorType(type):
    """The type of torch.cuda.FloatTensor and its like, which older programs convert and make tensors by."""

    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.Tensor:
        return getattr(torch, cls.__name__)(*args, **kwargs).to("cuda")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype is cls.dtype


TENSOR_TYPES = {
    f"{name}Tensor": _TensorType(f"{name}Tensor", (), {"dtype": getattr(torch, f"{name}Tensor").dtype})
    for name in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
}


LIBRARY: dict[str, Callable[..., Any]] = {
    "_get_accelerator": lambda check=None: torch.device("cuda"),
    "_accelerator_getAccelerator": lambda: torch.device("cuda"),
    "_accelerator_getDeviceIndex": lambda: 0,
    "_accelerator_setDeviceIndex": _ordinal,
    "_accelerator_exchangeDevice": _ordinal,
    "_accelerator_maybeExchangeDevice": _ordinal,
    "_accelerator_getStream": torch_queues.current,
    "_accelerator_setStream": torch_queues.choose,
    "_accelerator_synchronizeDevice": synchronize,
    "_accelerator_isAllocatorInitialized": lambda: True,
    "_accelerator_emptyCache": lambda: None,
    "_accelerator_emptyHostCache": lambda: None,
    "_accelerator_getDeviceStats": _stats,
    "_accelerator_getMemoryInfo": _memory_info,
    "_accelerator_resetAccumulatedStats": lambda index: None,
    "_accelerator_resetPeakStats": _reset_peak,
    "_cuda_memoryStats": _stats,
    "_cuda_resetPeakMemoryStats": _reset_peak,
    "_cuda_resetAccumulatedMemoryStats": lambda device: None,
    "_cuda_setMemoryFraction": lambda fraction, device: None,
    "_cuda_getMemoryFraction": lambda device: 1.0,
    "_cuda_sleep": lambda cycles: None,
    "_cuda_getDevice": lambda: 0,
    "_cuda_get_sync_debug_mode": lambda: 0,
    "_cuda_set_sync_debug_mode": lambda mode: None,
}
"""Functions of torch's library that torch.accelerator, torch.get_device_module and torch.cuda.memory call."""

NVTX: dict[str, Callable[..., Any]] = {
    "range_push": lambda msg: 0,
    "range_pop": lambda: 0,
    "range_start": lambda msg: 0,
    "range_end": lambda range_id: None,
    "mark": lambda msg: None,
    "range": _nothing,
}

PROFILER: dict[str, Callable[..., Any]] = {"start": lambda: None, "stop": lambda: None}

PATCHES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (torch.cuda, FUNCTIONS),
    (torch.cuda, {"default_generators": _Generators()}),
    (torch._C, LIBRARY),
    (torch.cuda.nvtx, NVTX),
    (torch.cuda.profiler, PROFILER),
    (torch, {"Generator": Generator}),
)


def install() -> None:
    """Replace what needs a driver in torch.cuda and torch.accelerator, and name the CUDA of a torch that has none."""
    if torch.version.cuda is None:
        torch.version.cuda = f"{CUDA_VERSION // 1000}.{CUDA_VERSION % 1000 // 10}"
    for module, functions in PATCHES:
        for name, function in functions.items():
            setattr(module, name, function)
    cuda: Any = torch.cuda
    cuda.memory.is_initialized = FUNCTIONS["is_initialized"]  # it has imported torch.cuda's
    cuda._cudart = _Cudart
    for name, kind in TENSOR_TYPES.items():
        setattr(torch.cuda, name, kind)
