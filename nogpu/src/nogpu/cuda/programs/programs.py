"""Stand-alone CUDA programs: executables of nvcc, libraries with a `main`, and .cu files, which are compiled first.

An executable runs as its own process, with runtime/ loaded before everything else; its first CUDA call starts Python
in it. A library runs inside of Python, which is the only way on a Hopper GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from nogpu import store, toolchain
from nogpu.cuda.programs.libraries import PROGRAM, library
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

NVCC = "nvcc"
_ELF = b"\x7fELF"
_SYMBOLS, _DYNAMIC_SYMBOLS = 2, 11  # types of sections
_CALL = re.compile(rb"cu(?:da)?[A-Z]\w+")
_NEEDS_LINKING = "requires separate compilation mode"  # nvcc's error for kernels that launch kernels
_INSIDE = "from nogpu.cuda.programs import programs; programs.run_library()"


def is_program(path: str) -> bool:
    """True for the path of a .cu file or of an ELF executable or library, and for the name of our nvcc."""
    if path.endswith(".cu") or path == NVCC:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == _ELF
    except OSError:
        return False


def command(program: list[str], variables: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command that runs a program with its arguments on the device, and the environment, given `variables`.

    Raises EmulatorError for a program that cannot run, and for a .cu file that does not compile.
    """
    os.environ["NOGPU"] = variables["NOGPU"]  # nvcc compiles for that device
    if program[0] == NVCC:
        from nogpu.cuda.programs import toolkit

        return [str(toolkit.home() / "bin" / NVCC), *program[1:]], dict(os.environ)
    on_gpu = variables.get("NOGPU") == "hopper"
    path = Path(program[0]).resolve()
    if path.suffix == ".cu":
        path = compiled(path, shared=on_gpu)
    if ".so" in path.name:
        return [sys.executable, "-c", _INSIDE, str(path), *program[1:]], variables
    if on_gpu:
        raise EmulatorError(
            f"{program[0]}: an executable does not run on a Hopper GPU, a library with a `main` does: compile it by "
            "nogpu run nvcc -shared -Xcompiler -fPIC -o program.so program.cu"
        )
    _check(path)
    return [str(path), *program[1:]], variables | _environment(path, variables)


def _check(path: Path) -> None:
    """Raises EmulatorError for an executable whose CUDA calls cannot reach runtime/."""
    contents = path.read_bytes()
    for runtime in (b"libcudart.so.11", b"libcudart.so.12"):
        if runtime + b"\0" in contents:
            raise EmulatorError(
                f"{path.name} is linked with {runtime.decode()}: compile it with CUDA 13 (extra `cuda`)"
            )
    names = _symbol_names(contents)
    calls = any(map(_CALL.fullmatch, names))  # of a program without kernels
    if b"__cudaRegisterFatBinary" not in names and (b".nv_fatbin\0" in contents or not calls):
        raise EmulatorError(
            f"{path.name} is no CUDA program, or its symbols are gone and the CUDA runtime is in it: compile it with "
            "-cudart shared, or do not strip it"
        )


def _symbol_names(file: bytes) -> set[bytes]:
    """The names in the symbol tables of an executable of 64-bit ELF (man 5 elf); none of any other file."""
    names: set[bytes] = set()
    try:
        sections, size, count = struct.unpack_from("<Q10xHH", file, 0x28)
        # section headers: type, place, size, link
        headers = [struct.unpack_from("<4xI16xQQI", file, sections + size * i) for i in range(count)]
    except struct.error:
        return names
    for kind, _, _, strings in headers:
        if kind in (_SYMBOLS, _DYNAMIC_SYMBOLS):
            _, place, length, _ = headers[strings]
            names.update(file[place : place + length].split(b"\0"))
    return names


def _environment(path: Path, variables: dict[str, str]) -> dict[str, str]:
    from nogpu.cuda.programs import toolkit

    ours = library(PROGRAM)
    names = store.root() / f"{ours.stem}-names"  # names by which programs look for the libraries
    names.mkdir(exist_ok=True)
    for name in ("libcuda.so.1", "libcudart.so.13"):
        if not (names / name).exists():
            scratch = names / f"{name}-{os.getpid()}"
            scratch.symlink_to(ours)
            os.replace(scratch, names / name)
    # A space separates names in LD_PRELOAD, so that a path with one is found by the name of a link.
    loaded = str(ours) if " " not in str(ours) else "libcudart.so.13"
    return {
        "LD_PRELOAD": ":".join(filter(None, (loaded, variables.get("LD_PRELOAD")))),
        "LD_LIBRARY_PATH": ":".join(filter(None, (str(names), variables.get("LD_LIBRARY_PATH")))),
        "NOGPU_CUDA_PROGRAM": str(path),
        "NOGPU_LIBPYTHON": str(toolkit.libpython()),
        "NOGPU_PYTHON": sys.executable,
    }


def compiled(source: Path, shared: bool = False) -> Path:
    """The executable or library of a .cu file, kept in the user's cache. Raises EmulatorError with nvcc's messages."""
    from nogpu.cuda.programs import toolkit

    toolkit.nvcc()
    home = toolkit.home()
    options = ["-std=c++17", "-O2", "-lineinfo", "-lcuda"] + (["-shared", "-Xcompiler", "-fPIC"] if shared else [])
    decides = str(source), source.read_bytes(), options, str(home), of_process().architecture
    key = hashlib.sha256(repr(decides).encode()).hexdigest()[:16]
    folder = store.root() / "executables"
    folder.mkdir(exist_ok=True)
    result = folder / f"{source.stem}-{key}{'.so' if shared else ''}"
    with store.scratch(folder) as scratch:
        object_, made = scratch / "program.o", scratch / result.name
        compile_ = ["-c", "-o", str(object_), str(source)]  # kept by bin/nvcc, by headers' contents too

        def failure(*arguments: str) -> str:
            """Runs nvcc; returns its messages if it fails, else nothing."""
            command = [str(home / "bin" / "nvcc"), *options, *arguments]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            return (done.stderr.rstrip() or f"nvcc has returned {done.returncode}") if done.returncode else ""

        with toolchain.telling(f"compiling {source.name} with nvcc; the result is kept"):
            failed = failure(*compile_)
            if _NEEDS_LINKING in failed:
                options.append("-rdc=true")
                failed = failure(*compile_)
            if failed := failed or failure("-o", str(made), str(object_)):
                raise EmulatorError(f"{source.name} does not compile:\n{failed}")
        os.replace(made, result)
    return result


def run_library() -> None:
    """Run the `main` of the library that the first argument names, with all arguments; exit with its result."""
    from nogpu.cuda.programs import connection

    connection.connect()
    path, *rest = sys.argv[1:]
    loaded = ctypes.CDLL(path)
    if not hasattr(loaded, "main"):
        raise EmulatorError(f"{path} has no function `main`")
    arguments = [argument.encode() for argument in (path, *rest)]
    sys.exit(loaded.main(len(arguments), (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)))
