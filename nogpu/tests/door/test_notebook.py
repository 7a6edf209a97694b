"""`%load_ext nogpu` in IPython: a cell that launches, one whose launch fails, and what it leaves pending."""

import subprocess
import sys

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.small_kernels import module, store

CELLS = f"""
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()

def cell(text):
    return shell.run_cell(text).success

assert cell("%load_ext nogpu")
assert cell("import nogpu, numpy as np; x = nogpu.array(np.zeros(64, np.uint32))")
launch = "nogpu.load_ptx({{!r}})['k'].launch(1, 64, [x])"
assert cell(launch.format({module(store("%tid"))!r})) and cell("assert x.tolist() == list(range(64))")
print("BEGIN")
assert not cell(launch.format({module("st.global.b32 [%a0+4096], 5;")!r}))
print("PENDING")
text = {module("griddepcontrol.launch_dependents; st.global.b32 [%a0+4096], 5;")!r}
shell.run_cell(launch.format(text).replace("[x])", "[x], wait=False)"))
print("END")
assert cell("assert nogpu.Device.current().pending == 0")
assert cell(launch.format({module(store("7"))!r})) and cell("assert x[5] == 7")
"""


def test_cells():
    pytest.importorskip("IPython", reason="IPython is not installed (pip install ipython)")
    environment = clean_environment(PYTHONPATH=f"{ROOT / 'src'}:{clean_environment()['PYTHONPATH']}")
    command = [sys.executable, "-c", CELLS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.partition("BEGIN")[2].partition("PENDING")[0]
    assert "outside every live allocation" in shown and "launch of grid (1, 1, 1)" in shown
    assert "execution/machine.py" not in shown, "frames of the emulator"
    assert done.stderr.count("outside every live allocation") + shown.count("outside every live allocation") >= 2
