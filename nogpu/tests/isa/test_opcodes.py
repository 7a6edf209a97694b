"""Arithmetic on chosen values: exact roundings, all codes of narrow formats, ties.

`test_kernels.py` tries every row with values of its own.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.support.opcode_cases import ARITHMETIC
from tests.support.reference.results import FAMILIES
from tests.support.small_kernels import launch, store

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "tf32": np.float32}
SPREAD = {"f16": 12, "bf16": 40, "f32": 60, "f64": 500}
PRECISION = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
REGISTER = {16: "%h", 32: "%r", 64: "%rd"}
# Ties of the formats of 16 bits and of tf32, numbers next to them, the ends of ranges, subnormal numbers
TIES = (1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, -(1 + 3 * 2.0**-11), 1 + 2.0**-11 + 2.0**-20, 1 + 2.0**-24, 65504.0)
TIES += (-(1 + 2.0**-9), 65519.996, 65520, -65536, 3.3961775e38, 3.4e38, -3.4028235e38, 1e300, 2.0**-25, 3 * 2.0**-25)
TIES += (
    -(2.0**-26),
    2.0**-134,
    3 * 2.0**-134,
    2.0**-149,
    2.0**-150,
    -1e-40,
    6.1e-5,
    -6e-8,
    1e-300,
    0.0,
    -0.0,
    2.5,
    -1.5,
)
ALL_HALVES = np.arange(1 << 16, dtype=np.uint16)
SMALL = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}
SMALL |= {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn}


def numbers(kind, seed, count=96):
    """Numbers of a type and of many magnitudes, with the extreme ones and ties, as Python numbers and register bits."""
    rng = np.random.default_rng(seed)
    if kind[0] in "us":
        width = int(kind[1:])
        values = rng.integers(0, 1 << 64, count, np.uint64, False) >> rng.integers(64 - width, 64, count, np.uint64)
        special = (0, 1, (1 << 53) + 1, (1 << 62) + (1 << 38) + 1, 0x1000001, -0x1000001, 257, -259, 1 << width - 1, -1)
        values[: len(special)] = [value & (1 << width) - 1 for value in special]
        typed = values.astype(f"u{width // 8}").view(f"{'i' if kind[0] == 's' else 'u'}{width // 8}")
        return typed.tolist(), values.astype(f"u{max(width, 16) // 8}")
    dtype, spread, info = TYPES[kind], SPREAD[kind], ml_dtypes.finfo(TYPES[kind])
    special = [info.max, -info.max, info.tiny, -info.smallest_subnormal, 3 * info.smallest_subnormal, 1 + info.eps]
    special += [1, -1, 0, -0.0, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        values = (rng.normal(size=count) * 2.0 ** rng.integers(-spread, spread, count)).astype(dtype)
        values[rng.permutation(count)[: len(special)]] = np.array([float(value) for value in special], dtype)
        values[rng.permutation(count)[: len(TIES)]] = np.array(TIES).astype(dtype)
    return values.astype(float).tolist(), values.view(f"u{values.itemsize}")


def results(opcodes, columns, width, suffix=""):
    """Bits of `opcode d, s0, s1, ...` for each opcode and each row of the columns of registers' bits."""
    count = len(columns[0])
    threads = min(count, 1024)
    out = np.zeros((len(opcodes), count), f"u{width // 8}")
    text = ["mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %tid, %r1, %r2, %tid;"]
    names = []
    for i, column in enumerate(columns):
        size = column.itemsize
        names.append(f"{REGISTER[8 * size]}{10 + i}")
        text.append(f"mad.wide.u32 %rd1, %tid, {size}, %a{i + 1}; ld.global.b{8 * size} {names[-1]}, [%rd1];")
    text.append(f"mad.wide.u32 %rd9, %tid, {width // 8}, %a0;")
    for i, opcode in enumerate(opcodes):
        text.append(f"{opcode} {REGISTER[width]}20, {', '.join(names)}{suffix};")
        text.append(f"st.global.b{width} [%rd9+{i * out.strides[0]}], {REGISTER[width]}20;")
    launch("\n".join(text), out, *map(np.ascontiguousarray, columns), threads=threads, grid=count // threads)
    return out


def agree(opcodes, columns, width):
    """Compares results with those of the reference, 32 lanes after 32."""
    count = -(-len(columns[0]) // 32) * 32
    count = count if count <= 1024 else -(-count // 1024) * 1024
    columns = [np.resize(column, count) for column in columns]
    for opcode, got in zip(opcodes, results(opcodes, columns, width), strict=True):
        ((family, match),) = (
            (family, match)
            for family, rows in ARITHMETIC.items()
            for row in rows
            if (match := row.pattern.fullmatch(opcode))
        )
        with np.errstate(all="ignore"):
            parts = [
                FAMILIES[family](match, [width], [column[start : start + 32] for column in columns])[0]
                for start in range(0, count, 32)
            ]
        np.testing.assert_array_equal(got, np.concatenate(parts), opcode)


BASIC = {"add": 2, "sub": 2, "mul": 2, "fma": 3}
DIRECTED = (".rn", ".rz", ".rm", ".rp")
ROUNDED = [
    *[
        (name, [kind] * count, kind, "", DIRECTED)
        for kind in ("f32", "f64")
        for name, count in {**BASIC, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}.items()
    ],
    *[(name, ["f32"] * count, "f32", "x2", DIRECTED) for name, count in BASIC.items()],
    *[
        (name, [kind] * count, kind, pair, (".rn",))
        for kind in ("f16", "bf16")
        for name, count in BASIC.items()
        for pair in ("", "x2")
    ],
    *[
        (name, [kind] * (BASIC[name] - 1) + ["f32"], "f32", "", DIRECTED)
        for kind in ("f16", "bf16")
        for name in ("add", "sub", "fma")
    ],
    *[
        ("cvt", [of], to, "", DIRECTED if PRECISION[to] < PRECISION[of] else ("",))
        for of in PRECISION
        for to in PRECISION
    ],
    ("cvt", ["f32"], "tf32", "", (".rna", ".rn", ".rz")),
    *[
        ("cvt", [of], to, "", (".rn",) if to == "f64" and of.endswith("64") else DIRECTED)
        for of in INTEGERS
        for to in PRECISION
    ],
]


@pytest.mark.parametrize(
    ("name", "of", "to", "pair", "roundings"), ROUNDED, ids=lambda value: value if isinstance(value, str) else None
)
def test_rounding(name, of, to, pair, roundings):
    values, columns = zip(*(numbers(kind, 7 * i + len(name), 192 if pair else 96) for i, kind in enumerate(of)))
    if name in ("add", "sub", "fma", "mad") and len(set(of)) == 1:  # cancellation
        with np.errstate(all="ignore"):
            factor = np.array(values[1], TYPES[to]) if len(of) == 3 else 1
            cancelling = (-np.array(values[0], TYPES[to]) * factor).astype(TYPES[to])[::3]
        values[-1][::3], columns[-1][::3] = cancelling.astype(float).tolist(), cancelling.view(columns[-1].dtype)
    types = f"{to}.{of[0]}" if name == "cvt" or len(set(of)) > 1 else to
    width = columns[0].itemsize * 16 if pair else 8 * np.dtype(TYPES[to]).itemsize
    if pair:
        columns = [column.view(f"u{2 * column.itemsize}") for column in columns]
    agree([f"{name}{rounding}.{types}{pair}" for rounding in roundings], columns, width)


def test_fma_rounds_once():
    """An intermediate float64, or float32 of bf16, would be a tie of the result; the exact sum is not."""
    rows = {
        "f32": [(1 + 2.0**-12, 1 + 2.0**-12, 2.0**-50), (2.0**-70, 2.0**-72 * (1 + 2.0**-7), 2.0**-149)],
        "bf16": [(7 / 4, 37 / 64, c) for c in (2.0**-40, -(2.0**-40), 2.0**-33, -(2.0**-100))],
    }
    for name, cases in rows.items():
        columns = np.array(cases).astype(TYPES[name]).T
        agree(
            [f"fma.rn.{name}"], [column.copy().view(f"u{column.itemsize}") for column in columns], 8 * columns.itemsize
        )


def test_results_that_are_flushed():
    tiny = np.finfo(np.float32).tiny
    a, b = np.float32([tiny, 1e-40, -tiny, 3]), np.float32([-tiny * 1.5, 1, tiny / 2, 1e-42])
    opcodes = [f"{name}{rounding}.ftz.f32" for name in ("add", "sub", "mul") for rounding in DIRECTED]
    agree(opcodes, [a.view(np.uint32), b.view(np.uint32)], 32)


@pytest.mark.parametrize("name", SMALL)
def test_narrow_formats(name):
    """All codes, in both places and with all scales; their ties; all numbers of 16 bits."""
    bits, shift = ml_dtypes.finfo(SMALL[name]).bits, 4 if name == "e2m1" else 8
    grid = np.arange(1 << bits, dtype=np.uint8).view(SMALL[name]).astype(np.float32)
    finite = np.sort(grid[np.isfinite(grid)])
    ties = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(ties, np.float32(end)) for end in (9e9, -9e9)]
    special = np.float32([*TIES[:14], 0, -0.0, np.inf, -np.inf, np.nan])
    values = np.concatenate([finite, ties, *near, special, 2 * finite[[0, -1]]])
    values = np.resize(values, -(-len(values) // 32) * 32).view(np.uint32)
    for relu in ("", ".relu"):
        agree([f"cvt.rn.satfinite{relu}.{name}x2.f32"], [values, values[::-1]], 16)
        packing = [f"cvt.rn.satfinite{relu}.{name}x2.{half}x2" for half in ("f16", "bf16")]
        agree(packing, [ALL_HALVES.view(np.uint32)], 16)
        codes = np.resize(np.arange(1 << bits, dtype=np.uint16), max(1 << bits, 32))
        unpacking = [f"cvt.rn{relu}.{half}x2.{name}x2" for half in ("f16", "bf16")]
        agree(unpacking, [codes | codes[::-1] << shift], 32)
    codes, scales = np.resize(codes, 512), np.arange(512, dtype=np.uint16)
    columns = [(codes * 7 + 3) % (1 << bits) | codes << shift, scales % 256 | (scales * 5 + 9) % 256 << 8]
    agree([f"cvt.rn{modifiers}.scaled::n2::ue8m0.bf16x2.{name}x2" for modifiers in MODIFIERS], columns, 32)
    agree([f"cvt.rn{modifiers}.bf16x2.{name}x2" for modifiers in MODIFIERS], columns[:1], 32)


def test_fixed_point():
    """s2f6: all codes with all scales; ties, neighbours of ties, the ends of the range and all numbers of 16 bits."""
    codes, scales = np.resize(np.arange(256, dtype=np.uint16), 9363), np.arange(0, 65536, 7, dtype=np.uint16)
    pairs = codes | codes[::-1] << 8
    agree([f"cvt.rn{modifiers}.bf16x2.s2f6x2" for modifiers in MODIFIERS], [pairs], 32)
    agree([f"cvt.rn{modifiers}.scaled::n2::ue8m0.bf16x2.s2f6x2" for modifiers in MODIFIERS], [pairs, scales], 32)
    ties = np.arange(-260, 261, dtype=np.float32) / 128
    near = [np.nextafter(ties, np.float32(end)) for end in (9e9, -9e9)]
    singles = np.concatenate([ties, *near, np.float32([*TIES[:14], np.inf, -np.inf, np.nan, 1e-40, 3e38])])
    factors = np.resize(np.uint16([0x7F7F, 0x7E80, 0x8585, 0x00FF, 0xFE01, 0x7F00]), len(singles))
    halves, half_factors = ALL_HALVES.view(np.uint32), np.resize(scales * 7, len(ALL_HALVES) // 2)
    for modifiers in (".satfinite", ".satfinite.relu", ".relu.satfinite"):
        values = [singles.view(np.uint32), singles[::-1].view(np.uint32)]
        agree([f"cvt.rn{modifiers}.s2f6x2.f32"], values, 16)
        agree([f"cvt.rn{modifiers}.scaled::n2::ue8m0.s2f6x2.f32"], [*values, factors], 16)
        agree([f"cvt.rn{modifiers}.s2f6x2.bf16x2"], [halves], 16)
        agree([f"cvt.rn{modifiers}.scaled::n2::ue8m0.s2f6x2.bf16x2"], [halves, half_factors], 16)


def test_scales():
    """Packed from numbers of all magnitudes, and all codes unpacked."""
    rng = np.random.default_rng(1)
    powers = [2.0**-127, 1.5 * 2.0**-127, 2.0**-126, 2.0**-130, 2.0**127, 1.1 * 2.0**127, 3e38, np.inf, -np.inf, np.nan]
    values = np.concatenate(
        [[1, 1.5, -2, 3, 0, -0.0], powers, rng.normal(size=48) * 2.0 ** rng.integers(-140, 127, 48)]
    )
    values = values.astype(np.float32)
    opcodes = [f"cvt.{rounding}{modifier}.ue8m0x2" for rounding in ("rp", "rz") for modifier in ("", ".satfinite")]
    agree([f"{opcode}.f32" for opcode in opcodes], [values.view(np.uint32), values[::-1].view(np.uint32)], 16)
    brain = values.astype(ml_dtypes.bfloat16).view(np.uint32)
    agree([f"{opcode}.bf16x2" for opcode in opcodes], [brain], 16)
    codes = np.arange(256, dtype=np.uint16)
    agree(["cvt.rn.bf16x2.ue8m0x2"], [codes | codes[::-1] << 8], 32)


MODIFIERS = ("", ".relu", ".satfinite", ".relu.satfinite", ".satfinite.relu")


def test_conversions_of_singles():
    """Pairs and single numbers of 16 bits, tf32 and integers from ties, ends of ranges and subnormal numbers."""
    a, b = (numbers("f32", seed, 128)[1] for seed in (1, 2))
    for half in ("f16", "bf16"):
        opcodes = [f"cvt.{rounding}{modifiers}.{half}" for rounding in ("rn", "rz") for modifiers in MODIFIERS]
        agree([f"{opcode}x2.f32" for opcode in opcodes], [a, b], 32)
        agree([f"{opcode}.f32" for opcode in opcodes], [a], 16)
    tf32 = [f"cvt.{rounding}{modifiers}.tf32.f32" for rounding in ("rn", "rz") for modifiers in MODIFIERS]
    agree([*tf32, "cvt.rna.tf32.f32", "cvt.rna.satfinite.tf32.f32"], [a], 32)
    agree(["cvt.sat.f32.f32", "cvt.rni.f32.f32", "cvt.rzi.f32.f32", "cvt.rmi.f32.f32", "cvt.rpi.f32.f32"], [a], 32)
    agree(["cvt.rn.sat.f16.f32", "cvt.rn.ftz.f16.f32"], [a], 16)
    agree(["cvt.rn.ftz.f32.f64"], [numbers("f64", 3)[1]], 32)


@pytest.mark.parametrize("of", PRECISION)
def test_conversions_to_integers(of):
    ends = [0.5, 1.5, -2.5, 2.5, 255.5, -129, 32767.5, 2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64]
    with np.errstate(all="ignore"):
        values = np.array([*ends, 1e10, -1e10, 7, *numbers(of, 3)[0]], TYPES[of])
    for width in (16, 32, 64):
        kinds = [kind for kind in INTEGERS if max(int(kind[1:]), 16) == width]
        opcodes = [f"cvt.{rounding}.{to}.{of}" for rounding in ("rni", "rzi", "rmi", "rpi") for to in kinds]
        opcodes += [f"cvt.rpi.ftz.{to}.f32" for to in kinds if of == "f32"]
        agree(opcodes, [values.view(f"u{values.itemsize}")], width)


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_stochastic_rounding(half):
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3.4e38, 1e6]
    rng = np.random.default_rng(4)
    a, b = (
        np.concatenate([rng.normal(size=247) * 2.0 ** rng.integers(-10, 10, 247), special]).astype(np.float32)
        for _ in range(2)
    )
    for random in (rng.integers(0, 1 << 32, 256, np.uint32), np.zeros(256, np.uint32), ~np.zeros(256, np.uint32)):
        opcodes = [f"cvt.rs{modifiers}.{half}x2.f32" for modifiers in MODIFIERS[:4]]
        agree(opcodes, [a.view(np.uint32), b.view(np.uint32), random], 32)


@pytest.mark.parametrize("width", [16, 8, 4, 2])
def test_integer_packing(width):
    ends = [side + step for side in (-(1 << width - 1), (1 << width) - 1, (1 << width - 1) - 1) for step in (-1, 0, 1)]
    columns = [np.array([*ends, 1, -1, *numbers("s32", seed)[0]], np.int32).view(np.uint32) for seed in range(3)]
    opcodes = [f"cvt.pack.sat.{sign}{width}.s32{'' if width == 16 else '.b32'}" for sign in "us"]
    agree(opcodes, columns[: 2 if width == 16 else 3], 32)


@pytest.mark.parametrize("table", [0x96, 0xE8, 0x01, 0xCA, 0xFE, 0x80])
def test_truth_tables(table):
    columns = [numbers("u32", seed)[1] for seed in range(3)]
    (got,) = results(["lop3.b32"], columns, 32, f", {table}")
    a, b, c = ((column[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(int) for column in columns)
    assert ((got[:, None] >> np.arange(32, dtype=np.uint32) & 1) == (table >> (a << 2 | b << 1 | c) & 1)).all()


@pytest.mark.parametrize("literal", ["-32768", "0xffffffffffff8000", "0xFFFF8000"])
def test_sign_extended_literals(literal):
    _, bits = numbers("u32", 1)
    assert results(["and.b32"], [bits], 32, f", {literal}")[0].tolist() == (bits & np.uint32(0xFFFF8000)).tolist()


@pytest.mark.parametrize(
    ("literal", "value"), [("0f40200000", 2.5), ("2.5", 2.5), ("-0.1", -0.1), ("0d3FF8000000000000", 1.5)]
)
def test_float_literals(literal, value):
    numbers_, bits = numbers("f32", 1)
    with np.errstate(all="ignore"):
        wanted = np.float32(numbers_) * np.float32(value)
    np.testing.assert_array_equal(results(["mul.f32"], [bits], 32, f", {literal}")[0].view(np.float32), wanted)


def test_move_packs_and_unpacks():
    out = np.zeros(32, np.uint64)
    text = """
        mul.lo.u32 %r1, %tid, 3; mov.b64 %rd1, {%r1, %tid}; mov.b64 {_, %r2}, %rd1; mov.b32 {%h1, %h2}, %r2;
        mov.b32 %r3, {%h2, %h1}; .reg .b8 x<4>; mov.b32 {x0, x1, x2, x3}, %r3;
        mov.b32 %r3, {x0, x1, x2, x3}; mov.b64 %rd2, {%r3, %r1}; mov.b32 %r5, 9; mov.b64 %rd5, {%r5, 7};
        mov.b64 {%r6, %r7}, %rd5; add.u32 %r6, %r6, %r7; cvt.u64.u32 %rd6, %r6; add.u64 %rd2, %rd2, %rd6;
    """
    launch(text + store("%rd2", "b64"), out)
    lane = np.arange(32, dtype=np.uint64)
    assert out.tolist() == ((lane << np.uint64(16) | 3 * lane << np.uint64(32)) + np.uint64(16)).tolist()


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
