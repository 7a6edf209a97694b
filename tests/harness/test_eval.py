"""eval.py for a person: tables, usage, interruption."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from harness.submissions import Submission
from task import PROBLEMS
from tests.support.commands import (
    BEHAVIOURS,
    ROOT,
    SUBMISSIONS,
    clean_environment,
    run_eval,
    spec_line,
    write_specs,
    written_by_worker,
)
from tests.support.slow import sampled


def test_the_table_shows_what_differs_where(tmp_path):
    """Nothing is imported from the working folder, and a name that the output cannot show is escaped: bytes that are no
    text, and characters that would change a terminal.
    """
    specs = write_specs(tmp_path / "specs.txt", ["good", "wrong", "raises"])
    submission = tmp_path / os.fsdecode(b"\xff\x1b[2J.py")
    submission.write_bytes(BEHAVIOURS.read_bytes())
    for name in ("nogpu", "random", "torch", "harness", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)")
    run = run_eval(
        "test", specs, "--submission", submission, "--device", "emulator", "--schedule", "random:3",
        cwd=tmp_path, PYTHONIOENCODING="utf-8", COLUMNS="0",
    )  # fmt: skip
    assert run.returncode == 112
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(
        "eval.py: restarting on an emulated B200: python -m nogpu --schedule random:3 eval.py test "
    )
    assert run.stderr.count("--schedule") == 1
    headline, *_ = run.stdout.splitlines()
    assert headline == f"group_gemm test · NVIDIA B200 (emulated), schedules random:3 · {Submission.of(submission)}"
    assert r"/\udcff\x1b[2J.py" in headline and "\x1b" not in run.stdout + run.stderr
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith((" 0 ", " 1 ", " 2 "))]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[-1] for row in rows] == ["bit-exact", "FAIL", "FAIL"]
    assert " m 2 24, n 16 8, k 64 128, g 2 " in run.stdout
    assert "case 1 FAILED: m 4 24, n 16 8, k 64 128, g 2" in run.stdout
    assert "group 1 (24 x 8 x 1): 1 of 192 elements differ, largest error 100\n    at [3, 2, 0]: got " in run.stdout
    assert 'raise ValueError("first line\\nsecond line")' in run.stdout
    assert run.stdout.endswith("1 passed, 2 failed\n")


def test_benchmark_on_the_emulator_prints_counts_and_no_times(tmp_path):
    (tmp_path / "specs.txt").write_text("\n".join([spec_line("good")] * 4))
    cases = "--case", 1, "--case", 3
    run = run_eval("benchmark", tmp_path / "specs.txt", *cases, "--submission", BEHAVIOURS, "--device", "emulator")
    assert run.returncode == 0, run.stdout
    assert "counts from emulation, no times" in run.stdout
    assert "plan: tiles" in run.stdout
    assert "TMA bytes, unique" in run.stdout
    assert [line.split()[0] for line in run.stdout.splitlines() if "bit-exact" in line] == ["1", "3"]
    for absent in (" us", "±", "speed of light", "published", "geomean"):
        assert absent not in run.stdout
    assert run.stdout.endswith("2 passed, 0 failed\n")


RACES = """
import nogpu
import reference

PTX = '''.version 8.8 .target sm_100a .address_size 64 .visible .entry k() {
.reg .b32 %r<4>; .shared .align 4 .b8 words[256]; mov.u32 %r1, words; mad.lo.u32 %r2, %tid.x, 4, %r1;
st.shared.b32 [%r2], %tid.x; ld.shared.b32 %r3, [%r1]; ret; }'''
kernel = nogpu.load_ptx(PTX)["k"]


def custom_kernel(data):
    kernel.launch(1, 64)
    return reference.ref_kernel(data)
"""
WAIVED = """
USED = "ld.shared.b32"  # sanitizer: allow threads, lanes: the word is not used
"""


@pytest.mark.slow
def test_a_race_that_no_schedule_shows(tmp_path):
    """--sanitize fails the case; where the case passes by a waiver in the submission, that line is listed."""
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    options = "--device", "emulator", "--submission", tmp_path / "submission.py"
    (tmp_path / "submission.py").write_text(RACES)
    assert run_eval("test", specs, *options).returncode == 0
    run = run_eval("test", specs, *options, "--sanitize")
    assert run.returncode == 112 and "sanitizer, rule lanes: nothing orders" in run.stdout
    (tmp_path / "submission.py").write_text(RACES + WAIVED)
    run = run_eval("test", specs, *options, "--sanitize")
    assert (
        run.returncode == 0 and "restarting on an emulated B200: NOGPU_SANITIZE=1 NOGPU_SANITIZE_ALLOW=" in run.stderr
    )
    waived = "@ld.shared.b32 (submission.py:15: the word is not used)\n"
    assert run.stdout.endswith(f"  allowed: threads{waived}  allowed: lanes{waived}")


LAUNCHES = """
import nogpu
import reference

PTX = ".version 8.8 .target sm_100a .address_size 64 .visible .entry k() { .reg .b32 %r<2>; mov.b32 %r1, 0; ret; }"
kernel = nogpu.load_ptx(PTX)["k"]


def custom_kernel(data):
    kernel.launch(150, 128)
    return reference.ref_kernel(data)
"""


@pytest.mark.slow
def test_a_clock_shows_modelled_times(tmp_path):
    (tmp_path / "specs.txt").write_text(spec_line("good"))
    submission = tmp_path / "launches.py"
    submission.write_text(LAUNCHES)
    options = "--submission", submission, "--device", "emulator", "--clock", "b200"
    run = run_eval("benchmark", tmp_path / "specs.txt", *options)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\nmodelled on b200, error" in run.stdout
    rows = [line.strip().rsplit(None, 1) for line in run.stdout.splitlines()]
    figures = {row[0].strip(): row[1] for row in rows if len(row) == 2}
    assert float(figures["modelled us, ordinary launches"]) > 0
    assert figures["calls in a row"] == "15" and figures["DRAM busy, ordinary launches"] == "0%"
    assert "programmatic" not in run.stdout, "no launch has the attribute"
    assert run.stdout.endswith("1 passed, 0 failed\n")
    run = run_eval("benchmark", tmp_path / "specs.txt", "--submission", BEHAVIOURS, *options[2:])
    assert run.returncode == 112 and "the call has launched no kernel: a clock has nothing to replay" in run.stdout


@pytest.mark.slow
def test_a_clock_shows_programmatic_launches_beside_ordinary_ones(tmp_path):
    (tmp_path / "specs.txt").write_text(spec_line("good"))
    (tmp_path / "launches.py").write_text(LAUNCHES.replace("launch(150, 128)", "launch(150, 128, programmatic=True)"))
    options = "--submission", tmp_path / "launches.py", "--device", "emulator", "--clock", "b200"
    run = run_eval("benchmark", tmp_path / "specs.txt", *options)
    assert run.returncode == 0, run.stdout + run.stderr
    rows = [line.strip().rsplit(None, 1) for line in run.stdout.splitlines() if line.strip().startswith("modelled us")]
    names = [f"modelled us, {kind} launches" for kind in ("ordinary", "programmatic")]
    assert [name.strip() for name, _ in rows] == names
    ordinary, programmatic = (float(us) for _, us in rows)
    assert ordinary > programmatic > 0


@pytest.mark.slow
def test_what_would_make_a_loop_faster_and_files_of_each_case(tmp_path):
    (tmp_path / "launches.py").write_text(LAUNCHES)
    specs = write_specs(tmp_path / "specs.txt", ["good", "good"])
    options = "--device", "emulator", "--clock", "b200", "--why", "--timeline", tmp_path / "t.json.gz"
    run = run_eval("benchmark", specs, "--submission", tmp_path / "launches.py", *options)
    assert run.returncode == 0, run.stdout + run.stderr
    for case in range(2):
        assert (
            f"\ncase {case}: clock: why " in run.stdout
            and " modelled us on b200 for a call of 15 in a loop" in run.stdout
        )
        file = tmp_path / f"t-case{case}.json.gz"
        assert f"\ncase {case}: wrote {file}, for ui.perfetto.dev\n" in run.stdout
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
        launches = {event["name"].split(",")[0] for event in events if event["name"].startswith("launch ")}
        assert len(launches) == 15
    text = run.stdout[run.stdout.index("case 0: clock: why ") : run.stdout.index("case 0: wrote ")]
    gains = [float(line.split()[0]) for line in text.splitlines() if "%  launches: " in line or "%  CTAs: " in line]
    assert len(gains) > 1 and gains == sorted(gains, reverse=True), "a launch of little work is gaps and starts"


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("benchmark", "--why"), "--why is of --clock, which replays what the emulator has recorded: give --clock"),
        (("benchmark", "--timeline", "t.json"), "--timeline is of --clock"),
        (("benchmark", "--picture", "p.png"), "--picture is of --clock"),
        (("benchmark", "--clock", "b200", "--timeline", "t.txt"), "'t.txt' does not end in .json or .json.gz"),
        (("benchmark", "--clock", "b200", "--picture", "nowhere/p.png"), "there is no folder for 'nowhere/p.png'"),
        (("benchmark", "--clock", "b201"), "chip profile 'b201': known are b200, h200"),
        (("test", "--clock", "b200", "--device", "emulator"), "it needs --device emulator and mode benchmark"),
        (("benchmark", "--clock", "b200", "--device", "emulator", "--schedule", "eager"), "takes no --schedule"),
        (("benchmark", "--clock", "b200", "--device", "emulator", "--sanitize"), "no --sanitize"),
        (("test", "--device", "emulator", "--sanitize-allow", "scope"), "--sanitize-allow is of --sanitize"),
        (("test", "--device", "emulator", "--sanitize", "--sanitize-allow", "race"), "'race' is no rule"),
    ],
)
def test_clocks_that_are_refused(refused, arguments, error):
    code, stderr = refused(*arguments)
    assert code == 2 and error in stderr


GEMV_ONLY = """
import reference


def custom_kernel(data):
    if len(data) != 7 or data[-1].shape[1] != 1:
        raise ValueError(f"{len(data)} items: only GEMV is here")
    return reference.gemv_ref_kernel(data)
"""


@pytest.mark.slow
def test_all_problems_with_a_submission_for_one(tmp_path):
    submission = tmp_path / "gemv_only.py"
    submission.write_text(GEMV_ONLY)
    run = run_eval("test", "--problem", "all", "--submission", submission, "--device", "emulator")
    assert run.returncode == 112
    headlines = [line for line in run.stdout.splitlines() if " test · " in line]
    assert headlines == [f"{name} test · NVIDIA B200 (emulated) · {Submission.of(submission)}" for name in PROBLEMS]
    for items in (4, 10, 7):
        assert run.stdout.count(f"\nas case 0: ValueError: {items} items: only GEMV is here\n") == 9
    _, total = run.stdout.split(" all problems ")
    words = [line.split() for line in total.splitlines()]
    rows = [f"{row[0]} {row[1]}" for row in words if "passed," in row]
    assert rows == ["group_gemm 0", "dual_gemm 0", "gemm 0", "gemv 10", "total 10"]
    assert ["total", "10", "passed,", "30", "failed"] in words


@pytest.mark.slow
def test_benchmark_of_another_problem_on_the_emulator(tmp_path):
    (tmp_path / "specs.txt").write_text("m: 72; k: 128; l: 2; seed: 1\n")
    arguments = ("--problem", "gemv", "--submission", SUBMISSIONS / "all_problems.py", "--device", "emulator")
    run = run_eval("benchmark", tmp_path / "specs.txt", *arguments)
    assert run.returncode == 0, run.stdout
    assert run.stdout.startswith("gemv benchmark · ")
    assert [line.split()[-1] for line in run.stdout.splitlines() if "plan: problem" in line] == ["gemv"]
    assert run.stdout.endswith("1 passed, 0 failed\n")


@pytest.mark.slow
def test_the_submissions_error_stands_before_the_references(tmp_path):
    """The reference, which raises for this K, too, runs during the call; the next case has its own replies."""
    (tmp_path / "specs.txt").write_text(
        "m: [64]; n: [64]; k: [72]; g: 1; seed: 1\nm: [64]; n: [64]; k: [64]; g: 1; seed: 1\n"
    )
    run = run_eval("test", tmp_path / "specs.txt", "--device", "emulator")
    assert run.returncode == 112
    assert "k is 72; it must be 64 to " in run.stdout and run.stdout.endswith("1 passed, 1 failed\n")


@pytest.mark.slow
def test_one_failure_of_every_case_is_shown_once(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good", "good", "good"])
    submission = SUBMISSIONS / "broken_import.py"
    run = run_eval("test", specs, "--submission", submission, "--device", "emulator")
    assert run.returncode == 112
    assert run.stdout.count("Traceback") == 1
    assert run.stdout.count("as case 0: ImportError: no module named tvm_ffi") == 2
    assert run.stdout.endswith("0 passed, 3 failed\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("test", "--submission", "absent.py"), "--submission absent.py: No such file or directory"),
        (("test", "--submission", "\udcff\x1b.py"), r"--submission \udcff\x1b.py: No such file or directory"),
        (("test", "--submission", f"{'x' * 256}.py"), f"--submission {'x' * 256}.py: File name too long"),
        (("test", "--submission", "/"), "--submission /: it is no file"),
        (("test", "--submission", str(ROOT / "LICENSE")), f"--submission {ROOT}/LICENSE: its name does not end in .py"),
        (("test", "--timeout", "0"), "argument --timeout: '0' is not a number of seconds above 0"),
        (("test", "--timeout", "nan"), "argument --timeout: 'nan' is not a number of seconds above 0"),
        (("test", "--timeout", "soon"), "argument --timeout: 'soon' is not a number of seconds above 0"),
        (
            ("test", "--timeout", "inf"),
            "argument --timeout: 'inf' is more than 1000000 seconds, eleven days: give fewer",
        ),
        (
            ("test", "x.txt", "--problem", "all"),
            "--problem all takes no SPECFILE: a spec file holds the cases of one problem",
        ),
        (
            ("test", "--problem", "all", "--case", "0"),
            "--problem all takes no --case: it is the number of a case of one problem",
        ),
    ],
)
def test_usage(refused, arguments, text):
    code, stderr = refused(*arguments)
    assert code == 2 and stderr.endswith(f"error: {text}\n")
    code, stderr = refused("test", "--case", "0", POPCORN_SEED=str(10**23))
    assert code == 2
    assert "POPCORN_SEED=100000000000000000000000: invalid test case" in stderr.splitlines()[-1]


LOST = "eval.py: the results cannot be written to {}\n"


@pytest.mark.parametrize(
    ("redirections", "code", "stderr"),
    sampled(
        [
            (">&-", 120, "eval.py: standard output is closed: there is nowhere to write results\n"),
            ("9>results >&- 2>&- <&-", 0, ""),
            ("2>&- <&- >results", 0, ""),
            ("2>/dev/full >results", 0, ""),
            ("9>/dev/full", 111, LOST.format("POPCORN_FD=9: No space left on device")),
            (">/dev/full", 120, LOST.format("standard output: No space left on device")),
            ("| true", 120, LOST.format("standard output: Broken pipe")),
        ],
        4,
        names=3,
    ),
)
def test_outputs_that_cannot_be_written(tmp_path, redirections, code, stderr):
    """A closed or full output is neither a failure of the submission nor a traceback."""
    write_specs(tmp_path / "specs.txt", ["good"])
    command = f'"{sys.executable}" "{ROOT}/eval.py" test specs.txt --submission "{BEHAVIOURS}" --device emulator'
    variables = {"POPCORN_FD": "9"} if "9>" in redirections else {}
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {redirections}"],
        env=clean_environment(**variables), cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == code and run.stderr.endswith(stderr) and "Traceback" not in run.stderr
    if code == 0:
        assert (tmp_path / "results").read_text().endswith(("1 passed, 0 failed\n", "check: pass\n"))


@pytest.mark.slow
def test_an_interruption_ends_without_a_traceback(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["hangs"])
    pids = written_by_worker(f"pids-{os.getpid()}")
    process = subprocess.Popen(
        [sys.executable, ROOT / "eval.py", "test", specs, "--submission", BEHAVIOURS, "--device", "emulator"],
        env=clean_environment(PIDS=pids.name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell's background jobs, which these tests may be, ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while not pids.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    pids.unlink()
    assert process.returncode == 130
    assert stderr.endswith("eval.py: interrupted\n")
    assert "Traceback" not in stderr


def copy_harness(folder):
    """Copy eval.py and the files that it needs, with the submissions of these tests in place of the project's."""
    for name in ("eval.py", "task.py", "reference.py"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "harness", folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(BEHAVIOURS, folder / "submission.py")


@pytest.mark.slow
def test_four_files_and_the_harness_are_enough_under_an_emulator_from_elsewhere(tmp_path):
    copy_harness(tmp_path)
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    run = run_eval("-m", "nogpu", tmp_path / "eval.py", "test", specs, script="", PYTHONPATH=str(ROOT))
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("1 passed, 0 failed\n")


def test_the_environment_of_these_runs_is_clean(monkeypatch):
    monkeypatch.setenv("NOGPU_SCHEDULE", "late")
    monkeypatch.setenv("POPCORN_FD", "3")
    assert not {"NOGPU_SCHEDULE", "POPCORN_FD"} & set(clean_environment())
