"""Puts the whole session on the emulated device, and skips tests marked `gpu` where that GPU is missing."""

import contextlib
import functools
import gc
import os
import subprocess
import sys

import pytest

import nogpu
from nogpu import toolchain
from nogpu.__main__ import main

# Imports and collection make objects that stay, so these are exempt from garbage collection from the start.
gc.disable()

if "PYTEST_XDIST_WORKER" in os.environ:
    # Tests that are spread over the cores leave none for a launch's workers. The environment sets this, because the
    # controller has put its own processes, including this one, on the device.
    os.environ.setdefault("NOGPU_WORKERS", "1")
nogpu.activate(schedule="late")

CAPABILITY = """
import ctypes
number, driver = ctypes.c_int(), ctypes.CDLL("libcuda.so.1")
for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    assert driver.cuInit(0) == driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, 0) == 0
    print(number.value)
"""


@functools.cache
def capability():
    """Compute capability of the machine's GPU, () without one. Another process, which initializes CUDA, finds it."""
    asked = subprocess.run([sys.executable, "-S", "-c", CAPABILITY], capture_output=True, text=True)
    return tuple(map(int, asked.stdout.split()))


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        # In one process instead of every worker; a test of a terminal's output must not come first.
        with contextlib.suppress(RuntimeError):  # no compiler, as the tests will report
            toolchain.build("native")


@pytest.hookimpl(tryfirst=True)  # hook of xdist's controller, too, which collects nothing
def pytest_runtestloop():
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item):
    for marker in item.iter_markers("gpu"):
        if marker.args != capability():
            major, minor = marker.args
            pytest.skip(f"needs a GPU of compute capability {major}.{minor}")


@pytest.fixture(params=[True, False], ids=["kernels", "calls"])
def kernels_and_calls(request):
    """Runs a test twice: with kernels, and with Python in their place where there is a call (`calls.called`)."""
    from tests.support.calls import called  # behind `activate`

    with called(not request.param):
        yield


@pytest.fixture
def live_barriers(monkeypatch):
    """Number of a CTA's live mbarriers at each mbarrier.init."""
    held = []

    def place(self, offset, barrier):
        original(self, offset, barrier)
        held.append(len(self.by_address))

    from nogpu.hardware.live_barriers import LiveBarriers  # behind `activate`

    original = LiveBarriers.place
    monkeypatch.setattr(LiveBarriers, "place", place)
    return held


@pytest.fixture
def refusal(monkeypatch, capsys):
    """The words with which `nogpu ARGUMENTS` ends before a program starts, in this process."""

    def words(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(os, "execve", lambda *command: pytest.fail("a program starts"))
        monkeypatch.setattr(sys, "argv", ["nogpu", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return capsys.readouterr().err

    return words
