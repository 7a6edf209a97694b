"""eval.py for a person: tables, choice of device, command line; and its timing, on clocks and kernels made up here."""

import contextlib
import io
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

import eval as harness_file
import reference
from task import GEMM, GROUP_GEMM, PROBLEMS, Benchmark, Problem, TestSpec
from tests.support.commands import BEHAVIOURS, ROOT, SUBMISSIONS, clean_environment, run_eval, spec_line, write_specs

# ---------------------------------------------------------------------------------------------------------------------
# Runs as a person starts them
# ---------------------------------------------------------------------------------------------------------------------


def test_the_table_shows_what_differs_where(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["good", "wrong", "raises"])
    run = run_eval("test", specs, "--submission", BEHAVIOURS, "--device", "emulator", "--schedule", "random:3")
    assert run.returncode == 112
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(
        "eval.py: restarting on an emulated B200: python -m emulator --schedule random:3 eval.py test "
    )
    assert run.stderr.count("--schedule") == 1
    headline, *_ = run.stdout.splitlines()
    assert headline == f"group_gemm test · NVIDIA B200 (emulated), schedules random:3 · {BEHAVIOURS}"
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith((" 0 ", " 1 ", " 2 "))]
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert [row[-1] for row in rows] == ["bit-exact", "FAIL", "FAIL"]
    assert " m 2 24, n 16 8, k 64 128, g 2 " in run.stdout
    assert "case 1 FAILED: m 4 24, n 16 8, k 64 128, g 2" in run.stdout
    assert "group 1 (24 x 8 x 1): 1 of 192 elements differ, largest error 100\n    at [3, 2, 0]: got " in run.stdout
    assert 'raise ValueError("first line\\nsecond line")' in run.stdout
    assert run.stdout.endswith("1 passed, 2 failed\n")


def test_benchmark_on_the_emulator_prints_counts_and_no_times(tmp_path):
    lines = [spec_line("good"), spec_line("good")]
    (tmp_path / "specs.txt").write_text("\n".join(lines))
    run = run_eval("benchmark", tmp_path / "specs.txt", "--case", 1, "--submission", BEHAVIOURS, "--device", "emulator")
    assert run.returncode == 0, run.stdout
    assert "counts from emulation, no times" in run.stdout
    assert "plan: tiles" in run.stdout
    assert "TMA bytes, unique" in run.stdout
    assert [line.split()[0] for line in run.stdout.splitlines() if "bit-exact" in line] == ["1"], "--case 1 alone"
    for absent in (" us", "±", "speed of light", "published", "geomean"):
        assert absent not in run.stdout
    assert run.stdout.endswith("1 passed, 0 failed\n")


GEMV_ONLY = """
import reference


def custom_kernel(data):
    if len(data) != 7 or data[-1].shape[1] != 1:
        raise ValueError(f"{len(data)} items: only GEMV is here")
    return reference.gemv_ref_kernel(data)
"""


def test_all_problems_with_a_submission_for_one(tmp_path):
    submission = tmp_path / "gemv_only.py"
    submission.write_text(GEMV_ONLY)
    run = run_eval("test", "--problem", "all", "--submission", submission, "--device", "emulator")
    assert run.returncode == 112
    headlines = [line for line in run.stdout.splitlines() if " test · " in line]
    assert headlines == [f"{name} test · NVIDIA B200 (emulated) · {submission}" for name in PROBLEMS]
    for items in (4, 10, 7):
        assert run.stdout.count(f"\nas case 0: ValueError: {items} items: only GEMV is here\n") == 9
    _, total = run.stdout.split(" all problems ")
    words = [line.split() for line in total.splitlines()]
    rows = [f"{row[0]} {row[1]}" for row in words if "passed," in row]
    assert rows == ["group_gemm 0", "dual_gemm 0", "gemm 0", "gemv 10", "total 10"]
    assert ["total", "10", "passed,", "30", "failed"] in words


def test_the_total_has_every_geomean():
    reports = []
    for problem in PROBLEMS.values():
        specs = problem.parse_specs([benchmark.line for benchmark in problem.benchmarks])
        report = harness_file.ConsoleReport(problem, "a device · a file", list(range(len(specs))))
        report.results = [(i, spec, harness_file.Result(True, stats=stats_of(20.0))) for i, spec in enumerate(specs)]
        reports.append(report)
    reports[0].console.file, reports[0].console.width = io.StringIO(), 120
    harness_file.print_total(reports)
    rows = [" ".join(line.split()) for line in reports[0].console.file.getvalue().splitlines()]
    for row in (
        "dual_gemm 4 passed, 0 failed; geomean 20.000 us (speed of light 4.89, best published 13.12)",
        "gemv 3 passed, 0 failed; geomean 20.000 us (speed of light 8.63, best published 18.55)",
        "total 14 passed, 0 failed",
    ):
        assert row in rows


def test_benchmark_of_another_problem_on_the_emulator(tmp_path):
    (tmp_path / "specs.txt").write_text("m: 72; k: 128; l: 2; seed: 1\n")
    arguments = ("--problem", "gemv", "--submission", SUBMISSIONS / "all_problems.py", "--device", "emulator")
    run = run_eval("benchmark", tmp_path / "specs.txt", *arguments)
    assert run.returncode == 0, run.stdout
    assert run.stdout.startswith("gemv benchmark · ")
    assert [line.split()[-1] for line in run.stdout.splitlines() if "plan: problem" in line] == ["gemv"]
    assert run.stdout.endswith("1 passed, 0 failed\n")


def test_a_plan_is_asked_of_those_that_have_one():
    def plan(problem, **submission):
        case = harness_file.Case(problem, None, SimpleNamespace(**submission), {})
        return harness_file.plan_of(case, [(1, 2, 3, 1)])

    def of_groups(problem_sizes):
        return {"groups": len(problem_sizes)}

    def of_any(problem_sizes, problem="group_gemm"):
        return {problem: problem_sizes[0]}

    assert plan(GROUP_GEMM) == plan(GEMM) == {}
    assert (plan(GROUP_GEMM, plan_report=of_groups), plan(GEMM, plan_report=of_groups)) == ({"groups": 1}, {})
    assert plan(GROUP_GEMM, plan_report=of_any) == {"group_gemm": (1, 2, 3, 1)}
    assert plan(GEMM, plan_report=of_any) == {"gemm": (1, 2, 3, 1)}


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
        (("test", "--submission", "absent.py"), "--submission absent.py: there is no such file"),
        (("test", "--timeout", "0"), "argument --timeout: '0' is not a number of seconds above 0"),
        (("test", "--timeout", "nan"), "argument --timeout: 'nan' is not a number of seconds above 0"),
        (("test", "--timeout", "soon"), "argument --timeout: 'soon' is not a number of seconds above 0"),
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
def test_usage(arguments, text):
    run = run_eval(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith(f"error: {text}\n")


def test_an_interruption_ends_without_a_traceback(tmp_path):
    specs = write_specs(tmp_path / "specs.txt", ["hangs"])
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, ROOT / "eval.py", "test", specs, "--submission", BEHAVIOURS, "--device", "emulator"],
        env=clean_environment(PIDS=str(pids)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell's background jobs, as these tests may be, ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while not pids.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.endswith("eval.py: interrupted\n")
    assert "Traceback" not in stderr


def test_a_python_without_the_packages_says_so(monkeypatch):
    monkeypatch.setattr(harness_file.importlib.util, "find_spec", lambda name: None if name == "rich" else name)
    with pytest.raises(harness_file.DeviceError, match="has no package 'rich'; `make eval` sets up"):
        harness_file.check_packages()


def test_without_the_emulator_it_says_what_is_missing(tmp_path):
    for name in ("eval.py", "task.py", "reference.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(BEHAVIOURS, tmp_path / "submission.py")
    run = run_eval("test", "--device", "emulator", script=tmp_path / "eval.py")
    assert (run.returncode, run.stdout) == (1, "")
    assert (
        run.stderr == f"eval.py: there is no emulator to run in place of a B200: {tmp_path / 'emulator'} is missing\n"
    )


def test_four_files_are_enough_under_an_emulator_from_elsewhere(tmp_path):
    for name in ("eval.py", "task.py", "reference.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(BEHAVIOURS, tmp_path / "submission.py")
    specs = write_specs(tmp_path / "specs.txt", ["good"])
    run = run_eval("-m", "emulator", tmp_path / "eval.py", "test", specs, script="", PYTHONPATH=str(ROOT))
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("1 passed, 0 failed\n")


# ---------------------------------------------------------------------------------------------------------------------
# Choice of device
# ---------------------------------------------------------------------------------------------------------------------


def test_the_device_is_a_b200_where_there_is_one(monkeypatch):
    monkeypatch.delenv("EMULATOR", raising=False)
    for present, device in ((True, "b200"), (False, "emulator")):
        monkeypatch.setattr(harness_file, "has_b200", lambda present=present: present)
        assert harness_file.choose_device(None) == device
        assert harness_file.choose_device("emulator") == "emulator"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert harness_file.choose_device("b200") == "b200"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    with pytest.raises(harness_file.DeviceError, match=r"capability 9\.0; a B200 has 10\.0"):
        harness_file.choose_device("b200")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(harness_file.DeviceError, match="no CUDA device"):
        harness_file.choose_device("b200")
    monkeypatch.setenv("EMULATOR", "1")
    assert harness_file.choose_device(None) == "emulator"
    with pytest.raises(harness_file.DeviceError, match="cannot be had under"):
        harness_file.choose_device("b200")


@pytest.mark.parametrize(("capability", "present"), [((10, 0), True), ((9, 0), False), ((10, 3), False)])
def test_a_b200_is_known_by_its_capability(monkeypatch, capability, present):
    monkeypatch.setattr(harness_file.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: capability)
    assert harness_file.has_b200() == present


def test_the_restart_keeps_arguments_and_happens_once(monkeypatch, capsys):
    restarts = []
    monkeypatch.setattr(os, "execve", lambda *arguments: restarts.append(arguments))
    monkeypatch.setattr(sys, "argv", ["eval.py", "test", "--case", "3"])
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    harness_file.restart_under_emulator("late,random:1")
    ((program, command, environment),) = restarts
    assert program == command[0] == sys.executable
    assert command[1:] == [
        "-m",
        "emulator",
        "--schedule",
        "late,random:1",
        str(ROOT / "eval.py"),
        "test",
        "--case",
        "3",
    ]
    assert environment["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere"
    assert capsys.readouterr().err.count("\n") == 1

    assert harness_file.without_schedule(["test", "--schedule", "late", "--case", "3"]) == ["test", "--case", "3"]
    assert harness_file.without_schedule(["--schedule=late", "test"]) == ["test"]

    monkeypatch.setenv(harness_file.RESTARTED, environment[harness_file.RESTARTED])
    with pytest.raises(harness_file.DeviceError, match="another package of that name"):
        harness_file.restart_under_emulator(None)


def test_a_schedule_is_not_ignored_under_the_emulator():
    run = run_eval("test", "--schedule", "late", EMULATOR="1")
    assert run.returncode == 2
    assert "give --schedule to python -m emulator" in run.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Timing
# ---------------------------------------------------------------------------------------------------------------------


def test_statistics():
    durations = [10.0, 12.0, 11.0, 17.0]
    stats = harness_file.Stats.of(durations)
    assert (stats.runs, stats.best, stats.worst, stats.mean) == (4, 10, 17, 12.5)
    assert stats.std == pytest.approx(statistics.stdev(durations))
    assert stats.err == pytest.approx(statistics.stdev(durations) / 2)


@pytest.fixture
def events(monkeypatch):
    """What time_calls does with the device, in order; the n-th pair of events is n ms apart."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return float(log.count("record") // 2)

    def randn(elements, device):
        log.append(f"flush {elements}")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (180 * 10**9, 190 * 10**9))
    monkeypatch.setattr(torch, "randn", randn)
    harness_file.l2_flush_elements.cache_clear()
    yield log
    harness_file.l2_flush_elements.cache_clear()


def test_the_calls_of_a_timing_are_back_to_back_on_a_flushed_l2(events):
    def kernel(data):
        events.append(f"call {data}")
        return -data

    nanoseconds, outputs = harness_file.time_calls(kernel, [1, 2, 3, 4])
    calls = ["call 1", "call 2", "call 3", "call 4"]
    assert events == ["synchronize", f"flush {16000 * 2**20}", "record", *calls, "record", "synchronize"]
    assert nanoseconds == 1e6 / 4
    assert outputs == [-1, -2, -3, -4]


def test_the_flush_fits_the_memory(events, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 2 * 10**9))
    harness_file.time_calls(lambda data: None, [1])
    assert f"flush {2 * 10**8}" in events


@pytest.fixture
def clock(monkeypatch):
    """Makes time_calls take its results and its own duration from a list of (ns per call, ns elapsed)."""
    schedule = SimpleNamespace(entries=iter(()), now=0)

    def time_calls(kernel, inputs):
        duration, elapsed = next(schedule.entries)
        schedule.now += elapsed
        return duration, []

    monkeypatch.setattr(harness_file, "time_calls", time_calls)
    monkeypatch.setattr(harness_file.time, "perf_counter_ns", lambda: schedule.now)
    return schedule


def repeats(clock, limits, duration_of, elapsed):
    clock.entries = iter((duration_of(index), elapsed) for index in range(1000))
    return harness_file.measure(None, [], limits).runs


def test_stop_rules(clock):
    unlimited = harness_file.Limits(100, math.inf)
    steady, noisy = (lambda index: 1000.0), (lambda index: 1000.0 + 500 * (index % 2))
    assert repeats(clock, unlimited, steady, 1e9) == 3, "at least three runs"
    assert repeats(clock, unlimited, steady, 1.3e7) == 8, "and 100 ms"
    assert repeats(clock, unlimited, noisy, 1e6) == 100, "as many as the limit otherwise"
    assert repeats(clock, unlimited, noisy, 11e9) == 11, "until 120 s are spent"
    assert repeats(clock, harness_file.Limits(100, 10_000), noisy, 1e9) == 9, "or the budget is"
    slightly_noisy = [1000.0, 1004.0] * 10
    runs = repeats(clock, unlimited, lambda index: slightly_noisy[index % 20], 1e9)
    assert harness_file.Stats.of(slightly_noisy[: runs - 1]).err >= 1e-3 * 1001 or runs == 3
    assert harness_file.Stats.of(slightly_noisy[:runs]).err < 1e-3 * 1002, "until the mean is known to 0.1 %"


def test_a_rechecks_text_ends_the_timing(clock):
    clock.entries = iter([(1.0, 1e9)] * 10)
    texts = iter(["", "", "wrong"])
    limits = harness_file.Limits(100, math.inf)
    assert harness_file.measure(None, [], limits, lambda outputs: next(texts)) == "wrong"


class Doubling:
    """A problem whose input is (x, c), whose output is c = 2 x, and which remembers the seeds it was asked for."""

    def __init__(self):
        self.seeds = []
        self.problem = Problem("doubling", "", ("seed",), 15, tests=(), benchmarks=(), best_geomean_us=0)

    def generate_input(self, seed):
        self.seeds.append(seed)
        return torch.tensor([float(seed)], dtype=torch.float16), torch.zeros(1, dtype=torch.float16)

    def ref_kernel(self, data):
        return [2 * data[0]]

    baseline = ref_kernel

    def compare(self, want, got):
        return reference.compare(want, got, 1e-3, 1e-3)

    def case(self, kernel):
        submission = SimpleNamespace(custom_kernel=kernel)
        return harness_file.Case(self.problem, self, submission, {"seed": 100})


def double(data):
    torch.mul(data[0], 2, out=data[1])
    return [data[1]]


def call_counting(kernel):
    def counted(data):
        counted.calls += 1
        return kernel(data, counted.calls)

    counted.calls = 0
    return counted


LIMITS = harness_file.Limits(4, math.inf)


def test_timed_inputs_follow_from_the_seed(events):
    doubling = Doubling()
    result = harness_file.time_case(doubling.case(double), LIMITS)
    assert result.passed
    assert result.stats.runs == 4
    assert doubling.seeds == [100 + 42 * index for index in range(1, 16)]


@pytest.mark.parametrize(("problem", "inputs"), [("dual_gemm", 50), ("gemm", 50), ("gemv", 1)])
def test_each_problem_has_its_own_number_of_calls_per_timing(events, problem, inputs):
    doubling = Doubling()
    doubling.problem = PROBLEMS[problem]
    kernel = call_counting(lambda data, call: double(data))
    result = harness_file.time_case(doubling.case(kernel), LIMITS)
    assert doubling.seeds == [100 + 42 * index for index in range(1, inputs + 1)]
    assert kernel.calls == inputs * (1 + 4), "checked once, timed four times"
    assert result.stats.mean == pytest.approx(2.5e6 / inputs)


def test_leaderboard_times_inputs_that_were_not_seen_before(events):
    doubling = Doubling()
    assert harness_file.time_case(doubling.case(double), LIMITS, recheck=True).passed
    assert doubling.seeds == [100 + 42 * index for index in range(1, 31)]


@pytest.mark.parametrize("wrong_call", [1, 15])
@pytest.mark.parametrize("recheck", [False, True])
def test_a_wrong_output_before_timing_fails(events, recheck, wrong_call):
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = harness_file.time_case(Doubling().case(kernel), LIMITS, recheck)
    assert not result.passed
    assert result.message.startswith(f"input {wrong_call - 1} of 15: group 0 (1): 1 of 1 elements differ")
    assert "record" not in events


@pytest.mark.parametrize("wrong_input", [0, 7, 14])
@pytest.mark.parametrize("repeat", [0, 3])
def test_leaderboard_checks_every_timed_output(events, wrong_input, repeat):
    wrong_call = 15 + 15 * repeat + wrong_input + 1
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = harness_file.time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert result.message.startswith(f"a timed output is wrong: input {wrong_input} of 15: ")
    assert kernel.calls == 15 * (repeat + 2)


def test_leaderboard_finds_results_left_from_the_repeat_before(events):
    kernel = call_counting(lambda data, call: double(data) if call <= 30 else [data[1]])
    result = harness_file.time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert "got nan" in result.message


def test_leaderboard_says_what_is_wrong_with_an_output_that_is_none(events):
    kernel = call_counting(lambda data, call: double(data) if call < 20 else None)
    result = harness_file.time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert (
        result.message
        == "a timed output is wrong: input 4 of 15: output is of type NoneType, expected a list of 1 tensors"
    )


def test_the_baseline_is_timed_after_the_submission(events):
    doubling = Doubling()
    result = harness_file.time_case(doubling.case(double), LIMITS, baseline=True)
    # The n-th pair of events is n ms apart: 1 to 4 for the submission, 5 to 8 for the baseline.
    assert (result.stats.mean, result.baseline.mean) == (pytest.approx(2.5e6 / 15), pytest.approx(6.5e6 / 15))
    assert result.message == "baseline torch._scaled_mm 433.333 us, 2.60x the time"

    doubling.baseline = lambda data: [3 * data[0]]
    result = harness_file.time_case(doubling.case(double), LIMITS, baseline=True)
    assert not result.passed
    assert result.message.startswith("the baseline is wrong: input 0 of 15")


@pytest.mark.parametrize(
    ("value", "under_ncu"), [(None, False), ("0", False), ("", False), ("1", True), ("true", True)]
)
def test_profile_under_ncu_and_without(monkeypatch, value, under_ncu):
    ranges, sorted_by = [], []
    monkeypatch.delenv("POPCORN_NCU", raising=False)
    if value is not None:
        monkeypatch.setenv("POPCORN_NCU", value)

    @contextlib.contextmanager
    def nvtx_range(name):
        ranges.append(name)
        yield

    monkeypatch.setattr(torch.cuda.nvtx, "range", nvtx_range)

    @contextlib.contextmanager
    def profile(activities):
        def table(sort_by, row_limit):
            sorted_by.append(sort_by)
            return "the table"

        yield SimpleNamespace(key_averages=lambda: SimpleNamespace(table=table))

    profiler = SimpleNamespace(
        profile=profile, record_function=nvtx_range, ProfilerActivity=SimpleNamespace(CPU=0, CUDA=1)
    )
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    kernel = call_counting(lambda data, call: double(data))
    result = harness_file.profile_case(Doubling().case(kernel))
    assert result.passed
    assert ranges == ["custom_kernel"]
    assert kernel.calls == (1 if under_ncu else 2), "once to compile, without ncu"
    assert result.report == ("" if under_ncu else "the table")
    assert sorted_by == ([] if under_ncu else ["self_cuda_time_total"])


@pytest.mark.parametrize(
    ("mode", "warm_ups", "options"),
    [
        ("test", [], {}),
        ("profile", [], {}),
        ("benchmark", [("first", 100, 1e8)], {"limits": harness_file.Limits(100, 10e9), "baseline": True}),
        (
            "leaderboard",
            [("first", 50, 5e8), ("second", 50, 5e8)],
            {"limits": harness_file.Limits(100, 30e9), "baseline": True, "recheck": True},
        ),
    ],
)
def test_what_a_mode_runs_on_a_gpu(mode, warm_ups, options):
    calls, report = [], MagicMock()

    def run(job, problem, spec, **options):
        calls.append((job.__name__, spec, options))
        return harness_file.Result(True)

    worker = SimpleNamespace(run=run)
    code = harness_file.run_mode(mode, GROUP_GEMM, ["first", "second"], worker, report, emulated=False, baseline=True)
    assert code == 0
    job = {"test": "check_case", "profile": "profile_case"}.get(mode, "time_case")
    warm_up = [(job, spec, {"limits": harness_file.Limits(repeats, budget)}) for spec, repeats, budget in warm_ups]
    assert calls == [*warm_up, (job, "first", options), (job, "second", options)]


# ---------------------------------------------------------------------------------------------------------------------
# Reports
# ---------------------------------------------------------------------------------------------------------------------


def console_text(results, lines, width=200):
    numbers = list(range(len(lines)))
    report = harness_file.ConsoleReport(GROUP_GEMM, "a device · a file", numbers)
    report.console.file = io.StringIO()
    report.console.width = width
    specs = GROUP_GEMM.parse_specs(lines)
    with report:
        report.begin("benchmark", specs)
        for index, result in enumerate(results):
            report.case_begins(index, specs[index])
            report.case_ends(index, result)
        report.end(all(result.passed for result in results))
    return report.console.file.getvalue()


def stats_of(mean_us):
    return harness_file.Stats(10, mean_us * 1e3, 120.0, 40.0, mean_us * 1e3 - 500, mean_us * 1e3 + 700)


BENCHMARK_LINES = [benchmark.line for benchmark in GROUP_GEMM.benchmarks]


def test_the_timing_table():
    means = (28.2495, 21.334, 4.812, 6.1)
    results = [harness_file.Result(True, stats=stats_of(mean)) for mean in means]
    text = console_text(results, BENCHMARK_LINES)
    assert "m 80 176 128 72 64 248 96 160, n 4096, k 7168, g 8" in text
    (row,) = [line.split() for line in text.splitlines() if " m 40 76 " in line]
    assert row[-9:] == ["21.334", "±", "0.120", "20.834", "..", "22.034", "10.667", "2.00", "18.8"]
    geomean = math.prod(means) ** 0.25
    assert text.endswith(f"4 passed, 0 failed; geomean {geomean:.3f} us (speed of light 5.21, best published 13.09)\n")
    assert "torch._scaled_mm" not in text


def test_tables_keep_a_line_per_case_where_they_can():
    results = [harness_file.Result(True, stats=stats_of(20.0))] * 4
    assert len(console_text(results, BENCHMARK_LINES, width=120).splitlines()) == 1 + 1 + 4 + 4 + 1 + 1


def test_labels_of_counts_stay_whole_on_80_columns():
    launch = {"kernel": "k", "ctas": 148, "mma": 19_712, "stored_bytes": 8_388_608}
    launch |= {"tma_load_requested_bytes": 200_933_376, "tma_load_unique_bytes": 136_421_376}
    counts = {
        "launches": [launch],
        "plan": {"tile": "256 x 256 x 256"},
        "minimum_load_bytes": 1,
        "minimum_store_bytes": 1,
    }
    text = console_text([harness_file.Result(True, counts=counts)] * 4, BENCHMARK_LINES, width=80)
    for label in harness_file.counts_column(counts):
        assert any(line.strip().startswith(label) for line in text.splitlines()), label
    assert text.count("200,933,376") == 4


def test_the_timing_table_with_a_baseline_and_unknown_shapes():
    results = [harness_file.Result(True, stats=stats_of(20.0), baseline=stats_of(50.0))]
    text = console_text(results, [GROUP_GEMM.tests[0]])
    (row,) = [line.split() for line in text.splitlines() if " m 96 128" in line]
    assert row[-5:] == ["-", "-", "-", "50.000", "2.50"]
    assert text.endswith("1 passed, 0 failed; geomean 20.000 us\n")


def test_no_geomean_of_some_cases():
    results = [harness_file.Result(True, stats=stats_of(20.0)), harness_file.Result(False, "[red] wrong [1, 2]")]
    text = console_text(results, BENCHMARK_LINES[:2])
    assert "\n[red] wrong [1, 2]\n" in text
    assert text.endswith("1 passed, 1 failed\n")


def test_counts_against_the_minimum():
    launch = {"kernel": "k", "grid": (4, 1, 1), "ctas": 4, "mma": 10, "stored_bytes": 30}
    launch |= {"tma_load_requested_bytes": 300, "tma_load_unique_bytes": 110, "per_allocation": {"b": (9, 8)}}
    counts = {"launches": [launch, launch], "plan": {"waves": 2}, "minimum_load_bytes": 200, "minimum_store_bytes": 60}
    assert harness_file.counts_column(counts) == {
        "plan: waves": "2",
        "launches": "2",
        "CTAs": "8",
        "MMAs": "20",
        "TMA bytes requested": "600",
        "requested / minimum": "3.000",
        "TMA bytes, unique": "220",
        "unique / minimum": "1.100",
        "bytes stored": "60",
        "stored / minimum": "1.000",
    }
    text = harness_file.launches_text(counts)
    assert "launch 1: k\n    grid: (4, 1, 1)\n    ctas: 4\n" in text
    assert text.endswith("\n    TMA bytes per allocation (requested, unique):\n        b: 9, 8")


def protocol_lines(mode, *results):
    reading, writing = os.pipe()
    spec = TestSpec.parse(GROUP_GEMM.tests[0])
    with harness_file.ProtocolReport(writing) as report:
        report.begin(mode, [spec] * len(results))
        for index, result in enumerate(results):
            report.case_begins(index, spec)
            report.case_ends(index, result)
        report.end(all(result.passed for result in results))
    with os.fdopen(reading) as pipe:
        return pipe.read().splitlines()


def test_the_protocols_lines_of_a_timing():
    stats = harness_file.Stats(7, 1234.5, 12.25, 4.5, 1200.0, 1300.25)
    passed = harness_file.Result(True, stats=stats)
    failed = harness_file.Result(False, "one\ntwo")
    assert protocol_lines("leaderboard", passed, failed) == [
        "benchmark-count: 2",
        f"benchmark.0.spec: {GROUP_GEMM.tests[0]}",
        "benchmark.0.runs: 7",
        "benchmark.0.mean: 1234.5",
        "benchmark.0.std: 12.25",
        "benchmark.0.err: 4.5",
        "benchmark.0.best: 1200.0",
        "benchmark.0.worst: 1300.25",
        f"benchmark.1.spec: {GROUP_GEMM.tests[0]}",
        "benchmark.1.status: fail",
        "benchmark.1.error: one | two",
        "check: fail",
    ]


def test_the_protocols_line_of_a_profile():
    lines = protocol_lines("profile", harness_file.Result(True, report="???>>>"))
    assert lines[2:] == ["benchmark.0.report: Pz8*Pj4+", "check: pass"]


def test_benchmark_lines_are_found_for_their_figures():
    spec = TestSpec.parse(BENCHMARK_LINES[2])
    assert isinstance(GROUP_GEMM.find_benchmark(spec), Benchmark)
    assert harness_file.shapes_text(spec) == "m 192 320, n 3072, k 4096, g 2"


def test_the_environment_of_these_runs_is_clean(monkeypatch):
    monkeypatch.setenv("EMULATOR_SCHEDULE", "late")
    monkeypatch.setenv("POPCORN_FD", "3")
    assert not {"EMULATOR_SCHEDULE", "POPCORN_FD"} & set(clean_environment())
