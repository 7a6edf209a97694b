"""NVIDIA's CuTe DSL examples and the contest's starters, byte for byte as published, on the emulated device.

This repository does not contain them. NVIDIA_EXAMPLES names the folder examples/python/CuTeDSL of NVIDIA/cutlass, and
CONTEST_PROBLEMS the folder problems/nvidia of gpu-mode/reference-kernels. Tests whose folder is not named are skipped.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, clean_environment, run_eval
from tests.support.emulated import run

pytest.importorskip("cutlass")

DSL = importlib.metadata.version("nvidia-cutlass-dsl")
OLD_DSL = DSL.startswith("4.5.")
TUTORIAL = "cute/blackwell/tutorial/tutorial_gemm"
pytestmark = pytest.mark.examples

KERNELS = "cute/blackwell/kernel"
BLOCK_SCALED = f"{KERNELS}/blockscaled_gemm/dense_blockscaled_gemm_persistent.py"
GROUPED = f"{KERNELS}/blockscaled_grouped_gemm/grouped_blockscaled_gemm.py"
PROGRAMS = ROOT / "nogpu" / "tests" / "cuda" / "programs"
GROUPS = (
    "--ab_dtype Float4E2M1FN --sf_dtype {sf} --sf_vec_size 16 --c_dtype Float16 --problem_sizes_mnkl "
    "(256,128,256,1),(128,256,512,1) --num_groups 2 --warmup_iterations 0 --iterations 1"
)
GROUPED_ELEMENTS = 2 * 256 * 128
ONCE = "--warmup_iterations 0 --iterations 1"

# (example, its arguments, type of C, elements of C)
EXAMPLES = [
    (f"{TUTORIAL}/nvfp4_gemm_0.py", "--mnkl 256,256,512,1", "float16", 256 * 256),
    (f"{TUTORIAL}/nvfp4_gemm_1.py", "--mnkl 256,256,512,2", "float16", 256 * 256 * 2),
    (f"{TUTORIAL}/fp16_gemm_0.py", "--mnk 256,256,256", "float16", 256 * 256),
    (f"{TUTORIAL}/fp16_gemm_1.py", "--mnk 512,512,256", "float16", 512 * 512),
    (f"{TUTORIAL}/fp16_gemm_3.py", "--mnk 512,512,256", "float16", 512 * 512),
    # cluster launch control with a preferred cluster size, and a CUDA graph of dependent launches
    (f"{TUTORIAL}/fp16_gemm_4.py", "--mnk 512,512,256", "float16", 512 * 512),
    (f"{TUTORIAL}/fp16_gemm_6.py", "--mnk 512,512,256", "float16", 512 * 512),
    (
        GROUPED,
        f"{GROUPS.format(sf='Float8E8M0FNU')} --mma_tiler_mn 128,128 --cluster_shape_mn 1,1",
        "float16",
        GROUPED_ELEMENTS,
    ),
    (
        GROUPED,
        f"{GROUPS.format(sf='Float8E4M3FN')} --mma_tiler_mn 256,128 --cluster_shape_mn 2,1",
        "float16",
        GROUPED_ELEMENTS,
    ),
    (BLOCK_SCALED, f"--mma_tiler_mn 128,128 --cluster_shape_mn 1,1 --mnkl 256,256,256,1 {ONCE}", "float16", 256 * 256),
    (BLOCK_SCALED, f"--mma_tiler_mn 256,128 --cluster_shape_mn 2,1 --mnkl 512,256,256,1 {ONCE}", "float16", 512 * 256),
    (
        BLOCK_SCALED,
        f"--mma_tiler_mn 256,256 --cluster_shape_mn 2,2 --mnkl 512,512,256,1 --c_dtype Float32 {ONCE}",
        "float32",
        512 * 512,
    ),
    (
        BLOCK_SCALED,
        "--mma_tiler_mn 128,64 --cluster_shape_mn 1,2 --mnkl 256,256,256,2 --sf_dtype Float8E8M0FNU --sf_vec_size 32 "
        f"{ONCE}",
        "float16",
        256 * 256 * 2,
    ),
    (
        BLOCK_SCALED,
        f"--mma_tiler_mn 128,192 --cluster_shape_mn 2,1 --mnkl 256,384,256,1 --c_dtype BFloat16 {ONCE}",
        "bfloat16",
        256 * 384,
    ),
]
# These files use names that nvidia-cutlass-dsl 4.5 does not have.
NEEDS_NEWER_DSL = {BLOCK_SCALED, f"{TUTORIAL}/fp16_gemm_4.py", f"{TUTORIAL}/fp16_gemm_6.py"}


def folder(variable):
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} is not set")
    return Path(path)


@pytest.mark.parametrize(
    ("example", "arguments", "c_type", "elements"), EXAMPLES, ids=[f"{Path(e[0]).stem} {e[1][:60]}" for e in EXAMPLES]
)
def test_example(example, arguments, c_type, elements):
    """Every element is within the bound of a float32 sum (example_runner.py)."""
    path = folder("NVIDIA_EXAMPLES") / example
    if OLD_DSL and example in NEEDS_NEWER_DSL:
        pytest.skip(f"{path.name} needs a newer nvidia-cutlass-dsl than {DSL}")
    process = run(PROGRAMS / "example_runner.py", c_type, path, *arguments.split())
    assert process.returncode == 0, process.stderr[-4000:]
    counts = json.loads(process.stdout.splitlines()[-1])
    assert counts["elements"] == elements and counts["outside"] == 0, counts


STARTERS = {
    "nvfp4_group_gemm": "group_gemm",
    "nvfp4_dual_gemm": "dual_gemm",
    "nvfp4_gemm": "gemm",
    "nvfp4_gemv": "gemv",
}


def task_lines(task, section):
    """The JSON items of a list in a task.yml."""
    lines = iter(line.strip() for line in task.read_text().splitlines())
    assert any(line == f"{section}:" for line in lines), f"{task} has no {section}"
    items = []
    for line in lines:
        if line.startswith("- {"):
            items.append(json.loads(line[2:]))
        elif line:
            break
    return items


@pytest.mark.parametrize("name", STARTERS)
def test_starter_in_the_contests_harness(name, tmp_path):
    """The contest's eval.py passes all tests of the problem."""
    problem = folder("CONTEST_PROBLEMS") / name
    if not OLD_DSL:
        pytest.skip(f"the contest's eval.py imports cutlass...OpError, which nvidia-cutlass-dsl {DSL} does not have")
    for item in task_lines(problem / "task.yml", "files"):
        source = "submission.py" if item["source"] == "@SUBMISSION@" else item["source"]
        shutil.copy(problem / source, tmp_path / item["name"])
    tests = task_lines(problem / "task.yml", "tests")
    assert len(tests) == 10
    specs = ("; ".join(f"{key}: {value}" for key, value in test.items()) for test in tests)
    (tmp_path / "tests.txt").write_text("".join(f"{spec}\n" for spec in specs))
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "nogpu", "eval.py", "test", "tests.txt"],
        cwd=tmp_path,
        env=clean_environment(POPCORN_FD=str(writing), PYTHONPATH=str(ROOT)),
        pass_fds=(writing,),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        report = dict(line.split(": ", 1) for line in pipe.read().splitlines() if ": " in line)
    output, _ = process.communicate()
    assert process.returncode == 0, output[-4000:]
    assert report["check"] == "pass", report
    assert [report.get(f"test.{i}.status") for i in range(10)] == ["pass"] * 10, report


@pytest.mark.parametrize("name", STARTERS)
def test_starter_against_an_exact_product(name):
    """One test of the problem, against a float64 reference that is rounded once.

    The dual GEMM is compared with the problem's tolerance: its kernel and the hardware's instructions approximate silu.
    """
    problem = folder("CONTEST_PROBLEMS") / name
    if not OLD_DSL:
        pytest.skip(f"the starters are for nvidia-cutlass-dsl 4.5.2, this is {DSL}")
    submission = problem / "submission.py"
    process = run_eval(
        "test", "--device", "emulator", "--problem", STARTERS[name], "--submission", submission, "--case", 1
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert ("bit-exact" if name != "nvfp4_dual_gemm" else "pass") in process.stdout
