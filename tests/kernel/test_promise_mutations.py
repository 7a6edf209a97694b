"""Promises mixed up in the kernel's source, one line at a time: dependent calls must show each."""

import pytest
import torch

import reference
import submission
from tests.kernel.test_dependent_calls import chained, small_calls_sharing_outputs
from tests.kernel.test_gemv import chained as gemv_chained
from tests.kernel.test_gemv import sharing_c
from tests.support.configurations import EMULATED, set_chip
from tests.support.mutants import source_mutant

emulator = pytest.importorskip("emulator")
pytestmark = pytest.mark.skipif(not EMULATED, reason="overlaps launches in emulation")

LOADS = "if {cta}promises & OPERANDS_READY == 0:", "if {cta}promises & OUTPUT_FREE == 0:"
STORES = LOADS[::-1]
SHAPES = submission.Configuration(128, 2, 1, 1), submission.Configuration(64, 1, 2, 1)


def right(data):
    if isinstance(data[0], list):
        return all(torch.equal(c.clone(), want) for (_, _, c), want in zip(data[0], reference.ref_kernel(data)))
    return torch.equal(data[-1].clone(), reference.gemv_ref_kernel(data))


def noticed(monkeypatch, module, calls, promises, shapes):
    """Whether the last of calls goes wrong: the first promises nothing it need not, the last one as given."""
    set_chip(monkeypatch, ["late"], 4 if shapes else 2)
    try:
        for data in calls[:-1]:
            module.run(data, operands_ready=True, configurations=shapes, sms=4 if shapes else 2)
        module.run(calls[-1], **promises, configurations=shapes, sms=4 if shapes else 2)
        return not right(calls[-1])
    except emulator.EmulatorError:
        return True


CASES = {
    "loads, asked for the other promise": (LOADS, chained, gemv_chained, {"output_free": True}),
    "stores, asked for the other promise": (
        STORES,
        small_calls_sharing_outputs,
        lambda: sharing_c(2, k=2560),
        {"operands_ready": True},
    ),
}


@pytest.mark.parametrize("shape", [*SHAPES, None], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_promise_mixed_up_is_noticed(monkeypatch, tmp_path, name, shape):
    (old, new), of_groups, of_gemv, promises = CASES[name]
    cta, shapes = ("", None) if shape is None else ("cta.", (shape,))
    module = source_mutant(tmp_path, [(old.format(cta=cta), new.format(cta=cta))])
    whole = source_mutant(tmp_path, [])
    calls = of_gemv if shape is None else of_groups
    assert not noticed(monkeypatch, whole, calls(), promises, shapes)
    assert noticed(monkeypatch, module, calls(), promises, shapes)
