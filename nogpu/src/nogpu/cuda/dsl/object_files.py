"""CuTe DSL functions in object files (export_to_c, load_module): the kernels' PTX travels behind the object.

An object file holds machine code, which the emulator cannot run. Linkers and the DSL's loader ignore bytes behind its
sections.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nogpu.cuda.dsl import runtime
from nogpu.cuda.programs.status import raising

_MAGIC, _ELF = b"emulator PTX\0\0\0\0", b"\x7fELF"
_TRAILER = struct.Struct("<Q16s")  # number of bytes of PTX before the trailer, _MAGIC


def add_ptx(path: str, ptx: str) -> None:
    """Append PTX to a file, if that is an object file."""
    with open(path, "r+b") as file:
        if file.read(len(_ELF)) == _ELF:
            file.seek(0, os.SEEK_END)
            text = ptx.encode()
            file.write(text + _TRAILER.pack(len(text), _MAGIC))


def ptx_of(path: str) -> str | None:
    """The PTX of an object file; None if it was made without the emulator, or has been linked."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < _TRAILER.size:
        return None
    length, magic = _TRAILER.unpack(data[-_TRAILER.size :])
    return data[-_TRAILER.size - length : -_TRAILER.size].decode() if magic == _MAGIC else None


def _by_path(object_file_path: str, *args: Any, **kwargs: Any) -> str:
    """The path of the object file that export_to_c of a function with TVM-FFI's calling convention writes."""
    return object_file_path


def _by_name(file_path: str, file_name: str, *args: Any, **kwargs: Any) -> str:
    """The path of the object file that export_to_c of another function writes, beside a header."""
    return os.path.join(file_path, f"{file_name}.o")


def _exporting(original: Callable[..., Any], path_of: Callable[..., str]) -> Callable[..., Any]:
    """export_to_c that adds the PTX of the compiled function's kernels to the object file."""

    @functools.wraps(original)
    def export_to_c(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(compiled, *args, **kwargs)
        if compiled.artifacts is not None and compiled.artifacts.PTX is not None:
            add_ptx(path_of(*args, **kwargs), compiled.artifacts.PTX)
        return result

    return export_to_c


def _opening(original: Callable[..., None]) -> Callable[..., None]:
    """ExternalBinaryModule.__init__ that keeps the file's PTX."""

    @functools.wraps(original)
    def init(module: Any, file_path: str, *args: Any, **kwargs: Any) -> None:
        original(module, file_path, *args, **kwargs)
        module.emulated = SimpleNamespace(artifacts=SimpleNamespace(PTX=ptx_of(file_path)))

    return init


def _looking_up(original: Callable[..., Any]) -> Callable[..., Any]:
    """ExternalBinaryModule.__getattr__, whose functions launch on the device and raise its errors."""

    @functools.wraps(original)
    def lookup(module: Any, name: str) -> Any:
        function = original(module, name)
        if not module.enable_tvm_ffi:
            if getattr(function, "artifacts", None) is None:
                function.artifacts = module.emulated.artifacts
            return function

        def call(*args: Any, **kwargs: Any) -> Any:
            with runtime.loading(module.emulated):
                return function(*args, **kwargs)

        return raising(call)

    return lookup


def install() -> None:
    """Hook the DSL's exports, and its loading of object files."""
    from cutlass.base_dsl import jit_executor
    from cutlass.base_dsl.export import ExternalBinaryModule

    function: Any = jit_executor.JitCompiledFunction
    function.export_to_c = _exporting(function.export_to_c, _by_name)
    module: Any = ExternalBinaryModule
    module.__init__, module.__getattr__ = _opening(module.__init__), _looking_up(module.__getattr__)


def install_tvm_ffi() -> None:
    """Hook the exports of functions with TVM-FFI's calling convention."""
    from cutlass.cutlass_dsl import tvm_ffi_provider

    function: Any = tvm_ffi_provider.TVMFFIJitCompiledFunctionBase
    function.export_to_c = _exporting(function.export_to_c, _by_path)
