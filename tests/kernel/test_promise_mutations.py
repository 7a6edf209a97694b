"""Confused promises in the kernel's source, one line at a time: dependent calls must show each."""

import pytest
import torch

import reference
import submission
from tests.kernel.test_dependent_calls import chained, small_calls_sharing_outputs
from tests.support.configurations import EMULATED, label, set_chip
from tests.support.mutants import source_mutant
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
pytestmark = pytest.mark.skipif(not EMULATED, reason="overlaps launches in emulation")

LOADS = "if cta.promises & OPERANDS_READY == 0:", "if cta.promises & OUTPUT_FREE == 0:"
STORES = LOADS[::-1]
SHAPES = submission.Configuration(128, 2, 1, 1), submission.Configuration(64, 1, 2, 1)


def noticed(monkeypatch, module, calls, promises, shape):
    """True if the last call, with the given promises, goes wrong; earlier calls promise only ready operands."""
    set_chip(monkeypatch, ["late"], 4)
    try:
        for data in calls[:-1]:
            module.solve(data, operands_ready=True, configurations=(shape,), sms=4)
        module.solve(calls[-1], **promises, configurations=(shape,), sms=4)
        outputs = zip(calls[-1][0], reference.ref_kernel(calls[-1]), strict=True)
        return not all(torch.equal(c.clone(), want) for (_, _, c), want in outputs)
    except nogpu.EmulatorError:
        return True


CASES = {
    "loads, asked for the other promise": (LOADS, chained, {"output_free": True}),
    "stores, asked for the other promise": (STORES, small_calls_sharing_outputs, {"operands_ready": True}),
}


@pytest.mark.parametrize("shape", sampled(SHAPES, 2), ids=label)
@pytest.mark.parametrize("name", CASES)
def test_a_promise_mixed_up_is_noticed(monkeypatch, tmp_path, name, shape):
    change, calls, promises = CASES[name]
    assert not noticed(monkeypatch, source_mutant(tmp_path, []), calls(), promises, shape)
    assert noticed(monkeypatch, source_mutant(tmp_path, [change]), calls(), promises, shape)
