"""The interpreter's start and end without the work that a process with torch and the DSL does not need."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import NoReturn

UNWRITTEN = 120


class OutputError(OSError):
    """Results that cannot be written: a full disk, a pipe that nobody reads."""


class Output(io.TextIOWrapper):
    """A text file for results, whose errors tell themselves from those of other files."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError(*error.args) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputError(*error.args) from None

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:
            raise OutputError(*error.args) from None


def open_streams() -> bool:
    """Make standard output an `Output`, and standard streams that are closed the null device.

    A file that is opened next would take their numbers. Returns whether standard output was open.
    """
    has_output = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    if type(sys.stdout) is io.TextIOWrapper:
        texts = sys.stdout.encoding, sys.stdout.errors, None, sys.stdout.line_buffering, sys.stdout.write_through
        sys.stdout = Output(sys.stdout.buffer, *texts)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
    return has_output


def remark(text: str) -> None:
    """Print a line to standard error. Where it cannot be written, standard error is the null device from here on."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


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
    with suppress(Exception, KeyboardInterrupt):  # the interpreter's own end ignores them, too
        atexit._run_exitfuncs()
    try:
        for output in (sys.stdout, sys.stderr):
            output.flush()
    except (Exception, KeyboardInterrupt):  # a terminal that is stopped takes nothing until it is interrupted
        code = code or UNWRITTEN
    os._exit(code)
