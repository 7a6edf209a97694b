"""Packed and narrow conversions: all codes, all f16 numbers, ties, subnormals and numbers that saturate, against
ml_dtypes, rational arithmetic or integers.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from nogpu.compiler import translate
from nogpu.errors import EmulatorError
from tests.support.opcode_runs import floats, operands, round_exactly, run, s
from tests.support.small_kernels import entry, launch

SMALL = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}


SMALL |= {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn}
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)


def codes_of(values, name):
    """Codes of float32 numbers in a narrow format: to nearest even, saturating, NaN as PTX defines it."""
    dtype = SMALL[name]
    limit = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="ignore"):
        codes = np.clip(values, -limit, limit).astype(dtype).view(np.uint8).astype(np.uint16)
    nan = {"e4m3": 0x7F, "e5m2": 0x7F, "e2m1": 0x7, "e2m3": 0x1F, "e3m2": 0x1F}[name]
    return np.where(np.isnan(values), nan, codes).astype(np.uint16)


def joined(high, low, name):
    return (high << (4 if name == "e2m1" else 8) | low).tolist()


def rectified(values):
    return np.where(values <= 0, np.float32(0), values)


@pytest.mark.parametrize("name", SMALL)
def test_small_float_packing(name):
    dtype = SMALL[name]
    grid = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.sort(grid[np.isfinite(grid)])
    ties = (finite[1:] + finite[:-1]) / 2
    pool = [
        finite,
        ties,
        np.nextafter(ties, np.float32(9e9)),
        np.nextafter(ties, np.float32(-9e9)),
        floats(1),
        2 * finite[[0, -1]],
    ]
    pool = np.concatenate(pool).astype(np.float32)
    high = np.resize(pool, -(-len(pool) // 32) * 32)
    low = high[::-1].copy()
    for relu in ("", ".relu"):
        got = run(
            f"cvt.rn.satfinite{relu}.{name}x2.f32", [32, 32], 16, [x.view(np.uint32).tolist() for x in (high, low)]
        )
        parts = [codes_of(rectified(x) if relu else x, name) for x in (high, low)]
        assert got.tolist() == joined(*parts, name)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", SMALL)
def test_small_float_packing_of_halves(name, half):
    """The test has all numbers of 16 bits."""
    values = ALL_HALVES.view(HALVES[half]).astype(np.float32).reshape(-1, 2)
    for relu in ("", ".relu"):
        got = run(f"cvt.rn.satfinite{relu}.{name}x2.{half}x2", [32], 16, [ALL_HALVES.view(np.uint32).tolist()])
        low, high = (codes_of(rectified(x) if relu else x, name) for x in values.T)
        assert got.tolist() == joined(high, low, name)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", SMALL)
def test_small_float_unpacking(name, half):
    """All codes, in both places."""
    count = 1 << ml_dtypes.finfo(SMALL[name]).bits
    codes = np.resize(np.arange(count), max(count, 32))
    packed = codes | codes[::-1] << (4 if name == "e2m1" else 8)
    values = np.stack([codes, codes[::-1]], axis=1).astype(np.uint8).view(SMALL[name]).astype(np.float32)
    for relu in ("", ".relu"):
        got = run(f"cvt.rn{relu}.{half}x2.{name}x2", [16], 32, [packed.tolist()])
        expected = (rectified(values) if relu else values).astype(HALVES[half])
        bits = np.where(np.isnan(values), 0x7FFF, expected.view(np.uint16))
        np.testing.assert_array_equal(got.view(np.uint16).reshape(-1, 2), bits)


@pytest.mark.parametrize("name", SMALL)
def test_scaled_unpacking(name):
    """All codes with scales of 2^-127 to 2^127 and NaN."""
    codes = np.resize(np.arange(1 << ml_dtypes.finfo(SMALL[name]).bits), 512)
    low = (codes * 7 + 3) % (1 << ml_dtypes.finfo(SMALL[name]).bits)
    scales = np.stack([np.arange(512) % 256, (np.arange(512) * 5 + 9) % 256], axis=1).astype(np.uint8)
    packed = low | codes << (4 if name == "e2m1" else 8)
    got = run(
        f"cvt.rn.scaled::n2::ue8m0.bf16x2.{name}x2",
        [16, 16],
        32,
        [packed.tolist(), scales.view(np.uint16)[:, 0].tolist()],
    )
    values = np.stack([low, codes], axis=1).astype(np.uint8).view(SMALL[name]).astype(np.float64)
    with np.errstate(all="ignore"):
        product = values * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    for result, value in zip(got.view(np.uint16).tolist(), product.ravel().tolist(), strict=True):
        if np.isnan(value):
            assert result == 0x7FFF
        else:
            exact = round_exactly(Fraction(value), "bf16", "rn") if np.isfinite(value) and value else value
            assert result == int(np.array(exact, ml_dtypes.bfloat16).view(np.uint16))


def test_bytes_of_e2m1_unpack():
    """The source is an 8-bit register, as ptxas requires. All bytes, in all four places of a word."""
    codes = np.random.default_rng(5).permuted(np.tile(np.arange(256, dtype=np.uint8), (4, 1)), axis=1).T.copy()
    out = np.zeros((256, 4, 2), np.float16)
    text = """
        mad.wide.u32 %rd1, %tid, 4, %a1; ld.global.b32 %r1, [%rd1];
        .reg .b8 x<4>; mov.b32 {x0, x1, x2, x3}, %r1;
        cvt.rn.f16x2.e2m1x2 %r2, x0; cvt.rn.f16x2.e2m1x2 %r3, x1; cvt.rn.f16x2.e2m1x2 %r4, x2;
        cvt.rn.f16x2.e2m1x2 %r5, x3;
        mad.wide.u32 %rd2, %tid, 16, %a0; st.global.v4.b32 [%rd2], {%r2, %r3, %r4, %r5};
    """
    launch(text, out, codes, threads=256)
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1)
    np.testing.assert_array_equal(
        out.view(np.uint16), nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float16).view(np.uint16)
    )


def test_bytes_of_e2m1_pack():
    """The result is an 8-bit register, as ptxas requires, from f32 sources and from pairs."""
    values = np.random.default_rng(2).normal(scale=3, size=(64, 4)).astype(np.float32)
    out = np.zeros((64, 4), np.uint8)
    text = """
        mad.wide.u32 %rd1, %tid, 16, %a1; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
        .reg .b8 x<4>; cvt.rn.satfinite.e2m1x2.f32 x0, %r2, %r1; cvt.rn.satfinite.e2m1x2.f32 x1, %r4, %r3;
        cvt.rn.bf16x2.f32 %r5, %r2, %r1; cvt.rn.satfinite.e2m1x2.bf16x2 x2, %r5;
        cvt.rn.f16x2.f32 %r6, %r4, %r3; cvt.rn.satfinite.relu.e2m1x2.f16x2 x3, %r6; mov.b32 %r7, {x0, x1, x2, x3};
        mad.wide.u32 %rd2, %tid, 4, %a0; st.global.b32 [%rd2], %r7;
    """
    launch(text, out, values, threads=64)

    def pair(a, b):
        return (codes_of(b, "e2m1") << 4 | codes_of(a, "e2m1")).tolist()

    a, b, c, d = values.T
    brain = [x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (a, b)]
    half = [rectified(x.astype(np.float16).astype(np.float32)) for x in (c, d)]
    assert out.T.tolist() == [pair(a, b), pair(c, d), pair(*brain), pair(*half)]


def scale_code(value, rounding, saturates):
    """The code of a number's magnitude, by its logarithm."""
    if np.isnan(value):
        return 0xFF
    if np.isinf(value):
        return 0xFE if saturates else 0xFF
    if value == 0:
        return 0
    magnitude, power = abs(Fraction(float(value))), -200
    while Fraction(2) ** (power + 1) <= magnitude:
        power += 1
    power += rounding == "rp" and Fraction(2) ** power != magnitude
    return (0xFE if saturates else 0xFF) if power > 127 else max(power + 127, 0)


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("rounding", ["rp", "rz"])
def test_scale_packing(rounding, saturates):
    special = [
        1,
        1.5,
        -2,
        3,
        2.0**-127,
        1.5 * 2.0**-127,
        2.0**-126,
        2.0**-130,
        0,
        -0.0,
        2.0**127,
        1.1 * 2.0**127,
        3e38,
        np.inf,
        -np.inf,
        np.nan,
    ]
    random = np.random.default_rng(1).normal(size=48) * 2.0 ** np.random.default_rng(2).integers(-140, 127, 48)
    values = np.concatenate([special, random]).astype(np.float32)
    opcode = f"cvt.{rounding}{'.satfinite' if saturates else ''}.ue8m0x2"
    got = run(
        f"{opcode}.f32", [32] * 2, 16, [values.view(np.uint32).tolist(), values[::-1].copy().view(np.uint32).tolist()]
    )
    codes = np.array([scale_code(value, rounding, saturates) for value in values])
    assert got.tolist() == (codes << 8 | codes[::-1]).tolist()
    brain = values.astype(ml_dtypes.bfloat16)
    got = run(f"{opcode}.bf16x2", [32], 16, [brain.view(np.uint32).tolist()])
    codes = np.array([scale_code(value, rounding, saturates) for value in brain.astype(np.float32)])
    assert got.tolist() == (codes[1::2] << 8 | codes[0::2]).tolist()


def test_scale_unpacking():
    """All codes, in both places."""
    codes = np.arange(256)
    got = run("cvt.rn.bf16x2.ue8m0x2", [16], 32, [(codes | codes[::-1] << 8).tolist()]).view(np.uint16).reshape(256, 2)
    values = codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(ml_dtypes.bfloat16).view(np.uint16)
    values = np.where(codes == 0xFF, 0x7FFF, values)
    np.testing.assert_array_equal(got, np.stack([values, values[::-1]], axis=1))


def singles(seed):
    """Numbers in float32: special ones, ties of 16-bit formats and of tf32, and random ones."""
    rng = np.random.default_rng(seed)
    ties = [
        1 + 2.0**-8,
        1 + 3 * 2.0**-8,
        1 + 2.0**-11,
        -(1 + 3 * 2.0**-11),
        1 + 2.0**-11 + 2.0**-20,
        65519.996,
        65520,
        -65536,
        3.3961775e38,
    ]
    tiny = [2.0**-25, 3 * 2.0**-25, -(2.0**-26), 2.0**-134, 3 * 2.0**-134, 2.0**-149, -1e-40, 3.4e38, -3.4028235e38]
    values = np.concatenate([floats(seed), ties, tiny, rng.normal(size=78) * 2.0 ** rng.integers(-30, 20, 78)])
    return rng.permutation(values).astype(np.float32)


def reference(value, name, rounding, modifiers):
    """A number in a format; NaN stays NaN."""
    largest = {"f16": 65504.0, "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)}.get(
        name, (2 - 2.0**-10) * 2.0**127
    )
    value = float(value)
    if "satfinite" in modifiers and not np.isnan(value):
        value = min(max(value, -largest), largest)
    if "relu" in modifiers and value <= 0:
        return 0.0
    return round_exactly(Fraction(value), name, rounding) if np.isfinite(value) and value else value


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", HALVES)
def test_half_pairs(name, rounding):
    a, b = singles(1), singles(2)
    for modifiers in ("", ".relu", ".satfinite", ".relu.satfinite", ".satfinite.relu"):
        got = run(f"cvt.{rounding}{modifiers}.{name}x2.f32", [32, 32], 32, [x.view(np.uint32).tolist() for x in (a, b)])
        for bits, high, low in zip(got.tolist(), a, b, strict=True):
            for part, value in ((bits >> 16, high), (bits & 0xFFFF, low)):
                wanted = reference(value, name, rounding, modifiers)
                with np.errstate(all="ignore"):
                    assert part == (
                        0x7FFF if np.isnan(wanted) else int(np.array(wanted, HALVES[name]).view(np.uint16))
                    ), value


@pytest.mark.parametrize("rounding", ["rna", "rn", "rz"])
def test_tf32(rounding):
    values = singles(3)
    for modifiers in ("", ".satfinite") + (
        ("", ".relu", ".satfinite.relu", ".relu.satfinite") if rounding != "rna" else ()
    ):
        got = run(f"cvt.{rounding}{modifiers}.tf32.f32", [32], 32, [values.view(np.uint32).tolist()])
        for bits, value in zip(got.tolist(), values, strict=True):
            wanted = reference(value, "tf32", rounding, modifiers)
            assert bits == (0x7FFFFFFF if np.isnan(wanted) else int(np.float32(wanted).view(np.uint32))), value


@pytest.mark.parametrize("name", HALVES)
def test_stochastic_rounding(name):
    """Random bits are added to the bits that are cut off, as integers."""
    rng = np.random.default_rng(4)
    a, b = ((rng.normal(size=256) * 2.0 ** rng.integers(-10, 10, 256)).astype(np.float32) for _ in range(2))
    a[np.abs(a) < 2.0**-12] = b[np.abs(b) < 2.0**-12] = 1.25 + 2.0**-14  # only normal numbers of f16
    random = rng.integers(0, 1 << 32, 256, np.uint32)
    columns = [a.view(np.uint32).tolist(), b.view(np.uint32).tolist(), random.tolist()]
    cut, drawn = (13, 0x1FFF) if name == "f16" else (16, 0xFFFF)
    for modifiers in ("", ".relu", ".satfinite", ".relu.satfinite"):
        got = run(f"cvt.rs{modifiers}.{name}x2.f32", [32] * 3, 32, columns).view(np.uint16).reshape(256, 2)
        for column, values, bits in ((1, a, random >> 16), (0, b, random & 0xFFFF)):
            rounded = ((values.view(np.uint32) + (bits & drawn)) >> cut << cut).view(np.float32)
            rounded = rectified(rounded) if "relu" in modifiers else rounded
            np.testing.assert_array_equal(got[:, column], rounded.astype(HALVES[name]).view(np.uint16))


@pytest.mark.parametrize("name", HALVES)
def test_stochastic_rounding_of_special_numbers(name):
    dtype, limit = HALVES[name], float(ml_dtypes.finfo(HALVES[name]).max)
    values = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3.4e38 if name == "bf16" else 1e6] * 4, np.float32)
    for random in (0, 0xFFFFFFFF):
        columns = [values.view(np.uint32).tolist()] * 2 + [[random] * 32]
        got = run(f"cvt.rs.{name}x2.f32", [32] * 3, 32, columns).view(np.uint16)[0:16:2]
        saturated = run(f"cvt.rs.satfinite.{name}x2.f32", [32] * 3, 32, columns).view(dtype)[0:16:2].astype(np.float64)
        exact = np.array([0, -0.0, 1, -1, np.inf, -np.inf], dtype).view(np.uint16).tolist()
        assert got[:6].tolist() == exact and got[6] == 0x7FFF
        assert saturated[4:6].tolist() == [limit, -limit] and np.isnan(saturated[6]) and saturated[7] <= limit


@pytest.mark.parametrize("type_name", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_integer_packing(type_name):
    width, is_signed = int(type_name[1:]), type_name[0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    columns = [operands(32, seed) for seed in range(2 if width == 16 else 3)]
    columns[0][:6] = [value & 0xFFFFFFFF for value in (low, high, low - 1, high + 1, 1, -1)]
    ending = ".s32" if width == 16 else ".s32.b32"
    got = run(f"cvt.pack.sat.{type_name}{ending}", [32] * len(columns), 32, columns)
    expected = []
    for a, b, *c in zip(*columns, strict=True):
        a, b = (min(max(s(x, 32), low), high) & (1 << width) - 1 for x in (a, b))
        expected.append((b | a << width | (c[0] << 2 * width if c else 0)) & 0xFFFFFFFF)
    assert got.tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "cvt.rs.satfinite.e2m1x4.f32 %h1, {%r1, %r2, %r3, %r4}, %r5;",
        "cvt.rs.satfinite.e4m3x4.f32 %r6, {%r1, %r2, %r3, %r4}, %r5;",
        "cvt.rn.satfinite.s2f6x2.f32 %h1, %r1, %r2;",
    ],
)
def test_other_packings_are_refused_by_name(text):
    with pytest.raises(EmulatorError, match=text.split()[0] + " is not modelled"):
        translate.translate(entry(text))
