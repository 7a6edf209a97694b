"""Overlapping calls under the sanitizer: calls within the contract of solve are silent, false promises are named."""

from pathlib import Path

import pytest

import reference
import submission
from nogpu.sanitizer.rules import RULES
from nogpu.sanitizer.waivers import in_source
from tests.kernel.test_dependent_calls import (
    SIZES,
    bystander,
    calls_apart,
    chained,
    small_calls_sharing_outputs,
    use,
    wrong,
)
from tests.support.configurations import EMULATED, PROMISED, label
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
pytestmark = pytest.mark.skipif(not EMULATED, reason="follows launches in the emulator")
SCHEDULES = ("late", "random:1")
WAIVED = [waiver.text for waiver in in_source(Path(submission.__file__).read_text(), "submission.py", RULES)]
WAYS = [(64, 1, 1, 1), (128, 2, 1, 1), (128, 1, 2, 1), (128, 2, 1, 2)]


@pytest.fixture(params=sampled(SCHEDULES, 2))
def schedule(request):
    return request.param


@pytest.fixture(params=sampled(WAYS, 3), ids=label)
def way(request):
    return request.param


@pytest.fixture
def solve(monkeypatch, way, schedule):
    """A solver whose launches the sanitizer follows, under one schedule."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.observer import Sanitizer

    monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer(WAIVED))
    return use(monkeypatch, way, schedules=(schedule,))


def test_calls_without_promises_are_silent(solve):
    """Each call reads or overwrites the previous one's output; the calls in between wait for nothing."""
    first, second = chained()
    solve(first)
    solve(second)
    assert not any(wrong(second))
    one, other = small_calls_sharing_outputs()
    solve(one)
    solve(bystander(), **PROMISED)
    solve(other, operands_ready=True)
    assert not any(wrong(other))


def test_promises_that_hold_are_silent(solve):
    calls = calls_apart(3, SIZES)
    for data in calls:
        solve(data, **PROMISED)
    assert not any(bad for data in calls for bad in wrong(data))


def test_operands_that_the_call_before_writes(solve):
    first, second = chained()
    solve(first)
    with pytest.raises(nogpu.EmulatorError, match="sanitizer, rule launch: nothing orders") as error:
        solve(second, operands_ready=True)
        wrong(second)
    assert "of launch 0 (" in error.value.reason and "of launch 1 (" in error.value.reason


def test_outputs_that_the_call_before_writes(solve):
    first, second = small_calls_sharing_outputs()
    solve(first)
    with pytest.raises(nogpu.EmulatorError, match="sanitizer, rule launch: nothing orders"):
        solve(second, **PROMISED)
        wrong(second)


def test_calls_of_the_gemv(monkeypatch, schedule):
    """Calls on one output are silent without promises; a false promise is named."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.observer import Sanitizer

    monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer(WAIVED))
    monkeypatch.setattr(Device.current(), "schedules", (schedule,))
    data = reference.generate_gemv_input(m=128, k=1024, l=1, seed=5)
    for _ in range(2):
        submission.solve(data)
    data[-1].clone()
    for _ in range(2):
        submission.solve(data, **PROMISED)
    with pytest.raises(nogpu.EmulatorError, match="sanitizer, rule launch: nothing orders"):
        data[-1].clone()
