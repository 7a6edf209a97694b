"""The tensor core's arithmetic in C, with AMX and without, against exact sums: all codes, ends of ranges, NaN, 0."""

import ctypes
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from nogpu import toolchain
from nogpu.arithmetic.numerics import DECODED, E2M1, UE4M3
from nogpu.hardware.tensor import multiply
from nogpu.hardware.tensor.core import Mma
from tests.support.commands import ROOT
from tests.support.tensor_operands import (
    DTYPES,
    FORMATS,
    LAYOUTS,
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
    scale_values,
)
from tests.support.tensor_problem import Problem, check

HAS_AMX = multiply.use_amx(True)
LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture(params=[True, False], ids=["amx", "vectors"], autouse=True)
def amx(request):
    if request.param and not HAS_AMX:
        pytest.skip("needs a CPU with AMX, and a compiler and Linux that know it")
    multiply.use_amx(request.param)
    yield request.param
    multiply.use_amx(True)


class Single:
    """Operands of an MMA in one CTA from stored elements and scale factors' codes, and D's results."""

    def __init__(self, kind, a, b, element=None, codes=None, scale=None, block=0, d_type="f32", **fields):
        shared, self.tmem = self.cta = make_cta()
        element = element or next(iter(FORMATS[kind]))
        self.kind, self.n, self.block = kind, len(b), block or None
        self.descriptors = [put_operand(shared, start, packed_rows(x, kind, element)) for start, x in ((A, a), (B, b))]
        self.idesc = instruction(kind, 128, len(b), element, element, d_type, scale, **fields)
        for column, operand in zip((SFA, SFB), codes or ()):
            put_scales(self.tmem, column, operand)

    def run(self, before=None):
        """The results D, float32[128, n]."""
        if before is not None:
            floats(self.tmem)[:, : self.n] = before
        mma([self.cta], self.kind, 1, self.block, D, *self.descriptors, self.idesc, SFA, SFB, before is not None)
        return floats(self.tmem)[:, : self.n].copy()


def assert_bound(actual, a, b, before=None, rows=16):
    """Check the bound of nogpu/hardware/tensor/core.py, with exact sums, for the first rows. a, b: float64, exact."""
    k = a.shape[1]
    factor = Fraction(k, 2**24) / (1 - Fraction(k, 2**24))
    for i in range(rows):
        for j in range(len(b)):
            products = [Fraction(x) * Fraction(y) for x, y in zip(a[i].tolist(), b[j].tolist())]
            products.append(Fraction(float(before[i, j]) if before is not None else 0))
            exact, bound = sum(products), factor * sum(map(abs, products))
            if not math.isfinite(actual[i, j]):
                assert abs(exact) + bound > LARGEST
                continue
            # A float32 next to a number below the normal ones is up to half a unit of 2**-149 away.
            assert abs(Fraction(float(actual[i, j])) - exact) <= bound + Fraction(1, 2**150)


@pytest.mark.slow
def test_amx_does_not_depend_on_how_python_was_started(amx):
    """A signal stack that is too small for AMX's registers would switch it off, and change sums."""
    code = "from nogpu.hardware.tensor import multiply; print(multiply.use_amx(True))"
    for options in ((), ("-X", "faulthandler"), ("-X", "dev")):
        process = subprocess.run([sys.executable, *options, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert process.stdout == f"{HAS_AMX}\n", process.stderr


@pytest.mark.parametrize("scale", ["ue4m3", "ue8m0"])
def test_every_4_bit_element_times_every_scale_factor(scale):
    """Block i of row r has one element that is not zero. B's ones pick the blocks one by one."""
    elements, codes = (x.ravel() for x in np.meshgrid(np.arange(16, dtype=np.uint8), np.arange(256, dtype=np.uint8)))
    b = np.zeros((8, 64), np.uint8)
    b[range(4), range(0, 64, 16)] = 2  # 1.0
    ones = np.full((8, 4), 0x38 if scale == "ue4m3" else 127, np.uint8)
    for start in range(0, len(codes), 512):
        a = np.zeros((128, 64), np.uint8)
        a[:, ::16] = elements[start : start + 512].reshape(128, 4)
        factors = codes[start : start + 512].reshape(128, 4)
        actual = Single("mxf4nvf4", a, b, codes=(factors, ones), scale=scale, block=16).run()
        table = UE4M3 if scale == "ue4m3" else DECODED["ue8m0"]
        with np.errstate(over="ignore"):
            expected = E2M1[a[:, ::16]] * table[factors]
        # A NaN spoils its row.
        expected[np.isnan(expected).any(axis=1)] = np.nan
        assert np.array_equal(actual[:, :4], expected, equal_nan=True)


@pytest.mark.parametrize("element", FORMATS["f8f6f4"])
@pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4"])
def test_every_code_of_8_6_and_4_bits(kind, element):
    scaled = {"scale": "ue8m0", "block": 32} if kind == "mxf8f6f4" else {}
    table = DECODED[element]
    a = np.zeros((128, 32), np.uint8)
    one = int(np.flatnonzero(table == 1)[0])
    b = np.zeros((8, 32), np.uint8)
    b[0, 5], b[1, 31] = one, one
    for start in range(0, len(table), 128):
        codes = np.resize(np.arange(start, min(start + 128, len(table)), dtype=np.uint8), 128)
        a[:, 5] = a[:, 31] = codes
        if scaled:
            scaled["codes"] = [np.full((128, 1), 130, np.uint8), np.full((8, 1), 126, np.uint8)]
        actual = Single(kind, a, b, element, **scaled).run()
        expected = table[codes] * np.float32(4 if scaled else 1)
        # Infinity times zero is NaN.
        expected[~np.isfinite(expected)] = np.nan
        assert np.array_equal(actual[:, :2], np.stack([expected, expected], axis=1), equal_nan=True)


@pytest.mark.parametrize("n", [8, 24, 32, 40, 128, 256])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mxf4nvf4", {"scale": "ue4m3", "block": 16}),
        ("mxf4", {"scale": "ue8m0", "block": 32, "sfa_id": 2}),
        ("mxf8f6f4", {"a_type": "e5m2", "b_type": "e2m3", "scale": "ue8m0", "block": 32, "sfb_id": 1}),
        ("f8f6f4", {"a_type": "e3m2", "b_type": "e4m3"}),
        ("f16", {"a_type": "bf16", "b_type": "f16"}),
        ("tf32", {}),
    ],
)
def test_every_kind_and_width(kind, options, n):
    check(Problem(np.random.default_rng(n), 1, 128, n, kind, **options), column=64)


@pytest.mark.parametrize(
    ("kind", "options", "group", "m", "lane", "layout"),
    [
        (kind, options, *layout)
        for kind, options in (
            ("mxf4nvf4", {"scale": "ue4m3", "block": 16}),
            ("mxf8f6f4", {"scale": "ue8m0", "block": 32, "transpose": (1, 1)}),
            ("f8f6f4", {"transpose": (1, 0)}),
            ("f16", {"transpose": (0, 1)}),
        )
        for layout in LAYOUTS
        if layout[1] > 64 or not options.get("block")
    ],
)
def test_every_layout(kind, options, group, m, lane, layout):
    rng = np.random.default_rng(m)
    check(Problem(rng, group, m, 96, kind, lane=lane, layout=layout, **options), column=8)


def test_integers_are_exact(amx):
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (128, 32), np.uint8), rng.integers(0, 256, (64, 32), np.uint8)
    a[:4], b[:4] = 255, 255
    for element, dtype in (("u8", np.uint8), ("s8", np.int8)):
        single = Single("i8", a, b, element, d_type="s32")
        single.run()
        expected = a.view(dtype).astype(np.int64) @ b.view(dtype).astype(np.int64).T
        assert np.array_equal(single.tmem.words[:, :64].view(np.int32), expected)


def test_sums_of_nvfp4_over_the_whole_range_of_scale_factors():
    """Products are multiples of 2**-20 and sums of 64 below 2**29: float64 has them exactly."""
    rng = np.random.default_rng(2)
    for _ in range(4):
        a, b = rng.integers(0, 16, (128, 64), np.uint8), rng.integers(0, 16, (64, 64), np.uint8)
        codes = [rng.integers(0, 0x7F, (len(x), 4), dtype=np.uint8) for x in (a, b)]
        values = [E2M1[x].astype(np.float64) * scale_values(c, "ue4m3", 16) for x, c in zip((a, b), codes)]
        before = rng.standard_normal((128, 64)).astype(np.float32) * np.float32(2.0) ** rng.integers(-20, 20, (128, 64))
        actual = Single("mxf4nvf4", a, b, codes=codes, scale="ue4m3", block=16).run(before)
        sums, magnitudes = values[0] @ values[1].T, np.abs(values[0]) @ np.abs(values[1]).T
        bound = 64 / 2**24 / (1 - 64 / 2**24) * (magnitudes + np.abs(before))
        assert (np.abs(actual - (sums + before)) <= bound).all()


def test_sums_that_cancel():
    """Large products of both signs cancel, and small ones remain."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 16, (128, 64), np.uint8), rng.integers(1, 8, (8, 64), np.uint8)
    a[:, :16], a[:, 48:] = 7, 15
    b[:, 48:] = b[:, :16]
    codes = [np.full((len(x), 4), 0x01, np.uint8) for x in (a, b)]
    for operand in codes:
        operand[:, [0, 3]] = 0x7E
    values = [E2M1[x].astype(np.float64) * scale_values(c, "ue4m3", 16) for x, c in zip((a, b), codes)]
    before = rng.standard_normal((128, 8)).astype(np.float32) * np.float32(2**-30)
    actual = Single("mxf4nvf4", a, b, codes=codes, scale="ue4m3", block=16).run(before)
    assert_bound(actual, *values, before)


FROM_END_TO_END = (0, 255), (0, 20), (50, 80), (63, 66), (120, 135), (185, 195), (240, 255)


@pytest.mark.parametrize(
    "ranges",
    [
        *(
            ((low, high),) * 2
            for low, high in [(0, 255), (0, 20), (50, 80), (63, 66), (120, 135), (185, 195), (240, 255)]
        ),
        ((0, 5), (250, 255)),
        ((250, 255), (0, 5)),
        ((0, 2), (180, 200)),
        ((252, 255), (60, 70)),
    ],
    ids=str,
)
@pytest.mark.parametrize(("kind", "element"), [("mxf4", "e2m1"), ("mxf8f6f4", "e5m2")])
def test_powers_of_two_at_the_ends_of_their_range(kind, element, ranges):
    """Elements, products or sums leave float32's normal numbers, or just do not.

    ranges: codes of A's and of B's scale factors.
    """
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, len(DECODED[element]), (rows, K[kind]), dtype=np.uint8) for rows in (128, 8))
    for operand in (a, b):
        operand[~np.isfinite(operand.view(DTYPES[element]).astype(np.float32))] = 0
    codes = [rng.integers(*limits, (len(x), K[kind] // 32), dtype=np.uint8) for x, limits in zip((a, b), ranges)]
    values = [x.view(DTYPES[element]).astype(np.float64) * scale_values(c, "ue8m0", 32) for x, c in zip((a, b), codes)]
    actual = Single(kind, a, b, element, codes=codes, scale="ue8m0", block=32).run()
    assert_bound(actual, *values)


@pytest.mark.parametrize("element", ["f16", "bf16", "tf32"])
def test_numbers_of_16_and_32_bits_at_the_ends_of_their_range(element):
    rng = np.random.default_rng(4)
    kind = "tf32" if element == "tf32" else "f16"
    operands = []
    for rows in (128, 8):
        bits = rng.integers(0, 1 << 16, (rows, K[kind]), dtype=np.uint16)
        if element == "tf32":
            operands.append((bits.astype(np.uint32) << 16 | 0x1FFF).view(np.float32))
        else:
            operands.append(bits.view(DTYPES[element]))
    with np.errstate(invalid="ignore"):
        stored = [np.where(np.isfinite(x), x, x.dtype.type(0)) for x in operands]
    if element != "f16":  # kinds whose products float32 holds
        stored = [np.where((np.abs(x) < 2.0**60) & (np.abs(x) > 2.0**-60), x, x.dtype.type(0)) for x in stored]
    exact = [
        (x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) if element == "tf32" else x.astype(float)
        for x in stored
    ]
    assert_bound(Single(kind, *stored, element).run(), *exact)


@pytest.mark.parametrize("kind", ["mxf4nvf4", "f16"])
def test_a_subnormal_d_is_kept(kind):
    """AMX takes subnormals for zero: D must not pass through it."""
    zeros = np.zeros((128, K[kind]), np.uint8 if kind == "mxf4nvf4" else np.float16)
    scaled = {"scale": "ue4m3", "block": 16, "codes": [np.full((128, 4), 0x38, np.uint8)] * 2}
    before = np.broadcast_to(np.float32(2.0**-149) * np.arange(1, 33, dtype=np.float32), (128, 32))
    actual = Single(kind, zeros, zeros[:32], **scaled if kind == "mxf4nvf4" else {}).run(before)
    assert np.array_equal(actual, before)


@pytest.mark.parametrize("kind", ["f8f6f4", "f16"])
@pytest.mark.parametrize("negated", [0, 1])
def test_the_sign_of_zero(kind, negated):
    """Sums begin with +0; negation gives a sum of zeros the other sign."""
    negative = np.full((128, K[kind]), -0.0).astype(DTYPES[next(iter(FORMATS[kind]))])
    stored = negative if kind == "f16" else negative.view(np.uint8)
    single = Single(kind, stored, stored[:8], negate_a=negated)
    assert (np.signbit(single.run()) == bool(negated)).all()
    assert (np.signbit(single.run(np.float32(-0.0))) == bool(negated)).all()


@pytest.mark.parametrize("element", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
@pytest.mark.parametrize("negated", [0, 1])
@pytest.mark.parametrize("n", [32, 96])
def test_sums_added_in_place(element, negated, n):
    """They have the bits of those of an MMA that keeps a lane, whose D is changed row by row. D's NaN count first."""
    rng = np.random.default_rng(9)
    kind = {"tf32": "tf32", "f16": "f16", "bf16": "f16"}.get(element, "f8f6f4")
    a, b = (rng.integers(0, 256, (rows, 32), np.uint8) for rows in (128, n))
    a[:64] &= 0xBB  # no exponents of NaN
    b[: n // 2] &= 0xBB
    single = Single(kind, a, b, element, negate_a=negated)
    before = rng.integers(0, 1 << 32, (128, n), np.uint32)
    before[::3] = rng.standard_normal((43, n)).astype(np.float32).view(np.uint32)
    for accumulate in (False, True):
        found = []
        for kept in (1 << 5, 0):
            single.tmem.words[:, :n] = before
            place = D, *single.descriptors, single.idesc
            mma([single.cta], kind, 1, None, *place, accumulate=accumulate, disabled=(kept, 0, 0, 0))
            found.append(single.tmem.words[:, :n].copy())
        assert np.array_equal(found[0][5], before[5])
        found[0][5] = found[1][5]
        assert np.array_equal(*found)


def test_infinities_and_nan_of_elements():
    """e5m2: infinity, its opposite, NaN, and infinity times zero; other rows and columns are not touched."""
    a, b = np.full((128, 32), 0x3C, np.uint8), np.full((16, 32), 0x3C, np.uint8)  # 1.0
    a[1, 3], a[2, 3], a[3, 3], a[4, [3, 4]], b[5, 3] = 0x7C, 0xFC, 0x7E, (0x7C, 0xFC), 0x00
    actual = Single("f8f6f4", a, b, "e5m2").run()
    expected = np.full((128, 16), 32, np.float32)
    expected[:, 5] = 31
    expected[1], expected[2], expected[3], expected[4] = np.inf, -np.inf, np.nan, np.nan
    expected[[1, 2], 5] = np.nan
    assert np.array_equal(actual, expected, equal_nan=True)


def test_16_bit_results_are_rounded_to_nearest_even():
    """Sums of two halves, from the smallest subnormal half to infinity, against NumPy's rounding."""
    bits = np.arange(128, dtype=np.uint16) * 509 % 0x7C00
    a, b = np.zeros((128, 16), np.float16), np.zeros((256, 16), np.float16)
    a[:, 0], a[:, 1] = bits.view(np.float16), 1
    b[:, 0] = 1
    b[:, 1] = (np.arange(256, dtype=np.uint16) * 251 % 0x7C00).view(np.float16)
    b[128:] /= np.float16(1024)
    single = Single("f16", a, b, d_type="f16")
    single.run()
    with np.errstate(over="ignore"):
        expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16)
    assert np.array_equal((single.tmem.words[:, :256] & 0xFFFF).astype(np.uint16), expected.view(np.uint16))


def test_sums_that_are_exact_are_the_same_with_and_without_amx():
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 16, (128, 64), np.uint8), rng.integers(0, 16, (256, 64), np.uint8)
    codes = [rng.integers(0x30, 0x48, (len(x), 4), dtype=np.uint8) for x in (a, b)]
    single = Single("mxf4nvf4", a, b, codes=codes, scale="ue4m3", block=16)
    values = [E2M1[x].astype(np.float64) * scale_values(c, "ue4m3", 16) for x, c in zip((a, b), codes)]
    assert np.array_equal(single.run(), values[0] @ values[1].T)


def test_cpus_without_vectors_or_fused_products_compute_the_same_sums(amx, monkeypatch):
    """The library is compiled for any CPU of the architecture; it rounds no product, since products are exact."""
    if amx:
        pytest.skip("AMX sums in another order")
    options = tuple(option for option in toolchain._FOLDER_OPTIONS if option != "-march=native")
    monkeypatch.setattr(toolchain, "_FOLDER_OPTIONS", options)
    plain = ctypes.PyDLL(str(toolchain.build.__wrapped__("native")))
    plain.mma.argtypes = [ctypes.c_void_p] * 5
    plain.use_amx(0)
    native = multiply.library()
    cases = [
        *(("mxf4nvf4", {"scale": scale, "block": 16}) for scale in ("ue4m3", "ue8m0")),
        *((kind, {}) for kind in ("f8f6f4", "f16", "tf32")),
    ]
    for kind, scaled in cases:
        results = []
        for library in (native, plain):
            monkeypatch.setattr(multiply, "library", lambda library=library: library)
            Mma.decode.cache_clear()
            problem = Problem(np.random.default_rng(8), 1, 128, 72, kind, **scaled)
            problem.run()
            problem.run(True)
            results.append(problem.results(view=np.uint32)[0])
        assert np.array_equal(*results)
    Mma.decode.cache_clear()
