"""Successive calls whose launches overlap: loads and stores before the end of the previous launch."""

import re

import pytest
import torch

import reference
from tests.support.configurations import EMULATED, PROMISED, label, set_chip, solver
from tests.support.mutants import calls_that_need, run_mutated, without_wait
from tests.support.slow import sampled

nogpu = pytest.importorskip("nogpu")
pytestmark = pytest.mark.skipif(not EMULATED, reason="overlaps launches in emulation")

SCHEDULES = ("late", "eager", "random:1")
SIZES = {"m": (136,), "n": (264,), "k": (320,), "g": 1}


# Every tile for these tokens, one-SM and two-SM, whole and half SMs with each, and neighbours.
SHAPES = [
    *((64, 1, 1, 1), (64, 2, 2, 1), (128, 1, 2, 1), (128, 2, 1, 1), (192, 1, 1, 1), (192, 2, 2, 1), (256, 1, 1, 1)),
    *((256, 2, 1, 1), (128, 1, 1, 2), (192, 2, 1, 2)),
]


# One shape for each way to wait of a launch; the tile does not change its waits.
WAYS = [(64, 1, 1, 1), (64, 2, 2, 1), (128, 1, 2, 1), (128, 2, 1, 1), (128, 1, 1, 2), (192, 2, 1, 2)]


@pytest.fixture(params=sampled(WAYS, 3), ids=label)
def way(request):
    return request.param


@pytest.fixture
def solve(monkeypatch, way):
    return use(monkeypatch, way)


def use(monkeypatch, shape, mutate=None, schedules=SCHEDULES):
    """A solver for one configuration on a chip of four SMs, or of two clusters, so that launches share SMs."""
    set_chip(monkeypatch, schedules, sms_for(shape))
    if mutate:
        run_mutated(monkeypatch, mutate)
    return solver(shape, sms=sms_for(shape))


def sms_for(shape):
    return max(4, 2 * shape[1] * shape[3])


def calls_sharing_outputs(count, sizes):
    """Inputs of different seeds that all write the same c tensors."""
    inputs = [reference.generate_input(**sizes, seed=seed) for seed in range(count)]
    outputs = [c for _, _, c in inputs[0][0]]
    return [([(a, b, c) for (a, b, _), c in zip(abc, outputs)], *rest) for abc, *rest in inputs]


def small_calls_sharing_outputs():
    """Two calls of one tile each, which fit on the chip side by side."""
    return calls_sharing_outputs(2, {"m": (64,), "n": (128,), "k": (1024,), "g": 1})


def calls_apart(count, sizes):
    """Inputs of different seeds, each with c tensors of its own."""
    return [reference.generate_input(**sizes, seed=seed) for seed in range(count)]


def wrong(data):
    found = [c.clone() for _, _, c in data[0]]
    return [not torch.equal(ours, theirs) for ours, theirs in zip(found, reference.ref_kernel(data))]


def test_the_last_of_calls_that_share_their_output_stays(solve, way):
    calls = calls_sharing_outputs(3, SIZES)
    for data in calls:
        solve(data, operands_ready=True)
    assert not any(wrong(calls[-1]))


@pytest.mark.parametrize("shape", sampled(SHAPES, 10), ids=label)
def test_calls_with_free_outputs(monkeypatch, shape):
    """A launch waits only at its own end, for the end of the previous launch, as in the contest's timings."""
    solve, calls = use(monkeypatch, shape), calls_apart(3, SIZES)
    for data in calls:
        solve(data, **PROMISED)
    assert not any(bad for data in calls for bad in wrong(data))


def test_repeated_calls_of_one_input(solve, way):
    data = reference.generate_input(**SIZES, seed=4)
    for _ in range(2):
        solve(data, **PROMISED)
    assert not any(wrong(data))


def chained():
    """Two calls, the second with the first one's output as its tokens: c [64, 256] fp16 is a [64, 1024] e2m1."""
    first = reference.generate_input(m=(64,), n=(256,), k=(1024,), g=1, seed=8)
    second = reference.generate_input(m=(64,), n=(256,), k=(1024,), g=1, seed=9)
    (_, b, c), (_, _, c1) = second[0][0], first[0][0]
    a = c1.permute(2, 0, 1).view(torch.uint8).view(torch.float4_e2m1fn_x2).permute(1, 2, 0)
    # e2m1 has no NaN, so every output is a legal operand; scales of 1 and small weights keep the sums exact and finite.
    return first, ([(a, b, c)], *second[1:])


def bystander():
    """A short call that shares nothing with those of `chained`."""
    return reference.generate_input(m=(64,), n=(128,), k=(832,), g=1, seed=10)


@pytest.mark.parametrize("output_free", [False, True])
def test_a_call_may_consume_the_output_of_the_one_before(solve, output_free):
    first, second = chained()
    solve(first)
    solve(second, output_free=output_free)
    assert not any(wrong(second))


def test_a_call_may_consume_an_output_past_a_call_that_waits_for_nothing(solve):
    """The third call waits for the end of the second, which comes after the end of the first."""
    first, third = chained()
    second = bystander()
    solve(first)
    solve(second, **PROMISED)
    solve(third)
    assert not any(wrong(second) + wrong(third))


def test_a_call_may_overwrite_an_output_past_a_call_that_waits_for_nothing(solve):
    (first, third), second = small_calls_sharing_outputs(), bystander()
    solve(first)
    solve(second, **PROMISED)
    solve(third, operands_ready=True)
    assert not any(wrong(second) + wrong(third))


def test_operands_ready_is_a_promise(monkeypatch):
    """After a false promise the second call reads the first one's output too early, and the emulator notices."""
    solve = use(monkeypatch, (128, 1, 2, 1))
    first, second = chained()
    solve(first)
    solve(second, operands_ready=True)
    with pytest.raises(nogpu.EmulatorError, match="schedules disagree"):
        wrong(second)


def test_output_free_is_a_promise(solve):
    """After a false promise the second call may store before the first one, whose output then stays."""
    first, second = small_calls_sharing_outputs()
    solve(first)
    solve(second, **PROMISED)
    with pytest.raises(nogpu.EmulatorError, match="schedules disagree"):
        wrong(second)


NEEDS = calls_that_need(chained, small_calls_sharing_outputs, bystander)


@pytest.mark.parametrize("wait", NEEDS)
@pytest.mark.parametrize("shape", sampled(WAYS, 3), ids=label)
def test_each_missing_wait_is_noticed(monkeypatch, shape, wait):
    solve = use(monkeypatch, shape, without_wait(wait))
    calls = NEEDS[wait]()
    try:
        for data, promises in calls:
            solve(data, **promises)
        noticed = wrong(calls[-1][0])
    except nogpu.EmulatorError as error:
        noticed = ["schedules disagree" in str(error)]
    assert any(noticed)


def test_a_trigger_before_the_allocation_is_noticed_where_two_ctas_meet(monkeypatch):
    """The next launch's CTA takes all columns and waits for the end of a grid that still waits for them."""

    def mutate(ptx):
        trigger = "griddepcontrol.launch_dependents;"
        ptx = ptx.replace(trigger, "")
        ptx = re.sub(r"(tcgen05\.(?:alloc|dealloc)[^;]*), 256;", r"\1, 512;", ptx)
        return re.sub(r"(tcgen05\.alloc)", rf"{trigger} \1", ptx)

    solve = use(monkeypatch, (128, 1, 2, 1), mutate, ("late", "random:1", "random:2", "random:3"))
    with pytest.raises(nogpu.EmulatorError, match="hangs"):
        for data in calls_sharing_outputs(4, SIZES):
            solve(data, operands_ready=True)
        torch.cuda.synchronize()


MIXES = [
    [(128, 1, 2, 1), (128, 1, 2, 1), (128, 2, 2, 1)],
    [(64, 1, 2, 1), (256, 2, 1, 1), (128, 2, 2, 1)],
    [(128, 2, 2, 1), (64, 1, 2, 1), (256, 1, 1, 1), (64, 2, 2, 1)],
    [(192, 2, 2, 1), (256, 2, 1, 1), (192, 1, 2, 1)],
    [(128, 2, 1, 2), (128, 2, 2, 1), (64, 1, 1, 2)],
    [(64, 1, 2, 1), (192, 1, 1, 2), (256, 2, 1, 1)],
]


@pytest.mark.parametrize(
    ("mix", "output_free"), sampled([*((mix, True) for mix in MIXES), (MIXES[4], False)], 7, names=2), ids=str
)
def test_launches_of_different_configurations_share_sms(monkeypatch, mix, output_free):
    """Their CTAs take different TMEM columns and SMEM sizes; a pair needs the same columns free on both its SMs."""
    use(monkeypatch, mix[0])
    calls = (calls_apart if output_free else calls_sharing_outputs)(len(mix), SIZES)
    for data, shape in zip(calls, mix):
        solver(shape, sms=sms_for(mix[0]))(data, operands_ready=True, output_free=output_free)
    assert not any(bad for data in (calls if output_free else calls[-1:]) for bad in wrong(data))
