"""Verdicts of `nogpu explore` on the project's kernels: clean for all interleavings, and failing without a wait."""

import pytest

import reference
import submission
from tests.support.configurations import EMULATED, PROMISED, set_chip, solver
from tests.support.mutants import run_mutated, without_one

nogpu = pytest.importorskip("nogpu")
pytestmark = [
    pytest.mark.skipif(not EMULATED, reason="explores launches in the emulator"),
    pytest.mark.slow,
]
RUNS = 60
GEMM = {"m": (200, 64), "n": (256, 128), "k": (2048, 1024), "g": 2, "seed": 5}  # more steps of K than stages
SMALL = {"m": (64,), "n": (128,), "k": (2048,), "g": 1, "seed": 5}


@pytest.fixture
def explored(monkeypatch):
    """Explores what a function launches. Returns the verdicts."""
    from nogpu.execution.device import Device
    from nogpu.sanitizer.explore import Explorer

    def explore(call):
        set_chip(monkeypatch, ["late"])
        explorer = Explorer(RUNS)
        monkeypatch.setattr(Device.current(), "explorer", explorer)
        call()
        Device.current().synchronize()
        return explorer.verdicts

    return explore


def calls():
    dual = reference.REFERENCES["dual_gemm"].generate_input(m=128, n=128, k=1024, l=1, seed=5)
    gemv = reference.generate_gemv_input(m=128, k=2048, l=1, seed=5)
    grouped = reference.generate_input(**GEMM)
    return {
        "group GEMM": lambda: solver((64, 1, 1, 1), sms=1)(grouped),
        "group GEMM of pairs": lambda: solver((64, 2, 1, 1), sms=2)(grouped),
        "dual GEMM": lambda: solver((128, 1, 1, 1), sms=1)(dual),
        "GEMV": lambda: submission.solve(gemv),
    }


@pytest.mark.parametrize("problem", ["group GEMM", "group GEMM of pairs", "dual GEMM", "GEMV"])
def test_our_kernels_are_clean(explored, problem):
    (verdict,) = explored(calls()[problem])
    assert verdict.word == "clean", verdict
    assert verdict.turns > 50


def test_overlapping_launches_are_clean(explored):
    solve = solver((64, 1, 1, 1))
    both = [reference.generate_input(**{**SMALL, "seed": seed}) for seed in (5, 6)]

    def call():
        for data in both:
            solve(data, **PROMISED)

    (verdict,) = explored(call)
    assert verdict.word == "clean" and "overlapped by" in verdict.kernel, verdict


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_kernel_without_a_wait_fails(monkeypatch, explored, which):
    """Each of these waits for an mbarrier is needed."""
    run_mutated(monkeypatch, without_one(r"mbarrier\.try_wait", which))
    data = reference.generate_input(**SMALL)
    with pytest.raises(nogpu.EmulatorError, match="of nogpu explore, and again by"):
        explored(lambda: solver((64, 1, 1, 1))(data))
