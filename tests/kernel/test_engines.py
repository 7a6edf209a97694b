"""The kernels under both engines of the emulator: equal bytes and counts."""

import pytest
import torch

import nogpu
import reference
import submission
import task
from nogpu.execution.device import Device
from tests.support.configurations import EMULATED

pytestmark = pytest.mark.skipif(not EMULATED, reason="a GPU has one engine")

CASES = {
    "group_gemm": "m: [96, 128]; n: [128, 256]; k: [512, 256]; g: 2; seed: 1111",
    "dual_gemm": "m: 128; n: 256; k: 256; l: 1; seed: 1111",
    "gemm": "m: 128; n: 256; k: 512; l: 1; seed: 1111",
    "gemv": "m: 128; k: 512; l: 2; seed: 1111",
}
COUNTED = ("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes", "tma_load_requested_bytes")


@pytest.mark.parametrize("problem", CASES)
@pytest.mark.parametrize("schedule", ["late", "random:5"])
def test_engines_agree(monkeypatch, problem, schedule):
    data = reference.REFERENCES[problem].generate_input(**task.TestSpec.parse(CASES[problem]).args)
    device = Device.current()
    monkeypatch.setattr(device, "schedules", (schedule,))
    found = []
    for engine in ("native", "python"):
        monkeypatch.setattr(device, "engine", engine)
        nogpu.reset_counters()
        output = submission.solve(data)
        outputs = output if isinstance(output, list) else [output]
        values = [c.cpu().view(torch.int16).clone() for c in outputs]
        counts = [[getattr(launch, name) for name in COUNTED] for launch in nogpu.counters()]
        for c in outputs:
            c.fill_(float("nan"))
        found.append((values, counts))
    (native, native_counts), (python, python_counts) = found
    assert native_counts == python_counts and any(map(any, native_counts))
    assert len(native) == len(python) and all(map(torch.equal, native, python))
    assert all(len(values.unique()) > 9 for values in native)
