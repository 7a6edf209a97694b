"""Hooks in CuTe DSL: compiled functions use the emulator's runtime library, keep their PTX and raise its errors.

The DSL links its host code against a build of programs/runtime instead of its own runtime library; runtime.py
connects that build to Python.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from nogpu.cuda.benchmarks import milliseconds
from nogpu.cuda.dsl import compile_cache, object_files, runtime
from nogpu.cuda.programs.libraries import CUTE_DSL, library
from nogpu.cuda.programs.status import raising
from nogpu.hardware.properties import of_process

captured: list[tuple[str, str]] = []
"""(function name, PTX text) of every compilation in this process, in order."""


def prepare() -> None:
    """Set the variables that the DSL reads when it is imported, and connect its runtime library to Python."""
    runtime.connect()
    os.environ["CUTE_DSL_LIBS"] = str(library(CUTE_DSL))
    major, minor = of_process().capability
    os.environ.setdefault("CUTE_DSL_ARCH", f"sm_{major}{minor}a")
    # Functions that another process has put into the DSL's file cache come without their PTX.
    os.environ["CUTE_DSL_DISABLE_FILE_CACHING"] = "1"


def install() -> None:
    """Hook the DSL's compilations and calls."""
    if importlib.util.find_spec("cutlass.base_dsl") is None:  # cutlass is another package of that name
        return
    from cutlass.base_dsl import compiler, jit_executor
    from cutlass.cutlass_dsl import cuda_jit_executor

    options, compiled = compiler.CompileOptions, cuda_jit_executor.CudaDialectJitCompiledFunction
    options.apply_envar_settings = _keep_ptx(options.apply_envar_settings, compiler.KeepPTX)
    compiler.Compiler.compile = compile_cache.cached(compiler.Compiler.compile)
    compiled.__init__ = _capture(compiled.__init__)
    compiled._load_cuda_library = raising(_loads(compiled._load_cuda_library))
    executor = jit_executor.JitExecutor
    executor.run_compiled_program = raising(executor.run_compiled_program)
    object_files.install()


def install_tvm_ffi() -> None:
    """Hook calls with TVM-FFI's calling convention, of which the first loads the function's library."""
    from cutlass.cutlass_dsl import tvm_ffi_provider

    for kind in (tvm_ffi_provider.TVMFFIJitCompiledFunction, tvm_ffi_provider.TVMFFIJitCompiledFunctionWithKwargs):
        kind.__call__ = raising(_loads(kind.__call__))
    object_files.install_tvm_ffi()


def install_testing() -> None:
    """Make the DSL's benchmarks run their function once. Which module has them depends on the DSL's version."""
    for module in (sys.modules.get("cutlass.testing"), sys.modules.get("cutlass.cute.testing")):
        for name in ("benchmark", "_benchmark_for_autotune"):
            original: Any = getattr(module, name, None)
            if original and not hasattr(original, "nogpu"):
                setattr(module, name, _once(original))


def _once(original: Callable[..., float]) -> Callable[..., float]:
    """A benchmark of the DSL's with one iteration on one workspace; microseconds."""

    @functools.wraps(original)
    def benchmark(*arguments: Any, **keywords: Any) -> float:
        given = {**keywords, "warmup_iterations": 0, "iterations": 1}
        fewest = {"workspace_count": 1, "use_cupti": False, "use_cold_l2": False}
        given.update((name, value) for name, value in fewest.items() if name in keywords)
        return milliseconds(lambda: original(*arguments, **given)) * 1e3

    benchmark.nogpu = True  # type: ignore[attr-defined]
    return benchmark


@functools.cache
def _ptx_folder() -> str:
    """The folder of the PTX files that the program did not ask for, removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="nogpu-ptx-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _keep_ptx(original: Callable[..., None], option: type) -> Callable[..., None]:
    """CompileOptions.apply_envar_settings that keeps the PTX; CUTE_DSL_KEEP=ptx would switch the DSL's cache off."""

    @functools.wraps(original)
    def apply(options: Any, environment: Any, function_name: str) -> None:
        keep = options.options[option]
        ours = not (keep.value or environment.keep_ptx) or getattr(keep, "for_emulator", False)
        keep.value = True
        original(options, environment, function_name)
        if ours:
            keep.for_emulator = True
            keep.dump_path = os.path.join(_ptx_folder(), function_name)
            keep.full_ptx_path = os.path.join(_ptx_folder(), os.path.basename(keep.full_ptx_path))

    return apply


def _capture(original: Callable[..., None]) -> Callable[..., None]:
    """A compiled function's __init__ that adds its PTX to `captured`."""

    @functools.wraps(original)
    def init(compiled: Any, *args: Any, **kwargs: Any) -> None:
        original(compiled, *args, **kwargs)
        if compiled.artifacts is not None and compiled.artifacts.PTX is not None:
            captured.append((compiled.function_name, compiled.artifacts.PTX))

    return init


def _loads(original: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a compiled function, run so that a library it loads holds the function's PTX."""

    @functools.wraps(original)
    def method(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        with runtime.loading(compiled):
            return original(compiled, *args, **kwargs)

    return method
