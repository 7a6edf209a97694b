"""Device "cuda" for torch, and `python -m nogpu`, which puts programs on it."""

import os
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.emulated import run, succeed

CHILDREN = """
import multiprocessing, sys
import torch

def work(n):
    x = torch.ones(n, device="cuda")
    return x.sum().item(), str(x.device), sys.argv[1:], sys.path[0]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        here, child = work(3), pool.apply(work, (3,))
    assert here == child, (here, child)
    print(child)
"""


def test_torch():
    succeed("torch_checks.py", "torch_gradient_checks.py")


OLDER = """
import torch
listed = torch._C._dispatch_get_registrations_for_dispatch_key
torch._C._dispatch_get_registrations_for_dispatch_key = lambda key: [n for n in listed(key) if n != "aten::rms_norm"]
x = torch.ones(2, 4, device="cuda", dtype=torch.float16)
with torch.autocast("cuda"):
    print(torch.nn.functional.rms_norm(x, (4,)).dtype, torch.nn.functional.layer_norm(x, (4,)).dtype)
"""


def test_autocast_casts_what_this_version_of_torch_casts():
    assert run("-c", OLDER).stdout == "torch.float16 torch.float32\n"


def test_script_runs_as_python_runs_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, os\nprint(__name__, sys.argv, sys.path[0], __file__, os.getpid() > 0)\nsys.exit(5)\n"
    )
    emulated, plain = (
        run(script, "-x", "--schedule", "y"),
        subprocess.run([sys.executable, script, "-x", "--schedule", "y"], capture_output=True, text=True),
    )
    assert emulated.stdout == plain.stdout and emulated.returncode == plain.returncode == 5


def test_module_and_code_as_program():
    code = "import sys; print(sys.argv, sys.path[0] == '')"
    assert run("-c", code, "--help", "x").stdout == "['-c', '--help', 'x'] True\n"
    assert run("-m", "this", "--help").stdout.startswith("The Zen")


@pytest.mark.slow
def test_spawned_children_are_on_the_device(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CHILDREN)
    process = run(script, "a", "--b")
    assert process.stdout == f"{(3.0, 'cuda:0', ['a', '--b'], str(tmp_path))}\n", process.stderr


def test_options_reach_the_process():
    names = "NOGPU_SCHEDULE", "NOGPU_WORKERS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY"
    code = f"import os; print(*map(os.environ.get, {names}))"
    options = ("--schedule", "late,random:7", "--workers=3")
    assert run("-c", code, options=options).stdout == "late,random:7 3 1 passive\n"
    assert run("-c", code, NOGPU_SCHEDULE="eager", OMP_WAIT_POLICY="active").stdout == "eager None 1 active\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "a program is needed"),
        (("-c",), "a program is needed"),
        (
            ("--schedule", "soon", "x.py"),
            "'soon' is no schedule: late, eager, random:SEED, last:SEED or replay:HOLDS expected",
        ),
        (("--schedule", "latest", "x.py"), "'latest' is no schedule"),
        (("--schedule", "late,random:", "x.py"), "'random:' is no schedule"),
        (("--schedule", "eager,late,eager", "x.py"), "'eager' is given twice"),
        (("--workers", "0", "x.py"), "'0' is no number of processes"),
        (("--bogus", "x.py"), "--bogus"),
        (("no_such_file.py",), "cannot find the script 'no_such_file.py'"),
    ],
)
def test_bad_usage(refusal, arguments, message):
    assert message in refusal(*arguments)


def test_interpreter_options_are_kept():
    code = "import sys; print(sys.stdout.write_through, sys.warnoptions)"
    command = [sys.executable, *"-u -W error -m nogpu -c".split(), code]
    process = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
    assert process.stdout == "True ['error']\n", process.stderr


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys; print([name for name in sys.modules if name.split('.')[0] in ('nogpu', 'torch', 'numpy')])"
    assert run("-c", code).stdout == "[]\n"


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    environment = clean_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(tmp_path)])
    code = "import sys; print(customized, [p for p in sys.path if 'bootstrap' in p])"
    command = [sys.executable, *"-m nogpu -c".split(), code]
    assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout == "True []\n"


def test_a_folder_that_is_named_like_a_hooked_module(tmp_path):
    """The import system takes the folder for a package without __init__.py."""
    (tmp_path / "tvm_ffi").mkdir()
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); import sys; sys.path = ['.']; import tvm_ffi; print(tvm_ffi.__file__)"
    )
    assert run("-c", code).stdout == "None\n"


@pytest.mark.parametrize("compiler", ["", "/bin/false", "/bin/true"])
def test_missing_compiler_is_named(tmp_path, compiler):
    process = run("-c", "import torch", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path), CC=compiler)
    assert process.returncode == 3 and "the emulator needs a C compiler: install gcc" in process.stderr
    assert process.stderr.startswith("nogpu: ") and process.stderr.count("\n") == 1


def test_library_is_built_once_per_user(tmp_path):
    code = "from nogpu import toolchain; print(toolchain.build('cuda/torch_allocations.c'))"
    command, environment = [sys.executable, "-c", code], clean_environment(XDG_CACHE_HOME=str(tmp_path))
    first, second = (subprocess.run(command, env=environment, capture_output=True, text=True).stdout for _ in range(2))
    assert first == second and first.startswith(str(tmp_path))
    assert [len(list((tmp_path / "nogpu" / kind).iterdir())) for kind in ("libraries", "library_objects")] == [1, 1]
