"""Compiles the package's C files with the system's C compiler, once per user, compiler and source text."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent


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


@cache
def build(source: str) -> Path:
    """The shared library compiled from a C file, named relative to the package ("host/shim.c").

    Raises RuntimeError if there is no compiler or it fails.
    """
    compiler = shutil.which(os.environ.get("CC") or "gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the emulator needs a C compiler: install gcc, or name one in the environment variable CC")
    text = (HERE / source).read_bytes()
    version = subprocess.run([compiler, "-v"], capture_output=True, check=False).stderr
    key = hashlib.sha256(text + version).hexdigest()[:16]
    library = cache_folder() / f"{Path(source).stem}-{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            made = Path(scratch) / library.name
            command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(made), str(HERE / source), "-ldl"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
            # Processes that build at the same time each put a complete file in place.
            os.replace(made, library)
    return library


@cache
def load(source: str) -> ctypes.CDLL:
    """The library of `build`, loaded into this process."""
    return ctypes.CDLL(str(build(source)))
