"""The timing loop and its stop rules, with clocks and events of these tests."""

import math
import statistics
from types import SimpleNamespace

import pytest
import torch

from harness import timing
from harness.timing import Limits, Stats
from task import GEMV, GROUP_GEMM


def test_statistics():
    durations = [10.0, 12.0, 11.0, 17.0]
    stats = Stats.of(durations)
    assert (stats.runs, stats.best, stats.worst, stats.mean) == (4, 10, 17, 12.5)
    assert stats.std == pytest.approx(statistics.stdev(durations))
    assert stats.err == pytest.approx(statistics.stdev(durations) / 2)


def test_the_calls_of_a_timing_are_back_to_back_on_a_flushed_l2(events):
    def kernel(data):
        events.append(f"call {data}")
        return -data

    nanoseconds, outputs = timing.time_calls(kernel, [1, 2, 3, 4])
    calls = ["call 1", "call 2", "call 3", "call 4"]
    assert events == ["synchronize", f"flush {16000 * 2**20}", "record", *calls, "record", "synchronize"]
    assert nanoseconds == 1e6 / 4
    assert outputs == [-1, -2, -3, -4]


def test_queued_is_called_between_the_last_call_and_the_end(events):
    timing.time_back_to_back(lambda data: events.append("call"), [1, 2], lambda start: events.append("queued"))
    assert events == ["record", "call", "call", "queued", "record", "synchronize"]


def test_inputs_have_seeds_a_step_apart():
    inputs = timing.timing_inputs(GEMV, lambda m, seed: (m, seed), {"m": 7, "seed": 100})
    assert inputs == [(7, 100)]
    inputs = timing.timing_inputs(GROUP_GEMM, lambda m, seed: (m, seed), {"m": 7, "seed": 100}, first=2)
    assert inputs == [(7, 184 + 42 * index) for index in range(15)]


def test_the_flush_fits_the_memory(events, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 2 * 10**9))
    timing.time_calls(lambda data: None, [1])
    assert f"flush {2 * 10**8}" in events


@pytest.fixture
def clock(monkeypatch):
    """A timing whose results and durations come from a list of (ns per call, ns elapsed)."""
    schedule = SimpleNamespace(entries=iter(()), now=0)

    def time_once():
        duration, elapsed = next(schedule.entries)
        schedule.now += elapsed
        return duration

    schedule.time_once = time_once
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: schedule.now)
    return schedule


def repeats(clock, limits, duration_of, elapsed):
    clock.entries = iter((duration_of(index), elapsed) for index in range(1000))
    return timing.repeat(clock.time_once, limits).runs


def test_stop_rules(clock):
    unlimited = Limits(100, math.inf)
    steady, noisy = (lambda index: 1000.0), (lambda index: 1000.0 + 500 * (index % 2))
    assert repeats(clock, unlimited, steady, 1e9) == 3, "at least three runs"
    assert repeats(clock, unlimited, steady, 1.3e7) == 8, "and 100 ms"
    assert repeats(clock, unlimited, noisy, 1e6) == 100, "as many as the limit otherwise"
    assert repeats(clock, unlimited, noisy, 11e9) == 11, "until 120 s are spent"
    assert repeats(clock, Limits(100, 10_000), noisy, 1e9) == 9, "or the budget is"
    slightly_noisy = [1000.0, 1004.0] * 10
    runs = repeats(clock, unlimited, lambda index: slightly_noisy[index % 20], 1e9)
    assert Stats.of(slightly_noisy[: runs - 1]).err >= 1e-3 * 1001 or runs == 3
    assert Stats.of(slightly_noisy[:runs]).err < 1e-3 * 1002, "until the mean is known to 0.1 %"


def test_a_rechecks_text_ends_the_timing(clock):
    clock.entries = iter([(1.0, 1e9)] * 10)
    texts = iter(["", "", "wrong"])
    limits = Limits(100, math.inf)
    assert timing.repeat(clock.time_once, limits, lambda: next(texts)) == "wrong"
