"""The choice of a device, the restart on it, and the jobs of its modes."""

import os
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from harness import devices, judge, restart, sanitizing
from harness.devices import B200, DEVICES, EMULATOR, HOPPER, MODES, DeviceError, choose_device, has_b200
from harness.modes import Wishes, run_mode
from harness.restart import RESTARTED, emulator_variables, restart_under_emulator, without_options
from harness.results import Result
from harness.timing import Limits
from task import GROUP_GEMM
from tests.support.commands import ROOT, run_eval


@pytest.mark.parametrize("missing", ["torch", "rich", "nogpu"])
def test_a_python_without_the_packages_says_so(monkeypatch, missing):
    monkeypatch.setattr(restart.importlib.util, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(DeviceError, match=f"has no package '{missing}'; `make eval` sets up"):
        restart.check_packages()


def test_the_device_is_a_b200_where_there_is_one(monkeypatch):
    monkeypatch.delenv("NOGPU", raising=False)
    for present, device in ((True, B200), (False, EMULATOR)):
        monkeypatch.setattr(devices, "has_b200", lambda present=present: present)
        assert choose_device(None) is device
        assert choose_device(EMULATOR) is EMULATOR
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert choose_device(B200) is B200
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    with pytest.raises(DeviceError, match=r"capability 9\.0; a B200 has 10\.0"):
        choose_device(B200)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA device"):
        choose_device(B200)
    monkeypatch.setenv("NOGPU", "1")
    assert choose_device(None) is EMULATOR
    with pytest.raises(DeviceError, match="cannot be had under"):
        choose_device(B200)


@pytest.mark.parametrize(("capability", "present"), [((10, 0), True), ((9, 0), False), ((10, 3), False)])
def test_a_b200_is_known_by_its_capability(monkeypatch, capability, present):
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: capability)
    assert has_b200() == present


def test_the_restart_keeps_arguments_and_happens_once(monkeypatch, capsys):
    restarts = []
    monkeypatch.setattr(os, "execve", lambda *arguments: restarts.append(arguments))
    monkeypatch.setattr(sys, "argv", ["eval.py", "test", "--case", "3"])
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    restart_under_emulator("late,random:1")
    ((program, command, environment),) = restarts
    assert program == command[0] == sys.executable
    assert command[1:] == [
        "-P",
        "-m",
        "nogpu",
        "--schedule",
        "late,random:1",
        str(ROOT / "eval.py"),
        "test",
        "--case",
        "3",
    ]
    assert environment["PYTHONPATH"] == "/elsewhere"
    assert capsys.readouterr().err.count("\n") == 1

    given = ["--schedule", "late", "--sanitize", "--sanitize-allow=scope", "--sanitize-schedule", "late"]
    assert without_options(["test", *given, "--case", "3"]) == ["test", "--case", "3"]
    assert without_options(["--schedule=late", "test"]) == ["test"]

    monkeypatch.setenv(RESTARTED, environment[RESTARTED])
    with pytest.raises(DeviceError, match="another package of that name"):
        restart_under_emulator(None)


def test_the_sanitizer_of_a_restart(tmp_path):
    """The submission's lines and the command line waive rules, by the emulator's variables."""
    file = tmp_path / "submission.py"
    file.write_text('ptx("st.shared.b32 [$0], $1;", "r,r")  # sanitizer: allow order: for a reason\n')
    sanitizer = sanitizing.chosen(file, "scope,lanes", "late")
    assert emulator_variables(sanitizer) == {
        "NOGPU_SANITIZE": "1",
        "NOGPU_SANITIZE_ALLOW": "scope,lanes,order@st.shared.b32",
        "NOGPU_SANITIZE_SCHEDULE": "late",
    }
    assert str(sanitizer).splitlines()[1:] == [
        *("  allowed: scope", "  allowed: lanes", "  allowed: order@st.shared.b32 (submission.py:1: for a reason)"),
    ]
    assert emulator_variables(sanitizing.chosen(ROOT / "task.py", None, None)) == {"NOGPU_SANITIZE": "1"}
    assert emulator_variables(None) == {}
    with pytest.raises(ValueError, match="'race' is no rule"):
        sanitizing.chosen(file, "race", None)


@pytest.mark.parametrize("option", ["--schedule late", "--sanitize"])
def test_an_option_of_the_emulator_is_not_ignored_under_it(option):
    run = run_eval("test", *option.split(), NOGPU="1")
    assert run.returncode == 2
    assert f"give {option.split()[0]} to python -m nogpu" in run.stderr


@pytest.mark.parametrize(
    ("mode", "warm_ups", "options"),
    [
        ("test", [], {}),
        ("profile", [], {}),
        ("benchmark", [("first", 100, 1e8)], {"limits": Limits(100, 10e9), "baseline": True}),
        (
            "leaderboard",
            [("first", 50, 5e8), ("second", 50, 5e8)],
            {"limits": Limits(100, 30e9), "baseline": True, "recheck": True},
        ),
    ],
)
def test_what_a_mode_runs_on_a_gpu(mode, warm_ups, options):
    calls, followed, report = [], [], MagicMock()

    def run(job, problem, spec, following=None, **options):
        calls.append((job.__name__, spec, options))
        followed.append(following)
        return Result(True)

    worker = SimpleNamespace(run=run)
    assert run_mode(mode, B200, GROUP_GEMM, ["first", "second"], worker, report, Wishes(baseline=True))
    job = {"test": "check_case", "profile": "profile_case"}.get(mode, "time_case")
    warm_up = [(job, spec, {"limits": Limits(repeats, budget)}) for spec, repeats, budget in warm_ups]
    assert calls == [*warm_up, (job, "first", options), (job, "second", options)]
    assert followed[len(warm_up) :] == ["second", None]


def test_jobs_of_devices():
    """Every device has a job for each mode that it offers; jobs that time, and no others, have limits and a warm-up."""
    assert {name: device.name for name, device in DEVICES.items()} == {name: name for name in DEVICES}
    assert list(DEVICES) == ["b200", "hopper", "emulator"]
    assert MODES == tuple(B200.jobs) == tuple(EMULATOR.jobs) == ("test", "benchmark", "leaderboard", "profile")
    assert tuple(HOPPER.jobs) == ("test", "benchmark")
    assert [device.timeout_s for device in (B200, HOPPER, EMULATOR)] == [240, 240, 1800]
    timed = {judge.time_case, judge.time_pipeline}
    for device in DEVICES.values():
        for mode, job in device.jobs.items():
            assert ("limits" in job.options) == (job.warm_up is not None) == (job.run in timed), (device, mode)
    assert not timed & {job.run for job in EMULATOR.jobs.values()}, "the emulator never times"
    assert judge.time_case not in {job.run for job in HOPPER.jobs.values()}, "a Hopper's times are no B200's"
    offered = [(name, mode) for name, device in DEVICES.items() for mode in MODES if device.offers_baseline(mode)]
    assert offered == [("b200", "benchmark"), ("b200", "leaderboard")]


@pytest.mark.parametrize(("variable", "device"), [("1", EMULATOR), ("hopper", HOPPER), ("", None), ("0", None)])
def test_the_device_under_the_emulator_is_known_by_its_variable(monkeypatch, variable, device):
    monkeypatch.setenv("NOGPU", variable)
    assert devices.emulator_device() is device
    monkeypatch.delenv("NOGPU")
    assert devices.emulator_device() is None


@pytest.mark.parametrize(("mode", "runs"), [("test", 3), ("benchmark", 3), ("leaderboard", 1)])
def test_leaderboard_alone_ends_at_the_first_failure(mode, runs):
    report, asked = MagicMock(), []

    def run(job, problem, spec, following, **options):
        asked.append((job, options))
        return Result(False)

    assert not run_mode(mode, EMULATOR, GROUP_GEMM, ["first", "second", "third"], SimpleNamespace(run=run), report)
    assert asked == [(EMULATOR.jobs[mode].run, dict(EMULATOR.jobs[mode].options))] * runs
    assert ("calls" in EMULATOR.jobs[mode].options) == (mode == "leaderboard")
