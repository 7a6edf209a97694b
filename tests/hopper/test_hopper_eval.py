"""eval.py and `python -m nogpu` towards a Hopper GPU: choice of device, restart, reports."""

import os
import sys

import pytest
import torch

from harness import devices
from harness.devices import B200, EMULATOR, HOPPER, DeviceError, choose_device
from harness.judge import OMITTED, check_case, time_pipeline
from harness.restart import RESTARTED, restart_under_emulator
from harness.results import Result
from harness.tables import ConsoleReport
from harness.timing import BENCHMARK, Stats
from task import GROUP_GEMM
from tests.support.commands import ROOT, run_eval
from tests.support.emulated import run


@pytest.fixture
def gpu(monkeypatch):
    """Sets the capability of the GPU that there is, None for none."""
    monkeypatch.delenv("NOGPU", raising=False)
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: None)

    def have(capability):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: capability)

    return have


def test_a_hopper_is_taken_where_there_is_one(gpu):
    for capability, device in (((10, 0), B200), ((9, 0), HOPPER), ((8, 0), EMULATOR), (None, EMULATOR)):
        gpu(capability)
        assert choose_device(None) is device
        assert choose_device(EMULATOR) is EMULATOR
    with pytest.raises(DeviceError, match=r"does not have capability 9\.0"):
        choose_device(HOPPER)


def test_the_device_that_was_started_on_stays(gpu, monkeypatch):
    gpu((9, 0))
    monkeypatch.setenv("NOGPU", "hopper")
    assert choose_device(None) is choose_device(HOPPER) is HOPPER
    for other in (B200, EMULATOR):
        with pytest.raises(DeviceError, match="cannot be had under"):
            choose_device(other)


def test_the_restart_names_the_device(monkeypatch, capsys):
    restarts = []
    monkeypatch.setattr(os, "execve", lambda *arguments: restarts.append(arguments))
    monkeypatch.setattr(sys, "argv", ["eval.py", "test", "--case", "3"])
    monkeypatch.delenv(RESTARTED, raising=False)
    restart_under_emulator(None, HOPPER)
    ((_, command, _),) = restarts
    assert command[1:] == ["-P", "-m", "nogpu", "--device", "hopper", str(ROOT / "eval.py"), "test", "--case", "3"]
    assert "restarting on a Hopper GPU" in capsys.readouterr().err


def test_modes_and_jobs_of_a_hopper():
    run = run_eval("leaderboard", NOGPU="hopper")
    assert run.returncode == 2 and "modes test and benchmark, not leaderboard" in run.stderr
    assert list(HOPPER.jobs) == ["test", "benchmark"]
    benchmark, test = HOPPER.jobs["benchmark"], HOPPER.jobs["test"]
    assert benchmark.run is time_pipeline and benchmark.options == {"limits": BENCHMARK}
    assert test.run is check_case and test.options == {} and test.warm_up is None


def test_times_of_a_hopper_are_never_a_b200s(capsys):
    stats = Stats(3, 36e3, 0.0, 0.0, 36e3, 36e3)
    result = Result(True, stats=stats, plain_read=Stats(3, 40e3, 0.0, 0.0, 40e3, 40e3))
    specs = GROUP_GEMM.parse_specs([benchmark.line for benchmark in GROUP_GEMM.benchmarks])
    report = ConsoleReport(GROUP_GEMM, "a device · a file", list(range(len(specs))))
    with report:
        report.begin("benchmark", specs)
        for index, spec in enumerate(specs):
            report.case_begins(index, spec)
            report.case_ends(index, result)
        report.end(True)
    text = " ".join(capsys.readouterr().out.split())
    assert "plain read" in text and "36.000 ± 0.000" in text and "0.90" in text
    assert text.endswith(f"geomean 36.000 us, {OMITTED}")
    assert "published" not in text and "light" not in text


def test_programs_are_put_on_the_hopper_with_the_real_torch():
    code = "import os, torch; print(*map(os.environ.get, ('NOGPU', 'NOGPU_HOPPER_MODE'))); print(torch.__file__)"
    code += "; print(torch.cuda.is_available.__module__)"
    lines = run("-c", code, options=("--device", "hopper", "--hopper-mode", "timing")).stdout.splitlines()
    assert lines[0] == "hopper timing"
    assert lines[2] == "torch.cuda"


@pytest.mark.parametrize(
    "options",
    [
        ("--hopper-mode", "exact"),
        ("--device", "hopper", "--schedule", "late"),
        ("--device", "hopper", "--lenient"),
        ("--device", "a100"),
    ],
)
def test_options_that_do_not_go_together(options):
    assert run("-c", "pass", options=options).returncode == 2
