"""Our kernels under the sanitizer: silent, and right."""

import pytest
import torch

import reference
import submission
from tests.support.configurations import EMULATED, EVERY, label_with_products, set_chip, solver

emulator = pytest.importorskip("emulator")
pytestmark = pytest.mark.skipif(not EMULATED, reason="follows launches in the emulator")
SCHEDULES = ("late", "random:1")
SINGLE = [shape for shape, products in EVERY if products == 1]
CHOSEN = [shape for shape in SINGLE if shape.token_tile in (64, 192)]


@pytest.fixture
def sanitized(monkeypatch):
    """Launches are followed."""
    from emulator.execution.device import Device
    from emulator.sanitizer.follow import Sanitizer

    monkeypatch.setattr(Device.current(), "sanitizer", Sanitizer())


@pytest.mark.parametrize("shape", CHOSEN, ids=lambda shape: label_with_products(shape, 1))
def test_our_group_gemm_is_silent(monkeypatch, sanitized, shape):
    set_chip(monkeypatch, SCHEDULES)
    data = reference.generate_input(m=(200, 64), n=(256, 128), k=(1280, 1024), g=2, seed=5)
    got = solver(shape)(data)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(got, reference.ref_kernel(data), strict=True))


def test_our_gemv_is_silent(monkeypatch, sanitized):
    set_chip(monkeypatch, SCHEDULES)
    data = reference.generate_gemv_input(m=128, k=2048, l=2, seed=5)
    assert torch.equal(submission.solve(data), reference.gemv_ref_kernel(data))
