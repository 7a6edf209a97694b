"""mov, and every row of cvt between integers and floats, against NumPy, ml_dtypes or rational arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.support.opcode_runs import (
    FORMATS,
    TESTED,
    check_integers,
    floats,
    flushed,
    operands,
    round_exactly,
    run,
    s,
    typed,
)
from tests.support.small_kernels import launch

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
NANS = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("of", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_conversion(to, of):
    source, width = int(of[1:]), int(to[1:])
    read = typed(lambda a: a, of)
    check_integers(f"cvt.{to}.{of}", [max(source, 16)], width, lambda a: read(a & (1 << source) - 1))
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    check_integers(
        f"cvt.sat.{to}.{of}", [max(source, 16)], width, lambda a: min(max(read(a & (1 << source) - 1), low), high)
    )


def test_narrow_conversion_extends_to_the_register():
    check_integers("cvt.s8.s32", [32], 16, lambda a: s(a & 0xFF, 8))
    check_integers("cvt.u8.u32", [32], 32, lambda a: a & 0xFF)


def code(value, type_name):
    """The bits of a register that holds a number of the type."""
    with np.errstate(all="ignore"):
        return int(np.array(value, FLOATS[type_name]).view(f"u{WIDTHS[type_name] // 8}"))


@pytest.mark.parametrize("of", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("to", FLOATS)
def test_integer_to_float(to, of):
    source = int(of[1:])
    width = max(source, 16)
    read = typed(lambda a: a, of)
    column = operands(width, 9)
    column[8:14] = [
        x & (1 << width) - 1 for x in ((1 << 53) + 1, (1 << 62) + (1 << 38) + 1, 0x1000001, -0x1000001, 257, -259)
    ]
    numbers = [read(value & (1 << source) - 1) for value in column]
    for rounding in ("rn",) if to == "f64" and source == 64 else ("rn", "rz", "rm", "rp"):
        expected = [code(round_exactly(Fraction(number), to, rounding), to) for number in numbers]
        assert run(f"cvt.{rounding}.{to}.{of}", [width], WIDTHS[to], [column]).tolist() == expected, rounding
        assert run(f"cvt.{rounding}.{to}.{of}", [width], WIDTHS[to], [column], uniform=True).tolist() == expected[:8]


def source_numbers(type_name, seed):
    """Numbers of a type: special ones, integers and halves, random magnitudes, ties of the result."""
    rng = np.random.default_rng(seed)
    ties = [
        1 + 2.0**-8,
        1 + 3 * 2.0**-8,
        1 + 2.0**-11,
        1 + 3 * 2.0**-11,
        1 + 2.0**-24,
        -(1 + 2.0**-9),
        65519.996,
        65520,
        3.3961775e38,
        -65536,
    ]
    small = [2.0**-25, 3 * 2.0**-25, -(2.0**-26), 2.0**-134, -1e-40, 6.1e-5, 2.0**-149, 2.0**-150, 1e300, 1e-300]
    integral = [
        0.5,
        1.5,
        -2.5,
        2.5,
        255.5,
        -129,
        32767.5,
        2.0**31,
        -(2.0**31) - 1,
        2.0**32,
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e10,
        -1e10,
        7,
    ]
    random = rng.normal(size=24) * 2.0 ** rng.integers(-30, 30, 24)
    values = np.concatenate([floats(seed), ties, small, integral, random, [np.inf, -np.inf, np.nan, 0.0]])
    with np.errstate(all="ignore"):
        return np.resize(values, 96).astype(FLOATS[type_name])


def bits(values):
    return values.view(f"u{values.dtype.itemsize}").tolist()


def exactly(value, to, rounding):
    if np.isfinite(value):
        return float(value) if value == 0 else round_exactly(Fraction(float(value)), to, rounding)
    return float(value)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_float_to_float(to, of):
    values = source_numbers(of, 8)
    widens = FORMATS[to][0] > FORMATS[of][0]
    for rounding in ("",) if widens or to == of else (".rn", ".rz", ".rm", ".rp"):
        got = run(f"cvt{rounding}.{to}.{of}", [WIDTHS[of]], WIDTHS[to], [bits(values)])
        for value, result in zip(values, got.tolist(), strict=True):
            if np.isnan(value):
                assert np.isnan(np.array(result, f"u{WIDTHS[to] // 8}").view(FLOATS[to]))
                assert to == "f64" or result == NANS[to]
            else:
                assert result == code(exactly(value, to, rounding[1:] or "rn"), to), (rounding, value)


@pytest.mark.parametrize(
    "rounding,function", [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)]
)
@pytest.mark.parametrize("name", FLOATS)
def test_integral_rounding(name, rounding, function):
    values = source_numbers(name, 5)
    got = run(f"cvt.{rounding}.{name}.{name}", [WIDTHS[name]], WIDTHS[name], [bits(values)]).view(FLOATS[name])
    np.testing.assert_array_equal(got.astype(np.float64), function(values.astype(np.float64)))


def test_float_modifiers():
    values = source_numbers("f32", 3)
    column = [bits(values)]
    with np.errstate(all="ignore"):
        clipped = np.where(values > 0, np.minimum(values, 1), 0).astype(np.float32)
        np.testing.assert_array_equal(run("cvt.sat.f32.f32", [32], 32, column).view(np.float32), clipped)
        np.testing.assert_array_equal(
            run("cvt.rn.sat.f16.f32", [32], 16, column).view(np.float16), clipped.astype(np.float16)
        )
        got = run("cvt.rn.ftz.f16.f32", [32], 16, column).view(np.float16)
        np.testing.assert_array_equal(got, flushed(values).astype(np.float16))
        double = source_numbers("f64", 3)
        expected = flushed(double.astype(np.float32))
        np.testing.assert_array_equal(run("cvt.rn.ftz.f32.f64", [64], 32, [bits(double)]).view(np.float32), expected)


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_saturation_to_finite_numbers(to, rounding):
    values = source_numbers("f32", 4)
    largest = float(ml_dtypes.finfo(FLOATS[to]).max)
    for modifiers in (".relu", ".satfinite", ".relu.satfinite", ".satfinite.relu"):
        got = run(f"cvt.{rounding}{modifiers}.{to}.f32", [32], 16, [bits(values)])
        for value, result in zip(values.astype(np.float64), got.tolist(), strict=True):
            if np.isnan(value):
                assert result == 0x7FFF
                continue
            value = min(max(value, -largest), largest) if "satfinite" in modifiers else value
            value = 0.0 if "relu" in modifiers and value <= 0 else value
            assert result == code(exactly(value, to, rounding), to), (modifiers, value)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_float_to_integer(to, of):
    width = int(to[1:])
    register = max(width, 16)
    values = source_numbers(of, 3)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    nan = 1 << width - 1 if width == 64 or of == "f64" else 0
    roundings = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    for rounding, function in roundings.items():
        expected = []
        for value in values.astype(np.float64):
            if np.isnan(value):
                number = s(nan, width) if to[0] == "s" else nan
            else:
                number = (
                    low if value == -np.inf else high if value == np.inf else min(max(int(function(value)), low), high)
                )
            expected.append(number & (1 << register) - 1)
        got = run(f"cvt.{rounding}.{to}.{of}", [WIDTHS[of]], register, [bits(values)])
        assert got.tolist() == expected, rounding
    if of == "f32":
        values = np.array([1e-40, -1e-40] * 16, np.float32)
        assert not run(f"cvt.rpi.ftz.{to}.f32", [32], register, [bits(values)]).any()


def test_move_packs_and_unpacks():
    out = np.zeros(32, np.uint64)
    text = """
        mul.lo.u32 %r1, %tid, 3; mov.b64 %rd1, {%r1, %tid}; mov.b64 {_, %r2}, %rd1; mov.b32 {%h1, %h2}, %r2;
        mov.b32 %r3, {%h2, %h1}; mov.b64 %rd2, {%r3, %r1}; mov.b32 %r5, 9; mov.b64 %rd5, {%r5, 7};
        mov.b64 {%r6, %r7}, %rd5;
        add.u32 %r6, %r6, %r7; cvt.u64.u32 %rd6, %r6; add.u64 %rd2, %rd2, %rd6; mad.wide.u32 %rd3, %tid, 8, %a0;
        st.global.b64 [%rd3], %rd2;
    """
    TESTED.add("mov.b64")
    launch(text, out)
    lane = np.arange(32, dtype=np.uint64)
    assert out.tolist() == ((lane << np.uint64(16) | 3 * lane << np.uint64(32)) + np.uint64(16)).tolist()
