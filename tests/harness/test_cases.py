"""The jobs of a case on a problem that is made up here: the inputs, the checks and the calls of each."""

import contextlib
import math
import sys
from types import SimpleNamespace

import pytest
import torch

import reference
from harness.cases import Case, plan_of, profile_case, time_case
from harness.timing import Limits
from task import GEMM, GROUP_GEMM, PROBLEMS, Problem


def test_a_plan_is_asked_of_those_that_have_one():
    def plan(problem, **submission):
        case = Case(problem, None, SimpleNamespace(**submission), {})
        return plan_of(case, [(1, 2, 3, 1)])

    def of_groups(problem_sizes):
        return {"groups": len(problem_sizes)}

    def of_any(problem_sizes, problem="group_gemm"):
        return {problem: problem_sizes[0]}

    assert plan(GROUP_GEMM) == plan(GEMM) == {}
    assert (plan(GROUP_GEMM, plan_report=of_groups), plan(GEMM, plan_report=of_groups)) == ({"groups": 1}, {})
    assert plan(GROUP_GEMM, plan_report=of_any) == {"group_gemm": (1, 2, 3, 1)}
    assert plan(GEMM, plan_report=of_any) == {"gemm": (1, 2, 3, 1)}


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
        return Case(self.problem, self, submission, {"seed": 100})


def double(data):
    torch.mul(data[0], 2, out=data[1])
    return [data[1]]


def call_counting(kernel):
    def counted(data):
        counted.calls += 1
        return kernel(data, counted.calls)

    counted.calls = 0
    return counted


LIMITS = Limits(4, math.inf)


def test_timed_inputs_follow_from_the_seed(events):
    doubling = Doubling()
    result = time_case(doubling.case(double), LIMITS)
    assert result.passed
    assert result.stats.runs == 4
    assert doubling.seeds == [100 + 42 * index for index in range(1, 16)]


@pytest.mark.parametrize(("problem", "inputs"), [("dual_gemm", 50), ("gemm", 50), ("gemv", 1)])
def test_each_problem_has_its_own_number_of_calls_per_timing(events, problem, inputs):
    doubling = Doubling()
    doubling.problem = PROBLEMS[problem]
    kernel = call_counting(lambda data, call: double(data))
    result = time_case(doubling.case(kernel), LIMITS)
    assert doubling.seeds == [100 + 42 * index for index in range(1, inputs + 1)]
    assert kernel.calls == inputs * (1 + 4), "checked once, timed four times"
    assert result.stats.mean == pytest.approx(2.5e6 / inputs)


def test_leaderboard_times_inputs_that_were_not_seen_before(events):
    doubling = Doubling()
    assert time_case(doubling.case(double), LIMITS, recheck=True).passed
    assert doubling.seeds == [100 + 42 * index for index in range(1, 31)]


@pytest.mark.parametrize("wrong_call", [1, 15])
@pytest.mark.parametrize("recheck", [False, True])
def test_a_wrong_output_before_timing_fails(events, recheck, wrong_call):
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = time_case(Doubling().case(kernel), LIMITS, recheck)
    assert not result.passed
    assert result.message.startswith(f"input {wrong_call - 1} of 15: group 0 (1): 1 of 1 elements differ")
    assert "record" not in events


@pytest.mark.parametrize("wrong_input", [0, 7, 14])
@pytest.mark.parametrize("repeat", [0, 3])
def test_leaderboard_checks_every_timed_output(events, wrong_input, repeat):
    wrong_call = 15 + 15 * repeat + wrong_input + 1
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert result.message.startswith(f"a timed output is wrong: input {wrong_input} of 15: ")
    assert kernel.calls == 15 * (repeat + 2)


def test_leaderboard_finds_results_left_from_the_repeat_before(events):
    kernel = call_counting(lambda data, call: double(data) if call <= 30 else [data[1]])
    result = time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert "got nan" in result.message


def test_leaderboard_says_what_is_wrong_with_an_output_that_is_none(events):
    kernel = call_counting(lambda data, call: double(data) if call < 20 else None)
    result = time_case(Doubling().case(kernel), LIMITS, recheck=True)
    assert (
        result.message
        == "a timed output is wrong: input 4 of 15: output is of type NoneType, expected a list of 1 tensors"
    )


def test_the_baseline_is_timed_after_the_submission(events):
    doubling = Doubling()
    result = time_case(doubling.case(double), LIMITS, baseline=True)
    # The n-th pair of events is n ms apart: 1 to 4 for the submission, 5 to 8 for the baseline.
    assert (result.stats.mean, result.baseline.mean) == (pytest.approx(2.5e6 / 15), pytest.approx(6.5e6 / 15))
    assert result.message == "baseline torch._scaled_mm 433.333 us, 2.60x the time"

    doubling.baseline = lambda data: [3 * data[0]]
    result = time_case(doubling.case(double), LIMITS, baseline=True)
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
    result = profile_case(Doubling().case(kernel))
    assert result.passed
    assert ranges == ["custom_kernel"]
    assert kernel.calls == (1 if under_ncu else 2), "once to compile, without ncu"
    assert result.report == ("" if under_ncu else "the table")
    assert sorted_by == ([] if under_ncu else ["self_cuda_time_total"])
