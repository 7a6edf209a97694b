"""CUDA C++ programs on a Hopper GPU: the calls that reach it, and a program on a GPU."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from nogpu.cuda import backends
from nogpu.cuda.modules import Module
from nogpu.cuda.programs import launches, modules
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import LaunchConfig
from tests.support.commands import ROOT, clean_environment
from tests.support.nvcc import nvcc

# For machines without nvcc:
# python -m nogpu nvcc -shared -Xcompiler -fPIC -o .gpu/tiles.so tests/cuda/programs/tiles.cu
CARRIED = ROOT / ".gpu" / "tiles.so"
SOURCE = ROOT / "tests" / "cuda" / "programs" / "tiles.cu"
PTX = (
    ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .global .u32 seed;\n"
    ".visible .entry put(.param .u64 pointer) { ret; }\n"
)


def test_a_launch_goes_to_the_gpu_with_its_ptx(monkeypatch):
    from nogpu.hopper import launch

    seen = []
    monkeypatch.setattr(launch, "current", lambda: SimpleNamespace(launch=lambda *arguments: seen.append(arguments)))
    monkeypatch.setattr(backends, "current", backends.Hopper)
    monkeypatch.setenv("NOGPU", "hopper")
    kernel = Module(PTX)["put"]
    launches.run(kernel, launches.Config((2, 1, 1), (32, 1, 1)), [bytes(8)])
    assert seen == [(PTX, kernel.entry, LaunchConfig(grid=(2, 1, 1), block=(32, 1, 1)), [bytes(8)])]


def test_variables_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(modules, "current", backends.Hopper)
    with pytest.raises(EmulatorError, match="variable seed: variables of a module are not modelled on a Hopper GPU"):
        modules.Variable(Module(PTX), "seed").place()


@pytest.mark.gpu(9, 0)
def test_a_program():
    if not CARRIED.exists() and nvcc() is None:
        pytest.skip(f"neither nvcc nor {CARRIED.relative_to(ROOT)} is there")
    program = CARRIED if CARRIED.exists() else SOURCE
    command = [sys.executable, "-m", "nogpu", "--device", "hopper", str(program)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert (done.returncode, done.stdout[:7]) == (0, "right, "), done.stderr
