"""The limit of warp instructions: it stops spins that do not repeat, and the report says where they were."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from nogpu import activation
from nogpu.errors import EmulatorError
from nogpu.execution import device as device_module
from nogpu.execution.device import Device, LaunchConfig
from nogpu.execution.meter import MAX_INSTRUCTIONS
from tests.support.commands import ROOT, clean_environment
from tests.support.emulated import run
from tests.support.small_kernels import entry, module

FOR_EVER = "mov.u64 %rd2, 0; L: add.s64 %rd2, %rd2, 1; bra.uni L;"
# A loop of three instructions without an effect.
COUNT = "mov.u32 %r2, 0; C: add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, {n}; @%p4 bra C;"
TRIGGER = "griddepcontrol.launch_dependents;"
WAYS = [(("late",), 1), (("eager",), 1), (("random:1",), 1), (("late",), 2), (("late", "random:1"), 2)]


def launch(body, limit, schedules=("late",), workers=1, grid=1, more=(), threads=32, programmatic=False):
    """Launch a body, and each of `more`. Returns the device."""
    device = Device(schedules, workers, max_instructions=limit)
    for text in (body, *more):
        device.launch(entry(text, 0), LaunchConfig((grid, 1, 1), (threads, 1, 1), programmatic=programmatic), [])
    device.synchronize()
    return device


def stopped(*arguments, **options):
    with pytest.raises(EmulatorError, match="^stopped after [0-9]+ warp instructions .--max-instructions.") as error:
        launch(*arguments, **options)
    assert "hang" not in str(error.value)
    return error.value


@pytest.mark.parametrize("schedules, workers", WAYS)
class TestLimit:
    def test_a_spin_that_does_not_repeat(self, schedules, workers):
        error = stopped(FOR_EVER, 50_000, schedules, workers, grid=4, threads=64)
        assert "warp 1 at PTX line" in str(error) and "[can run]" in str(error)
        assert (error.kernel, error.ptx_line is None) == ("k", False)
        assert 50_000 < int(error.reason.split()[2]) < 100_000

    def test_a_launch_below_it(self, schedules, workers):
        device = launch(COUNT.format(n=4_000), 50_000, schedules, workers, grid=4)
        assert 48_000 < device.counters()[0].warp_instructions < 50_000

    def test_all_parts_of_a_launch_count(self, schedules, workers):
        """The launch has four clusters of 30,000 warp instructions each, in one or two processes."""
        stopped(COUNT.format(n=10_000), 100_000, schedules, workers, grid=4)
        launch(COUNT.format(n=10_000), 130_000, schedules, workers, grid=4)

    def test_launches_that_overlap_count_together(self, schedules, workers):
        second = COUNT.format(n=10_000)
        stopped(TRIGGER + second, 50_000, schedules, workers, more=[second], programmatic=True)
        launch(TRIGGER + second, 70_000, schedules, workers, more=[second], programmatic=True)

    def test_each_launch_counts_alone(self, schedules, workers):
        launch(COUNT.format(n=10_000), 40_000, schedules, workers, more=[COUNT.format(n=10_000)])


def test_a_barrier_in_the_report():
    """Warp 1 waits for warp 0, which spins."""
    part = "shr.u32 %r11, %tid, 5; setp.eq.u32 %p1, %r11, 1; @%p1 bra OTHER;"
    error = stopped(part + FOR_EVER + "OTHER: bar.sync 3, 64;", 50_000, threads=64)
    assert "named barrier 3: 32 of 64 threads, arrived: warp 1\n      has not arrived: warp 0" in str(error)


class TestOption:
    PROGRAM = f"""if True:
        import nogpu
        print("started", flush=True)
        nogpu.load_ptx({module(FOR_EVER, 0)!r})["k"].launch(1, 32)
    """

    def test_of_the_command_line(self):
        process = run("-c", self.PROGRAM, options=("--max-instructions", "20000"))
        assert process.returncode == 101 and "EmulatorError: stopped after 2" in process.stderr

    def test_a_child_inherits_it(self):
        program = (
            f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {self.PROGRAM!r}]).returncode)"
        )
        process = run("-c", program, options=("--max-instructions", "20000"))
        assert process.returncode == 101 and "EmulatorError: stopped after 2" in process.stderr

    @pytest.mark.parametrize("value", ["0", "-1", "1e6", "many"])
    def test_no_number(self, refusal, value):
        words = refusal(f"--max-instructions={value}", "-c", "")
        assert f"{value!r} is no number of warp instructions: an integer from 1 to " in words

    def test_not_for_a_gpu(self, refusal):
        words = refusal("--device", "hopper", "--max-instructions", "5", "-c", "")
        assert "--lenient and --max-instructions are for the emulated B200" in words

    def test_of_activate_and_of_the_device(self, monkeypatch):
        assert activation.environment(max_instructions="5")["NOGPU_MAX_INSTRUCTIONS"] == "5"
        for value, limit in (("77", 77), ("", MAX_INSTRUCTIONS)):
            monkeypatch.setattr(device_module, "_current", None)
            monkeypatch.setenv("NOGPU_MAX_INSTRUCTIONS", value)
            assert Device.current().max_instructions == limit
        for value in ("0", "many"):
            monkeypatch.setattr(device_module, "_current", None)
            monkeypatch.setenv("NOGPU_MAX_INSTRUCTIONS", value)
            with pytest.raises(EmulatorError, match=f"NOGPU_MAX_INSTRUCTIONS: {value!r} is no number of warp instr"):
                Device.current()

    @pytest.mark.parametrize("schedules", ["late", "late,random:1"])
    def test_an_interruption_stops_at_once(self, schedules):
        process = subprocess.Popen(
            [sys.executable, "-m", "nogpu", "--schedule", schedules, "-c", self.PROGRAM],
            env=clean_environment(PYTHONPATH=os.pathsep.join([str(ROOT), clean_environment()["PYTHONPATH"]])),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            # A shell's background jobs, which these tests may be, ignore SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT and stderr.endswith("KeyboardInterrupt\n")


def test_progress_of_one_long_cluster():
    """A launch's progress comes while its only cluster runs."""
    device, seen = Device(), []
    device.progress = lambda *state: seen.append(state)
    device.launch(entry(COUNT.format(n=200_000), 0), LaunchConfig((1, 1, 1), (32, 1, 1)), [])
    instructions = np.array([count for done, total, count in seen if (done, total) == (0, 1)])
    assert len(instructions) > 2 and (np.diff(instructions) > 0).all()
    assert seen[-1] == (1, 1, device.counters()[0].warp_instructions)
