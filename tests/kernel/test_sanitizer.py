"""The project's kernels under the sanitizer: no report as they are, and a report of each fault that no schedule shows.

Only the waivers beside instructions of `submission.py` apply, and doubts are errors.
"""

from pathlib import Path

import pytest
import torch

import reference
import submission
from nogpu.sanitizer.rules import RULES
from nogpu.sanitizer.waivers import in_source
from tests.support.configurations import EMULATED, SINGLE, label, set_chip, solver
from tests.support.mutants import nth_replaced, run_mutated, without_one
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
pytestmark = pytest.mark.skipif(not EMULATED, reason="follows launches in the emulator")
WAIVED = [waiver.text for waiver in in_source(Path(submission.__file__).read_text(), "submission.py", RULES)]
SCHEDULES = ("late", "random:1")
CHOSEN = [shape for shape in SINGLE if shape.token_tile in (64, 192)]


@pytest.fixture
def sanitized(monkeypatch):
    """The sanitizer follows the launches of the test."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.observer import Sanitizer

    monkeypatch.setenv("NOGPU_LENIENT", "0")
    monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer(WAIVED))


@pytest.mark.parametrize("shape", sampled(CHOSEN, 8), ids=label)
def test_our_group_gemm_is_silent(monkeypatch, sanitized, shape):
    set_chip(monkeypatch, SCHEDULES)
    data = reference.generate_input(m=(200, 64), n=(256, 128), k=(1280, 1024), g=2, seed=5)
    got = solver(shape)(data)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got, reference.ref_kernel(data), strict=True))


@pytest.mark.parametrize("shape", [shape for shape in CHOSEN if shape.token_tile == 64 and shape.cta_group == 2][:1])
def test_our_group_gemm_is_explored(monkeypatch, shape):
    """The result is the same in all orders that the kernel's accesses, words and arrivals leave open."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.explore import Explorer

    set_chip(monkeypatch, ["late"])
    monkeypatch.setattr(Device.current(), "explorer", Explorer(6))
    data = reference.generate_input(m=(64,), n=(256,), k=(512,), g=1, seed=5)
    got = solver(shape)(data)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got, reference.ref_kernel(data), strict=True))


@pytest.mark.parametrize("shape", sampled([(64, 1, 1, 2), (192, 1, 2, 1), (128, 2, 1, 1)], 3), ids=label)
def test_our_dual_gemm_is_silent(monkeypatch, sanitized, shape):
    set_chip(monkeypatch, SCHEDULES)
    compared = reference.REFERENCES["dual_gemm"]
    data = compared.generate_input(m=200, n=200, k=1280, l=1, seed=5)
    got = solver(shape, sms=shape[1] * shape[3])(data)
    assert compared.compare(compared.ref_kernel(data), got)[0]


def test_our_gemv_is_silent(monkeypatch, sanitized):
    set_chip(monkeypatch, SCHEDULES)
    data = reference.generate_gemv_input(m=128, k=2048, l=2, seed=5)
    assert torch.equal(submission.solve(data), reference.gemv_ref_kernel(data))


MUTATIONS = {
    "a pair's full stage is passed on by a relaxed arrival": (
        "order",
        nth_replaced(r"mbarrier\.arrive(?:\.expect_tx)?(?=\.shared)", r"\g<0>.relaxed.cluster", 1),
    ),
    "the last cluster barrier is not waited for": ("tensor-memory", without_one(r"barrier\.cluster\.wait", -1)),
    "an accumulator is given back by a lane that has not met the others": (
        "tensor-memory",
        without_one(r"bar\.warp\.sync", -1),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_no_schedule_shows_is_noticed(monkeypatch, name):
    """The mutant's results are right without the sanitizer."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.observer import Sanitizer

    rule, mutate = MUTATIONS[name]
    run_mutated(monkeypatch, mutate)
    data = reference.generate_input(m=(200, 130, 64), n=(384, 128, 256), k=(512, 64, 1280), g=3, seed=5)
    solve, want = solver((128, 2, 1, 1), sms=2), reference.ref_kernel(data)
    for schedule in SCHEDULES:
        set_chip(monkeypatch, [schedule])
        monkeypatch.setattr(Device.current(), "sanitizer", None)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(solve(data), want, strict=True))
        monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer(WAIVED))
        with pytest.raises(nogpu.EmulatorError, match=f"sanitizer, rule {rule}: nothing orders"):
            [c.clone() for c in solve(data)]
