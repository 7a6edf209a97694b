"""Triton and Gluon programs on the emulated device."""

import importlib.util
import re

import pytest

from tests.support.commands import ROOT
from tests.support.emulated import checks, outcomes, run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed (pip install '.[triton]')"
)

SCHEDULES = "late,eager,random:1"


@pytest.fixture(scope="module")
def kernels():
    return outcomes("triton_checks.py", NOGPU_SCHEDULE=SCHEDULES)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return outcomes("triton_driver_checks.py", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("name", checks("triton_checks.py"))
def test_kernels(kernels, name):
    assert kernels[name] == "ok", kernels[name]


@pytest.mark.parametrize("name", checks("triton_driver_checks.py"))
def test_driver(driver, name):
    assert driver[name] == "ok", driver[name]


@pytest.mark.slow
def test_worked_example(tmp_path):
    text = (ROOT / "docs" / "triton.md").read_text()
    program = tmp_path / "my_script.py"
    program.write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    command, output = re.search(r"\$ python -m nogpu (.*) my_script.py\n(.*)\n```", text).groups()
    process = run(program, options=command.split())
    assert process.stdout.splitlines()[-1:] == [output], process.stderr
