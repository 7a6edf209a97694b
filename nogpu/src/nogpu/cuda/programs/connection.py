"""Connects runtime/ to the functions of this package, in Python or in a program that has started Python."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from typing import Any

from nogpu import toolchain
from nogpu.cuda import backends
from nogpu.cuda.programs import (  # noqa: F401  # the modules fill the table of entry points
    arrays,
    blas,
    devices,
    driver,
    driver_arrays,
    entries,
    fourier,
    graphs,
    interprocess,
    kernels,
    launches,
    linking,
    memory,
    modules,
    nvrtc,
    pools,
    queues,
    random_numbers,
    textures,
    virtual_memory,
)
from nogpu.cuda.programs.libraries import LINKED, PROGRAM, library
from nogpu.errors import EmulatorError
from nogpu.execution.device import run_pending


@functools.cache
def connect() -> Any:
    """The library of runtime/ that the process uses, connected to `entries`."""
    program = os.environ.get("NOGPU_CUDA_PROGRAM")
    inside = program is not None and os.path.realpath("/proc/self/exe") == program
    found = toolchain.opened(library(PROGRAM if inside else LINKED))
    entries.connect(found, entries.ENTRIES)
    modules.use(found)
    if inside:
        found.emulator_at_exit(_finish)
        backend = backends.current()
        if isinstance(backend, backends.Emulated):
            found.emulator_guard.argtypes, found.emulator_guard.restype = (
                (ctypes.c_size_t, ctypes.c_size_t),
                ctypes.c_bool,
            )
            found.emulator_unguard.argtypes = (ctypes.c_size_t,)
            backend.guard = backends.Guard(found.emulator_guard, found.emulator_unguard)
    return found


def _end() -> None:
    """Run the pending launches when a program ends. An error in one makes it exit with 1."""
    failed = False
    try:
        run_pending()
    except EmulatorError as error:
        print(error, file=sys.stderr)
        failed = True
    if os.environ.get("NOGPU_CLOCK"):  # the program ends without Python's exit functions
        from nogpu.clock import live

        live.report()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or without a reader
            output.flush()
    if failed:
        os._exit(1)


_finish = ctypes.CFUNCTYPE(None)(_end)
