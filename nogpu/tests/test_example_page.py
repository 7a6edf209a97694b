"""The programs of README.md and docs/examples.md, as a reader would copy and run them; the extension's kind is in
test_extensions.
"""

import re
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.nvcc import nvcc

BLOCK = re.compile(r"```(?:python|cuda)\n(?:#|//) (\S+)\n(.*?)```", re.DOTALL)
README = (ROOT / "README.md").read_text()
FILES = dict(BLOCK.findall(README + (ROOT / "docs" / "examples.md").read_text()))
SLOW = "half.py"  # it compiles torch's headers


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
    assert set(FILES) == {"kernel.py", "double.py", "add.py", "sum.cu", SLOW, "negate.py", "test_negate.py"}


COMMANDS = {  # command: words of its output
    "-m nogpu kernel.py": "right",
    "negate.py": "right",
    "-m pytest -q test_negate.py": "2 passed",
}
SLOW_COMMANDS = {
    "-m nogpu --schedule late,eager,random:1 double.py": "right",
    "-m nogpu --schedule late,eager,random:1 add.py": "right",
    "-m nogpu sum.cu": "no error, 499500",
}


@pytest.mark.parametrize(
    "command, output",
    [*COMMANDS.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW_COMMANDS.items())],
)
def test_it_runs(folder, command, output):
    command = command.split()
    if command[-1] == "add.py":
        pytest.importorskip("triton", reason="Triton is not installed (pip install 'nogpu[triton]')")
    if command[-1] == "sum.cu" and nvcc() is None:
        pytest.skip("nvcc is not installed (pip install 'nogpu[cuda]')")
    done = run(folder, *command)
    assert done.returncode == 0 and output in done.stdout, done.stdout + done.stderr


def test_the_readme_shows_the_report(folder):
    shown = README.partition("$ nogpu check kernel.py\n")[2].partition("\n$")[0]
    assert shown.startswith("nogpu.errors.EmulatorError: ")
    assert shown in run(folder, "-m", "nogpu", "check", "kernel.py").stderr
