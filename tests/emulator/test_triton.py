"""Triton and Gluon programs on the emulated device."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.emulated import checks, outcomes, run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (pip install '.[triton]')"
)

SCHEDULES = "late,eager,random:1"


@pytest.fixture(scope="module")
def kernels():
    return outcomes("triton_checks.py", EMULATOR_SCHEDULE=SCHEDULES)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return outcomes("triton_driver_checks.py", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("name", checks("triton_checks.py"))
def test_kernels(kernels, name):
    assert kernels[name] == "ok", kernels[name]


@pytest.mark.parametrize("name", checks("triton_driver_checks.py"))
def test_driver(driver, name):
    assert driver[name] == "ok", driver[name]


def test_activation_behind_the_import_is_refused(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import triton\nimport emulator\nemulator.activate()\n")
    process = subprocess.run([sys.executable, program], env=clean_environment(), capture_output=True, text=True)
    assert "emulator.activate() comes after the import of" in process.stderr, process.stderr
    assert "triton; call it before" in process.stderr, process.stderr


def test_worked_example(tmp_path):
    text = (ROOT / "docs" / "triton.md").read_text()
    program = tmp_path / "my_script.py"
    program.write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    command, output = re.search(r"\$ python -m emulator (.*) my_script.py\n(.*)\n```", text).groups()
    process = run(program, options=command.split())
    assert process.stdout.splitlines()[-1:] == [output], process.stderr
