"""The commands: help, verdicts, exit codes and documents of JSON."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from nogpu import commands, verdict
from nogpu.execution import device, runs
from tests.support.commands import ROOT, clean_environment
from tests.support.emulated import run
from tests.support.small_kernels import module, store


def program(body, launch="1, 32, [x]"):
    """A program of one line that launches a kernel of this body."""
    text = module(body)
    made = f"import nogpu, numpy as np; x = nogpu.array(np.zeros(64, np.uint32)); k = nogpu.load_ptx({text!r})['k']"
    return f"{made}; k.launch({launch})\n"


RIGHT = program(store("%tid"))
OUTSIDE = program("st.global.b32 [%a0+4096], 5;")
CAUGHT = f"try:\n    {OUTSIDE}except nogpu.EmulatorError: pass\n"
HANG = program("L: bra L;")
REFUSED = program(store("%tid"), "1, 4096, [x]")
RACE = program(  # warp 1 reads the word that warp 0 stores
    "mov.u32 %r1, smem; setp.ge.u32 %p1, %tid, 32; @%p1 bra R;\n"
    "st.shared.b32 [%r1], 5; ret; R: ld.shared.b32 %r2, [%r1];",
    "1, 64, [x], shared=64",
)

LAST_WINS = """
    mov.u32 %r1, smem; setp.eq.u32 %p1, %tid, 0; setp.eq.u32 %p2, %tid, 32; shr.u32 %r2, %tid, 5;
    @%p1 st.relaxed.cta.shared.b32 [%r1], %r2; @%p2 st.relaxed.cta.shared.b32 [%r1], %r2;
    bar.sync 0; ld.relaxed.cta.shared.b32 %r3, [%r1]; @%p1 st.global.b32 [%a0], %r3;
"""  # which of two warps stores last is left open, and no race


@pytest.mark.parametrize(
    "options, schedules, fault",
    [
        (("--random", "0"), "under late", ""),
        (("--schedule", "late,eager"), "under late, eager", ""),
        (("--random", "1000"), "under late, random:1, random:2, random:3, random:4, random:5", "schedules disagree"),
    ],
)
def test_schedules_of_check(options, schedules, fault):
    """A launch runs under late, and while there is time under random schedules: these show what late does not."""
    done = run("check", *options, "-c", RIGHT)
    assert done.returncode == 0 and done.stderr.splitlines()[-1].endswith(f"without a fault, {schedules}"), done.stderr
    relaxed = program(LAST_WINS, "1, 64, [x], shared=64")
    done = run("check", *options, "-c", relaxed)
    assert (done.returncode == 100) == bool(fault) and fault in done.stderr, done.stderr


def test_random_schedules_beside_others_are_refused():
    done = run("check", "--schedule", "late", "--random", "9", "-c", RIGHT)
    assert done.returncode == commands.EXIT_USAGE and "--random is for launches without schedules" in done.stderr


@pytest.mark.parametrize("left, each, taken", [(60, 20, 3), (60, 9, 5), (0.5, 1, 0), (-1, 1, 0)])
def test_schedules_that_fit_the_time(left, each, taken):
    assert runs.Spare(device.SPARE, left).take(each) == device.SPARE[:taken]


@pytest.mark.parametrize("command", ["", *commands.COMMANDS])
def test_help_fits_a_screen(command):
    done = run(*filter(None, [command, "--help"]))
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) <= 40 and max(map(len, lines)) <= 120


def test_help_and_manual_name_all_commands_and_codes():
    text, manual = run("--help").stdout, (ROOT / "docs" / "manual.md").read_text()
    codes = {*commands.VERDICTS, 1, commands.EXIT_INTERRUPTED}
    for command in (*commands.COMMANDS, *commands.OTHERS):
        assert f"\n  {command} " in text and f"| `nogpu {command}" in manual
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", manual, re.MULTILINE)} == codes
    assert codes - {0} <= {int(code) for code in re.findall(r"\b(\d+)  ", text.partition("exit codes")[2])}
    assert run().returncode == commands.EXIT_USAGE
    assert re.fullmatch(r"nogpu \S+\n", run("--version").stdout)


@pytest.mark.parametrize(
    "command, text, code, words",
    [
        ("run", RIGHT, 0, ""),
        ("run", "raise SystemExit(7)", 7, ""),
        ("run", "1 / 0", 1, "ZeroDivisionError"),
        ("run", OUTSIDE, 100, "grid (1, 1, 1), block (32, 1, 1)"),
        ("run", CAUGHT, 0, ""),
        ("run", HANG, 101, "the kernel hangs"),
        ("run", REFUSED, 102, "launch refused"),
        ("check", RIGHT, 0, "nogpu check: right: 1 launch of 1 kernel without a fault"),
        ("check", RIGHT, 0, "fault, under late, random:1, random:2, random:3, random:4, random:5"),
        ("check", RACE, 100, "nogpu check: fault: rule threads, kernel k"),
        ("check", CAUGHT, 100, "nogpu check: fault: store of 4 bytes"),
        ("check", CAUGHT + "raise SystemExit(7)", 7, "nogpu check: failed: exit code 7"),
        ("check", "1 / 0", 1, "nogpu check: failed: exit code 1, 0 launches"),
        ("check", "pass", 103, "nogpu check: nothing launched"),
        ("check", "import torch_of_another_name, nogpu", 1, "nogpu check: failed"),
        ("explore", RACE, 100, "nogpu explore: fault: rule threads, kernel k"),
        ("explore", RIGHT, 0, "1 launch of 1 kernel without a fault, 1 clean for all interleavings"),
        ("time", RIGHT, 0, "modelled us"),
    ],
)
def test_exit_codes_and_verdicts(command, text, code, words):
    done = run(command, "-c", text)
    assert done.returncode == code and words in done.stderr, done.stderr
    if command == "run" and code > 100:
        assert "/nogpu/" not in done.stderr, "frames of the emulator behind the program's own"


def test_a_document(tmp_path):
    done = run("check", "--json", tmp_path / "found.json", "-c", RIGHT + OUTSIDE)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["verdict"], found["exit_code"], found["command"]) == ("fault", done.returncode, "check")
    (launch,), (fault,) = found["launches"], found["faults"]
    assert (launch["kernel"], launch["grid"], launch["block"]) == ("k", [1, 1, 1], [32, 1, 1])
    assert (fault["kind"], fault["rule"], fault["kernel"], fault["cta"]) == ("fault", None, "k", [0, 0, 0])
    assert fault["ptx_line"] > 1 and fault["shape"] == "grid (1, 1, 1), block (32, 1, 1)"


def test_a_document_on_standard_output_is_alone_there():
    done = run("time", "--json", "-", "-c", RIGHT + "print('its own')")
    found = json.loads(done.stdout)
    assert "its own" in done.stderr and found["verdict"] == "right"
    (times,) = found["modelled_times"]
    assert times["chip"] == "b200" and [each["kernel"] for each in times["launches"]] == ["k"]
    assert times["us"] == pytest.approx(times["launches"][0]["us"]) and "median" in times["error"]


def test_a_program_that_does_not_compile_is_judged(tmp_path):
    (tmp_path / "wrong.cu").write_text("int main() { return undeclared; }\n")
    done = run("check", tmp_path / "wrong.cu")
    assert done.returncode == 1 and "does not compile" in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("nogpu check: failed: exit code 1")


def test_children_and_signals_count():
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CAUGHT!r}], check=True)"
    assert run("check", "-c", child).returncode == 100
    killed = run("check", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert killed.returncode == -signal.SIGTERM and "failed: SIGTERM, 0 launches" in killed.stderr


def test_the_short_form_is_run():
    assert commands.parse(["-c", "", "x"]) == commands.parse(["run", "-c", "", "x"])


def test_a_file_for_json_that_cannot_be(tmp_path):
    done = run("run", "--json", tmp_path / "nowhere" / "x.json", "-c", "")
    assert done.returncode == 2 and "there is no folder for it" in done.stderr


def test_a_fault_is_told_by_its_source_line():
    fault = {"rule": "lanes", "reason": "r", "kernel": "k", "file": "a.py", "line": 3, "kind": "fault"}
    found = verdict.document("check", ["a.py"], 1, [{"note": "fault", "process": 1, **fault}])
    assert verdict.sentence(found) == "fault: rule lanes, kernel k, a.py:3" and found["exit_code"] == 100


TELLING = """
import time
from nogpu import toolchain
with toolchain.telling("compiling a.cu", 0.2):
    time.sleep({seconds})
print("done")
"""


@pytest.mark.parametrize("seconds, progress, told", [(1.5, "", True), (0.0, "", False), (0.5, "0", False)])
def test_a_terminal_is_told_what_takes_so_long(seconds, progress, told):
    """After a delay, with seconds; the line goes when the work ends."""
    master, slave = os.openpty()
    environment = clean_environment(NOGPU_PROGRESS=progress)
    command = [sys.executable, "-c", TELLING.format(seconds=seconds)]
    done = subprocess.run(command, env=environment, stderr=slave, stdout=subprocess.PIPE, text=True, check=False)
    os.close(slave)
    try:
        shown = os.read(master, 4096).decode()
    except OSError:  # nothing was written
        shown = ""
    os.close(master)
    assert done.stdout == "done\n" and ("compiling a.cu: 1 s" in shown) == told, shown
    assert not told or shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("own", [False, True])
def test_the_contests_utils_are_there_unless_a_program_has_its_own(tmp_path, own):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text("from utils import set_seed\nprint(set_seed.__module__)\n")
    if own:
        (tmp_path / "utils.py").write_text("class set_seed:\n    __module__ = 'own'\n")
    done = run("run", tmp_path / "program.py")
    assert done.stdout == ("own\n" if own else "utils\n"), done.stderr
