"""Compiles a CUDA C++ program with the emulator's nvcc and runs it on the emulator.

    python workshop/foreign/nvcc_run.py SCHEDULE NVCC-ARGUMENTS... [-- PROGRAM-ARGUMENTS...]

It serves programs that need compiler options or more than one file, which `python -m nogpu` does not take. An argument
NAME.fatbin=SOURCE.cu or NAME.ptx=SOURCE.cu compiles a file of kernels that the program loads from its folder. The
exit code is nvcc's if it fails, else the program's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

OPTIONS = ("-O2", "-lineinfo", "-lcuda")
STANDARD = "-std=c++17"  # default, since nvcc takes only one
SOURCES = (".cu", ".cpp", ".cc", ".c")
_LOADED = re.compile(r"(?P<name>[^-=][^=]*\.(?P<kind>fatbin|ptx))=(?P<source>.*)")


def main(arguments: Sequence[str]) -> int:
    """Compiles and runs. Returns the exit code of nvcc or of the program, which runs in this process's folder."""
    schedule, *rest = arguments
    split = rest.index("--") if "--" in rest else len(rest)
    compiler, program = rest[:split], rest[split + 1 :]
    loaded = [found for word in compiler if (found := _LOADED.fullmatch(word))]
    compiler = [word for word in compiler if not _LOADED.fullmatch(word)]
    sources = [Path(word).resolve() for word in compiler if word.endswith(SOURCES)]
    options = [word for word in compiler if not word.endswith(SOURCES)]
    standard = [] if any(word.startswith("-std=") for word in options) else [STANDARD]
    nvcc = [sys.executable, "-m", "nogpu", "nvcc", *OPTIONS, *standard, *options]
    # A folder of its own, since the same program may be compiled for another schedule meanwhile. Object files that have
    # not changed come from the emulator's cache.
    with tempfile.TemporaryDirectory(prefix="nvcc-run-") as folder:
        objects = [f"{folder}/{number}-{source.stem}.o" for number, source in enumerate(sources)]
        result = f"{folder}/{sources[0].stem}"
        for source, object_ in zip(sources, objects, strict=True):
            if code := subprocess.call([*nvcc, "-c", "-o", object_, str(source)]):
                return code
        if code := subprocess.call([*nvcc, "-o", result, *objects]):
            return code
        for each in loaded:
            made = f"{each['name']}.{os.getpid()}"  # a run beside this one may read the file
            if code := subprocess.call([*nvcc, f"-{each['kind']}", "-o", made, each["source"]]):
                return code
            os.replace(made, each["name"])
        return subprocess.call([sys.executable, "-m", "nogpu", "--schedule", schedule, result, *program])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
