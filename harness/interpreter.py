"""The interpreter's start and end without the work that a process with torch and the DSL does not need."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import NoReturn

UNWRITTEN = 120


@contextmanager
def without_collection() -> Iterator[None]:
    """Imports within are not searched for garbage, which takes a fifth of torch's import, and never will be."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_enabled:
            gc.enable()


@contextmanager
def without_meta_kernels() -> Iterator[None]:
    """torch that is imported within has no kernels for tensors on "meta", which take a quarter of its import.

    For a process that has no such tensors, and where nothing but the project's own code runs.
    """
    name = "torch._meta_registrations"
    if "torch" in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


def leave(code: int) -> NoReturn:
    """End the process: run exit functions and write what is buffered, but free nothing, which takes most of a second.

    Where the output cannot be written and the code is 0, the code is 120, as of the interpreter's own end.
    """
    with suppress(Exception):  # the interpreter's own end ignores them, too
        atexit._run_exitfuncs()
    try:
        for output in (sys.stdout, sys.stderr):
            output.flush()
    except Exception:
        code = code or UNWRITTEN
    os._exit(code)
