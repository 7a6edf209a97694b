"""tcgen05.mma of every kind, shape, layout and swizzle against products in float64."""

import numpy as np
import pytest

from nogpu.errors import Fault
from tests.support.tensor_operands import (
    DTYPES,
    FORMATS,
    LAYOUTS,
    MODES,
    NARROW_BITS,
    SFA,
    SFB,
    A,
    B,
    D,
    K,
    floats,
    instruction,
    make_cta,
    mma,
    packed_rows,
    put_operand,
    put_scales,
    random_elements,
)
from tests.support.tensor_problem import Problem, check

SCALED = [
    ("mxf4nvf4", 16, "ue4m3", 0, 0),
    ("mxf4nvf4", 16, "ue8m0", 0, 0),
    ("mxf4nvf4", 32, "ue8m0", 2, 0),
    ("mxf4", 32, "ue8m0", 0, 2),
    ("mxf8f6f4", 32, "ue8m0", 1, 3),
]


@pytest.mark.parametrize(("kind", "block", "scale", "sfa_id", "sfb_id"), SCALED)
@pytest.mark.parametrize("n", [8, 64, 72, 256])
@pytest.mark.parametrize("mode", [128, 0])
def test_block_scaled_mma_in_one_cta(kind, block, scale, sfa_id, sfb_id, n, mode):
    rng = np.random.default_rng(n)
    check(Problem(rng, 1, 128, n, kind, scale=scale, block=block, sfa_id=sfa_id, sfb_id=sfb_id, mode=mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [16, 128, 240])
@pytest.mark.parametrize(("m", "layout"), [(256, "A"), (128, "B")])
def test_block_scaled_mma_in_a_pair(mode, n, m, layout):
    """B's rows are half in the even CTA, half in the odd one; layout B has half of N in each half of the lanes."""
    rng = np.random.default_rng(n)
    check(Problem(rng, 2, m, n, "mxf4nvf4", scale="ue4m3", block=16, mode=mode, layout=layout), column=100)


@pytest.mark.parametrize(("kind", "block", "scale", "sfa_id", "sfb_id"), SCALED)
def test_block_scaled_mma_of_64_rows_per_cta(kind, block, scale, sfa_id, sfb_id):
    rng = np.random.default_rng(1)
    options = {"scale": scale, "block": block, "sfa_id": sfa_id, "sfb_id": sfb_id}
    check(Problem(rng, 2, 128, 256, kind, layout="B", **options))


@pytest.mark.parametrize("a_type", FORMATS["mxf8f6f4"])
@pytest.mark.parametrize("b_type", FORMATS["mxf8f6f4"])
@pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4"])
def test_types_of_8_6_and_4_bits(kind, a_type, b_type):
    options = {"scale": "ue8m0", "block": 32, "sfa_id": 2} if kind == "mxf8f6f4" else {}
    check(Problem(np.random.default_rng(2), 1, 128, 40, kind, a_type, b_type, **options))


@pytest.mark.parametrize(
    ("kind", "a_type", "b_type"),
    [("f16", "f16", "f16"), ("f16", "bf16", "f16"), ("tf32", "tf32", "tf32"), ("f8f6f4", "e4m3", "e2m1")],
)
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_plain_mma(kind, a_type, b_type, group, m, lane, layout, mode):
    rng = np.random.default_rng(m + group)
    check(Problem(rng, group, m, 48, kind, a_type, b_type, lane=lane, layout=layout, mode=mode), column=32)


@pytest.mark.parametrize("transpose", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    ("kind", "element", "mode"),
    [
        *(("f16", element, mode) for element in ("f16", "bf16") for mode in (0, 32, 64, 128)),
        *(("f8f6f4", element, mode) for element in FORMATS["f8f6f4"] for mode in (0, 32, 64, 128)),
        ("tf32", "tf32", "128 of 32"),
    ],
)
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
def test_transposed_operands(kind, element, mode, transpose, group, m, lane, layout):
    rng = np.random.default_rng(m + group)
    options = {"lane": lane, "layout": layout, "mode": mode, "transpose": transpose}
    check(Problem(rng, group, m, 128, kind, element, element, **options), column=32)


@pytest.mark.parametrize("types", [("e5m2", "e4m3"), ("e2m1", "e4m3"), ("e3m2", "e2m3")])
def test_transposed_operands_with_scale_factors(types):
    options = {"scale": "ue8m0", "block": 32, "sfa_id": 3, "transpose": (1, 1)}
    check(Problem(np.random.default_rng(3), 1, 128, 64, "mxf8f6f4", *types, **options))


@pytest.mark.parametrize(
    ("kind", "mode", "message"),
    [
        ("tf32", 128, r"transposed B of type tf32 must have 128-byte swizzling with 32-byte atoms"),
        ("f16", "128 of 32", r"transposed B of type f16 must not have 128-byte swizzling with 32-byte atoms"),
    ],
)
def test_swizzling_of_transposed_operands(kind, mode, message):
    """PTX ISA, "Valid Combinations of Type-Size, Major-ness and Swizzling"."""
    problem = Problem(np.random.default_rng(3), 1, 128, 64, kind, mode=mode, transpose=(0, 1))
    with pytest.raises(Fault, match=message):
        problem.run()


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(("a_type", "b_type"), [("u8", "u8"), ("s8", "s8"), ("u8", "s8")])
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
def test_integers(a_type, b_type, group, m, lane, layout, saturate):
    rng = np.random.default_rng(4)
    problem = Problem(rng, group, m, 32, "i8", a_type, b_type, "s32", lane=lane, layout=layout, saturate=saturate)
    problem.run()
    products = [(a @ problem.b_values.T).astype(np.int64) for a in problem.a_values]
    for actual, product in zip(problem.results(view=np.int32), products, strict=True):
        assert np.array_equal(actual, product)
    near = 2**31 - 1000
    for _, tmem in problem.ctas:
        tmem.words.view(np.int32)[...] = near
    problem.run(True)
    for actual, product in zip(problem.results(view=np.int32), products, strict=True):
        wide = product + near
        assert (wide > 2**31 - 1).any()
        expected = wide.clip(None, 2**31 - 1) if saturate else (wide + 2**31) % 2**32 - 2**31
        assert np.array_equal(actual, expected)


def test_sums_that_are_exact_in_any_order():
    """Bit-exact where all partial sums have few bits: small integers, in every kind."""
    for kind in ("f16", "tf32", "f8f6f4", "mxf4", "mxf8f6f4"):
        scaled = {"scale": "ue8m0", "block": 32} if kind.startswith("mx") else {}
        problem = Problem(np.random.default_rng(5), 1, 128, 64, kind, **scaled)
        shared, tmem = problem.ctas[0]
        rng = np.random.default_rng(6)
        values = rng.integers(-1, 2, (192, K[kind])).astype(np.float64) * 2
        element = problem.a_type
        stored = values.astype(np.float32) if element == "tf32" else values.astype(DTYPES[element])
        stored = stored.view(np.uint8) if element in NARROW_BITS or element == "e4m3" else stored
        put_operand(shared, A, packed_rows(stored[:128], kind, element))
        put_operand(shared, B, packed_rows(stored[128:], kind, element))
        if scaled:
            ones = np.full((128, K[kind] // 32), 127, np.uint8)
            put_scales(tmem, SFA, ones), put_scales(tmem, SFB, ones[:64])
        for _ in range(3):
            problem.run(True if _ else False)
        assert np.array_equal(problem.results()[0], 3 * values[:128] @ values[128:].T)


def test_scale_factors_at_the_ends_of_their_range():
    """2**127 and 2**-127: their product is 1, though neither scaled operand is a float32."""
    problem = Problem(np.random.default_rng(7), 1, 128, 64, "mxf4", scale="ue8m0", block=32)
    tmem = problem.ctas[0][1]
    unscaled = Problem(np.random.default_rng(7), 1, 128, 64, "mxf4", scale="ue8m0", block=32)
    for instance, (sfa, sfb) in ((problem, (254, 0)), (unscaled, (127, 127))):
        put_scales(instance.ctas[0][1], SFA, np.full((128, 2), sfa, np.uint8))
        put_scales(instance.ctas[0][1], SFB, np.full((64, 2), sfb, np.uint8))
        instance.run()
    assert np.isfinite(floats(tmem)[:, :64]).all() and floats(tmem)[:, :64].any()
    assert np.array_equal(problem.results()[0], unscaled.results()[0])


def test_k_slices_of_a_swizzled_tile():
    """Four MMAs over a 128-byte wide tile, the descriptor advancing 32 bytes at a time inside the swizzle pattern."""
    rng = np.random.default_rng(0)
    shared, tmem = cta = make_cta()
    tiles = [[random_elements(rng, 128, "mxf4nvf4", "e2m1") for _ in range(4)] for _ in range(2)]
    descriptors = []
    for start, tile in zip((A, B), tiles, strict=True):
        wide = np.concatenate([packed_rows(elements, "mxf4nvf4", "e2m1") for elements, _ in tile], axis=1)
        descriptors.append(put_operand(shared, start, wide))
    ones = np.full((128, 4), 0x38, np.uint8)
    put_scales(tmem, SFA, ones), put_scales(tmem, SFB, ones)
    for k in range(4):
        slices = [value + 2 * k for value in descriptors]
        mma([cta], "mxf4nvf4", 1, 16, D, *slices, instruction("mxf4nvf4", 128, 128), SFA, SFB, k > 0)
    a, b = (np.concatenate([values for _, values in tile], axis=1) for tile in tiles)
    assert np.array_equal(floats(tmem)[:, :128], a @ b.T)
