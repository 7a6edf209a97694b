"""Compiles the package's C files with the system's C compiler, each once per user, compiler, CPU and text."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nogpu import store
from nogpu.store import SetupError

FOLDER, OBJECTS = "libraries", "library_objects"  # folders of the cache
_MOST_OBJECTS = 400
HERE = Path(__file__).resolve().parent
CPU_DESCRIPTION = Path("/proc/cpuinfo")
_INCLUDE = re.compile(rb'#include "(.+)"')
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
_WIDEST = ("-mprefer-vector-width=512",)  # gcc prefers 256 bits on some CPUs that have 512: a row takes twice as many
_NEEDED = (
    "the emulator needs a C compiler: install gcc (Debian: apt install gcc libc6-dev), or name one in the environment "
    "variable CC"
)
_NO_ROOM = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)))


class _Compiler(NamedTuple):
    command: tuple[str, ...]
    version: bytes


@cache
def _compiler() -> _Compiler:
    """The system's C compiler. Raises SetupError if there is none."""
    named = os.environ.get("CC")
    try:
        words = shlex.split(named or "gcc")
        path = (words and shutil.which(words[0])) or (not named and shutil.which("cc"))
        if path:
            command = path, *words[1:]
            done = subprocess.run([*command, "-v"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
            return _Compiler(command, done.stderr)
    except (OSError, ValueError) as error:
        raise SetupError(f"{_NEEDED}; CC={named!r} cannot be run: {error}") from None
    raise SetupError(f"{_NEEDED}; CC={named!r} names no program" if named else _NEEDED)


def _cpu_flags() -> bytes:
    """The CPU's instruction set extensions: what -march=native compiles for. Empty where Linux does not list them."""
    try:
        description = CPU_DESCRIPTION.read_bytes()
    except OSError:
        return b""
    lines = description.splitlines()
    return next((line for line in lines if line.lower().startswith((b"flags", b"features"))), b"")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("NOGPU_PROGRESS") != "0"


def show(text: str) -> None:
    """Shows a line in the place of the last one, where standard error is a terminal. An empty text erases it."""
    if _is_terminal():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


@contextmanager
def telling(text: str, delay_s: float = 2.0) -> Iterator[None]:
    """A context that shows (`show`) the text and the seconds so far, once it has lasted longer than the delay."""
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        wait = delay_s
        while not ended.wait(wait):
            show(f"{text}: {time.monotonic() - began:.0f} s")
            wait = 1.0

    teller = threading.Thread(target=tell, daemon=True)
    if _is_terminal():
        teller.start()
    try:
        yield
    finally:
        ended.set()
        if teller.ident is not None:
            teller.join()
            show("")


def _run_together(commands: list[list[str]], scratch: Path, ended: Callable[[int], None] = lambda number: None) -> None:
    """Runs compilers at the same time. Raises RuntimeError with the messages of the first that fails.

    scratch: a folder for their temporary files. ended: called with the index of each command that has succeeded.
    """
    environment = {**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C"}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    processes: list[subprocess.Popen[bytes]] = []
    messages = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, env=environment, process_group=0, **options))
        for number, process in enumerate(processes):
            messages.append(process.communicate()[1].decode(errors="replace"))
            if process.returncode == 0:
                ended(number)
    finally:
        for process in processes:  # an interruption leaves none behind, nor what they have started
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    for command, process, text in zip(commands, processes, messages):
        if process.returncode:
            raise RuntimeError(f"{shlex.join(command)} failed:\n{text.strip() or f'it ends with {process.returncode}'}")


def _digests(files: list[Path]) -> list[tuple[str, bytes]]:
    """Names and digests of the files and of the package's headers that they include."""
    found: dict[str, bytes] = {}
    waiting = [str(path) for path in reversed(files)]
    while waiting:
        path = waiting.pop()
        if path not in found and os.path.isfile(path):
            found[path] = Path(path).read_bytes()
            names = map(os.fsdecode, _INCLUDE.findall(found[path]))
            waiting += [os.path.normpath(os.path.join(path, "..", name)) for name in names]
    return [(os.path.basename(path), hashlib.sha256(text).digest()) for path, text in found.items()]


def _key(*decides: object) -> str:
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:16]


def _compiled(files: list[Path], options: tuple[str, ...], machine: tuple, scratch: Path, shown: bool) -> list[str]:
    """The object files of C files, in the scratch folder: the cache's, or new ones. Raises RuntimeError as `build`.

    machine: all that decides the objects beside options and texts. shown: a terminal shows how many are done.
    """
    cache = next(store.folders(OBJECTS), None)
    objects = [scratch / f"{path.stem}.o" for path in files]
    missing: list[tuple[Path, Path | None]] = []
    commands = []
    for path, made in zip(files, objects):
        entry = cache and cache / f"{path.stem}-{_key(_digests([path]), options, machine)}.o"
        if entry is not None and (content := store.read(entry)) is not None:
            made.write_bytes(content)
        else:
            missing.append((made, entry))
            commands.append([*_compiler().command, *options, "-c", "-o", str(made), str(path)])

    def tell(done: int) -> None:
        if shown:
            show(f"compiling the emulator's C files, once on this machine: {done} of {len(commands)} files")

    def keep(number: int) -> None:
        made, entry = missing[number]
        if entry is not None and made.exists():
            store.write(entry, made.read_bytes(), _MOST_OBJECTS)
        tell(number + 1)

    tell(0)
    try:
        _run_together(commands, scratch, keep)
    finally:
        if shown:
            show("")
    return [str(made) for made in objects]


def _excuse(folder: Path) -> str | None:
    """Reason why the compiler makes no library even of a file that uses only the C library; None if it makes one."""
    try:
        with store.scratch(folder) as scratch:
            source, made = scratch / "trial.c", scratch / "trial.so"
            source.write_text('#include <stdio.h>\nint trial(void) { return puts(""); }\n')
            _run_together([[*_compiler().command, "-shared", *_FILE_OPTIONS, "-o", str(made), str(source)]], scratch)
            made.read_bytes()
    except FileNotFoundError:
        return "it makes no file"
    except OSError as error:
        return error.strerror
    except RuntimeError as error:
        _, *messages = str(error).splitlines()
        return next((line for line in messages if "error:" in line), messages[-1])
    return None


@cache
def build(source: str, link: tuple[str, ...] = ()) -> Path:
    """The shared library of a C file ("a/b.c") or of all C files of a folder ("native"), relative to the package.

    link: further options for the linker. A file is compiled for any CPU of its architecture, a folder for this one.
    Raises SetupError if there is no compiler that works or no folder for its output, and RuntimeError with the
    compiler's messages where it refuses a file.
    """
    compiler, place = _compiler(), HERE / source
    whole = place.is_dir()
    files = sorted(place.glob("*.c")) if whole else [place]
    widest = _WIDEST if b"avx512f" in _cpu_flags() else ()
    options: tuple[str, ...] = (*_FOLDER_OPTIONS, *widest) if whole else _FILE_OPTIONS
    machine = compiler, os.confstr("CS_GNU_LIBC_VERSION"), _cpu_flags() if whole else b""
    maps = sorted(place.glob("*.map")) if whole else []
    name = f"{place.stem}-{_key(_digests(files + maps), options, link, machine)}.so"
    reasons = []
    for folder in store.folders(FOLDER):
        library = folder / name
        if store.read(library) is not None:
            return library
        try:
            with store.scratch(folder) as scratch:
                made = scratch / "made.so"
                objects = _compiled(files, options, machine, scratch, whole)
                command = [*compiler.command, "-shared", *options, "-o", str(made), *objects, *link, "-ldl", "-lm"]
                _run_together([command], scratch)
                content = made.read_bytes()
            store.put(library, content)
            return library
        except OSError as error:
            reasons.append(f"{folder}: {_excuse(folder) or error.strerror}")
        except RuntimeError:
            excuse = _excuse(folder)
            if excuse is None:
                raise
            reasons.append(f"{folder}: {excuse}")
    if not reasons:
        raise store.nowhere()
    ways = "free some room, or set XDG_CACHE_HOME to another folder" if _is_full(reasons) else _NEEDED
    raise SetupError(f"{shlex.join(compiler.command)} makes no library in {'; '.join(reasons)}: {ways}")


def _is_full(reasons: list[str]) -> bool:
    return any(text in reason for reason in reasons for text in _NO_ROOM)


@cache
def load(source: str) -> ctypes.CDLL:
    """The library of `build`, loaded into this process. A folder's functions keep Python's lock: they may call Python.

    Raises SetupError where the system refuses the library, beside what `build` raises.
    """
    return opened(build(source), ctypes.PyDLL if (HERE / source).is_dir() else ctypes.CDLL)


def opened(library: Path, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL:
    """A library of `build`, loaded into this process. Raises SetupError where the system refuses it."""
    try:
        return kind(str(library))
    except OSError as error:
        raise SetupError(
            f"the emulator's library cannot be loaded: {error}; set XDG_CACHE_HOME to a folder from which code may run"
        ) from None
