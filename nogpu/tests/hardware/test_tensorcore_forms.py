"""Further forms of tcgen05.mma: 16-bit accumulators, A in tensor memory, disabled lanes, negation; illegal operands."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tensor.tmem import TensorMemory
from tests.support.tensor_operands import (
    LAYOUTS,
    NARROW_BITS,
    SFA,
    SFB,
    A,
    B,
    D,
    assert_close,
    decoded,
    descriptor,
    floats,
    instruction,
    k_major_address,
    make_cta,
    mma,
    packed_rows,
    put_operand,
    put_scales,
)
from tests.support.tensor_problem import Problem


@pytest.mark.parametrize("kind", ["f16", "f8f6f4"])
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
def test_f16_accumulator(kind, group, m, lane, layout):
    """A 16-bit D is rounded after each instruction and lies in the low halves of its words."""
    rng = np.random.default_rng(1)
    problem = Problem(rng, group, m, 32, kind, d_type="f16", lane=lane, layout=layout)
    with np.errstate(over="ignore"):
        for accumulate in (False, True):
            problem.run(accumulate)
        for words, a in zip(problem.results(view=np.uint32), problem.a_values, strict=True):
            assert (words >> 16 == 0xFFFF).all()
            actual = (words & 0xFFFF).astype(np.uint16).view(np.float16)
            product = a.astype(np.float32) @ problem.b_values.T.astype(np.float32)
            expected = (product + product.astype(np.float16).astype(np.float32)).astype(np.float16)
            assert np.array_equal(actual, expected, equal_nan=True)


@pytest.mark.parametrize("shift", [1, 15])
@pytest.mark.parametrize(("kind", "d_type"), [("f16", "f32"), ("f16", "f16"), ("tf32", "f32")])
def test_scale_input_d(kind, d_type, shift):
    """D = A B + D / 2**shift (PTX ISA, tcgen05.mma)."""
    problem = Problem(np.random.default_rng(8), 1, 128, 32, kind, d_type=d_type)
    tmem = problem.ctas[0][1]
    before = np.random.default_rng(9).integers(-8, 8, (128, 32)).astype(np.float32) * 2**shift
    if d_type == "f16":
        before = np.clip(before, -(2**15), 2**15)
        tmem.words[:, :32] = before.astype(np.float16).view(np.uint16)
    else:
        floats(tmem)[:, :32] = before
    problem.run(True, d_shift=shift)
    if d_type == "f32":
        assert_close(problem.results()[0], problem.a_values[0], problem.b_values, before / 2**shift)
        return
    actual = (tmem.words[:, :32] & 0xFFFF).astype(np.uint16).view(np.float16)
    exact = problem.a_values[0] @ problem.b_values.T + before.astype(np.float16) / 2.0**shift
    slack = 2.0**-20 * (abs(problem.a_values[0]) @ abs(problem.b_values.T))  # bound of fp32 sums in any order
    assert np.all(((exact - slack).astype(np.float16) <= actual) & (actual <= (exact + slack).astype(np.float16)))


@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
@pytest.mark.parametrize("accumulate", [False, True])
def test_disabled_output_lanes(group, m, lane, layout, accumulate):
    """A lane whose bit is set keeps D; the lanes of the odd CTA follow those of the even one."""
    rng = np.random.default_rng(10)
    problem = Problem(rng, group, m, 32, "f16", lane=lane, layout=layout)
    reference = Problem(np.random.default_rng(10), group, m, 32, "f16", lane=lane, layout=layout)
    words = [int(word) for word in rng.integers(0, 2**32, 4 * group)]
    for (_, tmem), (_, other) in zip(problem.ctas, reference.ctas, strict=True):
        floats(tmem)[:, :64] = floats(other)[:, :64] = rng.integers(-9, 9, (128, 64))
    before = [tmem.words.copy() for _, tmem in problem.ctas]
    problem.run(accumulate, disabled=words)
    reference.run(accumulate)
    for rank, ((_, tmem), (_, other)) in enumerate(zip(problem.ctas, reference.ctas, strict=True)):
        for lane_index in range(128):
            disabled = words[4 * rank + lane_index // 32] >> lane_index % 32 & 1
            expected = before[rank] if disabled else other.words
            assert np.array_equal(tmem.words[lane_index], expected[lane_index])


@pytest.mark.parametrize(
    ("kind", "element"),
    [("f16", "f16"), ("tf32", "tf32"), ("f8f6f4", "e5m2"), ("f8f6f4", "e2m3"), ("f8f6f4", "e3m2"), ("f8f6f4", "e2m1")],
)
@pytest.mark.parametrize(("group", "m", "lane", "layout"), [case for case in LAYOUTS if case[2] or case[3] != "F"])
def test_a_in_tensor_memory(kind, element, group, m, lane, layout):
    problem = Problem(np.random.default_rng(2), group, m, 32, kind, element, lane=lane, layout=layout)
    for (_, tmem), elements in zip(problem.ctas, problem.a_elements, strict=True):
        rows = np.arange(m // group)
        lanes = {"F": rows // 16 * 32 + rows % 16 + lane}.get(layout, rows)
        held = elements << {4: 2, 6: 1}[NARROW_BITS[element]] if element in NARROW_BITS else elements
        words = np.ascontiguousarray(held).view(np.uint32).reshape(-1, 8)
        tmem.words[lanes, 200:208] = words
        if layout == "B":
            tmem.words[lanes + 64, 200:208] = words
    place = lane << 16 | 200
    problem.run(a=place, a_in_tmem=True)
    for actual, a in zip(problem.results(), problem.a_values, strict=True):
        assert_close(actual, a, problem.b_values)
    tmem = problem.ctas[0][1]
    tmem.dealloc(0, 512)
    tmem.alloc(128)
    with pytest.raises(Fault, match=r"tcgen05.mma A: tensor memory column 200"):
        problem.run(a=place, a_in_tmem=True)
    tmem.alloc(256)
    if layout == "F":
        with pytest.raises(Fault, match="A at lane 0, D at lane 16; must be the same"):
            problem.run(a=200, a_in_tmem=True)
    if layout == "B":
        problem.ctas[1][1].words[70, 203] ^= 1
        with pytest.raises(Fault, match="lanes 64-127 differs from lanes 0-63"):
            problem.run(a=place, a_in_tmem=True)


@pytest.mark.parametrize(("group", "m", "lane", "layout"), [case for case in LAYOUTS if case[1] > 64])
def test_shifted_a(group, m, lane, layout):
    """The product is that of A as it was; afterwards rows of A have moved up by a lane, the last of 32 lanes stays."""
    problem = Problem(np.random.default_rng(2), group, m, 32, "f16", layout=layout)
    for (_, tmem), elements in zip(problem.ctas, problem.a_elements, strict=True):
        words = elements.view(np.uint32).reshape(-1, 8)
        tmem.words[:, 200:208] = np.concatenate([words, words]) if layout == "B" else words
    before = [tmem.words.copy() for _, tmem in problem.ctas]
    problem.run(a=200, a_in_tmem=True, shifts_a=True)
    for (_, tmem), then, actual, a in zip(problem.ctas, before, problem.results(), problem.a_values, strict=True):
        assert_close(actual, a, problem.b_values)
        for row in range(128):
            source = row if row % 32 == 31 else row + 1
            assert np.array_equal(tmem.words[row, 200:208], then[source, 200:208])
        assert np.array_equal(tmem.words[:, 208:], then[:, 208:]) and np.array_equal(
            tmem.words[:, 32:200], then[:, 32:200]
        )


@pytest.mark.parametrize(("m", "options"), [(64, {"a": 200, "a_in_tmem": True}), (128, {})])
def test_a_that_cannot_be_shifted(m, options):
    problem = Problem(np.random.default_rng(2), 1, m, 32, "f16", layout={64: "F", 128: "D"}[m])
    with pytest.raises(Fault, match=f"ashift with M = {m}; it needs A in tensor memory and M = 128 or 256"):
        problem.run(shifts_a=True, **options)


def test_a_in_tensor_memory_of_4_bits():
    problem = Problem(np.random.default_rng(3), 1, 128, 64, "mxf4nvf4", scale="ue4m3", block=16)
    tmem = problem.ctas[0][1]
    tmem.words[:, 300:308] = packed_rows(problem.a_elements[0], "mxf4nvf4", "e2m1").view(np.uint32)
    problem.run(a=300, a_in_tmem=True)
    assert_close(problem.results()[0], problem.a_values[0], problem.b_values)


def test_a_transposed_in_tensor_memory():
    problem = Problem(np.random.default_rng(3), 1, 128, 64, "f16", transpose=(1, 0))
    with pytest.raises(Fault, match=r"transposed A \(bit 15 .*\) in tensor memory, where it is row-major"):
        problem.run(a=300, a_in_tmem=True)


@pytest.mark.parametrize(("negate_a", "negate_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["mxf4nvf4", "f16"])
def test_negation(kind, negate_a, negate_b):
    scaled = {"scale": "ue4m3", "block": 16} if kind != "f16" else {}
    problem = Problem(np.random.default_rng(4), 1, 128, 32, kind, negate_a=negate_a, negate_b=negate_b, **scaled)
    problem.run()
    assert_close(problem.results()[0], problem.a_values[0] * (-1) ** (negate_a + negate_b), problem.b_values)


@pytest.mark.parametrize(("code", "scale"), [(0x7F, "ue4m3"), (0xFF, "ue4m3"), (0xFF, "ue8m0")])
def test_a_nan_scale_spoils_its_row_or_column_and_nothing_else(code, scale):
    problem = Problem(np.random.default_rng(5), 1, 128, 64, "mxf4nvf4", scale=scale, block=16)
    tmem = problem.ctas[0][1]
    put_scales(tmem, SFA + 2, np.full((7, 1), code, np.uint8), first_byte=2)
    put_scales(tmem, SFB, np.full((1, 1), code, np.uint8), first_byte=1)
    problem.run()
    expected = np.zeros((128, 64), bool)
    expected[64:71] = True
    expected[:, 0] = True
    assert np.array_equal(np.isnan(floats(tmem)[:, :64]), expected)


def test_accumulating_into_untouched_columns_gives_nan():
    problem = Problem(np.random.default_rng(6), 1, 128, 32, "mxf4nvf4", scale="ue4m3", block=16)
    problem.run(True)
    assert np.isnan(problem.results()[0]).all()


def test_infinities_follow_ieee():
    shared, tmem = cta = make_cta()
    a, b = np.zeros((128, 16), np.float16), np.zeros((16, 16), np.float16)
    a[0, 0], b[0, 0], b[1, 0] = np.inf, 2, -1
    descriptors = put_operand(shared, A, a.view(np.uint8)), put_operand(shared, B, b.view(np.uint8))
    mma([cta], "f16", 1, None, D, *descriptors, instruction("f16", 128, 16), 0, 0, False)
    assert floats(tmem)[0, 0] == np.inf and floats(tmem)[0, 1] == -np.inf
    assert np.isnan(floats(tmem)[0, 2:16]).all() and not floats(tmem)[1:128, :16].any()


def test_scale_factors_must_be_the_same_in_all_quadrants():
    problem = Problem(np.random.default_rng(7), 1, 128, 40, "mxf4nvf4", scale="ue4m3", block=16)
    words = problem.ctas[0][1].words
    words[96 + 8, SFB + 1] = 0  # row 40 of 40: not in use
    problem.run()
    words[64 + 7, SFB + 1] ^= 1 << 8
    with pytest.raises(Fault, match=r"SFB: row 39 in column 401 differs between lanes 7 and 71"):
        problem.run()


def test_scale_factors_of_b_must_be_the_same_in_both_quadrants_of_a_half():
    """M = 128 of a pair: lanes 0-63 and 64-127 have different rows of B."""
    options = {"scale": "ue4m3", "block": 16, "layout": "B"}
    problem = Problem(np.random.default_rng(7), 2, 128, 80, "mxf4nvf4", **options)
    words = problem.ctas[1][1].words
    words[96 + 8, SFB + 1] = 0  # row 40 of 40 in the upper half: not in use
    problem.run()
    words[96 + 7, SFB + 1] ^= 1 << 8
    with pytest.raises(Fault, match=r"SFB: row 39 in column 401 differs between lanes 71 and 103"):
        problem.run()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 480}, r"columns 480 to 543; limit 511"),
        ({"sfa": 254}, r"tcgen05.mma SFA: tensor memory column 256"),
        ({"sfa": 32 << 16}, r"SFA at lane 32; must be 0"),
        ({"sfb": 1 << 16}, r"SFB at lane 1; must be 0"),
        ({"a": descriptor(0x200, 1024, 128)}, r"tcgen05.mma A, shared memory descriptor .* at shared offset 0x240"),
    ],
)
def test_illegal_operands(changes, message):
    tmem = TensorMemory()
    tmem.alloc(256)
    shared = SharedMemory(200 * 1024)
    shared.data[:] = 0
    arguments = {
        "d": 0,
        "a": descriptor(A, 1024, 128),
        "b": descriptor(B, 1024, 128),
        "idesc": instruction("mxf4nvf4", 128, 64),
        "sfa": 128,
        "sfb": 192 | 3 << 30,  # the byte id in bits 30-31 of the address is the kernel's own note
        "accumulate": False,
    }
    mma([(shared, tmem)], "mxf4nvf4", 1, 16, **arguments)
    with pytest.raises(Fault, match=message):
        mma([(shared, tmem)], "mxf4nvf4", 1, 16, **arguments | changes)


def test_tensor_memory_may_be_gone_when_the_operation_runs():
    tmem = TensorMemory()
    tmem.alloc(64)
    ctas = [(SharedMemory(200 * 1024), tmem)]
    operands = descriptor(A, 1024, 128), descriptor(B, 1024, 128)
    operation = decoded("f16", 1, None, 0, *operands, instruction("f16", 128, 64), 0, 0, False)
    operation.check(ctas)
    tmem.dealloc(0, 64)
    with pytest.raises(Fault, match="tcgen05.mma D: tensor memory column 0 .* is not allocated"):
        operation.run(ctas)


def test_the_number_of_ctas_must_fit():
    problem = Problem(np.random.default_rng(8), 2, 256, 64, "mxf4nvf4", scale="ue4m3", block=16)
    del problem.ctas[1]
    with pytest.raises(ValueError, match=r"cta_group::2 needs 2 CTAs, got 1"):
        problem.run()


def test_observers_see_every_chunk_read():
    problem = Problem(np.random.default_rng(8), 1, 128, 64, "mxf4nvf4", scale="ue4m3", block=16)
    seen = []
    problem.ctas[0][0].observer = lambda kind, proxy, addresses, shape, strides, issuer: seen.append(
        (kind, proxy, sorted(addresses.tolist()), shape, strides, issuer)
    )
    problem.run(issuer="me")

    def chunks(start, rows):
        return sorted(
            {k_major_address(start, row, byte, 128, 1024, 0) & -16 for row in range(rows) for byte in (0, 16)}
        )

    assert seen == [("load", "async", chunks(start, rows), (16,), (1,), "me") for start, rows in ((B, 64), (A, 128))]
