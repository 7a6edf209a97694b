"""The start and the end of a process."""

import gc
import os
import subprocess
import sys

import pytest

from harness.interpreter import without_collection

PROGRAM = """
import atexit, sys
from harness.interpreter import leave
atexit.register(print, "exit function")
{before}
print("buffered")
leave({code})
"""

FULL_STANDARD_ERROR = """
import os
from harness.interpreter import remark
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
remark("lost")
"""


def run(code, before="", **options):
    text = PROGRAM.format(code=code, before=before)
    command = [sys.executable, "-c", text]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, timeout=60, **options)


@pytest.mark.parametrize("code", [0, 112])
def test_the_end_writes_what_is_buffered_after_the_exit_functions(code):
    ended = run(code, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "buffered\nexit function\n", "")


@pytest.mark.parametrize(("code", "found"), [(0, 120), (112, 112)])
def test_output_that_cannot_be_written_is_told_by_the_code(code, found):
    with open("/dev/full", "w") as full:
        assert run(code, stdout=full).returncode == found
    reading, writing = os.pipe()
    os.close(reading)
    assert run(code, stdout=writing).returncode == found
    os.close(writing)


@pytest.mark.parametrize(
    "trouble",
    ["atexit.register(exit, 3)", "atexit.register(1 .__truediv__, 0)", "sys.stderr = None", FULL_STANDARD_ERROR],
)
def test_the_end_comes_whatever_a_program_has_done(trouble):
    ended = run(0, before=trouble, stdout=subprocess.PIPE)
    assert ended.stdout == "buffered\nexit function\n"


def test_output_escapes_what_its_encoding_lacks():
    before = """
from harness.interpreter import open_streams
sys.stdout.reconfigure(encoding="ascii")
open_streams()
print("\u00b7 \\udcff")
"""
    assert run(0, before=before, stdout=subprocess.PIPE).stdout.startswith("\\xb7 \\udcff\n")


def test_garbage_is_collected_again_after_imports():
    frozen = gc.get_freeze_count()
    try:
        with pytest.raises(ImportError), without_collection():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() and gc.get_freeze_count() > frozen
        gc.disable()
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()


def test_torch_without_meta_kernels():
    """The judge's operations of torch still work, and the kernels can be loaded later."""
    text = """
import sys
from harness.interpreter import without_meta_kernels
with without_meta_kernels():
    import torch
left_out = "torch._meta_registrations" not in sys.modules and "torch._decomp.decompositions" not in sys.modules
tensor = torch.empty((2, 3), dtype=torch.float16, device="meta").permute(1, 0)
works = torch.equal(torch.ones(2, 2) @ torch.ones(2, 2), torch.full((2, 2), 2.0)) and tensor.stride() == (1, 3)
import torch._meta_registrations
print(left_out, works, hasattr(torch._meta_registrations, "activate_meta"))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOGPU")}
    ended = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "True True True\n", ended.stderr
