"""CuTe DSL's runtime library, so that compiled functions run here: their PTX and their launches are taken over.

The DSL's host code (grid, cluster, shared memory, tensor maps, parameters) runs as compiled. It is linked against
shim.c instead of the DSL's own runtime library and launches into `_launch`, which hands the kernel to the device. The
code image that the host code loads holds no PTX, so the PTX is kept from the compilation: while a compiled function
loads its library, `_loading` says whose PTX the new library handle stands for. Entry names repeat between
compilations; handles do not. Where EMULATOR is "hopper", the device is a Hopper GPU and emulator.hopper takes over.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator import toolchain
from emulator.errors import EmulatorError, Fault
from emulator.execution.device import Device, LaunchConfig
from emulator.hardware.tma.encode import encode_tiled
from emulator.hardware.tma.tensor_map import RULES, TENSOR_MAP_ALIGNMENT
from emulator.host import driver, events, graphs
from emulator.ptx.module import Entry, Module, parse

SUCCESS, LAUNCH_FAILURE = 0, 719  # cudaError_t
# cudaFuncAttribute
MAX_DYNAMIC_SHARED_BYTES, SHARED_CARVEOUT, NONPORTABLE_CLUSTER = 8, 9, 14

captured: list[tuple[str, str]] = []
"""(function name, PTX text) of every compilation in this process, in order."""


class Launch(ctypes.Structure):
    """launch_t of shim.c."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("programmatic", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("unknown_attribute", ctypes.c_int32),
        ("dynamic_shared_bytes", ctypes.c_uint64),
        ("event", ctypes.c_void_p),
    ]


class TensorMapArguments(ctypes.Structure):
    """tensor_map_t of shim.c: the arguments of cuTensorMapEncodeTiled."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("data_type", "rank", "interleave", "swizzle", "l2_promotion", "fill")),
        ("address", ctypes.c_uint64),
        *((name, ctypes.POINTER(ctypes.c_uint64)) for name in ("dims", "strides")),
        *((name, ctypes.POINTER(ctypes.c_uint32)) for name in ("box", "element_strides")),
    ]


@dataclass
class Kernel:
    """A kernel handle of the host code's."""

    name: str
    ptx: str
    nonportable_cluster: bool = False

    @functools.cached_property
    def entry(self) -> Entry:
        return module(self.ptx).entries[self.name]


@functools.cache
def module(ptx: str) -> Module:
    """The parsed PTX; the same text gives the same object, which the device keeps its translation by."""
    return parse(ptx)


class _State(threading.local):
    """What a thread's host code is in the middle of."""

    compiled: object = None
    failure: BaseException | None = None


_state = _State()
_handles = itertools.count(1)
_libraries: dict[int, str] = {}
_kernels: dict[int, Kernel] = {}


@contextlib.contextmanager
def _loading(compiled: object) -> Iterator[None]:
    """Libraries loaded meanwhile hold the PTX of `compiled`."""
    before, _state.compiled = _state.compiled, compiled
    try:
        yield
    finally:
        _state.compiled = before


def _raise_failure() -> None:
    """Raises what a callback has caught; an exception cannot pass through the host code."""
    failure, _state.failure = _state.failure, None
    if isinstance(failure, EmulatorError):
        # It says itself where in the kernel it is; where in the emulator that was noticed helps nobody.
        raise failure.with_traceback(None) from None
    if failure is not None:
        raise failure


def _callback(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def guarded(*arguments) -> int:
        if _state.failure is not None:  # the host code goes on, but the call has failed
            return LAUNCH_FAILURE
        try:
            return function(*arguments)
        except BaseException as failure:  # raised again by _raise_failure, when the host code has returned
            _state.failure = failure
            return LAUNCH_FAILURE

    return guarded


def _load(library) -> int:
    artifacts = getattr(_state.compiled, "artifacts", None)
    if artifacts is None or artifacts.PTX is None:
        raise EmulatorError(
            "the code that is being loaded has no PTX: the emulator runs functions that were compiled in this process, "
            "not object files or cubins"
        )
    library[0] = handle = next(_handles)
    _libraries[handle] = artifacts.PTX
    return SUCCESS


def _get_kernel(kernel, library: int, name: bytes) -> int:
    ptx = _libraries[library]
    if name.decode() not in module(ptx).entries:
        raise EmulatorError(
            f"the compiled function's PTX has no entry of this name: {', '.join(module(ptx).entries)}",
            kernel=name.decode(),
        )
    kernel[0] = handle = next(_handles)
    _kernels[handle] = Kernel(name.decode(), ptx)
    return SUCCESS


def _hopper():
    """The Hopper GPU, where this process's launches go to one, else None."""
    if os.environ.get("EMULATOR") != "hopper":
        return None
    from emulator.hopper import launch  # with the driver, and torch with CUDA

    return launch.current()


def _set_attribute(kernel: int, attribute: int, value: int) -> int:
    gpu = _hopper()
    limit = gpu.shared_memory_limit if gpu else Device.current().properties.shared_memory_per_block_optin
    if attribute == NONPORTABLE_CLUSTER:
        _kernels[kernel].nonportable_cluster = bool(value)
    elif attribute == MAX_DYNAMIC_SHARED_BYTES and value > limit:
        raise EmulatorError(
            f"{value} bytes of dynamic shared memory asked for, the limit is {limit}", kernel=_kernels[kernel].name
        )
    elif attribute not in (MAX_DYNAMIC_SHARED_BYTES, SHARED_CARVEOUT):
        raise EmulatorError(f"kernel attribute {attribute} is not modelled", kernel=_kernels[kernel].name)
    return SUCCESS


def _run(entry: Entry, config: LaunchConfig, values: list[bytes], event: int | None) -> None:
    Device.current().launch(entry, config, values)
    if event:
        # It may be reached once every CTA has begun; who waits for it has the launch run to its end, which is later.
        events.record(event)


def _launch(handle: int, launch, parameters) -> int:
    kernel, launch = _kernels[handle], launch[0]
    if launch.unknown_attribute:
        raise EmulatorError(f"launch attribute {launch.unknown_attribute} is not modelled", kernel=kernel.name)
    config = LaunchConfig(
        grid=tuple(launch.grid),
        block=tuple(launch.block),
        cluster=tuple(launch.cluster),
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        programmatic=bool(launch.programmatic),
        cooperative=bool(launch.cooperative),
        nonportable_cluster=kernel.nonportable_cluster,
    )
    # The host code's stack holds the parameters, and only until this call returns.
    values = [ctypes.string_at(parameters[i], parameter.size) for i, parameter in enumerate(kernel.entry.params)]
    gpu = _hopper()
    if gpu:
        if launch.event:
            raise EmulatorError("a launch that records an event is not modelled on a Hopper GPU", kernel=kernel.name)
        gpu.launch(kernel.ptx, kernel.entry, config, values)
    else:
        graphs.submit(functools.partial(_run, kernel.entry, config, values, launch.event))
    return SUCCESS


def _device_attribute(value, attribute: int) -> int:
    gpu = _hopper()
    value[0] = gpu.attribute(attribute) if gpu else driver.attribute(attribute)
    return SUCCESS


def _encode(tensor_map: int, arguments) -> int:
    a = arguments[0]
    rank = a.rank
    try:
        if tensor_map % TENSOR_MAP_ALIGNMENT:
            raise Fault(f"tensor map at {tensor_map:#x}: must be {TENSOR_MAP_ALIGNMENT}-byte aligned ({RULES})")
        raw = encode_tiled(
            a.data_type, a.address, a.dims[:rank], a.strides[: max(rank, 1) - 1], a.box[:rank], a.element_strides[:rank],
            a.interleave, a.swizzle, a.l2_promotion, a.fill,
        )  # fmt: skip
    except Fault as fault:
        raise EmulatorError(f"cuTensorMapEncodeTiled: {fault.reason}") from fault
    ctypes.memmove(tensor_map, raw, len(raw))
    return SUCCESS


_pointer = ctypes.POINTER(ctypes.c_void_p)
_CALLBACKS = [
    ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(_callback(function))
    for function, arguments in (
        (_load, (_pointer,)),
        (_get_kernel, (_pointer, ctypes.c_void_p, ctypes.c_char_p)),
        (_set_attribute, (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
        (_launch, (ctypes.c_void_p, ctypes.POINTER(Launch), _pointer)),
        (_device_attribute, (ctypes.POINTER(ctypes.c_int), ctypes.c_int)),
        (_encode, (ctypes.c_void_p, ctypes.POINTER(TensorMapArguments))),
    )
]


@functools.cache
def _ptx_folder() -> str:
    folder = tempfile.mkdtemp(prefix="emulator-ptx-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def prepare() -> None:
    """Sets what the DSL reads when it is imported."""
    register = toolchain.load("host/shim.c").emulator_register
    register.argtypes = [ctypes.c_void_p] * len(_CALLBACKS)
    register(*(ctypes.cast(callback, ctypes.c_void_p) for callback in _CALLBACKS))
    os.environ["CUTE_DSL_LIBS"] = str(toolchain.build("host/shim.c"))
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
    # What another process has put into the file cache comes without its PTX.
    os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] = "1"


def install() -> None:
    """Hooks the DSL: compilations keep their PTX, and calls raise what the emulator has raised."""
    if importlib.util.find_spec("cutlass.base_dsl") is None:  # another package of the same name
        return
    from cutlass.base_dsl import compiler, jit_executor
    from cutlass.cutlass_dsl import cuda_jit_executor

    options, compiled = compiler.CompileOptions, cuda_jit_executor.CudaDialectJitCompiledFunction
    options.apply_envar_settings = _keep_ptx(options.apply_envar_settings, compiler.KeepPTX)
    compiled.__init__ = _capture(compiled.__init__)
    compiled._load_cuda_library = _raising(_loads(compiled._load_cuda_library))
    executor = jit_executor.JitExecutor
    executor.run_compiled_program = _raising(executor.run_compiled_program)


def install_tvm_ffi() -> None:
    """The same for functions with TVM-FFI's calling convention, which load their library when they are first called."""
    from cutlass.cutlass_dsl import tvm_ffi_provider

    for kind in (tvm_ffi_provider.TVMFFIJitCompiledFunction, tvm_ffi_provider.TVMFFIJitCompiledFunctionWithKwargs):
        kind.__call__ = _raising(_loads(kind.__call__))


def _keep_ptx(original: Callable, option: type) -> Callable:
    """CompileOptions.apply_envar_settings with the PTX kept. (CUTE_DSL_KEEP=ptx would switch the DSL's cache off.)"""

    @functools.wraps(original)
    def apply(options, environment, function_name: str) -> None:
        keep = options.options[option]
        ours = not (keep.value or environment.keep_ptx) or getattr(keep, "for_emulator", False)
        keep.value = True
        original(options, environment, function_name)
        if ours:
            keep.for_emulator = True
            keep.dump_path = os.path.join(_ptx_folder(), function_name)
            keep.full_ptx_path = os.path.join(_ptx_folder(), os.path.basename(keep.full_ptx_path))

    return apply


def _capture(original: Callable) -> Callable:
    @functools.wraps(original)
    def init(compiled, *args, **kwargs) -> None:
        original(compiled, *args, **kwargs)
        if compiled.artifacts is not None and compiled.artifacts.PTX is not None:
            captured.append((compiled.function_name, compiled.artifacts.PTX))

    return init


def _loads(original: Callable) -> Callable:
    @functools.wraps(original)
    def method(compiled, *args, **kwargs):
        with _loading(compiled):
            return original(compiled, *args, **kwargs)

    return method


def _raising(original: Callable) -> Callable:
    @functools.wraps(original)
    def method(*args, **kwargs):
        _state.failure = None
        try:
            result = original(*args, **kwargs)
        except Exception:
            # With a failure of ours, this is only the DSL's report that the call has failed.
            if _state.failure is None:
                raise
            result = None
        _raise_failure()
        return result

    return method
