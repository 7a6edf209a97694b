"""PTX of the device code that is written in CUDA C++, compiled by nvcc once per user and source text."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from emulator import native
from emulator.errors import EmulatorError

HERE = Path(__file__).resolve().parent
# Without -rdc, functions are specialised to the constants of callers that are not here.
OPTIONS = ("-rdc=true", "-ptx", "-O3")


def nvcc() -> str | None:
    """Path of nvcc: named by the environment variable NVCC, on PATH, of CUDA_HOME, or of the wheel nvidia-cuda-nvcc."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    found = shutil.which(os.environ.get("NVCC") or "nvcc") or shutil.which("nvcc", path=os.path.join(home, "bin"))
    if found:
        return found
    for wheel in ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"):
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "nvcc" and os.access(file.locate(), os.X_OK):
                return str(file.locate())
    return None


@cache
def ptx(source: Path = HERE / "library.cu", arch: str = "sm_90a") -> str:
    """A CUDA C++ file as PTX for an architecture. Raises EmulatorError where there is no nvcc, or it fails."""
    compiler = nvcc()
    if compiler is None:
        raise EmulatorError(
            f"nvcc is needed for {source.name}: install the CUDA toolkit, or name nvcc in the environment variable NVCC"
        )
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    text = b"".join(path.read_bytes() for path in (source, *sorted(source.parent.glob("*.cuh"))))
    options = (f"-arch={arch}", *OPTIONS)
    key = hashlib.sha256(text + version + " ".join(options).encode()).hexdigest()[:16]
    made = native._folder() / f"{source.stem}-{key}.ptx"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            output = Path(scratch) / made.name
            command = [compiler, *options, "-o", str(output), str(source)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise EmulatorError(f"{' '.join(command)} failed:\n{result.stderr}")
            os.replace(output, made)
    return made.read_text()
