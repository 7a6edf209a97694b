"""The replacement of CuTe DSL's runtime library: compiled functions launch on the emulated device."""

import importlib.util

import pytest

from tests.support.emulated import PROGRAMS, run, succeed

pytestmark = pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed")

SPAWNED = """
import multiprocessing
import torch
from kernel_checks import N, make_scale, vector

def work(factor):
    x, view = vector()
    make_scale(factor)(view, N)
    return x.tolist() == [factor * i for i in range(N)]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(work, (2.0,)), pool.apply(work, (3.0,)))
"""


def test_kernels(tmp_path):
    succeed("kernel_checks.py", NOGPU_WORKERS="1", TMPDIR=str(tmp_path))
    assert not list(tmp_path.glob("nogpu-ptx*"))


@pytest.mark.slow
def test_kernels_run_in_spawned_children(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SPAWNED)
    process = run(script, PYTHONPATH=str(PROGRAMS))
    assert process.stdout == "True True\n", process.stderr


@pytest.mark.slow
def test_errors_of_worker_processes_raise_from_the_call():
    code = "import kernel_checks as k; k.check_a_broken_rule_raises_from_the_call()"
    process = run("-c", code, options=("--schedule", "late,random:1", "--workers", "2"), PYTHONPATH=str(PROGRAMS))
    assert process.returncode == 0, process.stderr


@pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="apache-tvm-ffi is not installed")
def test_tvm_ffi():
    succeed("ffi_checks.py", NOGPU_WORKERS="1")
