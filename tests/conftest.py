"""Puts the whole session on the emulated device if there is no B200, so that the same test bodies run on either.

Skips tests marked `gpu` if it is missing.
"""

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nogpu
from nogpu import toolchain

# Imports and collection make objects that stay: they are not searched for garbage, while they are made nor later.
gc.disable()

ROOT = Path(__file__).resolve().parent.parent

# Asked of a process of its own, since the emulator must be activated before this process imports torch.
QUESTION = "from harness import devices; print(*devices.cuda_capability() or ())"
CAPABILITY = tuple(map(int, subprocess.check_output([sys.executable, "-c", QUESTION], cwd=ROOT, text=True).split()))
if CAPABILITY != (10, 0):
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Tests that are spread over the cores leave none for the workers of a launch. By the environment, since the
        # controller has put its own processes, this one among them, on the device.
        os.environ.setdefault("NOGPU_WORKERS", "1")
    nogpu.activate(schedule="late")


def pytest_configure(config):
    if CAPABILITY != (10, 0) and not hasattr(config, "workerinput"):
        # Once, and not by every worker; a test of what a terminal shows must not come first.
        with contextlib.suppress(RuntimeError):  # no compiler: the tests say so
            toolchain.build("native")


@pytest.hookimpl(tryfirst=True)  # with xdist in the controller too, which collects nothing
def pytest_runtestloop():
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item):
    for marker in item.iter_markers("gpu"):
        if marker.args != CAPABILITY:
            major, minor = marker.args
            pytest.skip(f"needs a GPU of compute capability {major}.{minor}")
