"""The kernels with the emulator's accesses, barriers and copies in C and in Python: the same bytes and counts."""

import runpy

import pytest
import torch

import nogpu
import reference
import submission
import task
from nogpu.execution.device import Device
from tests.support.commands import ROOT
from tests.support.configurations import EMULATED
from tests.support.slow import sampled

pytestmark = pytest.mark.skipif(not EMULATED, reason="a GPU has no calls")

called = runpy.run_path(str(ROOT / "nogpu/tests/support/calls.py"))["called"]

CASES = {
    "group_gemm": "m: [96, 128]; n: [128, 256]; k: [512, 256]; g: 2; seed: 1111",
    "dual_gemm": "m: 128; n: 256; k: 256; l: 1; seed: 1111",
    "gemm": "m: 128; n: 256; k: 512; l: 1; seed: 1111",
    "gemv": "m: 128; k: 512; l: 2; seed: 1111",
}
COUNTED = ("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes", "tma_load_requested_bytes")


@pytest.mark.parametrize("problem", sampled(CASES, 3))
@pytest.mark.parametrize("schedule", ["late", "random:5"])
def test_kernels_and_calls_agree(monkeypatch, problem, schedule):
    data = reference.REFERENCES[problem].generate_input(**task.TestSpec.parse(CASES[problem]).args)
    device = Device.current()
    monkeypatch.setattr(device, "schedules", (schedule,))
    found = []
    for is_called in (False, True):
        nogpu.reset_counters()
        with called(is_called):
            output = submission.solve(data)
            nogpu.synchronize()
        outputs = output if isinstance(output, list) else [output]
        values = [c.cpu().view(torch.int16).clone() for c in outputs]
        counts = [[getattr(launch, name) for name in COUNTED] for launch in nogpu.counters()]
        for c in outputs:
            c.fill_(float("nan"))
        found.append((values, counts))
    (kernels, kernel_counts), (calls, call_counts) = found
    assert kernel_counts == call_counts and any(map(any, kernel_counts))
    assert len(kernels) == len(calls) and all(map(torch.equal, kernels, calls))
    assert all(len(values.unique()) > 9 for values in kernels)
