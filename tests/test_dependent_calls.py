"""Calls back to back, whose launches overlap: what each may load and store before the one ahead of it is over."""

import dataclasses
import re

import pytest
import torch

import reference
import submission

emulator = pytest.importorskip("emulator")
pytestmark = pytest.mark.skipif(
    torch.cuda.get_device_name().find("emulated") < 0, reason="overlaps launches in emulation"
)

SCHEDULES = ("late", "eager", "random:1", "random:2")
SIZES = {"m": (200, 72, 130), "n": (256, 384, 128), "k": (512, 256, 128), "g": 3}


@pytest.fixture(params=submission.shapes(), ids="{0[0]} tokens, {0[1]}-SM, {0[2]} per SM".format)
def shape(request, monkeypatch):
    """Each configuration on a chip of four SMs, so that launches meet on them."""
    use(monkeypatch, request.param)
    yield request.param
    submission.configure.cache_clear()
    submission.compiled.cache_clear()


def use(monkeypatch, shape, mutate=None, schedules=SCHEDULES):
    from emulator import runtime
    from emulator.device import Device

    submission.configure.cache_clear()
    submission.compiled.cache_clear()
    monkeypatch.setattr(submission, "shapes", lambda: [shape])
    monkeypatch.setattr(submission, "sm_count", lambda device: 4)
    device = Device.current()
    monkeypatch.setattr(device, "properties", dataclasses.replace(device.properties, sm_count=4))
    monkeypatch.setattr(device, "schedules", schedules)
    if mutate:
        original = runtime.module

        def module(text):
            assert mutate(text) != text, "the mutation did not apply"
            return original(mutate(text))

        monkeypatch.setattr(runtime, "module", module)


def calls_sharing_outputs(count):
    """Inputs of different seeds that all write the same c tensors."""
    inputs = [reference.generate_input(**SIZES, seed=seed) for seed in range(count)]
    outputs = [c for _, _, c in inputs[0][0]]
    return [([(a, b, c) for (a, b, _), c in zip(abc, outputs)], *rest) for abc, *rest in inputs]


def wrong(data):
    found = [c.clone() for _, _, c in data[0]]
    return [not torch.equal(ours, theirs) for ours, theirs in zip(found, reference.ref_kernel(data))]


def test_the_last_of_calls_that_share_their_output_stays(shape):
    calls = calls_sharing_outputs(3)
    for data in calls:
        submission.custom_kernel(data)
    assert not any(wrong(calls[-1]))


def test_repeated_calls_of_one_input(shape):
    data = reference.generate_input(**SIZES, seed=4)
    for _ in range(3):
        submission.custom_kernel(data)
    assert not any(wrong(data))


def chained():
    """Two calls, the second with the first one's output as its tokens: c [64, 128] fp16 is a [64, 512] e2m1."""
    first = reference.generate_input(m=(64,), n=(128,), k=(512,), g=1, seed=8)
    second = reference.generate_input(m=(64,), n=(256,), k=(512,), g=1, seed=9)
    (_, b, c), (_, _, c1) = second[0][0], first[0][0]
    a = c1.permute(2, 0, 1).view(torch.uint8).view(torch.float4_e2m1fn_x2).permute(1, 2, 0)
    # e2m1 has no NaN, so every output is a legal operand; scales of 1 and small weights keep the sums exact and finite.
    return first, ([(a, b, c)], *second[1:])


def test_a_call_may_consume_the_output_of_the_one_before(shape):
    first, second = chained()
    submission.solve(first)
    submission.solve(second)
    assert not any(wrong(second))


def test_operands_ready_is_a_promise(monkeypatch):
    """With it, the second call reads the first one's output too early: the model would notice a load before the wait."""
    use(monkeypatch, (128, 1, 2))
    first, second = chained()
    submission.solve(first)
    submission.solve(second, operands_ready=True)
    with pytest.raises(emulator.EmulatorError, match="schedules disagree"):
        wrong(second)


WAIT = r"griddepcontrol\.wait;"


@pytest.mark.parametrize("shape", submission.shapes(), ids=str)
def test_stores_without_a_wait_are_noticed(monkeypatch, shape):
    use(monkeypatch, shape, lambda ptx: re.sub(WAIT, "", ptx))
    calls = calls_sharing_outputs(3)
    noticed = []
    try:
        for data in calls:
            submission.custom_kernel(data)
        noticed = wrong(calls[-1])
    except emulator.EmulatorError as error:
        noticed = ["schedules disagree" in str(error)]
    assert any(noticed)


def test_a_trigger_before_the_allocation_is_noticed_where_two_ctas_meet(monkeypatch):
    """The next launch's CTA takes all columns and waits for the end of a grid that still waits for them."""

    def mutate(ptx):
        trigger = "griddepcontrol.launch_dependents;"
        ptx = ptx.replace(trigger, "")
        ptx = re.sub(r"(tcgen05\.(?:alloc|dealloc)[^;]*), 256;", r"\1, 512;", ptx)
        return re.sub(r"(tcgen05\.alloc)", rf"{trigger} \1", ptx)

    use(monkeypatch, (128, 1, 2), mutate, ("late", "random:1", "random:2", "random:3"))
    with pytest.raises(emulator.EmulatorError, match="hangs"):
        for data in calls_sharing_outputs(4):
            submission.custom_kernel(data)
        torch.cuda.synchronize()


MIXES = [
    [(128, 1, 2), (128, 1, 2), (128, 2, 2)],
    [(64, 1, 2), (256, 2, 1), (128, 2, 2)],
    [(128, 2, 2), (64, 1, 2), (256, 1, 1), (64, 2, 2)],
]


@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_launches_of_different_configurations_share_sms(monkeypatch, mix):
    """Each takes other columns of TMEM and other shares of SMEM; a pair needs the same columns free on both its SMs."""
    use(monkeypatch, mix[0])
    calls = calls_sharing_outputs(len(mix))
    for data, shape in zip(calls, mix):
        submission.configure.cache_clear()
        monkeypatch.setattr(submission, "shapes", lambda shape=shape: [shape])
        submission.custom_kernel(data)
    assert not any(wrong(calls[-1]))
