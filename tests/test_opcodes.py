"""Every row of the opcode table against a reference in Python integers, Fractions or NumPy: per lane, and on uniform
values.
"""

import re
import struct
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_kernels import entry, launch

from emulator import opcodes, translate
from emulator.errors import EmulatorError

RNG = np.random.default_rng(7)
SPECIAL = {
    8: [0, 1, 0x7F, 0x80, 0xFF],
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 5],
    32: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 31, 32, 33],
    64: [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 63, 64, 65],
}
FLOAT32 = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    3.25,
    65504.0,
    65520.0,
    1e-8,
    -6e-8,
    3.4e38,
    1e-40,
    float("inf"),
    -float("inf"),
    float("nan"),
]
TESTED = set()


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def s(value, width):
    return value - (1 << width) if value >> width - 1 & 1 else value


def operands(width, seed, small=False):
    """32 values of a width: special ones first, in an order that depends on the seed, then random ones."""
    rng = np.random.default_rng(seed)
    values = rng.permutation(np.array(SPECIAL[width], np.uint64)).tolist()
    values += [
        int(v) >> int(k)
        for v, k in zip(rng.integers(0, 1 << min(width, 63), 32 - len(values)), rng.integers(0, width, 32))
    ]
    return [v % 70 if small else v & (1 << width) - 1 for v in values]


REGISTER = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}


def run(opcode, widths, result_width, columns, suffix="", uniform=False):
    """Execute `opcode d, s0, s1, ...` in 32 lanes, or once for each of 8 uniform operand sets."""
    TESTED.add(opcode)
    out = np.zeros(32, np.dtype(f"u{result_width // 8}"))
    sources = [np.array(column, np.dtype(f"u{width // 8}")) for column, width in zip(columns, widths)]
    text = []
    for case in range(8 if uniform else 1):
        names = []
        for i, width in enumerate(widths):
            name = f"{REGISTER[width]}{10 + i}"
            address = f"%a{i + 1}+{case * width // 8}" if uniform else f"%rd{i + 1}"
            if not uniform:
                text.append(f"mul.wide.u32 %rd{i + 1}, %tid, {width // 8}; add.s64 %rd{i + 1}, %rd{i + 1}, %a{i + 1};")
            text.append(f"ld.global.b{width} {name}, [{address}];")
            names.append(name)
        destination = f"{REGISTER[result_width]}20"
        text.append(f"{opcode} {destination}, {', '.join(names)}{suffix};")
        if uniform:
            text.append(f"st.global.b{result_width} [%a0+{case * result_width // 8}], {destination};")
        else:
            text.append(f"mul.wide.u32 %rd9, %tid, {result_width // 8}; add.s64 %rd9, %rd9, %a0;")
            text.append(f"st.global.b{result_width} [%rd9], {destination};")
    launch("\n".join(text), out, *sources)
    return out[:8] if uniform else out


def check_integers(opcode, widths, result_width, reference, suffix="", small=()):
    columns = [operands(width, 11 * i + len(opcode), i in small) for i, width in enumerate(widths)]
    expected = [reference(*row) & (1 << result_width) - 1 for row in zip(*columns)]
    assert run(opcode, widths, result_width, columns, suffix).tolist() == expected
    assert run(opcode, widths, result_width, columns, suffix, uniform=True).tolist() == expected[:8]


def truncated(a, b):
    return int(Fraction(a, b)) if b else -1


def typed(reference, type_name):
    """The reference on values of a type."""
    width = int(type_name[1:])
    return (lambda *v: reference(*(s(x, width) for x in v))) if type_name[0] == "s" else reference


TWO = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": truncated,
    "rem": lambda a, b: a - truncated(a, b) * b,
}


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", TWO)
def test_integer_arithmetic(name, type_name):
    width = int(type_name[1:])
    check_integers(f"{name}.{type_name}", [width] * 2, width, typed(TWO[name], type_name))


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_high_product(type_name):
    width = int(type_name[1:])
    check_integers(f"mul.hi.{type_name}", [width] * 2, width, typed(lambda a, b: a * b >> width, type_name))


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32"])
def test_wide_product(type_name):
    width = int(type_name[1:])
    check_integers(f"mul.wide.{type_name}", [width] * 2, 2 * width, typed(lambda a, b: a * b, type_name))
    reference = typed(lambda a, b: a * b, type_name)
    check_integers(f"mad.wide.{type_name}", [width, width, 2 * width], 2 * width, lambda a, b, c: reference(a, b) + c)


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
def test_multiply_add(type_name):
    width = int(type_name[1:])
    check_integers(f"mad.lo.{type_name}", [width] * 3, width, lambda a, b, c: a * b + c)
    if width == 32:
        check_integers(f"mad.hi.{type_name}", [32] * 3, 32, typed(lambda a, b, c: (a * b >> 32) + c, type_name))
        check_integers(f"sad.{type_name}", [32] * 3, 32, typed(lambda a, b, c: c + abs(a - b), type_name))


def reversed_bits(value, width):
    return int(format(value, f"0{width}b")[::-1], 2)


def leading(value, width, signed):
    value = ~value & (1 << width) - 1 if signed and value >> width - 1 else value
    return value.bit_length() - 1 if value else -1


@pytest.mark.parametrize(
    "opcode,width,result,reference",
    [
        *[(f"neg.s{w}", w, w, lambda a: -a) for w in (16, 32, 64)],
        *[(f"abs.s{w}", w, w, lambda a, w=w: abs(s(a, w))) for w in (16, 32, 64)],
        *[(f"not.b{w}", w, w, lambda a: ~a) for w in (16, 32, 64)],
        *[(f"cnot.b{w}", w, w, lambda a: int(a == 0)) for w in (16, 32, 64)],
        *[(f"popc.b{w}", w, 32, lambda a: bin(a).count("1")) for w in (32, 64)],
        *[(f"clz.b{w}", w, 32, lambda a, w=w: w - len(bin(a)) + 2 if a else w) for w in (32, 64)],
        *[(f"brev.b{w}", w, w, lambda a, w=w: reversed_bits(a, w)) for w in (32, 64)],
        *[(f"bfind.{t}{w}", w, 32, lambda a, t=t, w=w: leading(a, w, t == "s")) for t in "us" for w in (32, 64)],
        (
            "bfind.shiftamt.u32",
            32,
            32,
            lambda a: -1 if leading(a, 32, False) < 0 else 31 - leading(a, 32, False),
        ),
    ],
)
def test_one_operand(opcode, width, result, reference):
    check_integers(opcode, [width], result, reference)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(
    "name,reference", [("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)]
)
def test_logic(name, width, reference):
    check_integers(f"{name}.b{width}", [width] * 2, width, reference)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts(width):
    check_integers(f"shl.b{width}", [width, 32], width, lambda a, b: a << min(b, 64), small=(1,))
    check_integers(f"shr.u{width}", [width, 32], width, lambda a, b: a >> min(b, 64), small=(1,))
    check_integers(f"shr.s{width}", [width, 32], width, lambda a, b: s(a, width) >> min(b, 64), small=(1,))
    for count in (0, 5, width - 1, width, 200):
        check_integers(f"shl.b{width}", [width], width, lambda a, count=count: a << count, suffix=f", {count}")
        check_integers(f"shr.u{width}", [width], width, lambda a, count=count: a >> count, suffix=f", {count}")
        check_integers(
            f"shr.s{width}", [width], width, lambda a, count=count: s(a, width) >> count, suffix=f", {count}"
        )


def funnel(a, b, c, left, clamp):
    c = min(c, 32) if clamp else c % 32
    both = b << 32 | a
    return both >> 32 - c if left else both >> c


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@pytest.mark.parametrize("direction", ["l", "r"])
def test_funnel_shift(direction, mode):
    check_integers(
        f"shf.{direction}.{mode}.b32",
        [32] * 3,
        32,
        lambda a, b, c: funnel(a, b, c, direction == "l", mode == "clamp"),
        small=(2,),
    )


def bfe(a, start, length, width, signed):
    start, length, result = start & 255, length & 255, 0
    if length == 0:
        return 0
    top = a >> min(start + length - 1, width - 1) & 1 if signed else 0
    for i in range(width):
        bit = a >> start + i & 1 if i < length and start + i < width else top
        result |= bit << i
    return result


def bfi(a, b, start, length, width):
    start, length = start & 255, length & 255
    for i in range(width):
        if i < length and start + i < width:
            b = b & ~(1 << start + i) | (a >> i & 1) << start + i
    return b


@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields(width):
    for signed in (False, True):
        opcode = f"bfe.{'s' if signed else 'u'}{width}"
        check_integers(
            opcode, [width, 32, 32], width, lambda a, b, c, signed=signed: bfe(a, b, c, width, signed), small=(1, 2)
        )
    check_integers(
        f"bfi.b{width}", [width, width, 32, 32], width, lambda a, b, c, d: bfi(a, b, c, d, width), small=(2, 3)
    )


def prmt(a, b, c):
    source = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for i in range(4):
        byte = source[c >> 4 * i & 7]
        if c >> 4 * i & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * i
    return result


def test_bytes_and_truth_tables():
    check_integers("prmt.b32", [32] * 3, 32, prmt)
    for table in (0x96, 0xE8, 0x01, 0xCA, 0xFE, 0x80):

        def reference(a, b, c, table=table):
            return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))

        check_integers("lop3.b32", [32] * 3, 32, reference, suffix=f", {table}")


COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def compare(opcode, width, columns, uniform, boolean=""):
    """`setp` with a second destination and, in `boolean`, a combining predicate; the result as p + 2 q."""
    TESTED.add(opcode)
    out, a, b = np.zeros(32, np.uint32), *(np.array(c, np.dtype(f"u{width // 8}")) for c in columns)
    r, text = REGISTER[width], []
    for case in range(8 if uniform else 1):
        if uniform:
            text.append(
                f"mov.b64 %rd1, %a1; mov.b64 %rd2, %a2; add.s64 %rd1, %rd1, {case * width // 8}; add.s64 %rd2, %rd2, {case * width // 8};"
            )
        else:
            text.append(f"mad.wide.u32 %rd1, %tid, {width // 8}, %a1; mad.wide.u32 %rd2, %tid, {width // 8}, %a2;")
        text.append(f"ld.global.b{width} {r}1, [%rd1]; ld.global.b{width} {r}2, [%rd2]; setp.ne.b32 %p3, %tid, 99;")
        text.append(
            f"{opcode} %p1|%p2, {r}1, {r}2{boolean}; selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;"
        )
        address = f"%a0+{4 * case}" if uniform else "%rd3"
        text.append(f"mad.wide.u32 %rd3, %tid, 4, %a0; st.global.b32 [{address}], %r5;")
    launch("\n".join(text), out, a, b)
    return out[:8].tolist() if uniform else out.tolist()


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64", "b32"])
def test_integer_comparison(type_name):
    width = int(type_name[1:])
    columns = [operands(width, 3), operands(width, 4)]
    columns[1][::3] = columns[0][::3]
    for name, reference in COMPARE.items():
        if type_name[0] == "b" and name not in ("eq", "ne"):
            continue
        wanted = [1 if typed(reference, type_name)(a, b) else 2 for a, b in zip(*columns)]
        assert compare(f"setp.{name}.{type_name}", width, columns, False) == wanted
        assert compare(f"setp.{name}.{type_name}", width, columns, True) == wanted[:8]
    aliases = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    if type_name == "u32":
        for alias, name in aliases.items():
            assert compare(f"setp.{alias}.u32", 32, columns, False) == [
                1 if COMPARE[name](a, b) else 2 for a, b in zip(*columns)
            ]


def test_combined_comparison():
    columns = [operands(32, 3), operands(32, 4)]
    less = [a < b for a, b in zip(*columns)]
    assert compare("setp.lt.and.u32", 32, columns, False, ", !%p3") == [0] * 32
    assert compare("setp.lt.or.u32", 32, columns, False, ", %p3") == [3] * 32
    assert compare("setp.lt.xor.u32", 32, columns, True, ", %p3") == [2 if x else 1 for x in less[:8]]


def floats(seed):
    values = np.random.default_rng(seed).permutation(FLOAT32).astype(np.float32)
    random = np.random.default_rng(seed + 1).normal(size=32 - len(values)).astype(np.float32)
    return np.concatenate([values, random])


def test_float_comparison():
    a, b = floats(1), floats(2)
    b[::3] = a[::3]
    columns = [a.view(np.uint32).tolist(), b.view(np.uint32).tolist()]
    unordered = np.isnan(a) | np.isnan(b)
    for name, reference in COMPARE.items():
        holds = reference(a, b) & ~unordered
        assert compare(f"setp.{name}.f32", 32, columns, False) == np.where(holds, 1, 2).tolist()
        assert compare(f"setp.{name}u.f32", 32, columns, False) == np.where(holds | unordered, 1, 2).tolist()
    assert compare("setp.nan.f32", 32, columns, False) == np.where(unordered, 1, 2).tolist()
    assert compare("setp.num.f32", 32, columns, True) == np.where(unordered, 2, 1).tolist()[:8]


def test_set_and_selection():
    check_integers("set.lt.u32.s32", [32] * 2, 32, lambda a, b: -(s(a, 32) < s(b, 32)))
    check_integers("slct.b32.s32", [32] * 3, 32, lambda a, b, c: a if s(c, 32) >= 0 else b)
    a, b = floats(1), floats(2)
    columns = [x.view(np.uint32).tolist() for x in (a, b)]
    assert run("set.geu.f32.f32", [32] * 2, 32, columns).tolist() == np.where(~(a < b), bits(1.0), 0).tolist()
    check_predicates()


def check_predicates():
    """and, or, xor, not, mov on predicates that are uniform, per lane, or the leader's."""
    out = np.zeros(32, np.uint32)
    text = """
        setp.lt.u32 %p1, %tid, 20; setp.gt.u32 %p2, %tid, 7; elect.sync %r9|%p3, -1; setp.eq.u32 %p4, %r9, 0;
        and.pred %p5, %p1, %p2; or.pred %p6, %p5, %p3; xor.pred %p7, %p6, %p4; not.pred %p8, %p3;
        and.pred %p9, %p8, %p4; mov.pred %p10, %p7;
        selp.b32 %r1, 1, 0, %p5; selp.b32 %r2, 2, 0, %p6; selp.b32 %r3, 4, 0, %p10; selp.b32 %r4, 8, 0, %p9;
        or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4; mad.wide.u32 %rd1, %tid, 4, %a0;
        st.global.b32 [%rd1], %r1;
    """
    TESTED.update(["and.pred", "or.pred", "xor.pred", "not.pred", "mov.pred", "selp.b32", "elect.sync"])
    launch(text, out)
    lane = np.arange(32)
    both = (lane < 20) & (lane > 7)
    either = both | (lane == 0)
    assert out.tolist() == (both + 2 * either + 4 * ~either + 8 * (lane != 0)).tolist()


def half(array):
    return np.asarray(array, np.float16).view(np.uint16)


UNARY_FLOAT = {
    "neg.f32": np.negative, "abs.f32": np.abs, "rcp.rn.f32": lambda a: 1 / a, "rcp.approx.ftz.f32": lambda a: 1 / a, "sqrt.rn.f32": np.sqrt,
    "ex2.approx.f32": np.exp2, "lg2.approx.f32": np.log2, "sin.approx.f32": np.sin, "cos.approx.f32": np.cos, "tanh.approx.f32": np.tanh,
    "rsqrt.approx.f32": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(np.float32),
}  # fmt: skip
BINARY_FLOAT = {
    "add.f32": np.add, "sub.rn.f32": np.subtract, "mul.f32": np.multiply, "div.rn.f32": np.divide, "min.f32": np.fmin, "max.f32": np.fmax,
    "min.NaN.f32": np.minimum, "max.NaN.f32": np.maximum,
}  # fmt: skip


def test_float_literals():
    column = [floats(1).view(np.uint32).tolist()]
    with np.errstate(all="ignore"):
        for literal, value in (("0f40200000", 2.5), ("2.5", 2.5), ("-0.1", -0.1), ("0d3FF8000000000000", 1.5)):
            got = run("mul.f32", [32], 32, column, suffix=f", {literal}").view(np.float32)
            np.testing.assert_array_equal(got, floats(1) * np.float32(value))


def flushed(a):
    return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)


@pytest.mark.parametrize("opcode", [*UNARY_FLOAT, *BINARY_FLOAT, "add.ftz.f32", "mul.sat.f32"])
def test_float32(opcode):
    reference = (UNARY_FLOAT | BINARY_FLOAT | {"add.ftz.f32": np.add, "mul.sat.f32": np.multiply})[opcode]
    count = 1 if opcode in UNARY_FLOAT else 2
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


PACKED = {
    "f16": (16, np.float16), "f16x2": (32, np.float16), "bf16": (16, ml_dtypes.bfloat16), "bf16x2": (32, ml_dtypes.bfloat16),
    "f32x2": (64, np.float32), "f64": (64, np.float64),
}  # fmt: skip


HALVES = ["f16", "f16x2", "bf16", "bf16x2"]
OPERATIONS = {
    "add": [*HALVES, "f32x2", "f64"],
    "mul": [*HALVES, "f32x2", "f64"],
    "sub": [*HALVES, "f32x2", "f64"],
    "fma.rn": [*HALVES, "f32x2", "f64"],
}
OPERATIONS |= {name: [*HALVES, "f64"] for name in ("min", "max", "neg", "abs")} | {
    "ex2.approx": HALVES,
    "tanh.approx": HALVES,
}


@pytest.mark.parametrize(
    "name,type_name", [(name, type_name) for name, types in OPERATIONS.items() for type_name in types]
)
def test_other_float_types(name, type_name):
    width, dtype = PACKED[type_name]
    count = {"fma.rn": 3}.get(name, 2 if name in ("add", "mul", "sub", "min", "max") else 1)
    per_lane = width // (np.dtype(dtype).itemsize * 8)
    rng = np.random.default_rng(len(name))
    sources = [rng.normal(size=32 * per_lane).astype(dtype) for _ in range(count)]
    function = {
        "add": np.add, "mul": np.multiply, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "neg": np.negative, "abs": np.abs,
        "ex2.approx": np.exp2, "tanh.approx": np.tanh, "fma.rn": lambda a, b, c: a * b + c,
    }[name]  # fmt: skip
    wide = np.float64 if dtype is not np.float64 else np.longdouble
    expected = (
        function(*(x.astype(wide) for x in sources)).astype(np.float32 if "bf" in type_name else dtype).astype(dtype)
    )
    columns = [x.view(np.dtype(f"u{width // 8}")).tolist() for x in sources]
    got = run(f"{name}.{type_name}", [width] * count, width, columns).view(dtype)
    tolerance = {"f16": 1e-3, "f16x2": 1e-3, "bf16": 8e-3, "bf16x2": 8e-3}.get(type_name, 0) if "approx" in name else 0
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=tolerance)


def test_copysign():
    a, b = floats(1), floats(2)
    got = run("copysign.f32", [32] * 2, 32, [x.view(np.uint32).tolist() for x in (a, b)])
    assert got.tolist() == ((a.view(np.uint32) & 0x80000000) | (b.view(np.uint32) & 0x7FFFFFFF)).tolist()


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


@pytest.mark.parametrize("of", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_to_float(of):
    width = int(of[1:])
    column = operands(width, 9)
    read = typed(lambda a: a, of)
    expected = [np.float32(read(a)) for a in column]
    assert run(f"cvt.rn.f32.{of}", [width], 32, [column]).view(np.float32).tolist() == expected
    if width < 64:
        got = run(f"cvt.rz.f32.{of}", [width], 32, [column]).view(np.float32)
        for value, exact in zip(got, map(read, column)):
            further = np.nextafter(value, np.float32(np.inf if exact >= 0 else -np.inf))
            assert abs(float(value)) <= abs(exact) < abs(float(further))
    assert run(f"cvt.rn.f64.{of}", [width], 64, [column]).view(np.float64).tolist() == [float(read(a)) for a in column]


@pytest.mark.parametrize("to", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_float_to_integer(to):
    width = int(to[1:])
    values = floats(3)
    values[:6] = [2.5, -2.5, 3.5, 1e10, -1e10, 65536.7]
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    roundings = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    for rounding, function in roundings.items():
        expected = []
        for value in values.astype(np.float64):
            number = (
                0 if np.isnan(value) else low if value == -np.inf else high if value == np.inf else int(function(value))
            )
            expected.append(min(max(number, low), high) & (1 << width) - 1)
        assert run(f"cvt.{rounding}.{to}.f32", [32], width, [values.view(np.uint32).tolist()]).tolist() == expected


def test_float_to_float():
    values = floats(8)
    values[:3] = [1 + 2**-11, 1 + 2**-11 + 2**-20, 1 + 3 * 2**-11]
    column = [values.view(np.uint32).tolist()]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            run("cvt.rn.f16.f32", [32], 16, column).view(np.float16), values.astype(np.float16)
        )
        bf16 = run("cvt.rn.bf16.f32", [32], 16, column).view(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(bf16.astype(np.float32), values.astype(ml_dtypes.bfloat16).astype(np.float32))
        np.testing.assert_array_equal(run("cvt.f64.f32", [32], 64, column).view(np.float64), values.astype(np.float64))
        np.testing.assert_array_equal(run("cvt.rni.f32.f32", [32], 32, column).view(np.float32), np.rint(values))
        toward = run("cvt.rz.f16.f32", [32], 16, column).view(np.float16).astype(np.float64)
    finite = np.isfinite(values)
    assert (np.abs(toward[finite]) <= np.abs(values[finite].astype(np.float64))).all()
    assert (
        toward[finite & (np.abs(values) > 7e4)].tolist()
        == (np.sign(values[finite & (np.abs(values) > 7e4)]) * 65504).tolist()
    )
    halves = np.arange(0, 65536, 2048, dtype=np.uint16)
    np.testing.assert_array_equal(
        run("cvt.f32.f16", [16], 32, [halves.tolist()]).view(np.float32), halves.view(np.float16).astype(np.float32)
    )
    expected = halves.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(run("cvt.f32.bf16", [16], 32, [halves.tolist()]).view(np.float32), expected)


SMALL = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}
SMALL |= {"e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn}


@pytest.mark.parametrize("name", SMALL)
def test_small_float_packing(name):
    dtype = SMALL[name]
    limit = float(ml_dtypes.finfo(dtype).max)
    grid = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.sort(grid[np.isfinite(grid)])
    ties = (finite[1:] + finite[:-1]) / 2
    pool = np.concatenate(
        [finite, ties, np.nextafter(ties, np.float32(9e9)), floats(1)[np.isfinite(floats(1))]]
    ).astype(np.float32)
    for start in range(0, len(pool) - 31, 32):
        high, low = pool[start : start + 32], pool[start : start + 32][::-1]
        got = run(f"cvt.rn.satfinite.{name}x2.f32", [32, 32], 16, [x.view(np.uint32).tolist() for x in (high, low)])
        codes = [np.clip(x, -limit, limit).astype(dtype).view(np.uint8).astype(np.uint16) for x in (high, low)]
        assert got.tolist() == (codes[0] << (4 if name == "e2m1" else 8) | codes[1]).tolist()


@pytest.mark.parametrize("name", SMALL)
def test_small_float_unpacking(name):
    count = ml_dtypes.finfo(SMALL[name]).bits
    for start in range(0, 1 << count, 32):
        codes = (start + np.arange(32)) % (1 << count)
        packed = (codes | codes[::-1] << (4 if name == "e2m1" else 8)).astype(np.uint16)
        got = run(f"cvt.rn.f16x2.{name}x2", [16], 32, [packed.tolist()]).view(np.float16).reshape(32, 2)
        values = codes.astype(np.uint8).view(SMALL[name]).astype(np.float16)
        np.testing.assert_array_equal(got, np.stack([values, values[::-1]], axis=1))


def test_bytes_of_e2m1_unpack():
    """As ptxas takes it: the source is an 8-bit register. All bytes, in all four places of a word."""
    codes = np.random.default_rng(5).permuted(np.tile(np.arange(256, dtype=np.uint8), (4, 1)), axis=1).T.copy()
    out = np.zeros((256, 4, 2), np.float16)
    text = """
        mad.wide.u32 %rd1, %tid, 4, %a1; ld.global.b32 %r1, [%rd1];
        .reg .b8 x<4>; mov.b32 {x0, x1, x2, x3}, %r1;
        cvt.rn.f16x2.e2m1x2 %r2, x0; cvt.rn.f16x2.e2m1x2 %r3, x1; cvt.rn.f16x2.e2m1x2 %r4, x2; cvt.rn.f16x2.e2m1x2 %r5, x3;
        mad.wide.u32 %rd2, %tid, 16, %a0; st.global.v4.b32 [%rd2], {%r2, %r3, %r4, %r5};
    """
    launch(text, out, codes, threads=256)
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1)
    np.testing.assert_array_equal(
        out.view(np.uint16), nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float16).view(np.uint16)
    )


def test_scale_conversion():
    values = np.array([1, 1.5, 2, 3, 2.0**-127, 2.0**-130, 0, 2.0**127, 3e38, np.inf, np.nan] + [0.7] * 21, np.float32)
    column = [values.view(np.uint32).tolist()] * 2
    codes = run("cvt.rp.satfinite.ue8m0x2.f32", [32] * 2, 16, column) & 0xFF
    assert codes[:11].tolist() == [127, 128, 128, 129, 0, 0, 0, 254, 254, 254, 255]
    codes = run("cvt.rz.satfinite.ue8m0x2.f32", [32] * 2, 16, column) >> 8
    assert codes[:5].tolist() == [127, 127, 128, 128, 0]
    got = run("cvt.rn.bf16x2.ue8m0x2", [16], 32, [[127 | 130 << 8] * 32]).view(ml_dtypes.bfloat16)[:2].astype(float)
    assert got.tolist() == [1.0, 8.0]


def test_half_pairs():
    a, b = floats(1), floats(2)
    columns = [x.view(np.uint32).tolist() for x in (a, b)]
    with np.errstate(all="ignore"):
        for opcode, dtype in (("cvt.rn.f16x2.f32", np.float16), ("cvt.rn.bf16x2.f32", ml_dtypes.bfloat16)):
            got = run(opcode, [32, 32], 32, columns).view(dtype).reshape(32, 2).astype(np.float32)
            np.testing.assert_array_equal(got, np.stack([b, a], axis=1).astype(dtype).astype(np.float32))


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


def test_unknown_instructions_are_refused_by_name_and_line():
    for text in ("tcgen05.shift.cta_group::1.down [%r1];", "wgmma.fence.sync.aligned;", "add.s8 %r1, %r2, %r3;"):
        with pytest.raises(EmulatorError) as error:
            translate.translate(entry(f"mov.u32 %r1, 0;\n{text}"))
        assert (
            text.split()[0].rstrip(";") in str(error.value)
            and error.value.ptx_line
            and error.value.ptx_text == text.rstrip(";")
        )


def test_every_row_is_tested():
    """By a test above, which must have run in this process, or by an opcode that stands in another test's text."""
    if len(TESTED) < 200:
        pytest.skip("the other tests of this file did not run in this process")
    texts = " ".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    texts = texts.replace("x{count}{transposed}", "x4").replace("{load}{vector}.b{width}", "ld.global.nc.b32")
    opcodes_tested = TESTED | set(re.findall(r"[a-z][\w.:]*[\w]", texts))
    missing = [row.pattern.pattern for row in opcodes.TABLE if not any(map(row.pattern.fullmatch, opcodes_tested))]
    assert not missing, missing
