"""Compiles the package's C files with the system's C compiler, once per user, compiler, CPU and source text."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CPU_DESCRIPTION = Path("/proc/cpuinfo")
_COMMON = ("-fPIC", "-Wall")
_FILE_OPTIONS = (*_COMMON, "-O2")
# Floating-point results are those of the operations as written: none are fused, reordered or assumed finite.
_FOLDER_OPTIONS = (
    *_COMMON,
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
)


def cache_folder() -> Path:
    """A folder for compiled libraries that survives the process: in the user's cache, else in the temporary folder.

    Raises RuntimeError if it belongs to another user.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sm100-emulator"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = Path(tempfile.gettempdir()) / f"sm100-emulator-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
    if cache.stat().st_uid != os.getuid():
        raise RuntimeError(f"{cache} belongs to another user: set XDG_CACHE_HOME to a folder of yours")
    return cache


class _Compiler(NamedTuple):
    path: str
    version: bytes


@cache
def _compiler() -> _Compiler:
    path = shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")
    if path is None:
        raise RuntimeError("the emulator needs a C compiler: install gcc, or name one in the environment variable CC")
    return _Compiler(path, subprocess.run([path, "-v"], capture_output=True, check=False).stderr)


def _cpu_flags() -> bytes:
    """The CPU's instruction set extensions: what -march=native compiles for. Empty where Linux does not list them."""
    try:
        description = CPU_DESCRIPTION.read_bytes()
    except OSError:
        return b""
    lines = description.splitlines()
    return next((line for line in lines if line.lower().startswith((b"flags", b"features"))), b"")


def show(text: str) -> None:
    """Shows a line in the place of the last one, where standard error is a terminal. An empty text erases it."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("EMULATOR_PROGRESS") != "0":
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _run_together(commands: list[list[str]], shown: bool = False) -> None:
    """Runs the commands at the same time. Raises RuntimeError with the messages of the first that fails.

    shown: a terminal shows how many are done.
    """
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    messages = []
    for done, process in enumerate(processes):
        if shown:
            show(f"compiling the emulator's C files, once on this machine: {done} of {len(processes)} files")
        messages.append(process.communicate()[1])
    if shown:
        show("")
    for command, process, text in zip(commands, processes, messages):
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{text}")


@cache
def build(source: str, link: tuple[str, ...] = ()) -> Path:
    """The shared library of a C file ("host/shim.c") or of all C files of a folder ("native"), relative to the package.

    link: further options for the linker. A file is compiled for any CPU of its architecture, a folder for this one.
    Raises RuntimeError if there is no compiler or it fails.
    """
    compiler, place = _compiler(), HERE / source
    whole = place.is_dir()
    files = sorted(place.glob("*.c")) if whole else [place]
    headers = [*sorted(place.glob("*.h")), *sorted(place.glob("*.map"))] if whole else []
    options = _FOLDER_OPTIONS if whole else _FILE_OPTIONS
    inputs = [(path.name, path.read_bytes()) for path in files + headers]
    identity = inputs, options, link, compiler.version, _cpu_flags() if whole else b""
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    library = cache_folder() / f"{place.stem}-{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            made = Path(scratch) / library.name
            objects = [str(Path(scratch) / f"{path.stem}.o") for path in files]
            compile_ = [compiler.path, *options, "-c", "-o"]
            _run_together([[*compile_, object_, str(path)] for object_, path in zip(objects, files)], shown=whole)
            _run_together([[compiler.path, "-shared", *options, "-o", str(made), *objects, *link, "-ldl", "-lm"]])
            # Processes that build at the same time each put a complete file in place.
            os.replace(made, library)
    return library


@cache
def load(source: str) -> ctypes.CDLL:
    """The library of `build`, loaded into this process. A folder's functions keep Python's lock: they may call it."""
    return (ctypes.PyDLL if (HERE / source).is_dir() else ctypes.CDLL)(str(build(source)))
