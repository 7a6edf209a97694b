"""A folder that looks like a CUDA toolkit: our nvcc, NVIDIA's headers, and runtime/ in the place of its libraries.

    bin/nvcc, bin/c++       nvcc.py as NVIDIA's nvcc and as the host's compiler
    path/nvcc               a link to it, for PATH: c++ there would hide the host's compiler from itself
    include                 NVIDIA's
    lib64                   libcudart.so and libcuda.so for libraries; libc10_cuda.so, libtorch_cuda.so for torch's link
    lib64/program           libcudart.so for executables
    lib64, lib64/program    libcublas.so, libcublasLt.so, libcurand.so, libcufft.so, libnvrtc.so: empty; cuda_headers
    lib64, lib64/program    libcudadevrt.a: NVIDIA's, which links of relocatable device code name
    torch                   headers of torch that know the device's tensors
    short                   headers of torch that leave out what few extensions use

NVIDIA's compiler comes from PyPI (the extra `cuda`) or is the one of CUDA_HOME, CUDA_PATH or PATH.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from nogpu import store, toolchain
from nogpu.cuda.programs import tensor_headers
from nogpu.cuda.programs.libraries import LINKED, LINKED_NAME, PROGRAM, library
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process


class NoCompiler(EmulatorError, store.SetupError):
    """The lack of NVIDIA's compiler."""


MISSING = (
    "CUDA C++ needs NVIDIA's compiler: pip install 'nogpu[cuda]' (nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt, "
    "nvidia-cuda-runtime and nvidia-cuda-cccl of PyPI), or set CUDA_HOME to a CUDA toolkit of version 13"
)
RECENT = "pip install nvidia-cuda-nvcc==13.5.37 nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl"
HEADERS = toolchain.HERE / "cuda" / "programs" / "cuda_headers"
TORCH_HEADERS = toolchain.HERE / "cuda" / "programs" / "torch_headers"


@functools.cache
def nvcc() -> Path:
    """NVIDIA's nvcc. Raises NoCompiler, which names the extra, if there is none of CUDA 13 for the device."""
    namespace = importlib.util.find_spec("nvidia")
    folders = [Path(place) / "cu13" for place in (namespace.submodule_search_locations or () if namespace else ())]
    folders += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = [folder / "bin" / "nvcc" for folder in folders]
    found += [Path(folder) / "nvcc" for folder in os.get_exec_path()]
    old = None
    for path in found:
        if os.access(path, os.X_OK) and not _is_ours(path) and _fits(path):
            if _knows_device(path):
                return path
            old = old or path
    raise NoCompiler(f"{_release(old)} ({old}) knows no {_target()}: {RECENT}" if old else MISSING)


def _is_ours(path: Path) -> bool:
    return b"programs/nvcc.py" in path.read_bytes()[:1000]


def _printed(path: Path, option: str) -> str:
    return subprocess.run([path, option], capture_output=True, text=True, check=False).stdout


def _release(path: Path) -> str:
    """ "nvcc 13.0" for a compiler of that release."""
    found = re.search(r"release (\d+\.\d+)", _printed(path, "--version"))
    return f"nvcc {found[1]}" if found else "nvcc"


def _fits(path: Path) -> bool:
    """True for an nvcc of CUDA 13, whose structures runtime/ fills in."""
    return _release(path).startswith("nvcc 13.")


def _target() -> str:
    return f"sm_{of_process().architecture}a"


def _knows_device(path: Path) -> bool:
    """True for an nvcc that compiles for the device. All of CUDA 13 do for a B200."""
    properties = of_process()
    known = _printed(path, "--list-gpu-arch").split() if properties.is_rubin else ()
    return not properties.is_rubin or f"compute_{properties.architecture}" in known


@functools.cache
def version() -> str:
    """The text that NVIDIA's nvcc prints of its version."""
    return subprocess.run([nvcc(), "--version"], capture_output=True, text=True, check=True).stdout


@functools.cache
def home() -> Path:
    """The toolkit's folder, made by the first call, also where NVIDIA's compiler is missing."""
    libraries = library(LINKED), library(PROGRAM)
    try:
        include: Path | None = nvcc().parents[1] / "include"
    except EmulatorError:
        include = None
    torch = {f"torch/ATen/core/{name}": text for name, text in tensor_headers.patched().items()}
    torch |= {f"short/{name}": text for name, text in tensor_headers.short().items()}
    contents = repr((toolchain.HERE, libraries, include, torch, sys.executable, _host_compiler())).encode()
    key = hashlib.sha256(contents + Path(__file__).read_bytes()).hexdigest()[:16]
    place = store.root() / f"toolkit-{key}"
    files = _files(libraries, include, torch)
    if place.exists() and not _is_whole(place, files):
        store.notice(f"{place} is damaged and is made anew")
        shutil.rmtree(place)
    if not place.exists():
        with store.scratch(place.parent) as scratch:
            _fill(scratch / "made", files)
            with contextlib.suppress(OSError):  # another process was first
                (scratch / "made").rename(place)
    return place


def _host_compiler() -> str:
    return os.environ.get("CXX") or "c++"


def _files(libraries: tuple[Path, Path], include: Path | None, torch: dict[str, str]) -> dict[str, str | Path]:
    """The folder's files: name -> text, or the target of a link."""
    linked, program = libraries
    files: dict[str, str | Path] = {f"lib64/{LINKED_NAME}": linked}
    for name, compiler in (("nvcc", "nvcc"), ("c++", _host_compiler())):
        words = sys.executable, str(toolchain.HERE / "cuda" / "programs" / "nvcc.py"), compiler
        files[f"bin/{name}"] = f'#!/bin/sh\nCXX={shlex.quote(_host_compiler())} exec {shlex.join(words)} "$@"\n'
    if include:
        files["include"] = include
        for folder in ("lib", "lib64"):
            if (library := include.parent / folder / "libcudadevrt.a").exists():
                files["lib64/libcudadevrt.a"] = files["lib64/program/libcudadevrt.a"] = library
    files["path/nvcc"] = Path("../bin/nvcc")
    for name in ("libcudart.so", "libcuda.so"):
        files[f"lib64/{name}"], files[f"lib64/program/{name}"] = linked, program
    for name in ("libc10_cuda.so", "libtorch_cuda.so"):  # linker scripts
        files[f"lib64/{name}"] = "INPUT(-lcudart)\n"
    for name in ("libcublas.so", "libcublasLt.so", "libcurand.so", "libcufft.so", "libnvrtc.so"):
        files[f"lib64/{name}"] = files[f"lib64/program/{name}"] = "INPUT(-lcudart)\n"
    return files | torch


def _fill(folder: Path, files: dict[str, str | Path]) -> None:
    (folder / "nvvm").mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            path.symlink_to(content)
        else:
            path.write_text(content)
            if path.parent.name == "bin":
                path.chmod(0o755)


def _is_whole(folder: Path, files: dict[str, str | Path]) -> bool:
    """True if the folder has these files with these contents."""
    try:
        return all(
            (Path(os.readlink(folder / name)) if isinstance(content, Path) else (folder / name).read_text()) == content
            for name, content in files.items()
        )
    except OSError:
        return False


def include_folders() -> list[Path]:
    """Folders of headers that come before the toolkit's and torch's own."""
    place = home() / "torch"
    return [HEADERS, *([place, TORCH_HEADERS] if place.exists() else [])]


def libpython() -> Path:
    """The shared library of this Python. Raises EmulatorError if there is none."""
    folder = sysconfig.get_config_var("LIBDIR") or ""
    names = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    numbers = f"{sys.version_info.major}.{sys.version_info.minor}"
    places = [Path(folder) / name for name in names if name and ".so" in name]
    places += [Path(sys.base_prefix) / "lib" / f"libpython{numbers}.so.1.0"]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise EmulatorError(
            f"a stand-alone program needs Python's shared library, libpython{numbers}.so, and this Python has none: "
            f"install it (Debian: libpython{numbers}), or use a Python of conda, uv or pyenv --enable-shared"
        )
    return found
