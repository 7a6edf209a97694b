"""tcgen05.mma.sp of every kind, layout and place of A, against products in float64 of A with its zeros."""

import numpy as np
import pytest

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import decode_instruction
from nogpu.hardware.tensor.tmem import TensorMemory
from tests.support.tensor_operands import (
    FORMATS,
    META,
    NARROW_BITS,
    SFA,
    SFB,
    A,
    B,
    D,
    K,
    assert_close,
    d_places,
    expanded,
    floats,
    instruction,
    make_cta,
    mma,
    packed_rows,
    put_metadata,
    put_operand,
    put_scales,
    put_transposed,
    random_elements,
    random_indices,
    scale_values,
)

LAYOUTS = [(1, 64, 0, "F"), (1, 64, 16, "F"), (1, 128, 0, "D"), (2, 128, 0, "C"), (2, 128, 16, "C"), (2, 256, 0, "A")]
PLAIN = [
    *(("f16", element, "f16") for element in ("f16", "bf16")),
    ("tf32", "tf32", "tf32"),
    *(("f8f6f4", "e4m3", "e2m1"), ("f8f6f4", "e2m3", "e5m2"), ("f8f6f4", "e2m1", "e3m2")),
]
SCALED = [
    *(("mxf4nvf4", 16, "ue4m3", 0, 0), ("mxf4nvf4", 16, "ue8m0", 0, 0), ("mxf4nvf4", 32, "ue8m0", 2, 0)),
    *(("mxf4", 32, "ue8m0", 0, 2), ("mxf8f6f4", 32, "ue8m0", 1, 3)),
]
A_COLUMN = 300


class Problem:
    """Random operands of a sparse MMA in one CTA or both of a pair, and their values in float64, scaled."""

    def __init__(
        self, kind, a=None, b=None, group=1, m=128, n=48, lane=0, layout="D", d="f32", mode=128, transpose=(0, 0),
        scale=None, block=0, in_tmem=False, selector=0, seed=1, **fields,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        self.ctas = [make_cta() for _ in range(group)]
        self.kind, self.group, self.block, self.n, self.rows = kind, group, block or None, n, m // group
        self.lane, self.layout, self.in_tmem = lane, layout, in_tmem
        self.a_type, self.b_type = a or next(iter(FORMATS[kind])), b or next(iter(FORMATS[kind]))
        halves = [random_elements(rng, n, kind, self.b_type) for _ in range(2)]
        self.b_values = np.concatenate([values for _, values in halves], axis=1)
        limits = (0x00, 0x7F) if scale == "ue4m3" else (117, 137)
        factors = K[kind] // block if block else 0
        b_codes = rng.integers(*limits, (n, factors), dtype=np.uint8)
        self.a_values, self.stored, self.indices = [], [], []
        for rank, (shared, tmem) in enumerate(self.ctas):
            tmem.words[:] = 0xFFFFFFFF
            stored, values = random_elements(rng, self.rows, kind, self.a_type)
            indices = random_indices(rng, self.rows, kind)
            put_metadata(tmem, META + selector, indices, kind, layout, lane)
            values = expanded(values, indices, kind)
            self.a = self._put_a(shared, tmem, stored, mode, transpose[0])
            part = slice(rank * (n // group), (rank + 1) * (n // group))
            self.b = self._put_b(shared, [elements[part] for elements, _ in halves], mode, transpose[1])
            if block:
                codes = rng.integers(*limits, (self.rows, factors), dtype=np.uint8)
                put_scales(tmem, SFA, codes, fields.get("sfa_id", 0))
                put_scales(tmem, SFB, b_codes, fields.get("sfb_id", 0))
                values = values * scale_values(codes, scale, 2 * block)
            self.a_values.append(values), self.stored.append(stored), self.indices.append(indices)
        if block:
            self.b_values = self.b_values * scale_values(b_codes, scale, 2 * block)
        fields |= {"sparse": 1, "selector": selector, "transpose_a": transpose[0], "transpose_b": transpose[1]}
        self.idesc = instruction(kind, m, n, self.a_type, self.b_type, d, scale, **fields)

    def _put_a(self, shared, tmem, stored, mode, transposed):
        if transposed:
            return put_transposed(shared, A, stored, self.a_type, mode)
        packed = packed_rows(stored, self.kind, self.a_type)
        if not self.in_tmem:
            return put_operand(shared, A, packed, mode, 0x4000 if mode == 0 else None)
        if self.kind == "f8f6f4" or self.kind == "mxf8f6f4":
            packed = stored << {4: 2, 6: 1, 8: 0}[NARROW_BITS.get(self.a_type, 8)]
        lanes = d_places(self.layout, self.rows, 1, self.lane)[0][:, 0]
        tmem.words[lanes, A_COLUMN : A_COLUMN + 8] = np.ascontiguousarray(packed).view(np.uint32)
        return self.lane << 16 | A_COLUMN

    def _put_b(self, shared, halves, mode, transposed):
        if transposed:
            return put_transposed(shared, B, np.concatenate(halves, axis=1), self.b_type, mode)
        packed = np.concatenate([packed_rows(half, self.kind, self.b_type) for half in halves], axis=1)
        return put_operand(shared, B, packed, mode, 0x2000 if mode == 0 else None)

    def run(self, accumulate=False, metadata=None, **options):
        """Run the MMA. Returns the number of operations done."""
        options = {"sparse": True, "a_in_tmem": self.in_tmem} | options
        operands = (self.lane << 16 | D, self.a, self.b, self.idesc, SFA, SFB, accumulate)
        options["metadata"] = self.lane << 16 | META if metadata is None else metadata
        return mma(self.ctas, self.kind, self.group, self.block, *operands, **options)

    def results(self, view=np.float32):
        """D of each CTA, [rows, n]."""
        lanes, columns = d_places(self.layout, self.rows, self.n, self.lane)
        return [tmem.words.view(view)[lanes, columns] for _, tmem in self.ctas]


def check(problem):
    """Check D = A B, then D = A B + D; nothing else changes."""
    lanes, columns = d_places(problem.layout, problem.rows, problem.n, problem.lane)
    befores = [tmem.words.copy() for _, tmem in problem.ctas]
    k = 2 * K[problem.kind]
    assert problem.run() == 2 * problem.rows * problem.group * problem.n * k
    firsts = problem.results()
    for first, a in zip(firsts, problem.a_values, strict=True):
        assert_close(first, a, problem.b_values)
    problem.run(True)
    for second, first, a in zip(problem.results(), firsts, problem.a_values, strict=True):
        assert_close(second, a, problem.b_values, first.astype(np.float64))
    for (_, tmem), before in zip(problem.ctas, befores, strict=True):
        before[lanes, columns] = tmem.words[lanes, columns]
        assert np.array_equal(tmem.words, before)


@pytest.mark.parametrize(("kind", "a", "b"), PLAIN)
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
@pytest.mark.parametrize("in_tmem", [False, True])
def test_plain_kinds(kind, a, b, group, m, lane, layout, in_tmem):
    selector = int(kind in ("f16", "tf32") and not in_tmem)
    check(Problem(kind, a, b, group, m, lane=lane, layout=layout, in_tmem=in_tmem, selector=selector))


@pytest.mark.parametrize(("kind", "block", "scale", "sfa_id", "sfb_id"), SCALED)
@pytest.mark.parametrize(("group", "m", "layout"), [(1, 128, "D"), (2, 256, "A")])
@pytest.mark.parametrize(("n", "mode", "in_tmem"), [(16, 128, False), (208, 0, False), (256, 64, True)])
def test_block_scaled_kinds(kind, block, scale, sfa_id, sfb_id, group, m, layout, n, mode, in_tmem):
    ids = {"sfa_id": sfa_id, "sfb_id": sfb_id}
    options = {"scale": scale, "block": block, "mode": mode, "in_tmem": in_tmem}
    check(Problem(kind, None, None, group, m, n, layout=layout, **options, **ids))


@pytest.mark.parametrize("b", FORMATS["mxf8f6f4"])
@pytest.mark.parametrize("a", FORMATS["mxf8f6f4"])
def test_types_of_8_6_and_4_bits(a, b):
    check(Problem("mxf8f6f4", a, b, scale="ue8m0", block=32, sfa_id=2))


@pytest.mark.parametrize("transpose", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(
    ("kind", "element", "mode"),
    [
        *(("f16", "bf16", mode) for mode in (0, 64, 128)),
        *(("f8f6f4", element, 128) for element in FORMATS["f8f6f4"]),
        ("tf32", "tf32", "128 of 32"),
    ],
)
@pytest.mark.parametrize(("group", "m", "layout"), [(1, 64, "F"), (2, 256, "A")])
def test_transposed_operands(kind, element, mode, transpose, group, m, layout):
    check(Problem(kind, element, element, group, m, 128, layout=layout, mode=mode, transpose=transpose))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(("a", "b"), [("u8", "s8"), ("s8", "s8")])
@pytest.mark.parametrize(("group", "m", "lane", "layout"), LAYOUTS)
def test_integers(a, b, group, m, lane, layout, saturate):
    problem = Problem("i8", a, b, group, m, 32, lane, layout, "s32", saturate=saturate)
    near = 2**31 - 1000
    for _, tmem in problem.ctas:
        tmem.words[:, :32] = near
    problem.run(True)
    for actual, a_values in zip(problem.results(np.int32), problem.a_values, strict=True):
        wide = (a_values @ problem.b_values.T).astype(np.int64) + near
        assert (wide > 2**31 - 1).any()
        assert np.array_equal(actual, wide.clip(None, 2**31 - 1) if saturate else (wide + 2**31) % 2**32 - 2**31)


@pytest.mark.parametrize("kind", ["f16", "f8f6f4"])
def test_f16_accumulator_is_rounded_once(kind):
    """Rounding after half of K, too, would exceed half a unit in the last place."""
    problem = Problem(kind, d="f16", n=64)
    problem.run()
    product = problem.a_values[0] @ problem.b_values.T
    actual = (problem.results(np.uint32)[0] & 0xFFFF).astype(np.uint16).view(np.float16)
    finite = np.isfinite(actual)
    sums = np.abs(problem.a_values[0]) @ np.abs(problem.b_values).T
    bound = np.spacing(np.abs(np.where(finite, actual, 1))) * 0.5 + 2 * K[kind] * 2.0**-23 * sums
    assert finite.any() and (np.abs(np.where(finite, actual, product) - product) <= bound).all()


def test_disabled_lanes_a_scaled_accumulator_and_negation():
    problem = Problem("f16", n=16, negate_a=1)
    problem.ctas[0][1].words.view(np.float32)[:, :16] = 8
    problem.run(True, disabled=(2, 0, 0, 1 << 31), d_shift=2)
    kept = np.isin(np.arange(128), (1, 127))
    assert (problem.results()[0][kept] == 8).all()
    assert_close(problem.results()[0][~kept], -problem.a_values[0][~kept], problem.b_values, 2.0)


def test_an_illegal_index_counts_where_it_places_something():
    """CUTLASS's compressor and copies outside of a tensor write 0 for chunks of zeros."""
    shared, tmem = make_cta()
    a, b = np.ones((128, 32), np.uint8), np.ones((16, 64), np.uint8)
    a[40, 20:22] = 0
    indices = np.full((128, 16), 0b0100, np.uint8)
    indices[40, 10] = 0
    put_metadata(tmem, META, indices, "i8", "D")
    operands = put_operand(shared, A, a), put_operand(shared, B, b), instruction("i8", 128, 16, d="s32", sparse=1)
    mma([(shared, tmem)], "i8", 1, None, D, *operands, metadata=META, sparse=True)
    expected = np.full(128, 32)
    expected[40] = 30
    assert (tmem.words[:, :16] == expected[:, None]).all()
    a[40, 21] = 1
    put_operand(shared, A, a)
    words = "row 40 of A, elements 40 to 43 of K, has index 0b0000 in bits 8-11 of lane 40, column 441; must be 0b0100"
    with pytest.raises(Fault, match=f"tcgen05.mma.sp: {words}"):
        mma([(shared, tmem)], "i8", 1, None, D, *operands, metadata=META, sparse=True)


@pytest.mark.parametrize(
    ("kind", "layout", "row", "chunk", "index", "words"),
    [
        ("f16", "D", 27, 5, 0b0101, "elements 20 to 23 of K, has index 0b0101 in bits 20-23 of lane 27, column 441"),
        ("f16", "F", 43, 2, 0b0001, "elements 8 to 11 of K, has index 0b0001 in bits 24-27 of lane 83, column 441"),
        ("f16", "C", 20, 7, 0b0010, "elements 28 to 31 of K, has index 0b0010 in bits 12-15 of lane 60, column 441"),
        ("tf32", "D", 8, 1, 0b1000, "elements 2 to 3 of K, has index 0b1000 .* column 441; must be 0b0100, 0b1110 "),
        ("mxf4", "D", 1, 9, 0b1111, "elements 72 to 79 of K, has index 0b1111 in bits 4-7 of lane 1, column 441"),
    ],
)
def test_the_place_of_an_illegal_index(kind, layout, row, chunk, index, words):
    scaled = {"scale": "ue8m0", "block": 32} if kind == "mxf4" else {}
    selector = int(kind != "mxf4")
    group, m, lane = {"D": (1, 128, 0), "F": (1, 64, 16), "C": (2, 128, 16)}[layout]
    problem = Problem(kind, None, None, group, m, 16, lane, layout, selector=selector, **scaled)
    problem.indices[-1][row, chunk] = index
    put_metadata(problem.ctas[-1][1], META + selector, problem.indices[-1], kind, layout, lane)
    with pytest.raises(Fault, match=f"row {row} of A, {words}"):
        problem.run()


@pytest.mark.parametrize(
    ("options", "metadata", "message"),
    [
        ({}, META + 1, "metadata at column 441, must be a multiple of 2"),
        ({}, 1 << 16 | META, "metadata at lane 1, D at lane 0; must be the same"),
        ({"m": 64, "lane": 16, "layout": "F"}, META, "metadata at lane 0, D at lane 16; must be the same"),
        ({}, 1024, "tcgen05.mma.sp metadata: tensor memory columns 1024 to 1024; limit 511"),
        ({"mode": 32}, META, "64 adjacent bytes start 0 bytes into the swizzle's span of 32"),
    ],
)
def test_illegal_places(options, metadata, message):
    problem = Problem("f16", **options)
    with pytest.raises(Fault, match=message):
        problem.run(metadata=metadata)


def test_columns_of_metadata_are_allocated():
    problem = Problem("i8", n=16, d="s32")
    shared, _ = problem.ctas[0]
    tmem = TensorMemory()
    tmem.alloc(32)
    problem.ctas = [(shared, tmem)]
    with pytest.raises(Fault, match="tcgen05.mma.sp metadata: tensor memory column 32 .of 32 to 33. is not allocated"):
        problem.run(metadata=32)


@pytest.mark.parametrize(
    ("kind", "group", "m", "fields", "message"),
    [
        ("f16", 1, 128, {}, "sparsity bit 2 is 0, must be 1 with .sp"),
        ("f16", 1, 128, {"sparse": 1, "selector": 2}, "sparsity selector 2 .bits 0-1., must be 0 or 1 for kind::f16"),
        ("i8", 1, 128, {"sparse": 1, "selector": 1}, "sparsity selector 1 .bits 0-1., must be 0 for kind::i8"),
        ("mxf8f6f4", 2, 128, {"sparse": 1}, "M is 128, must be 256 for sparse kind::mxf8f6f4 of a pair"),
        ("mxf4", 1, 128, {"sparse": 1, "sfa_id": 1}, "SFA_ID is 1, must be 0 or 2"),
        ("tf32", 1, 32, {"sparse": 1}, "M is 32, must be 64 or 128"),
    ],
)
def test_illegal_instruction_descriptors(kind, group, m, fields, message):
    block = 32 if kind.startswith("mx") else None
    idesc = instruction(kind, m, 32, None, None, "s32" if kind == "i8" else "f32", "ue8m0", **fields)
    with pytest.raises(Fault, match=message):
        decode_instruction(kind, group, block, idesc, sparse=True)


def test_what_is_not_modelled():
    idesc = instruction("f16", 128, 32, sparse=1)
    with pytest.raises(Fault, match=r"tcgen05.mma.sp on sm_107 is not modelled"):
        decode_instruction("f16", 1, None, idesc, rubin=True, sparse=True)
    with pytest.raises(Fault, match=r"sparsity bits 0-2 are 4, must be 0 without .sp"):
        decode_instruction("f16", 1, None, idesc)


def test_scale_factors_at_the_ends_of_their_range():
    """2**127 and 2**-127: their product is 1, though neither scaled operand is a float32."""
    results = []
    for sfa, sfb in ((254, 0), (127, 127)):
        problem = Problem("mxf4", scale="ue8m0", block=32, n=64)
        put_scales(problem.ctas[0][1], SFA, np.full((128, 2), sfa, np.uint8))
        put_scales(problem.ctas[0][1], SFB, np.full((64, 2), sfb, np.uint8))
        problem.run()
        results.append(floats(problem.ctas[0][1])[:, :64].copy())
    assert np.isfinite(results[0]).all() and results[0].any() and np.array_equal(*results)
