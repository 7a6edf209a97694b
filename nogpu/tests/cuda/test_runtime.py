"""The replacement of CuTe DSL's runtime library: compiled functions launch on the emulated device."""

import importlib.util
import os

import pytest

from tests.support.emulated import PROGRAMS, checks, outcomes, run

pytest.importorskip("cutlass")

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


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch")
    results = outcomes("kernel_checks.py", NOGPU_WORKERS="1", TMPDIR=str(scratch))
    return {**results, "files left": [name for name in os.listdir(scratch) if name.startswith("nogpu-ptx")]}


@pytest.mark.parametrize("name", checks("kernel_checks.py"))
def test_kernels(results, name):
    assert results[name] == "ok", results[name]


def test_no_files_are_left(results):
    assert results["files left"] == []


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
    results = outcomes("ffi_checks.py", NOGPU_WORKERS="1")
    assert set(results.values()) == {"ok"}, "\n".join(results.values())
