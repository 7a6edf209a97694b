"""The programs of docs/examples.md, as a reader would copy and run them; test_extensions has the extension's kind."""

import re
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.nvcc import nvcc

BLOCK = re.compile(r"```(?:python|cuda)\n(?:#|//) (\S+)\n(.*?)```", re.DOTALL)
FILES = dict(BLOCK.findall((ROOT / "docs" / "examples.md").read_text()))
SLOW = "half.py"  # example that compiles torch's headers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def run(folder, *command):
    environment = clean_environment(PYTHONPATH=str(ROOT))
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_every_kind_is_there():
    assert set(FILES) == {"double.py", "add.py", "sum.cu", SLOW, "negate.py", "test_negate.py"}


@pytest.mark.parametrize(
    "command, output",
    [
        (("-m", "nogpu", "--schedule", "late,eager,random:1", "double.py"), "right"),
        (("-m", "nogpu", "--schedule", "late,eager,random:1", "add.py"), "right"),
        (("-m", "nogpu", "sum.cu"), "no error, 499500"),
        (("negate.py",), "right"),
        (("-m", "pytest", "-q", "test_negate.py"), "2 passed"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_it_runs(folder, command, output):
    if command[-1] == "add.py":
        pytest.importorskip("triton", reason="Triton is not installed (pip install '.[triton]')")
    if command[-1] == "sum.cu" and nvcc() is None:
        pytest.skip("nvcc is not installed (pip install '.[cuda]')")
    done = run(folder, *command)
    assert done.returncode == 0 and output in done.stdout, done.stdout + done.stderr
