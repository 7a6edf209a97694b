"""The pytest plugin, in sessions of its own: the option, the marker, the fixture, and pending launches."""

import os
import sys

import pytest

from nogpu.store import root
from tests.support.commands import ROOT, clean_environment
from tests.support.small_kernels import module, store

pytest_plugins = "pytester"
CACHE = str(root().parent)  # a session's home is empty: all of C would be compiled anew

RIGHT, OUTSIDE = module(store("%tid")), module("griddepcontrol.launch_dependents; st.global.b32 [%a0+4096], 5;")
RACE = module(
    "mov.u32 %r1, smem; setp.ge.u32 %p1, %tid, 32; @%p1 bra R;\n"
    "st.shared.b32 [%r1], 5; ret; R: ld.shared.b32 %r2, [%r1];"
)
LAUNCH = """
import numpy as np, os, pytest
import nogpu

def launch(text, wait=False):
    nogpu.load_ptx(text)["k"].launch(1, 64, [nogpu.array(np.zeros(64, np.uint32))], shared=64, wait=wait)
"""
TESTS = f"""{LAUNCH}
def test_right(nogpu_device):
    launch({RIGHT!r})
    assert [each.kernel for each in nogpu_device.counters()] == ["k"]

def test_race():
    assert os.environ.get("NOGPU") == "1"
    launch({RACE!r})

@pytest.mark.nogpu(sanitize=False)
def test_race_that_is_not_looked_for():
    launch({RACE!r})

@pytest.mark.nogpu(sanitize=True)
def test_race_that_is_looked_for():
    launch({RACE!r})

@pytest.mark.nogpu(schedule="late,eager")
def test_schedules(nogpu_device):
    assert nogpu_device.schedules == ("late", "eager")

def test_outside():
    launch({OUTSIDE!r})

def test_behind(nogpu_device):
    assert nogpu_device.schedules == ("late",) and nogpu_device.pending == 0
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Runs pytest in another process, which has the plugin as an installed nogpu would give it."""
    pytester.makepyfile(TESTS)
    for name in list(os.environ):
        if name.startswith("NOGPU") or name == "PYTEST_XDIST_WORKER":
            monkeypatch.delenv(name)
    path = f"{ROOT / 'src'}{os.pathsep}{clean_environment()['PYTHONPATH']}"
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    plugin = () if _is_installed() else ("-p", "nogpu.pytest_plugin")

    def run(*options, command=()):
        return pytester.run(sys.executable, *command, "-m", "pytest", "-n0", *plugin, "-rs", *options)

    return run


def _is_installed():
    from importlib.metadata import entry_points

    return any(point.value == "nogpu.pytest_plugin" for point in entry_points(group="pytest11"))


def test_a_session_on_the_device(session):
    done = session("--nogpu", "-v")
    done.assert_outcomes(passed=5, failed=2)
    done.stdout.fnmatch_lines(["nogpu: emulated NVIDIA B200, schedule late"])
    done.stdout.fnmatch_lines(["*::test_race_that_is_looked_for FAILED*", "*::test_outside FAILED*"])
    done.stdout.fnmatch_lines(["E   * sanitizer, rule threads: nothing orders*"])


def test_a_session_with_the_sanitizer(session):
    done = session("--nogpu", "--nogpu-sanitize", "--nogpu-schedule", "late,random:1", "-v", "-k", "race or behind")
    done.assert_outcomes(passed=1, failed=3, deselected=3)
    done.stdout.fnmatch_lines(["nogpu: emulated NVIDIA B200, schedule late,random:1, sanitizer"])
    done.stdout.fnmatch_lines(["*::test_race FAILED*", "*::test_race_that_is_not_looked_for PASSED*"])


def test_a_session_without_the_option(session):
    done = session("-k", "looked or behind or schedules")
    done.assert_outcomes(skipped=4, deselected=3)
    done.stdout.fnmatch_lines(["SKIPPED*needs --nogpu"])


@pytest.mark.parametrize(
    "options, words",
    [
        (["--nogpu-sanitize"], "--nogpu-schedule and --nogpu-sanitize are of --nogpu"),
        (["--nogpu", "--nogpu-schedule", "soon"], "'soon' is no schedule"),
    ],
)
def test_wrong_usage(session, options, words):
    done = session(*options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR and words in done.stderr.str()


@pytest.mark.parametrize("command", (["check"], ["explore", "--sanitize"]))
def test_a_session_under_a_command(command, session, pytester):
    """pytest rewrites the modules of a package with a plugin, and finds them itself: they are hooked all the same."""
    pytester.makepyfile(test_waits=f"{LAUNCH}\ndef test_race():\n    launch({RACE!r}, wait=True)\n")
    done = session("test_waits.py", command=["-m", "nogpu", *command])
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E   * sanitizer, rule threads: nothing orders*"])
