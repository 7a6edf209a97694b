"""The runtime library of CuTe DSL's host code: it loads libraries, gives kernels their attributes and launches them.

The host code of a compiled function (grid, cluster, shared memory, tensor maps, parameters) runs as compiled. It calls
the entry points of nogpu.cuda.programs, by names of its own (runtime/entries.h), and the call of the compiled function
raises their exceptions. The code image that the host code loads holds no PTX, so the PTX of the compilation
is kept: `loading` names the compiled function that a new library handle stands for. Entry names repeat between
compilations; handles do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator

from nogpu import toolchain
from nogpu.cuda import handles, modules
from nogpu.cuda.programs import devices, driver, entries, kernels, launches, status
from nogpu.cuda.programs.libraries import CUTE_DSL, library
from nogpu.errors import EmulatorError, Fault

__all__ = ["devices", "driver", "kernels", "launches"]  # modules that fill the table of entry points


class _State(threading.local):
    """The state of a thread's call into host code."""

    compiled: object = None  # the function whose library the host code loads


_state = _State()


@contextlib.contextmanager
def loading(compiled: object) -> Iterator[None]:
    """A context in which a library that the host code loads holds the PTX of `compiled`."""
    before, _state.compiled = _state.compiled, compiled
    try:
        yield
    finally:
        _state.compiled = before


def _callback(name: str, function: Callable[..., int | None]) -> Callable[..., int]:
    """An entry point as host code calls it: exceptions are kept for `status.raising`, and become an error code."""

    def guarded(*arguments: int) -> int:
        if status.failure() is not None:  # the host code continues after an error, but the call has failed
            return status.LAUNCH_FAILURE
        try:
            return function(*arguments) or status.SUCCESS
        except (status.Refused, Fault) as refused:
            status.keep(EmulatorError(f"{name}: {refused.reason}"))
        except BaseException as failure:  # it is raised again when the host code has returned
            status.keep(failure)
            if isinstance(failure, EmulatorError) and status.is_refused_launch(failure):
                return status.code_of(failure)
        return status.LAUNCH_FAILURE

    return guarded


def _load(result: int, *image: int) -> None:
    artifacts = getattr(_state.compiled, "artifacts", None)
    if artifacts is None or artifacts.PTX is None:
        raise EmulatorError(
            "the code to load has no PTX: the emulator runs functions that were compiled in this process, not object "
            "files or cubins"
        )
    entries.put(result, ctypes.c_size_t, handles.add_module(modules.of_compilation(artifacts.PTX)))


_ENTRIES = (
    *("cudaGetDevice", "cudaSetDevice", "cudaGetDeviceCount", "cudaDeviceGetAttribute", "cuLibraryGetKernel"),
    *("cuKernelGetAttribute", "cudaFuncSetAttribute", "cudaKernelSetAttributeForDevice", "cudaLaunchKernelExC"),
    *("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"),
)


@functools.cache
def connect() -> ctypes.CDLL:
    """The library for host code, which calls the functions of this process."""
    functions = {name: entries.FUNCTIONS[name] for name in _ENTRIES}
    functions["cuLibraryLoadData"] = entries.FUNCTIONS["cuLibraryLoadData"]._replace(call=_load)
    found = toolchain.opened(library(CUTE_DSL))
    entries.connect(found, {name: entries.c_function(x, _callback(name, x.call)) for name, x in functions.items()})
    return found
