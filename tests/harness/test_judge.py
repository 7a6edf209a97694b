"""The judge's jobs on a problem of these tests: the inputs, checks and calls of each job."""

import contextlib
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import reference
from harness import messages, profiling
from harness.cases import CALLS, CALLS_OF_LEADERBOARD, Case, Inputs
from harness.judge import Trial, check_case, check_repeated_calls, time_case
from harness.runner import plan_of
from harness.timing import Limits
from task import GEMM, GROUP_GEMM, PROBLEMS, Problem
from tests.harness.local_worker import LocalWorker


def test_a_plan_is_asked_of_those_that_have_one():
    def plan(problem, **submission):
        return plan_of(SimpleNamespace(**submission), problem.name, [(1, 2, 3, 1)])

    def of_groups(problem_sizes):
        return {"groups": len(problem_sizes)}

    def of_any(problem_sizes, problem="group_gemm"):
        return {problem: problem_sizes[0]}

    assert plan(GROUP_GEMM) == plan(GEMM) == {}
    assert (plan(GROUP_GEMM, plan_report=of_groups), plan(GEMM, plan_report=of_groups)) == ({"groups": 1}, {})
    assert plan(GROUP_GEMM, plan_report=of_any) == {"group_gemm": (1, 2, 3, 1)}
    assert plan(GEMM, plan_report=of_any) == {"gemm": (1, 2, 3, 1)}


class Doubling:
    """A problem with input (x, c) and output c = 2 x; it remembers the requested seeds."""

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

    def problem_sizes(self, data):
        return [(1, 1, 1, 1)]

    def minimum_traffic(self, data):
        return 2, 2

    def trial(self, kernel):
        return Trial(Case(self.problem, self, {"seed": 100}), LocalWorker(kernel))


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


# ---- Check ----


@pytest.fixture
def no_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def test_a_small_case_is_called_three_times_with_values_of_its_own(no_device):
    doubling, addresses = Doubling(), []

    def kernel(data):
        addresses.append((data[0].data_ptr(), data[1].data_ptr(), float(data[0])))
        return double(data)

    result = check_case(doubling.trial(kernel))
    assert (result.passed, result.message) == (True, "bit-exact")
    first, second, third = addresses
    assert (first[2], second[2], third[2]) == (100, 142, 184)
    assert second[:2] == third[:2] and not {*first[:2]} & {*second[:2]}


def test_in_mode_leaderboard_it_is_called_ten_times(no_device):
    """A result that is right in three calls and zero from the fourth on passes mode test, and fails here."""
    doubling = Doubling()
    for calls, passes in ((CALLS, True), (CALLS_OF_LEADERBOARD, False)):
        kernel = call_counting(lambda data, number: [double(data)[0].mul_(number <= 3)])
        checked = check_repeated_calls(replace(doubling.trial(kernel), calls=calls), counted=False)
        assert checked.passed == passes and kernel.calls == (3 if passes else 4)
    assert "call 4 of 10, with other values: " in checked.message


def test_inputs_are_made_once_while_the_worker_works_on_others(no_device):
    doubling, seen = Doubling(), []

    def kernel(data):
        seen.append((float(data[0]), list(doubling.seeds)))
        return double(data)

    trial = doubling.trial(kernel)
    following = Case(doubling.problem, doubling, {"seed": 7})
    assert check_case(replace(trial, following=following)).passed
    assert doubling.seeds == [100, 142, 7, 184]
    assert seen == [(100, [100]), (142, [100, 142, 7]), (184, [100, 142, 7, 184])]
    assert check_case(replace(trial, case=following)).passed
    assert doubling.seeds[4:] == [49, 91] and [value for value, _ in seen[3:]] == [7, 49, 91]
    assert not trial.inputs.made


def test_an_input_that_cannot_be_made_fails_its_own_case(no_device):
    doubling, inputs = Doubling(), Inputs()
    wrong = Case(doubling.problem, doubling, {"seed": "none"})
    inputs.prepare(wrong)
    inputs.prepare(Case(doubling.problem, doubling, {"seed": 1}))
    assert float(inputs.take(Case(doubling.problem, doubling, {"seed": 1}))[0]) == 1
    with pytest.raises(TypeError):
        inputs.take(wrong)


def test_what_is_right_once_only_fails(no_device):
    for wrong_call in (1, 2, 3):
        kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])  # noqa: B023
        result = check_case(Doubling().trial(kernel))
        assert not result.passed
        prefix = "" if wrong_call == 1 else f"call {wrong_call} of 3, with other values: "
        assert result.message.startswith(f"{prefix}group 0 (1): 1 of 1 elements differ")


def test_results_that_calls_share_fail(no_device):
    results = {}

    def kernel(data):
        if data[0].data_ptr() not in results:
            results[data[0].data_ptr()] = double(data)[0].clone()
        data[1].copy_(results[data[0].data_ptr()])
        return [data[1]]

    result = check_case(Doubling().trial(kernel))
    assert not result.passed and result.message.startswith("call 3 of 3, with other values: ")
    static = torch.zeros(1, dtype=torch.float16)
    result = check_case(Doubling().trial(lambda data: [torch.mul(data[0], 2, out=static)]))
    assert not result.passed and result.message.startswith("the output of call 1, after later calls: group 0")
    assert check_case(Doubling().trial(lambda data: [2 * data[0]])).passed, "memory of its own is fine"


def test_a_large_case_is_called_once_after_a_small_one_of_its_structure(no_device):
    sizes = {"m": (4000, 3, 5000), "n": (8, 4096, 512), "k": (1 << 14, 64, 256), "g": 3, "seed": 9}
    small = {**sizes, "m": (136, 3, 136), "n": (8, 384, 384), "k": (768, 64, 256)}
    case = Case(GROUP_GEMM, None, sizes)
    assert case.products() == 4000 * 8 * (1 << 14) + 3 * 4096 * 64 + 5000 * 512 * 256
    assert case.rehearsal().args == small
    assert case.rehearsal().rehearsal() is not case
    assert Case(GROUP_GEMM, None, small).rehearsal().args is small
    vectors = Case(PROBLEMS["gemv"], None, {"m": 4096, "k": 16384, "l": 1, "seed": 1})
    assert vectors.products() < 2**28 and vectors.elements() == 4097 * 16384 and not vectors.small
    assert Case(PROBLEMS["gemv"], None, {"m": 7168, "k": 16384, "l": 4, "seed": 1}).rehearsal().args == {
        "m": 136, "k": 768, "l": 4, "seed": 1
    }  # fmt: skip

    doubling, seeds = Doubling(), []
    trial = doubling.trial(lambda data: seeds.append(float(data[0])) or double(data))
    trial.case.args.update({"m": 2**10, "n": 2**10, "k": 2**10})
    doubling.generate_input = lambda m, n, k, seed: (
        torch.tensor([m + seed], dtype=torch.float16),
        torch.zeros(1, dtype=torch.float16),
    )
    assert check_case(trial).passed
    assert seeds == [236, 278, 320, 1124]

    kernel = call_counting(lambda data, call: [double(data)[0] + (call == 2)])
    trial = Trial(trial.case, LocalWorker(kernel))
    result = check_case(trial)
    assert result.message.startswith(
        "a small case of the same structure, seed: 100; m: 136; n: 384; k: 768: call 2 of 3, with other values: group 0"
    )
    assert kernel.calls == 2


class Lazy(torch.Tensor):
    pass


class EmptyList(list):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda x, c: None, "output is of type NoneType, expected a list of 1 tensors"),
        (lambda x, c: (2 * x,), "output is of type tuple, expected a list of 1 tensors"),
        (lambda x, c: EmptyList([x]), "output is of type EmptyList, expected a list of 1 tensors"),
        (lambda x, c: 2 * x, "output is of type Tensor, expected a list of 1 tensors"),
        (lambda x, c: [], "output has 0 tensors, expected 1"),
        (lambda x, c: [2 * x, c], "output has 2 tensors, expected 1"),
        (lambda x, c: [(2 * x).as_subclass(Lazy)], "group 0: got Lazy, expected a tensor"),
        (lambda x, c: [(2 * x).to_sparse()], "group 0: got a Tensor of layout torch.sparse_coo, expected a tensor"),
        (lambda x, c: [(2 * x).to("meta")], "group 0: got a Tensor on device meta, expected a tensor"),
        (lambda x, c: [2.0], "group 0: got float, expected a tensor"),
        (lambda x, c: [(2 * x)[None]], "group 0: shape is (1, 1), expected (1,)"),
        (lambda x, c: [2 * x.float()], "group 0: dtype is torch.float32, expected torch.float16"),
        (lambda x, c: [x.mul_(2)], "group 0: its storage overlaps that of an input"),
    ],
)
def test_an_output_is_a_plain_list_of_plain_tensors(no_device, kernel, message):
    result = check_case(Doubling().trial(lambda data: kernel(*data)))
    assert (result.passed, result.message) == (False, message)


# ---- Time ----


def test_timed_inputs_follow_from_the_seed(events):
    doubling = Doubling()
    result = time_case(doubling.trial(double), LIMITS)
    assert result.passed
    assert result.stats.runs == 4
    assert doubling.seeds == [100 + 42 * index for index in range(1, 16)]
    doubling = Doubling()
    assert time_case(doubling.trial(double), LIMITS, recheck=True).passed
    assert doubling.seeds == [100 + 42 * index for index in range(1, 31)]


@pytest.mark.parametrize(("problem", "inputs"), [("dual_gemm", 50), ("gemm", 50), ("gemv", 1)])
def test_each_problem_has_its_own_number_of_calls_per_timing(events, problem, inputs):
    doubling = Doubling()
    doubling.problem = PROBLEMS[problem]
    kernel = call_counting(lambda data, call: double(data))
    result = time_case(doubling.trial(kernel), LIMITS)
    assert doubling.seeds == [100 + 42 * index for index in range(1, inputs + 1)]
    assert kernel.calls == inputs * (1 + 4), "checked once, timed four times"
    assert result.stats.mean == pytest.approx(2.5e6 / inputs)


@pytest.mark.parametrize("wrong_call", [1, 15])
@pytest.mark.parametrize("recheck", [False, True])
def test_a_wrong_output_before_timing_fails(events, recheck, wrong_call):
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = time_case(Doubling().trial(kernel), LIMITS, recheck)
    assert not result.passed
    assert result.message.startswith(f"input {wrong_call - 1} of 15: group 0 (1): 1 of 1 elements differ")
    assert "record" not in events


@pytest.mark.parametrize("wrong_input", [0, 7, 14])
@pytest.mark.parametrize("repeat", [0, 3])
def test_leaderboard_checks_every_timed_output(events, wrong_input, repeat):
    wrong_call = 15 + 15 * repeat + wrong_input + 1
    kernel = call_counting(lambda data, call: [double(data)[0] + 100 * (call == wrong_call)])
    result = time_case(Doubling().trial(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert result.message.startswith(f"a timed output is wrong: input {wrong_input} of 15: ")
    assert kernel.calls == 15 * (repeat + 2)


def test_leaderboard_checks_what_the_last_calls_left(events):
    kernel = call_counting(lambda data, call: double(data) if call <= 30 else [data[1]])
    result = time_case(Doubling().trial(kernel), LIMITS, recheck=True)
    assert not result.passed
    assert "got nan" in result.message
    kernel = call_counting(lambda data, call: double(data) if call < 20 else None)
    result = time_case(Doubling().trial(kernel), LIMITS, recheck=True)
    assert (
        result.message
        == "a timed output is wrong: input 4 of 15: output is of type NoneType, expected a list of 1 tensors"
    )


def test_the_baseline_is_timed_after_the_submission(events):
    doubling = Doubling()
    trial = doubling.trial(double)
    result = time_case(trial, LIMITS, baseline=True)
    # The n-th pair of events is n ms apart: 1 to 4 for the submission, 5 to 7 to warm up, 8 to 11 for the baseline.
    assert (result.stats.mean, result.baseline.mean) == (pytest.approx(2.5e6 / 15), pytest.approx(9.5e6 / 15))
    assert result.message == "baseline torch._scaled_mm 633.333 us, 3.80x the time"

    finish = next(i for i, request in enumerate(trial.worker.asked) if isinstance(request, messages.Finish))
    assert finish == len(trial.worker.asked) - 1, "the baseline has the device to itself"

    doubling.baseline = lambda data: [3 * data[0]]
    result = time_case(doubling.trial(double), LIMITS, baseline=True)
    assert not result.passed
    assert result.message.startswith("the baseline is wrong: input 0 of 15")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("POPCORN_NCU", "1", True),
        ("POPCORN_NCU", "0", False),
        ("CUDA_INJECTION64_PATH", "/opt/nsight/libinjection.so", True),
        ("LD_PRELOAD", "/opt/nsight/libToolsInjection64.so", True),
        ("LD_PRELOAD", "/lib/libtcmalloc.so", False),
    ],
)
def test_a_profiler_around_the_harness_is_known(monkeypatch, name, value, found):
    assert not profiling.has_outer_profiler()
    monkeypatch.setenv(name, value)
    assert profiling.has_outer_profiler() == found


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
    assert profiling.profile(kernel, Doubling().generate_input(1)) == ("" if under_ncu else "the table")
    assert ranges == ["custom_kernel"]
    assert kernel.calls == (1 if under_ncu else 2), "once to compile, without ncu"
    assert sorted_by == ([] if under_ncu else ["self_cuda_time_total"])
