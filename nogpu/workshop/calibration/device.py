"""The GPU on which microbenchmarks run, through the CUDA driver; under `python -m nogpu` the emulated one."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workshop.calibration.launches import OUT_BYTES, RECORD, Argument, Launch

if TYPE_CHECKING:
    from nogpu.hardware.properties import LaunchConfig

HERE = Path(__file__).resolve().parent
ROW = 128  # bytes of a tensor map's row
FREE_SHARED = 40 << 10  # bytes of dynamic memory without an attribute, which 48 KiB, static ones included, need
DATA_BYTES = 4 << 30  # several times what a measurement reads
FLUSH_L2S, FLUSH_CTA_BYTES, FLUSH_THREADS = 6, 1 << 20, 512


@cache
def ptx(file: str, arch: str) -> str:
    """PTX of a .cu file of this folder; for a B200, of the first PTX version that has every MMA kind."""
    from nogpu.hopper import library

    text = library.ptx(HERE / f"{file}.cu", arch)
    return text.replace(f".version {library.PTX_VERSION}", ".version 8.7") if arch == "sm_100a" else text


@cache
def parameter_types(file: str, kernel: str, arch: str) -> list[str]:
    """The .param types of an entry: "u32", "u64" or, for a structure, "b8". Raises KeyError for an unknown kernel."""
    entry = re.search(rf"\.entry {kernel}\((.*?)\)\s*(?:\.\w+[^{{]*)?\{{", ptx(file, arch), re.S)
    if entry is None:
        raise KeyError(f"{file}.cu has no kernel {kernel}")
    return re.findall(r"\.param (?:\.align \d+ )?\.(\w+)", entry[1])


def filled(words: np.ndarray) -> np.ndarray:
    """Records that were written: those whose end is not 0."""
    records = words.reshape(-1, RECORD)
    return records[records[:, 1] != 0].astype(np.int64)


class Gpu:
    """The current GPU. `data` and `target` have `data_bytes` bytes each and are zero."""

    wait_cycles = 10_000_000  # duration of the kernel that hides the host's work

    def __init__(self, data_bytes: int = DATA_BYTES) -> None:
        from cuda.bindings import driver

        from nogpu.hopper import gpu

        self.driver, self.gpu, self.data_bytes = driver, gpu, data_bytes
        attribute = driver.CUdevice_attribute
        major, minor = (
            gpu.device_attribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"))
            for part in ("MAJOR", "MINOR")
        )
        self.arch = f"sm_{major}{minor}a"
        self.sms = gpu.device_attribute(gpu.SM_COUNT)
        self.l2_bytes = gpu.device_attribute(attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
        self.name = gpu.call(driver.cuDeviceGetName, 64, 0).partition(b"\0")[0].decode()
        self.functions: dict[tuple[str, str], Any] = {}
        self.modules: dict[str, Any] = {}
        self.maps: dict[int, bytes] = {}
        sizes = {"out": OUT_BYTES, "data": data_bytes, "target": data_bytes}
        self.memory = {name: self._allocate(size) for name, size in sizes.items()}

    def _allocate(self, size: int) -> int:
        address = int(self.gpu.call(self.driver.cuMemAlloc, size))
        self.gpu.call(self.driver.cuMemsetD8, address, 0, size)
        return address

    def address(self, name: str) -> int:
        return self.memory[name]

    def clear(self) -> None:
        """Zero `data`, to which chains of addresses are written."""
        self.gpu.call(self.driver.cuMemsetD8, self.memory["data"], 0, self.data_bytes)

    def _copy(self, target: int, source: int, size: int, function: Callable[..., Any]) -> None:
        self.gpu.call(function, target, source, size)

    def write(self, values: np.ndarray) -> None:
        """Write values to the start of `data`."""
        self._copy(self.memory["data"], values.ctypes.data, values.nbytes, self.driver.cuMemcpyHtoD)

    def _function(self, launch: Launch) -> Any:
        key = launch.file, launch.kernel
        if key not in self.functions:
            if launch.file not in self.modules:
                self.modules[launch.file] = self.gpu.Module(ptx(launch.file, self.arch))
            self.functions[key] = self.modules[launch.file].function(launch.kernel)
        if launch.shared > FREE_SHARED:
            self.gpu.set_attribute(self.functions[key], self.gpu.MAX_DYNAMIC_SHARED_BYTES, launch.shared)
        return self.functions[key]

    def _value(self, argument: Argument, kind: str) -> bytes:
        if isinstance(argument, int):
            return argument.to_bytes(8 if kind.endswith("64") else 4, "little", signed=True)
        if argument.startswith("rows:"):
            return self._map(int(argument[5:]))
        return self.memory[argument].to_bytes(8, "little")

    def _map(self, rows: int) -> bytes:
        """Tensor map of `data`: rows of ROW bytes, `rows` of them in a box."""
        if rows not in self.maps:
            self.maps[rows] = self._encoded(rows)
        return self.maps[rows]

    def _encoded(self, rows: int) -> bytes:
        kinds = self.driver
        made = self.gpu.call(
            kinds.cuTensorMapEncodeTiled,
            kinds.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8,
            2,
            self.memory["data"],
            [kinds.cuuint64_t(ROW), kinds.cuuint64_t(self.data_bytes // ROW)],
            [kinds.cuuint64_t(ROW)],
            [kinds.cuuint32_t(ROW), kinds.cuuint32_t(rows)],
            [kinds.cuuint32_t(1), kinds.cuuint32_t(1)],
            kinds.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            kinds.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            kinds.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            kinds.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)

    def enqueue(self, launch: Launch) -> None:
        """Launch, without waiting for the end."""
        from nogpu.hardware.properties import LaunchConfig

        kinds = parameter_types(launch.file, launch.kernel, self.arch)
        values = [self._value(argument, kind) for argument, kind in zip(launch.arguments, kinds, strict=True)]
        grid, block, cluster = ((size, 1, 1) for size in (launch.grid, launch.block, launch.cluster))
        config = LaunchConfig(grid, block, cluster, launch.shared, programmatic=launch.programmatic)
        self._launch(launch, config, values)

    def _launch(self, launch: Launch, config: LaunchConfig, values: list[bytes]) -> None:
        self.gpu.launch(self._function(launch), config, values, 0)

    def _clear_records(self) -> None:
        self.gpu.call(self.driver.cuMemsetD8Async, self.memory["out"], 0, OUT_BYTES, 0)

    def flush(self, how: str) -> None:
        """Fill L2 with lines that no measurement reads: clean ones after "reads", else dirty ones (see Measurement)."""
        ctas = min(FLUSH_L2S * self.l2_bytes, self.data_bytes) // FLUSH_CTA_BYTES
        arguments = ("out", "target", "target", FLUSH_CTA_BYTES, self.data_bytes, 1)
        kernel = "plain_read" if how == "reads" else "plain_write"
        self.enqueue(Launch("memory", kernel, arguments, ctas, FLUSH_THREADS))
        if "rest" in how:
            self.enqueue(Launch("launch", "spin", (self.wait_cycles,)))

    def run(self, launch: Launch) -> None:
        """Launch on cleared records and wait for the end."""
        self._clear_records()
        self.enqueue(launch)
        self.gpu.call(self.driver.cuStreamSynchronize, 0)

    def run_together(self, launches: list[Launch]) -> None:
        """Run the launches back to back, on cleared records, and wait for the end."""
        self._clear_records()
        self.enqueue(Launch("launch", "spin", (self.wait_cycles,)))
        for launch in launches:
            self.enqueue(launch)
        self.gpu.call(self.driver.cuStreamSynchronize, 0)

    def records(self, words: int = 0) -> np.ndarray:
        """The records that were written, int64 [records, RECORD], or the first `words` words."""
        values = np.empty(words or OUT_BYTES // 8, np.uint64)
        self._copy(values.ctypes.data, self.memory["out"], values.nbytes, self.driver.cuMemcpyDtoH)
        return values.astype(np.int64) if words else filled(values)

    def period(self, launches: list[Launch]) -> float:
        """Microseconds per launch, back to back, with the host's work hidden. Raises ValueError if that is too long."""
        before, after = (self.gpu.call(self.driver.cuEventCreate, 0) for _ in range(2))
        try:
            for cycles in (self.wait_cycles, 4 * self.wait_cycles, 16 * self.wait_cycles):
                self.enqueue(Launch("launch", "spin", (cycles,)))
                self.gpu.call(self.driver.cuEventRecord, before, 0)
                for launch in launches:
                    self.enqueue(launch)
                hidden = self._pending(before)
                self.gpu.call(self.driver.cuEventRecord, after, 0)
                self.gpu.call(self.driver.cuEventSynchronize, after)
                if hidden:
                    milliseconds = float(self.gpu.call(self.driver.cuEventElapsedTime, before, after))
                    return 1e3 * milliseconds / len(launches)
        finally:
            for event in (before, after):
                self.gpu.call(self.driver.cuEventDestroy, event)
        raise ValueError(f"the host takes longer for {len(launches)} launches than a kernel of {cycles} cycles")

    def _pending(self, event: Any) -> bool:
        return bool(self.driver.cuEventQuery(event)[0] != self.driver.CUresult.CUDA_SUCCESS)


class Emulated(Gpu):
    """The emulated B200. Work that cuda.bindings cannot do there goes to the emulator itself."""

    wait_cycles = 1

    def _launch(self, launch: Launch, config: LaunchConfig, values: list[bytes]) -> None:
        import nogpu

        if launch.file not in self.modules:
            self.modules[launch.file] = nogpu.load_ptx(ptx(launch.file, self.arch))
        self.modules[launch.file][launch.kernel].launch(
            config.grid,
            config.block,
            [value if len(value) > 8 else int.from_bytes(value, "little", signed=True) for value in values],
            shared=config.dynamic_shared_bytes,
            cluster=config.cluster,
            programmatic=config.programmatic,
            wait=False,
        )

    def _copy(self, target: int, source: int, size: int, function: Callable[..., Any]) -> None:
        self.gpu.call(self.driver.cuStreamSynchronize, 0)
        ctypes.memmove(target, source, size)

    def _pending(self, event: Any) -> bool:
        return True  # times mean nothing here

    def _encoded(self, rows: int) -> bytes:
        import nogpu

        dims, strides = (ROW, self.data_bytes // ROW), (ROW,)
        return nogpu.tensor_map(
            self.memory["data"], (ROW, rows), element="uint8", dims=dims, strides=strides, swizzle="128B"
        )


def current(data_bytes: int) -> Gpu:
    """The GPU of this process."""
    return (Emulated if os.environ.get("NOGPU") == "1" else Gpu)(data_bytes)
