"""Every row of f16, bf16 and mixed arithmetic against rational arithmetic or ml_dtypes."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.support.opcode_runs import round_exactly, run

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
NAN = 0x7FFF
EXACT = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c),
}
SHAPES = [(name, size) for name in TYPES for size in (1, 2)]


def numbers(type_name, seed, count=64):
    """Numbers of many magnitudes, subnormals, zeros, the largest, infinities and NaN."""
    rng, dtype = np.random.default_rng(seed), TYPES[type_name]
    spread = 12 if type_name == "f16" else 40
    with np.errstate(all="ignore"):
        values = (rng.normal(size=count) * 2.0 ** rng.integers(-spread, spread, count)).astype(dtype)
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 65504, 6e-8, -6e-5, 3e38, 1e-40], dtype)
    values[rng.permutation(count)[: len(special)]] = special
    return values


def register_bits(values, size):
    return values.view(np.uint16 if size == 1 else np.uint32).tolist()


def results(opcode, type_name, size, columns):
    """The results, uint16, one for each number, from registers that hold `size` numbers each."""
    width, suffix = 16 * size, "x2" if size == 2 else ""
    bits = [register_bits(column, size) for column in columns]
    return run(f"{opcode}.{type_name}{suffix}", [width] * len(columns), width, bits).view(np.uint16)


def code(value, type_name):
    with np.errstate(all="ignore"):
        return NAN if np.isnan(value) else int(np.array(value, TYPES[type_name]).view(np.uint16))


def flushed(values):
    tiny = ml_dtypes.finfo(values.dtype).tiny
    with np.errstate(invalid="ignore"):  # silences ml_dtypes' comparisons of NaN
        return np.where(np.abs(values) < tiny, np.copysign(np.zeros_like(values), values), values)


def rounded(name, sources, type_name):
    """The result with one rounding; zeros and numbers that are not finite by NumPy, in float64."""
    sources = [float(source) for source in sources]
    function = EXACT[name][1]
    with np.errstate(all="ignore"):
        simple = function(*map(np.float64, sources))
    if not np.isfinite(sources).all() or simple == 0:
        return simple
    return round_exactly(function(*map(Fraction, sources)), type_name, "rn")


MODIFIERS = {
    "f16": {
        "add": ["", ".rn", ".ftz", ".sat", ".rn.ftz.sat"],
        "fma": [".rn", ".rn.ftz", ".rn.sat", ".rn.relu", ".rn.ftz.relu", ".rn.oob", ".rn.oob.relu"],
    },
    "bf16": {"add": ["", ".rn"], "fma": [".rn", ".rn.relu", ".rn.oob", ".rn.oob.relu"]},
}


@pytest.mark.parametrize("type_name,size", SHAPES)
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic(name, type_name, size):
    for modifiers in MODIFIERS[type_name]["fma" if name == "fma" else "add"]:
        columns = [numbers(type_name, 7 * i + size, 32 * size) for i in range(EXACT[name][0])]
        if ".oob" in modifiers:
            columns[0].view(np.uint16)[3:6], columns[1].view(np.uint16)[5:9] = NAN, NAN
        got = results(name + modifiers, type_name, size, columns)
        for bits, *sources in zip(got.tolist(), *columns, strict=True):
            if ".ftz" in modifiers:
                sources = [flushed(source[None])[0] for source in sources]
            value = rounded(name, sources, type_name)
            if ".oob" in modifiers and any(source.view(np.uint16) == NAN for source in sources[:2]):
                value = 0.0
            if ".sat" in modifiers:
                value = min(value, 1.0) if value > 0 else 0.0
            if ".relu" in modifiers:
                value = 0.0 if value <= 0 else value
            with np.errstate(all="ignore"):
                result = np.array(value, TYPES[type_name])
            if ".ftz" in modifiers:
                result = flushed(result)
            assert (
                (bits & 0x7FFF > {"f16": 0x7C00, "bf16": 0x7F80}[type_name])
                if np.isnan(value)
                else bits == code(result, type_name)
            ), (modifiers, sources)


def test_fma_of_bf16_rounds_once():
    """An intermediate float32 would be a tie of bf16; the exact result is not."""
    a, b = (np.full(32, value, ml_dtypes.bfloat16) for value in (7 / 4, 37 / 64))  # value 1 + 3 / 256, half way
    c = np.array([2.0**-40, -(2.0**-40), 2.0**-33, -(2.0**-100)] * 8, ml_dtypes.bfloat16)
    got = results("fma.rn", "bf16", 1, [a, b, c])
    wanted = [code(rounded("fma", sources, "bf16"), "bf16") for sources in zip(a, b, c, strict=True)]
    single = (
        (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64))
        .astype(np.float32)
        .astype(ml_dtypes.bfloat16)
    )
    assert got.tolist() == wanted and single.view(np.uint16).tolist() != wanted


EXTREMES = ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"]


@pytest.mark.parametrize("type_name,size", SHAPES)
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name, type_name, size):
    for modifiers in EXTREMES + ([".ftz", ".ftz.NaN"] if type_name == "f16" else []):
        a, b = (numbers(type_name, seed, 32 * size) for seed in (3, 4))
        a[:6], b[:6] = [0, -0.0, np.nan, -2, np.nan, -2], [-0.0, 0, np.nan, 2, -2, np.nan]
        got = results(name + modifiers, type_name, size, [a, b])
        if ".ftz" in modifiers:
            a, b = flushed(a), flushed(b)
        x, y = (np.abs(v) if ".abs" in modifiers else v for v in (a, b))
        for bits, first, second, p, q in zip(got.tolist(), a, b, x, y, strict=True):
            if np.isnan(p) or np.isnan(q):
                value = p if np.isnan(q) else q
                value = float("nan") if ".NaN" in modifiers else float(value)
            else:
                order = sorted((float(p), float(q)), key=lambda v: (v, not np.signbit(v)))
                value = order[1] if name == "max" else order[0]
            if "xorsign" in modifiers and not np.isnan(value):
                value = np.copysign(value, -1 if np.signbit(first) ^ np.signbit(second) else 1)
            assert bits == code(value, type_name), (modifiers, first, second)


UNARY = {"neg": np.negative, "abs": np.abs, "ex2.approx": np.exp2, "tanh.approx": np.tanh}


@pytest.mark.parametrize("type_name,size", SHAPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, type_name, size):
    values = numbers(type_name, 5, 32 * size)
    plain = "" if name != "ex2.approx" or type_name == "f16" else ".ftz"
    for ftz in {plain, ".ftz" if type_name == "f16" and name in ("neg", "abs") else plain}:
        sources = flushed(values) if ftz else values
        with np.errstate(all="ignore"):
            expected = UNARY[name](sources.astype(np.float64)).astype(np.float32 if type_name == "bf16" else np.float16)
            expected = expected.astype(TYPES[type_name])
        expected = flushed(expected) if ftz else expected
        got = results(name + ftz, type_name, size, [values]).view(TYPES[type_name])
        tolerance = {"f16": 1e-3, "bf16": 8e-3}[type_name] if "approx" in name else 0
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tolerance)


@pytest.mark.parametrize("rounding", ["", ".rn", ".rz", ".rm", ".rp"])
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", ["add", "sub", "fma"])
def test_mixed_precision(name, type_name, rounding):
    if name == "fma" and not rounding:
        return
    narrow = [numbers(type_name, seed, 32) for seed in range(EXACT[name][0] - 1)]
    wide = (np.random.default_rng(9).normal(size=32) * 2.0 ** np.random.default_rng(8).integers(-40, 20, 32)).astype(
        np.float32
    )
    columns = [*(column.view(np.uint16).tolist() for column in narrow), wide.view(np.uint32).tolist()]
    for sat in ("", ".sat"):
        got = run(f"{name}{rounding}{sat}.f32.{type_name}", [16] * len(narrow) + [32], 32, columns).view(np.float32)
        checked = 0
        for value, *sources in zip(got.tolist(), *narrow, wide, strict=True):
            sources = [float(source) for source in sources]
            if not np.isfinite(sources).all():
                continue
            wanted = round_exactly(EXACT[name][1](*map(Fraction, sources)), "f32", rounding[1:] or "rn")
            wanted = min(max(wanted, 0.0), 1.0) if sat else wanted
            checked += 1
            assert value == wanted, sources
        assert checked > 15
