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
    """A failure to write results: a full disk, a pipe that nobody reads."""


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(*error.args) from None


class Output(io.TextIOWrapper):
    """A text file for results. Its failures are OutputErrors, unlike those of other files."""

    def write(self, text: str) -> int:
        with _output_errors():
            return super().write(text)

    def flush(self) -> None:
        with _output_errors():
            super().flush()

    def close(self) -> None:
        with _output_errors():
            super().close()


def open_streams() -> bool:
    """Make standard output an `Output`, and replace closed standard streams by the null device.

    Files that are opened next would otherwise take their numbers. Standard output escapes what its encoding lacks.
    Returns whether standard output was open.
    """
    has_output = sys.stdout is not None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    if type(sys.stdout) is io.TextIOWrapper:
        texts = sys.stdout.encoding, "backslashreplace", None, sys.stdout.line_buffering, sys.stdout.write_through
        sys.stdout = Output(sys.stdout.buffer, *texts)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
    return has_output


def escaped(text: str, kept: str = "") -> str:
    """The text with unprintable characters, except for those `kept`, as escape sequences."""
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def remark(text: str) -> None:
    """Print a line to standard error; after a failure standard error is the null device."""
    try:
        print(escaped(text), file=sys.stderr, flush=True)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


@contextmanager
def without_collection() -> Iterator[None]:
    """A context without garbage collection, which takes a fifth of torch's import; it exempts its objects for good."""
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
    """A context in which torch is imported without kernels for tensors on "meta", which take a quarter of its import.

    It is for a process that has no such tensors and runs nothing but the project's own code.
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
    """End the process: run exit functions and flush output, but free nothing, which would take most of a second.

    Where the output cannot be written and the code is 0, the code is 120, as at the interpreter's own end.
    """
    with suppress(Exception, KeyboardInterrupt):  # exceptions that the interpreter's own end ignores, too
        atexit._run_exitfuncs()
    try:
        for output in (sys.stdout, sys.stderr):
            output.flush()
    except (Exception, KeyboardInterrupt):  # a stopped terminal blocks until the interrupt
        code = code or UNWRITTEN
    os._exit(code)
