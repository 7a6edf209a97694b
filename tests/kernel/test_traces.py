"""Recorded launches of the kernels: unchanged bytes, and traces that agree with the emulator's own counts."""

import numpy as np
import pytest
import torch

import nogpu
import reference
import submission
import task
from nogpu.clock.record import Recording
from nogpu.clock.trace import BOX_WORDS
from nogpu.execution.device import Device
from tests.kernel.test_engines import CASES, called
from tests.support.configurations import EMULATED
from tests.support.slow import sampled

pytestmark = pytest.mark.skipif(not EMULATED, reason="a GPU records nothing")


def outputs_of(data, recording, monkeypatch):
    """The bits of the outputs of a call, which are overwritten afterwards."""
    monkeypatch.setattr(Device.current(), "recording", recording)
    output = submission.solve(data)
    outputs = output if isinstance(output, list) else [output]
    bits = [c.cpu().view(torch.int16).clone() for c in outputs]
    for c in outputs:
        c.fill_(float("nan"))
    return bits


def all_records(trace):
    ctas, warps = trace.starts.shape[0], trace.starts.shape[1] - 1
    for cta in range(ctas):
        for warp in range(warps):
            for record in trace.records(cta, warp):
                yield trace.instructions[record.pc].opcode, record.words


def bytes_inside(words):
    """Bytes in global memory of the boxes at the end of a record's words."""
    boxes = np.array(words, np.int64).reshape(-1, BOX_WORDS)
    return int((boxes[:, 3] * boxes[:, 4] * boxes[:, 7] * boxes[:, 10] * boxes[:, 13]).sum())


@pytest.mark.parametrize("problem", sampled(CASES, 3))
def test_recording_changes_no_byte(monkeypatch, problem):
    data = reference.REFERENCES[problem].generate_input(**task.TestSpec.parse(CASES[problem]).args)
    traces = []
    plain = outputs_of(data, None, monkeypatch)
    nogpu.reset_counters()
    recorded = outputs_of(data, Recording(traces.append), monkeypatch)
    counters = nogpu.counters()
    assert all(map(torch.equal, plain, recorded)) and len(traces) == len(counters) > 0
    for trace, counts in zip(traces, counters):
        found = list(all_records(trace))
        assert len(found) == counts.warp_instructions and trace.name == counts.kernel
        assert sum(opcode.startswith("tcgen05.mma") and words != () for opcode, words in found) == counts.mma
        loads = [words for opcode, words in found if opcode.startswith("cp.async.bulk") and words[:1] == (1,)]
        assert sum(bytes_inside(words[6:]) for words in loads) == counts.tma_load_requested_bytes


@pytest.mark.parametrize("problem", sampled(CASES, 3))
def test_values_and_calls_change_no_record(monkeypatch, problem):
    data = reference.REFERENCES[problem].generate_input(**task.TestSpec.parse(CASES[problem]).args)
    kept = {}
    for name, is_called, values in (("all", False, True), ("none", False, False), ("calls", True, False)):
        kept[name] = []
        with called(is_called):
            outputs_of(data, Recording(kept[name].append, values), monkeypatch)
    for trace, without, calls in zip(kept["all"], kept["none"], kept["calls"], strict=True):
        assert np.array_equal(trace.words, without.words) and np.array_equal(trace.starts, without.starts)
        assert np.array_equal(trace.words, calls.words) and np.array_equal(trace.starts, calls.starts)
