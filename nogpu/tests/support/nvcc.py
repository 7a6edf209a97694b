"""Compilation of CUDA C++ to PTX by nvcc, from its wheels (the `test` extra of pyproject.toml) or a CUDA toolkit."""

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "cuda"


@functools.cache
def nvcc():
    """Path of an nvcc that compiles for sm_100, or None."""
    namespace = importlib.util.find_spec("nvidia")
    folders = [Path(place) / "cu13" for place in (namespace.submodule_search_locations if namespace else ())]
    folders += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    found = [folder / "bin" / "nvcc" for folder in folders] + [shutil.which("nvcc")]
    return next((path for path in found if path and os.access(path, os.X_OK) and _knows_sm_100(path)), None)


def _knows_sm_100(path):
    return "sm_100" in subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True).stdout.split()


needs_nvcc = pytest.mark.skipif(
    nvcc() is None or shutil.which("g++") is None,
    reason="no nvcc for sm_100 is installed (pip install '.[test]', or set CUDA_HOME), or no g++",
)


def _knows_sm_107(path):
    return "sm_107" in subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True).stdout.split()


needs_nvcc_for_rubin = pytest.mark.skipif(
    nvcc() is None or shutil.which("g++") is None or not _knows_sm_107(nvcc()), reason="no nvcc for sm_107, or no g++"
)


@functools.cache
def ptx(source, *options):
    """PTX for sm_100a of a file in tests/cuda."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernel.ptx"
        command = [nvcc(), "-arch=sm_100a", "-std=c++17", "-ptx", "-o", target, *options, SOURCES / source]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return target.read_text()
