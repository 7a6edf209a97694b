"""A stand-in for the C module through which Triton's driver for NVIDIA GPUs loads and launches kernels.

Triton compiles as for a B200, and its own driver class, launcher and tensor descriptors stay in use: `triton_hooks`
gives them `CudaUtils` in place of the module that they would compile from driver.c. A kernel is loaded from its PTX,
which the compiler keeps beside the cubin.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nogpu.cuda import bindings, cubin, graphs, handles, modules
from nogpu.cuda.backends import current
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device
from nogpu.hardware.properties import DeviceProperties, LaunchConfig
from nogpu.hardware.tma.encode import Im2colMap, TiledMap

TESTED = ("3.6.0", "3.7.1", "3.9.0")  # versions of Triton
MAX_PORTABLE_CLUSTER = DeviceProperties.max_portable_cluster
_L2_PROMOTION_128B = 2  # CUtensorMapL2promotion
_LAUNCH_ARGUMENTS = 16

# CUdevice_attribute
_SHARED_OPTIN, _REGISTERS, _SM_COUNT, _WARP_SIZE, _CLOCK, _MEMORY_CLOCK, _BUS_WIDTH = 97, 12, 16, 10, 13, 36, 37

_INTEGERS = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u1": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8}

_TENSOR = re.compile(r"tensordesc<([^[>]*)\[([^]]*)\]")

_INLINE = re.compile(r"// begin inline asm\n.*?// end inline asm\n", re.DOTALL)
_LOCATION = re.compile(r"^\s*\.loc\b.*$", re.MULTILINE)


class _State(threading.local):
    ptx: str | None = None  # PTX of the kernel that this thread is loading


_state = _State()


def _without_locations(block: re.Match[str]) -> str:
    """Inline assembly without .loc, in which LLVM counts lines of the assembly as lines of the source."""
    return _LOCATION.sub("", block[0])


@contextlib.contextmanager
def loading(ptx: str) -> Iterator[None]:
    """A context in which the cubin that Triton loads stands for `ptx`."""
    before, _state.ptx = _state.ptx, _INLINE.sub(_without_locations, ptx)
    try:
        yield
    finally:
        _state.ptx = before


def unknown_interface(what: str) -> EmulatorError:
    """The error for a version of Triton whose driver is not the one that this module knows."""
    import triton

    return EmulatorError(
        f"Triton {triton.__version__}: {what}; the emulator knows the driver of Triton {', '.join(TESTED)}"
    )


class TensorMap:
    """PyCUtensorMap: the 128 bytes of a tensor map."""

    def __init__(self, raw: bytes):
        self.raw = raw


class KernelArgument:
    """PyKernelArg: how the launcher treats an argument. type: an ARG of CudaUtils; nested_tuple: a tuple's members."""

    def __init__(self, nested_tuple: Sequence[KernelArgument] | None, type: int = 0):
        self.nested_tuple, self.type = nested_tuple, type


def _reversed(values: Sequence[Any], factor: int = 1) -> list[int]:
    """Integers of Triton's dimensions in the order of a tensor map's, the contiguous one first, times a factor."""
    return [factor * int(value) for value in reversed(values)]


def _encoded(name: str, kind: type[TiledMap | Im2colMap], fields: tuple, swizzle: int, padding: int) -> TensorMap:
    """A tensor map of these fields. Raises EmulatorError, which names the driver's function, for what it refuses."""
    options: dict[str, Any] = {"swizzle": swizzle, "l2_promotion": _L2_PROMOTION_128B, "fill_nan": int(padding == 1)}
    try:
        return TensorMap(kind(*fields, **options).encode())
    except Fault as fault:
        raise EmulatorError(f"cuTensorMapEncode{name}: {fault.reason}") from None


def _flattened(annotations: Sequence[KernelArgument], arguments: Sequence[Any]) -> Iterator[Any]:
    """The arguments that become parameters: all but constants, with the members of a tuple in its place."""
    for annotation, argument in zip(annotations, arguments):
        if annotation.type == CudaUtils.ARG_TUPLE:
            yield from _flattened(annotation.nested_tuple or (), argument)
        elif annotation.type == CudaUtils.ARG_KERNEL:
            yield argument


def _expanded(signature: Iterable[Any], maps: Sequence[Any] | None) -> list[Any]:
    """The types of a launcher's arguments: a tensor descriptor is a map, or a pointer with shape and strides; both are
    followed by shape and strides.
    """
    found: list[Any] = []
    left = list(maps or ())
    for kind in signature:
        match = _TENSOR.match(kind) if isinstance(kind, str) else None
        if match is None:
            found.append(kind)
            continue
        rank = match[2].count(",") + 1
        as_map = left.pop(0) is not None if maps else False
        found += ["nvTmaDesc"] if as_map else [f"*{match[1]}", *["i64"] * (2 * rank), "i1"]
        found += ["i32"] * rank + ["i64"] * rank
    return found


def _typed(kinds: Iterable[Any], values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """(type, value) of the arguments that become parameters: all but constants, with a tuple's members in its place."""
    for kind, value in zip(kinds, values):
        if isinstance(kind, tuple):
            yield from _typed(kind, value)
        elif kind != "constexpr":
            yield kind, value


class Launcher:
    """The C module with which Triton 3.6 launches kernels of one signature, and its source."""

    def __init__(self, constants: Any, signature: Mapping[Any, Any], maps: Sequence[Any] | None = None):
        """The arguments of `make_launcher`. signature: type by argument; maps: what its tensor descriptors need."""
        self._kinds = _expanded(signature.values(), maps)

    def launch(self, *arguments: Any) -> None:
        """Launch a kernel, with the arguments of the module's function."""
        x, y, z, queue, function, cooperative, programmatic, global_scratch, profile_scratch, *rest = arguments
        sizes, metadata, enter, leave, *values = rest
        if enter is not None:
            enter(metadata)
        parameters = [packed(kind, value) for kind, value in _typed(self._kinds, values)]
        parameters += [_pointer(global_scratch), _pointer(profile_scratch)]
        _submit((x, y, z), sizes, function, queue, parameters, programmatic, cooperative)
        if leave is not None:
            leave(metadata)


def _submit(
    grid: tuple[int, int, int],
    sizes: tuple[int, int, int],
    function: int,
    queue: int,
    parameters: list[bytes],
    programmatic: Any,
    cooperative: Any,
) -> None:
    """Launch a kernel unless the grid is empty. sizes: (warps, CTAs of a cluster, bytes of dynamic shared memory)."""
    x, y, z = grid
    warps, ctas, shared = sizes
    if x * y * z > 0:
        kernel = handles.kernels[function]
        config = LaunchConfig(
            grid=(x * ctas, y, z),
            block=(warps * DeviceProperties.warp_size, 1, 1),
            cluster=(ctas, 1, 1),
            dynamic_shared_bytes=shared,
            programmatic=bool(programmatic),
            cooperative=bool(cooperative),
            nonportable_cluster=ctas > MAX_PORTABLE_CLUSTER,
        )
        # A kernel without scratch may lack those parameters: a driver reads as many as the kernel has.
        kernel.submit(config, parameters[: len(kernel.params)], queue)


def _pointer(value: Any) -> bytes:
    if value is None:
        return bytes(8)
    if isinstance(value, int):
        return _integer("u64", value)
    if not hasattr(value, "data_ptr"):
        raise TypeError("Pointer argument must be either uint64 or have data_ptr method")
    address = value.data_ptr()
    emulated = os.environ.get("NOGPU") != "hopper"
    if address and emulated and Device.current().memory.allocation(address) is None:
        raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
    return struct.pack("<Q", address)


def _integer(kind: str, value: Any) -> bytes:
    """The low bytes of a 64-bit integer, as C's conversion gives them. Raises OverflowError beyond 64 bits."""
    number = operator.index(value)
    low = 0 if kind[0] == "u" else -(1 << 63)
    if not low <= number < low + (1 << 64):
        raise OverflowError(f"{number} does not fit a parameter of type {kind}")
    return (number & (1 << 64) - 1).to_bytes(8, "little")[: _INTEGERS[kind]]


def _tensor_map(value: Any) -> bytes:
    if not isinstance(value, TensorMap):
        raise TypeError(f"object must be of type PyCUtensorMap, got {type(value).__name__}")
    return value.raw


_FLOATS: dict[str, Callable[[float], bytes]] = {
    "fp16": lambda value: struct.pack("<e", value),
    # The launcher cuts the low half off, as driver.c does: it does not round.
    "bf16": lambda value: bytes(ctypes.c_float(value))[2:],
    "fp32": lambda value: bytes(ctypes.c_float(value)),
    "f32": lambda value: bytes(ctypes.c_float(value)),
    "fp64": lambda value: struct.pack("<d", value),
}


def packed(kind: str, value: Any) -> bytes:
    """The bytes of a parameter of a type of Triton's signatures ("*fp32", "i32", "bf16", "nvTmaDesc", ...).

    Raises TypeError, ValueError and OverflowError for what Triton's launcher refuses.
    """
    if kind[0] == "*":
        return _pointer(value)
    if kind == "nvTmaDesc":
        return _tensor_map(value)
    return _FLOATS[kind](float(value)) if kind in _FLOATS else _integer(kind, value)


class CudaUtils:
    """The functions of driver.c, with its names."""

    ARG_CONSTEXPR, ARG_KERNEL, ARG_TUPLE = range(3)
    PyKernelArg = KernelArgument
    PyCUtensorMap = TensorMap

    def __getattr__(self, name: str) -> Any:
        raise unknown_interface(f"its driver asks for {name}, which is not modelled")

    @staticmethod
    def load_binary(name: str, image: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Load a kernel: (module, function, registers, spilled words, threads per CTA at most).

        Registers and spills are those of ptxas; without them, the most registers that so many threads can have, and 0.
        Raises EmulatorError for a cubin without PTX.
        """
        if _state.ptx is None:
            raise EmulatorError(
                "a cubin without its PTX: the emulator runs kernels that Triton has compiled", kernel=name
            )
        module = modules.of_compilation(_state.ptx)
        kernel = module.kernel(name)
        used = cubin.resources(image, name) or cubin.Resources(kernel.registers, 0)
        spilled, threads = used.local_bytes // 4, kernel.max_threads
        return handles.add_module(module), handles.of_kernel(kernel), used.registers, spilled, threads

    @staticmethod
    def unload_module(module: int) -> None:
        handles.forget_module(module)

    @staticmethod
    def launch(*arguments: Any) -> None:
        """Launch a kernel, with the arguments of Triton's launcher: the kernel's may hold constants and tuples."""
        if len(arguments) != _LAUNCH_ARGUMENTS:
            raise unknown_interface(f"its launcher passes {len(arguments)} arguments, {_LAUNCH_ARGUMENTS} are known")
        x, y, z, queue, function, cooperative, programmatic, sizes, metadata, enter, leave, *rest = arguments
        global_scratch, profile_scratch, annotations, signature, values = rest
        if enter is not None:
            enter(metadata)
        parameters = [packed(kind, value) for kind, value in zip(signature, _flattened(annotations, values))]
        parameters += [_pointer(global_scratch), _pointer(profile_scratch)]
        _submit((x, y, z), sizes, function, queue, parameters, programmatic, cooperative)
        if leave is not None:
            leave(metadata)

    @staticmethod
    def build_signature_metadata(signature: Sequence[str]) -> tuple[str, ...]:
        """The signature as `launch` takes it. Raises RuntimeError for a type that is not known."""
        for kind in signature:
            if kind[0] != "*" and kind not in {"nvTmaDesc", *_INTEGERS, *_FLOATS}:
                raise RuntimeError(f"Unknown data type: {kind!r}")
        return tuple(signature)

    @staticmethod
    def fill_tma_descriptor_tiled(address: int, swizzle: int, *arguments: Any) -> TensorMap:
        """A tensor map for tiles. block, shape, strides: in elements, the contiguous dimension last."""
        element_bytes, element_type, block, shape, strides, padding = arguments
        rank = len(block)
        if not rank == len(shape) == len(strides):
            raise RuntimeError("Rank mismatch")
        fields = element_type, address, _reversed(shape), _reversed(strides[:-1], element_bytes)
        return _encoded("Tiled", TiledMap, (*fields, _reversed(block), [1] * rank), swizzle, padding)

    fill_tma_descriptor = fill_tma_descriptor_tiled  # its name in Triton 3.6

    @staticmethod
    def fill_tma_descriptor_im2col(address: int, swizzle: int, *arguments: Any) -> TensorMap:
        """A tensor map for im2col copies. shape, strides, lower, upper: the contiguous dimension last."""
        element_bytes, element_type, _, shape, strides, padding, lower, upper, channels, pixels, steps = arguments
        if not len(shape) == len(strides) == len(steps) == len(lower) + 2 == len(upper) + 2:
            raise RuntimeError("Rank mismatch")
        fields = element_type, address, _reversed(shape), _reversed(strides[:-1], element_bytes)
        of_pixels = _reversed(lower), _reversed(upper), int(channels), int(pixels), _reversed(steps)
        return _encoded("Im2col", Im2colMap, (*fields, *of_pixels), swizzle, padding)

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        """{Triton's name: value} of properties; sizes in bytes, clock rates in kHz."""
        attribute = current().attribute
        return {
            "max_shared_mem": attribute(_SHARED_OPTIN),
            "max_num_regs": attribute(_REGISTERS),
            "multiprocessor_count": attribute(_SM_COUNT),
            "warpSize": attribute(_WARP_SIZE),
            "sm_clock_rate": attribute(_CLOCK),
            "mem_clock_rate": attribute(_MEMORY_CLOCK),
            "mem_bus_width": attribute(_BUS_WIDTH),
        }

    @staticmethod
    def get_device_capability(device: int) -> tuple[int, int]:
        return DeviceProperties.capability

    @staticmethod
    def get_current_device() -> int:
        return 0

    @staticmethod
    def set_current_device(device: int) -> None:
        bindings.only_device(device)

    @staticmethod
    def get_default_stream(device: int) -> int:
        return 0

    @staticmethod
    def is_stream_capturing(handle: int) -> bool:
        return graphs.capturing()

    @staticmethod
    def set_printf_fifo_size(size: int) -> None:
        """Does nothing, since output is not buffered."""

    @staticmethod
    def cuOccupancyMaxActiveClusters(function: int, shared: int, ctas: int) -> int:
        return bindings.max_active_clusters(128, shared, ctas)  # threads per CTA, as driver.c asks
