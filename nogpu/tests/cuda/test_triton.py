"""Triton and Gluon programs on the emulated device."""

import importlib.util
import re

import pytest

from tests.support.commands import ROOT
from tests.support.emulated import run, succeed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (pip install '.[triton]')"
)


def test_kernels():
    succeed("triton_checks.py", NOGPU_SCHEDULE="late,eager,random:1")


def test_file_of_inductor(tmp_path):
    succeed("inductor_checks.py", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))


def test_driver(tmp_path):
    succeed("triton_driver_checks.py", TRITON_CACHE_DIR=str(tmp_path))


@pytest.mark.slow
def test_worked_example(tmp_path):
    text = (ROOT / "docs" / "triton.md").read_text()
    program = tmp_path / "my_script.py"
    program.write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    command, output = re.search(r"\$ nogpu run (.*) my_script.py\n(.*)\n```", text).groups()
    process = run(program, options=command.split())
    assert process.stdout.splitlines()[-1:] == [output], process.stderr
