"""Every row of f32, f32x2 and f64 arithmetic against NumPy or rational arithmetic."""

from fractions import Fraction
from math import isfinite, isqrt

import numpy as np
import pytest

from tests.support.opcode_runs import FLOAT32, floats, flushed, round_exactly, run
from tests.support.small_kernels import launch


def in_double(function):
    """A function computed in float64 and rounded once."""
    return lambda a: function(a.astype(np.float64)).astype(np.float32)


UNARY_FLOAT = {
    "neg.f32": np.negative,
    "abs.f32": np.abs,
    "rcp.rn.f32": lambda a: 1 / a,
    "rcp.approx.ftz.f32": lambda a: 1 / a,
    "sqrt.rn.f32": np.sqrt,
    "ex2.approx.f32": in_double(np.exp2),
    "lg2.approx.f32": in_double(np.log2),
    "sin.approx.f32": in_double(np.sin),
    "cos.approx.f32": in_double(np.cos),
    "tanh.approx.f32": in_double(np.tanh),
    "rsqrt.approx.f32": in_double(lambda a: 1 / np.sqrt(a)),
}


BINARY_FLOAT = {
    "add.f32": np.add,
    "sub.rn.f32": np.subtract,
    "mul.f32": np.multiply,
    "div.rn.f32": np.divide,
    "min.f32": np.fmin,
    "max.f32": np.fmax,
    "min.NaN.f32": np.minimum,
    "max.NaN.f32": np.maximum,
}


def test_float_literals():
    column = [floats(1).view(np.uint32).tolist()]
    with np.errstate(all="ignore"):
        for literal, value in (("0f40200000", 2.5), ("2.5", 2.5), ("-0.1", -0.1), ("0d3FF8000000000000", 1.5)):
            got = run("mul.f32", [32], 32, column, suffix=f", {literal}").view(np.float32)
            np.testing.assert_array_equal(got, floats(1) * np.float32(value))


FLUSHED = {"add.ftz.f32": np.add, "mul.ftz.f32": np.multiply, "abs.ftz.f32": np.abs, "neg.ftz.f32": np.negative}
SATURATED = {"mul.sat.f32": np.multiply, "add.rn.ftz.sat.f32": np.add, "sub.sat.f32": np.subtract}
APPROXIMATE = {
    "div.approx.f32": np.divide,
    "div.full.ftz.f32": np.divide,
    "sqrt.approx.ftz.f32": np.sqrt,
    "sqrt.approx.f32": np.sqrt,
}
FLOAT = UNARY_FLOAT | BINARY_FLOAT | FLUSHED | SATURATED | APPROXIMATE


@pytest.mark.parametrize("opcode", FLOAT)
def test_float32(opcode):
    reference = FLOAT[opcode]
    count = 1 if reference in (np.abs, np.negative, np.sqrt) or opcode in UNARY_FLOAT else 2
    columns = [floats(5 + i) for i in range(count)]
    with np.errstate(all="ignore"):
        if ".ftz" in opcode:
            expected = flushed(reference(*map(flushed, columns)))
        else:
            expected = reference(*columns)
        if ".sat" in opcode:
            expected = np.where(np.isnan(expected), 0, np.clip(expected, 0, 1)).astype(np.float32)
    got = run(opcode, [32] * count, 32, [c.view(np.uint32).tolist() for c in columns]).view(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_saturation_has_no_negative_zero():
    values = np.array([-0.0, -3.0, np.nan, 2.0, 0.25, -np.inf, np.inf, 1e-45] * 4, np.float32)
    got = run("add.sat.f32", [32], 32, [values.view(np.uint32).tolist()], suffix=", 0f80000000")
    assert got[:8].tolist() == np.array([0, 0, 0, 1, 0.25, 0, 1, 1e-45], np.float32).view(np.uint32).tolist()


def exact_fma(a, b, c):
    """Correctly rounded a * b + c in float32, by rational arithmetic."""
    if not np.all(np.isfinite([a, b, c])):
        return np.float32(np.float64(a) * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return np.float32(np.float64(a) * b + c)
    guess = np.float32(float(exact))
    if not np.isfinite(guess):
        return guess
    candidates = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(
        candidates,
        key=lambda x: (abs(Fraction(float(x)) - exact) if np.isfinite(x) else 10**60, int(x.view(np.uint32)) & 1),
    )


def test_fused_multiply_add_rounds_once():
    rng = np.random.default_rng(3)
    a = (1 + rng.integers(0, 1 << 12, 32) * 2.0**-12).astype(np.float32)
    b = (1 + rng.integers(0, 1 << 12, 32) * 2.0**-12).astype(np.float32)
    c = (rng.choice([1, -1, 2**-24, 2**-48, -(2**-60), 2**30, 2.0**-140], 32)).astype(np.float32)
    a[:4], b[:4], c[:4] = np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(2**-50)
    a[4:8], b[4:8], c[4:8] = np.float32(2**-70), np.float32(2**-72 * (1 + 2**-7)), np.float32(2.0**-149)
    columns = [x.view(np.uint32).tolist() for x in (a, b, c)]
    expected = [exact_fma(*row) for row in zip(a, b, c)]
    for opcode in ("fma.rn.f32", "mad.rn.f32"):
        np.testing.assert_array_equal(run(opcode, [32] * 3, 32, columns).view(np.float32), expected)


TYPES = {"f32": np.float32, "f64": np.float64, "f32x2": np.float32}
SPREAD = {"f32": 60, "f64": 500, "f32x2": 60}


def wide_range(type_name, seed):
    """Numbers of many magnitudes, with subnormals and the largest: one per lane, two for pairs."""
    rng, dtype = np.random.default_rng(seed), TYPES[type_name]
    count = 64 if type_name == "f32x2" else 32
    values = (rng.normal(size=count) * 2.0 ** rng.integers(-SPREAD[type_name], SPREAD[type_name], count)).astype(dtype)
    info = np.finfo(dtype)
    special = [
        info.max,
        -info.max,
        info.tiny,
        -info.smallest_subnormal,
        3 * info.smallest_subnormal,
        1,
        -1,
        1 + info.eps,
        0,
    ]
    places = rng.permutation(count)[: len(special)]
    values[places] = np.array(special, dtype)
    values[rng.permutation(count)[:4]] = rng.permutation(special)[:4]
    return values


def register_bits(values, type_name):
    return values.view(np.uint64 if type_name in ("f64", "f32x2") else np.uint32).tolist()


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
    "mad": lambda a, b, c: a * b + c,
}


def rounded_root(value, name, rounding):
    """The root of a non-negative rational number to many more bits than the format has, never exact by accident."""
    scale = 2**2400
    root = isqrt(value.numerator * scale * scale // value.denominator)
    exact = Fraction(root, scale)
    return round_exactly(exact if exact * exact == value else exact + Fraction(1, 2 * scale), name, rounding)


def expected_number(name, sources, type_name, rounding):
    """The exact result; None if a source or the result is zero, infinite or NaN."""
    if (
        not all(map(isfinite, sources))
        or (name in ("div", "rcp") and sources[-1] == 0)
        or (name == "sqrt" and sources[0] <= 0)
    ):
        return None
    numbers = [Fraction(float(source)) for source in sources]
    if name == "sqrt":
        return rounded_root(numbers[0], type_name, rounding)
    exact = EXACT[name](*numbers)
    return round_exactly(exact, type_name, rounding) if exact else None


BASIC = ["add", "sub", "mul", "fma"]
ROUNDED = [(name, "f32x2") for name in BASIC] + [
    (name, kind) for name in [*BASIC, "mad", "div", "rcp", "sqrt"] for kind in ("f32", "f64")
]


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name,type_name", ROUNDED)
def test_rounding(name, type_name, rounding):
    count = {"fma": 3, "mad": 3, "rcp": 1, "sqrt": 1}.get(name, 2)
    width = 32 if type_name == "f32" else 64
    checked = 0
    for seed in range(3):
        columns = [wide_range(type_name, 10 * seed + i + len(name)) for i in range(count)]
        if seed == 2 and name in ("add", "sub", "fma", "mad"):  # cancellation
            with np.errstate(over="ignore"):
                columns[-1] = (-columns[0] * (columns[1] if count == 3 else 1)).astype(TYPES[type_name])
        if name == "sqrt":
            columns = [np.abs(column) for column in columns]
        bits = [register_bits(column, type_name) for column in columns]
        got = run(f"{name}.{rounding}.{type_name}", [width] * count, width, bits).view(TYPES[type_name])
        for value, *sources in zip(got.tolist(), *(column.tolist() for column in columns), strict=True):
            wanted = expected_number(name, sources, type_name.removesuffix("x2"), rounding)
            if wanted is not None:
                checked += 1
                assert value == wanted, (sources, wanted)
    assert checked > 40


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_sign_of_zero_sums(type_name):
    width, dtype = int(type_name[1:]), TYPES[type_name]
    a, b = np.array([1, 0, 0, -0.0, -0.0] * 8, dtype)[:32], np.array([-1, 0, -0.0, 0, -0.0] * 8, dtype)[:32]
    for rounding, negative in (
        ("rn", [0, 0, 0, 0, 1]),
        ("rz", [0, 0, 0, 0, 1]),
        ("rp", [0, 0, 0, 0, 1]),
        ("rm", [1, 0, 1, 1, 1]),
    ):
        columns = [register_bits(x, type_name) for x in (a, b)]
        for opcode in (f"add.{rounding}.{type_name}", f"fma.{rounding}.{type_name}"):
            one = {"f32": "0f3F800000, ", "f64": "0d3FF0000000000000, "}[type_name] if "fma" in opcode else ""
            got = run(opcode, [width] * 2, width, columns, prefix=one).view(dtype)
            assert np.signbit(got)[:5].tolist() == negative and not got.any(), opcode


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_flushed_rounding(rounding):
    tiny = np.finfo(np.float32).tiny
    a, b = (
        np.array([tiny, 1e-40, -tiny, 3] * 8, np.float32),
        np.array([-tiny * 1.5, 1, tiny / 2, 1e-42] * 8, np.float32),
    )
    expected = flushed(flushed(a).astype(np.float64) + flushed(b)).astype(np.float32)
    columns = [x.view(np.uint32).tolist() for x in (a, b)]
    np.testing.assert_array_equal(run(f"add.{rounding}.ftz.f32", [32] * 2, 32, columns).view(np.float32), expected)


def extreme(values, largest, propagate):
    """PTX ISA, "max": the pseudo-code, one pair after the other."""
    result = values[0]
    for other in values[1:]:
        if np.isnan(result) or np.isnan(other):
            number = other if np.isnan(result) else result
            result = np.float32(np.nan) if propagate or np.isnan(number) else number
        elif result == other == 0:
            both = np.signbit(result) and np.signbit(other)
            either = np.signbit(result) or np.signbit(other)
            result = np.float32(-0.0 if (both if largest else either) else 0.0)
        else:
            result = max(result, other) if largest else min(result, other)
    return result


@pytest.mark.parametrize(
    "modifiers", ["", ".NaN", ".ftz", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".abs", ".ftz.NaN.abs"]
)
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name, modifiers):
    counts = [2] if "xorsign" in modifiers else [3] if ".abs" in modifiers else [2, 3]
    for count in counts:
        columns = [
            np.random.default_rng(i).permutation(FLOAT32 + FLOAT32 + [2.0, -2.0, 5.0, -1e-41]).astype(np.float32)
            for i in range(count)
        ]
        columns[1][:2] = columns[0][:2] = [np.nan, 0]
        columns[1][2:7], columns[0][2:7] = [0.0, -0.0, -3.0, -3.0, np.nan], [-0.0, 0.0, 3.0, np.nan, -2.0]
        got = run(f"{name}{modifiers}.f32", [32] * count, 32, [x.view(np.uint32).tolist() for x in columns])
        for bits, *values in zip(got.tolist(), *columns, strict=True):
            if ".ftz" in modifiers:
                values = [flushed(value)[()] for value in values]
            sources = [abs(value) for value in values] if ".abs" in modifiers else values
            wanted = np.float32(extreme(sources, name == "max", ".NaN" in modifiers))
            if "xorsign" in modifiers and not np.isnan(wanted):
                wanted = np.copysign(wanted, -1.0 if np.signbit(values[0]) ^ np.signbit(values[1]) else 1.0).astype(
                    np.float32
                )
            assert bits == (0x7FFFFFFF if np.isnan(wanted) else int(wanted.view(np.uint32))), values


F64 = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
}
F64 |= {"rsqrt.approx": lambda a: 1 / np.sqrt(a)}


@pytest.mark.parametrize("name", F64)
def test_float64(name):
    count = 1 if name in ("neg", "abs", "rsqrt.approx") else 2
    columns = [np.abs(wide_range("f64", i)) if "sqrt" in name else wide_range("f64", i) for i in range(count)]
    with np.errstate(all="ignore"):
        expected = F64[name](*columns)
    got = run(f"{name}.f64", [64] * count, 64, [x.view(np.uint64).tolist() for x in columns]).view(np.float64)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name,function", [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)])
def test_pairs(name, function):
    columns = [wide_range("f32x2", i) for i in (1, 2)]
    bits = [register_bits(column, "f32x2") for column in columns]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(f"{name}.f32x2", [64] * 2, 64, bits).view(np.float32), function(*columns))
        expected = flushed(function(*map(flushed, columns)))
    np.testing.assert_array_equal(run(f"{name}.ftz.f32x2", [64] * 2, 64, bits).view(np.float32), expected)


def test_pairs_whose_rows_are_not_contiguous():
    """The rows are one value for all lanes, and the parts of a vector load."""
    out, a = np.zeros((32, 4), np.float32), np.arange(128, dtype=np.float32).reshape(32, 4) + 1
    text = """
        mad.wide.u32 %rd1, %tid, 16, %a1; ld.global.v2.b64 {%rd2, %rd3}, [%rd1];
        ld.global.b32 %r1, [%a1+4]; setp.lt.u32 %p1, %tid, 7; @%p1 ld.global.b32 %r1, [%a1+8]; mov.b64 %rd4, {%r1, %r1};
        mul.rn.f32x2 %rd5, %rd2, %rd4; add.rn.f32x2 %rd6, %rd3, %rd2;
        mad.wide.u32 %rd7, %tid, 16, %a0; st.global.v2.b64 [%rd7], {%rd5, %rd6};
    """
    launch(text, out, a)
    factor = np.where(np.arange(32) < 7, 3, 2)[:, None]
    assert out[:, :2].tolist() == (a[:, :2] * factor).tolist() and out[:, 2:].tolist() == (a[:, :2] + a[:, 2:]).tolist()


@pytest.mark.parametrize("width", [32, 64])
def test_copysign(width):
    a, b = (np.random.default_rng(seed).integers(0, 1 << 64, 32, np.uint64, False) for seed in (1, 2))
    a, b = ([value >> 64 - width for value in column.tolist()] for column in (a, b))
    sign = 1 << width - 1
    wanted = [x & sign | y & sign - 1 for x, y in zip(a, b, strict=True)]
    assert run(f"copysign.f{width}", [width] * 2, width, [a, b]).tolist() == wanted
