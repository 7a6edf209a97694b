"""The installed ptxas, asked whether it takes PTX."""

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


def installed():
    """Paths of ptxas: in NVIDIA's wheels, that of CUDA 12 before that of CUDA 13, then on PATH."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    wheels = [path for folder in folders for path in Path(folder).glob("*/bin/ptxas")]
    on_path = [Path(path) for path in (shutil.which("ptxas"),) if path]
    return [*sorted(wheels, key=lambda path: path.parts[-3] != "cuda_nvcc"), *on_path]


def refusal(ptxas, ptx, arch):
    """The message of ptxas on PTX that it refuses; empty if it takes it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [ptxas, f"-arch={arch}", "-o", Path(folder) / "kernel.cubin", source]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode else ""


def assembles(ptx, arch="sm_90a"):
    """True if an installed ptxas takes the PTX. AssertionError with its message otherwise."""
    refusals = []
    for ptxas in installed():
        refused = refusal(ptxas, ptx, arch)
        if not refused:
            return True
        refusals.append(refused)
    if all("Unsupported .version" in text for text in refusals):
        pytest.skip("ptxas is missing or older than the PTX; the extra `test` brings one")
    raise AssertionError("\n".join(refusals))
