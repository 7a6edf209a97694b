"""Uninitialised operands of an MMA: bad rows of A, columns of B and scale factors spoil their parts of D."""

import numpy as np
import pytest

from nogpu.arithmetic.numerics import DECODED
from nogpu.hardware.tensor.tmem import TensorMemory
from nogpu.sanitizer.products import Products, _codes
from tests.support.tensor_operands import (
    META,
    SFA,
    SFB,
    A,
    B,
    K,
    d_places,
    decoded,
    instruction,
    make_cta,
    packed_rows,
    put_b_scales,
    put_metadata,
    put_operand,
    put_scales,
    put_transposed,
)

COLUMN = 8
N = 96
LAYOUTS = [(1, 64, 0, "F"), (1, 64, 16, "F"), (1, 128, 0, "D"), (2, 128, 0, "B"), (2, 256, 0, "A")]
KINDS = [
    ("mxf4nvf4", "e2m1", "e2m1", {"scale": "ue4m3", "block": 16}),
    ("mxf4", "e2m1", "e2m1", {"scale": "ue8m0", "block": 32}),
    *(("mxf8f6f4", "e4m3", "e3m2", {"scale": "ue8m0", "block": 32}), ("f8f6f4", "e2m1", "e5m2", {})),
    *(("f8f6f4", "e2m3", "e4m3", {"transpose": (0, 1)}), ("f16", "f16", "f16", {"d": "f16"})),
    *(("f16", "bf16", "f16", {"transpose": (1, 0)}), ("tf32", "tf32", "tf32", {}), ("i8", "u8", "s8", {"d": "s32"})),
]
DTYPES = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}
NARROW = {"e2m1": 0xF, "e2m3": 0x3F, "e3m2": 0x3F}


class Shadows:
    """Shadows of an MMA's CTAs, with some uninitialised elements of A and B, or scale factors."""

    def __init__(self, kind, a, b, group, m, lane, layout, scale=None, block=0, transpose=(0, 0), d="f32"):
        self.ctas, self.layout, self.lane, self.rows, self.group = [], layout, lane, m // group, group
        for _ in range(group):
            shared, tmem = make_cta()
            shared.data[:], tmem.words[:] = 0, 0
            self.ctas.append((shared, tmem))
        self.kind, self.types, self.transpose, self.block = kind, (a, b), transpose, block
        self.products = Products()
        self.idesc = instruction(kind, m, N, a, b, d, scale, transpose_a=transpose[0], transpose_b=transpose[1])
        empty = [np.zeros(0, int)] * group
        self.put_a(empty), self.put_b(np.zeros(0, int))

    def _elements(self, rng, rows, bad, element):
        found = np.zeros((rows, K[self.kind]), DTYPES.get(element, np.uint8))
        for row in bad:
            found[row, rng.integers(K[self.kind])] = NARROW.get(element, np.iinfo(found.dtype).max)
        return found

    def _put(self, shared, start, elements, element, transposed):
        if transposed:
            return put_transposed(shared, start, elements, 128)
        return put_operand(shared, start, packed_rows(elements, self.kind, element))

    def put_a(self, bad):
        """Put A. bad: by CTA, the rows of A that have an uninitialised element."""
        rng = np.random.default_rng(1)
        for (shared, _), rows in zip(self.ctas, bad, strict=True):
            elements = self._elements(rng, self.rows, rows, self.types[0])
            self.a = self._put(shared, A, elements, self.types[0], self.transpose[0])

    def put_b(self, bad):
        """Put B. bad: columns of D."""
        elements, part = self._elements(np.random.default_rng(2), N, bad, self.types[1]), N // self.group
        for rank, (shared, _) in enumerate(self.ctas):
            self.b = self._put(shared, B, elements[rank * part :][:part], self.types[1], self.transpose[1])

    def put_factors(self, rows, columns):
        blocks = K[self.kind] // self.block
        codes = np.zeros((N, blocks), np.uint8)
        codes[columns, blocks - 1] = 0xFF
        for (_, tmem), bad in zip(self.ctas, rows, strict=True):
            of_a = np.zeros((self.rows, blocks), np.uint8)
            of_a[bad, 0] = 0xFF
            put_scales(tmem, SFA, of_a)
            put_b_scales(tmem, SFB, codes, 0, self.layout)

    def multiply(self, accumulate=False, **form):
        """The uninitialised elements of D, bool[rows, N] by CTA."""
        addresses = (self.lane << 16 | COLUMN, self.a, self.b, self.idesc, SFA, SFB)
        mma = decoded(self.kind, self.group, self.block or None, *addresses, accumulate, **form)
        products = self.products
        products.multiply(mma, self.ctas, products.invalid_operand(mma, self.ctas) is None)
        return [tmem.words[self.places()] != 0 for _, tmem in self.ctas]

    def places(self):
        lanes, columns = d_places(self.layout, self.rows, N, self.lane)
        return lanes, columns + COLUMN


def expected(rows, columns, count):
    found = np.zeros((count, N), bool)
    found[rows], found[:, columns] = True, True
    return found


CASES = [(*kind, *layout) for kind in KINDS for layout in LAYOUTS if layout[1] > 64 or not kind[3].get("block")]


@pytest.mark.parametrize(("kind", "a", "b", "options", "group", "m", "lane", "layout"), CASES)
def test_rows_and_columns(kind, a, b, options, group, m, lane, layout):
    """Each CTA has other bad rows of A; columns of B; then their scale factors."""
    shadows = Shadows(kind, a, b, group, m, lane, layout, **options)
    for _, tmem in shadows.ctas:
        tmem.words[:, :200] = 0xFFFFFFFF
    assert not any(bad.any() for bad in shadows.multiply())
    outside = np.ones((128, 200), bool)
    outside[shadows.places()] = False
    assert all((tmem.words[:, :200][outside] == 0xFFFFFFFF).all() for _, tmem in shadows.ctas)
    rows, columns = [np.array([3 + rank, m // group - 1]) for rank in range(group)], np.array([0, 50, N - 1])
    shadows.put_a(rows), shadows.put_b(columns)
    for bad, own in zip(shadows.multiply(), rows, strict=True):
        assert np.array_equal(bad, expected(own, columns, m // group))
    if shadows.block:
        nothing = np.zeros(0, int)
        shadows.put_a([nothing] * group), shadows.put_b(nothing)
        shadows.put_factors(rows, columns)
        for bad, own in zip(shadows.multiply(), rows, strict=True):
            assert np.array_equal(bad, expected(own, columns, m // group))


def test_what_is_added_to_stays_uninitialised():
    """A product without accumulation begins afresh."""
    shadows = Shadows("f16", "f16", "f16", 1, 128, 0, "D")
    (_, tmem) = shadows.ctas[0]
    tmem.words[5, COLUMN + 7] = 0xFFFFFFFF
    shadows.put_a([np.array([2])])
    (bad,) = shadows.multiply(accumulate=True)
    want = expected([2], [], 128)
    want[5, 7] = True
    assert np.array_equal(bad, want)
    shadows.put_a([np.zeros(0, int)])
    assert not shadows.multiply()[0].any()


SPARSE = [
    *(("f16", "f16", 1, 64, 16, "F", 0xF0000), ("f16", "f16", 2, 128, 0, "C", 0xF0000)),
    *(("tf32", "tf32", 1, 128, 0, "D", 0xF0000), ("i8", "u8", 1, 128, 0, "D", 0xF), ("i8", "s8", 2, 256, 0, "A", 0xF)),
]


@pytest.mark.parametrize(("kind", "element", "group", "m", "lane", "layout", "bits"), SPARSE)
def test_a_sparse_a(kind, element, group, m, lane, layout, bits):
    """An uninitialised element of A or an index spoils a row, one of B only a column of rows that place something on
    it: here indices place all on the first half of each chunk, but row 9's, which are illegal (of zeros).
    """
    rows = m // group
    shadows = Shadows(kind, element, element, group, m, lane, layout, d="s32" if kind == "i8" else "f32")
    shadows.idesc |= 1 << 2
    indices = np.full((rows, 8 if kind in ("f16", "tf32") else 16), 0b0100, np.uint8)
    indices[9] = 0
    memories = [TensorMemory() for _ in range(group)]
    for memory in memories:
        put_metadata(memory, META, indices, kind, layout, lane)

    def spoiled(a=(), b=(), metadata=()):
        """Uninitialised elements of D. a: rows of A; b: elements of row 3 of B; metadata: (lane, bits)."""
        shadows.put_a([np.array(a, int)] * group)
        elements = np.zeros((N, 2 * K[kind]), DTYPES.get(element, np.uint8))
        elements[3, list(b)] = np.iinfo(elements.dtype).max
        part = N // group
        for rank, (shared, tmem) in enumerate(shadows.ctas):
            packed = elements[rank * part :][:part].view(np.uint8).reshape(part, 64)
            shadows.b = put_operand(shared, B, packed)
            tmem.words[:, META : META + 2] = 0
            for at, value in metadata:
                tmem.words[at, META] = value
        options = {"metadata": lane << 16 | META, "sparse": True}
        addresses = (lane << 16 | COLUMN, shadows.a, shadows.b, shadows.idesc, SFA, SFB)
        mma, products = decoded(kind, group, None, *addresses, False, **options), Products()
        products.multiply(mma, shadows.ctas, products.invalid_operand(mma, shadows.ctas) is None, memories)
        found = [tmem.words[shadows.places()] != 0 for _, tmem in shadows.ctas]
        assert all(np.array_equal(found[0], other) for other in found)
        return found[0]

    assert not spoiled().any()
    assert np.array_equal(spoiled(a=[5, 30]), expected([5, 30], [], rows))
    last = 2 if kind != "tf32" else 1
    assert not spoiled(b=[last]).any()
    assert np.array_equal(spoiled(b=[0]), expected([], [3], rows))
    row = 26 if bits > 0xF else 18  # bits of the row that shares lane 18's word
    at = d_places(layout, rows, N, lane)[0][18, 0]
    assert np.array_equal(spoiled(metadata=[(at, bits)]), expected([row], [], rows))


def test_parts_of_a_stationary_product(monkeypatch):
    """An uninitialised A in tensor memory counts in its own part of N, a column that is masked in none."""
    monkeypatch.setitem(globals(), "N", 128)  # .ws does not have 96
    shadows = Shadows("f16", "f16", "f16", 1, 64, 0, "E")
    (_, tmem) = shadows.ctas[0]
    shadows.a = 200
    tmem.words[64 + 5, 203] = 0xFFFFFFFF
    want = expected([], [], 64)
    want[5, N // 2 :] = True
    (bad,) = shadows.multiply(a_in_tmem=True, stationary=True)
    assert np.array_equal(bad, want)
    shadows.put_b(np.array([0, 1]))
    first_of_each_part = 1 << 39 | 1 << 32 | 1 << 33 | N << 48
    (bad,) = shadows.multiply(a_in_tmem=True, stationary=True, zero_columns=first_of_each_part)
    want[5, N // 2] = False
    want[:, 1] = True
    assert np.array_equal(bad, want)


@pytest.mark.parametrize(("element", "bits", "marked"), [("e2m1", 4, [10, 11]), ("e3m2", 6, [4, 5, 6, 7])])
def test_codes_of_packed_elements(element, bits, marked):
    """Elements of bytes that begin and end with one are 2 if a bit of theirs is uninitialised, else 1."""
    invalid = np.zeros((2, 8 * bits), np.uint8)
    invalid[1, 5] = 1
    digits = np.unpackbits(_codes(element, False, invalid, False), axis=1, bitorder="little").reshape(2, 64, bits)
    values = DECODED[element][np.packbits(digits, axis=2, bitorder="little")[..., 0]]
    expected = np.ones((2, 64))
    expected[1, marked] = 2
    assert np.array_equal(values, expected)
