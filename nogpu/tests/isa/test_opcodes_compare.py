"""Every row of comparisons and selections against NumPy and Python integers."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.opcode_runs import (
    REGISTER,
    TESTED,
    check_integers,
    floats,
    flushed,
    operands,
    run,
    s,
    typed,
)
from tests.support.small_kernels import launch

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
                f"mov.b64 %rd1, %a1; mov.b64 %rd2, %a2; add.s64 %rd1, %rd1, {case * width // 8}; "
                f"add.s64 %rd2, %rd2, {case * width // 8};"
            )
        else:
            text.append(f"mad.wide.u32 %rd1, %tid, {width // 8}, %a1; mad.wide.u32 %rd2, %tid, {width // 8}, %a2;")
        text.append(f"ld.global.b{width} {r}1, [%rd1]; ld.global.b{width} {r}2, [%rd2]; setp.ne.b32 %p3, %tid, 99;")
        text.append(
            f"{opcode} %p1|%p2, {r}1, {r}2{boolean}; selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 2, 0, %p2; "
            "add.u32 %r5, %r5, %r6;"
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


FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def columns_of(type_name):
    """Two float columns with equal, unordered and subnormal pairs, and the registers' bits."""
    a, b = floats(1), floats(2)
    b[::3] = a[::3]
    a[:3], b[:3] = [1e-40, -1e-40, 1e-40], [0, 1e-40, -1e-40]
    with np.errstate(all="ignore"):
        a, b = a.astype(FLOATS[type_name]), b.astype(FLOATS[type_name])
    width = a.dtype.itemsize * 8
    return a.astype(np.float64), b.astype(np.float64), width, [x.view(f"u{width // 8}").tolist() for x in (a, b)]


def holds(name, a, b):
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return ~unordered if name == "num" else unordered
    plain = COMPARE[name.removesuffix("u")](a, b)
    return plain | unordered if name.endswith("u") else plain & ~unordered


NAMES = [*COMPARE, *(name + "u" for name in COMPARE), "num", "nan"]


@pytest.mark.parametrize("type_name", FLOATS)
def test_float_comparison(type_name):
    a, b, width, columns = columns_of(type_name)
    for name in NAMES:
        wanted = np.where(holds(name, a, b), 1, 2).tolist()
        assert compare(f"setp.{name}.{type_name}", width, columns, False) == wanted
    assert compare(f"setp.num.{type_name}", width, columns, True) == np.where(np.isnan(a + b), 2, 1).tolist()[:8]


def test_flushed_comparison():
    a, b, width, columns = columns_of("f32")
    with np.errstate(all="ignore"):
        a, b = (flushed(x.astype(np.float32)) for x in (a, b))
    for name in ("eq", "lt", "neu"):
        assert compare(f"setp.{name}.ftz.f32", 32, columns, False) == np.where(holds(name, a, b), 1, 2).tolist()
        got = run(f"set.{name}.ftz.u32.f32", [32] * 2, 32, columns)
        assert got.tolist() == np.where(holds(name, a, b), 0xFFFFFFFF, 0).tolist()


def packed_columns(type_name):
    """Two columns of pairs: the numbers, [32, 2], and the registers' bits."""
    first, second = columns_of(type_name), columns_of(type_name)
    a, b = np.stack([first[0], second[1][::-1]], axis=1), np.stack([first[1], second[0][::-1]], axis=1)
    bits = [
        (np.array(low) | np.array(high)[::-1] << 16).tolist()
        for low, high in zip(first[3], second[3][::-1], strict=True)
    ]
    return a, b, bits


@pytest.mark.parametrize("type_name", ["f16", "bf16"])
def test_comparison_of_pairs(type_name):
    a, b, columns = packed_columns(type_name)
    third = np.arange(32) != 99
    for name in NAMES:
        result = holds(name, a, b)
        assert compare(f"setp.{name}.{type_name}x2", 32, columns, False) == (result[:, 0] + 2 * result[:, 1]).tolist()
        got = run(f"set.{name}.u32.{type_name}x2", [32] * 2, 32, columns)
        assert got.tolist() == (0xFFFF * result[:, 0] + 0xFFFF0000 * result[:, 1]).tolist()
        one = {"f16": 0x3C00, "bf16": 0x3F80}[type_name]
        got = run(f"set.{name}.{type_name}x2.{type_name}x2", [32] * 2, 32, columns)
        assert got.tolist() == (one * result[:, 0] + (one << 16) * result[:, 1]).tolist()
    result = holds("lt", a, b) ^ third[:, None]
    assert (
        compare(f"setp.lt.xor.{type_name}x2", 32, columns, False, ", %p3") == (result[:, 0] + 2 * result[:, 1]).tolist()
    )


ONES = {
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
}
RESULTS = {
    "f32": "u32 s32 f32 f16 bf16",
    "f64": "u32 f32 f16 bf16",
    "f16": "u16 s16 u32 s32 f16",
    "bf16": "u16 s16 u32 s32 bf16",
}


@pytest.mark.parametrize("type_name", RESULTS)
def test_set_of_floats(type_name):
    a, b, width, columns = columns_of(type_name)
    for result in RESULTS[type_name].split():
        for name in ("ltu", "ne", "nan"):
            wanted = np.where(holds(name, a, b), ONES[result], 0).tolist()
            got = run(f"set.{name}.{result}.{type_name}", [width] * 2, 16 if "16" in result else 32, columns)
            assert got.tolist() == wanted


def test_set_of_integers():
    for result, one in ONES.items():
        if result in ("u16", "s16"):
            continue
        width = 16 if "16" in result else 32
        reference = lambda a, b, one=one: one * (s(a, 32) < s(b, 32))  # noqa: E731
        check_integers(f"set.lt.{result}.s32", [32] * 2, width, reference)


def test_set_with_a_predicate():
    out, a, b = np.zeros(32, np.uint32), *(np.array(operands(32, seed), np.uint32) for seed in (1, 2))
    TESTED.add("set.ge.and.u32.u32")
    text = """
        mad.wide.u32 %rd1, %tid, 4, %a1; mad.wide.u32 %rd2, %tid, 4, %a2; ld.global.b32 %r1, [%rd1];
        ld.global.b32 %r2, [%rd2]; setp.lt.u32 %p1, %tid, 13; set.ge.and.u32.u32 %r3, %r1, %r2, !%p1;
        mad.wide.u32 %rd3, %tid, 4, %a0; st.global.b32 [%rd3], %r3;
    """
    launch(text, out, a, b)
    assert out.tolist() == np.where((a >= b) & (np.arange(32) >= 13), 0xFFFFFFFF, 0).tolist()


def test_selection_by_predicate():
    out = np.zeros((32, 2), np.uint64)
    TESTED.update(["selp.b64", "selp.f32"])
    text = """
        setp.lt.u32 %p1, %tid, 13; cvt.u64.u32 %rd1, %tid; mov.b64 %rd2, -7; selp.b64 %rd3, %rd1, %rd2, %p1;
        selp.f32 %r1, 0f3F800000, %tid, %p1; cvt.u64.u32 %rd4, %r1;
        mad.wide.u32 %rd5, %tid, 16, %a0; st.global.v2.b64 [%rd5], {%rd3, %rd4};
    """
    launch(text, out)
    lane = np.arange(32)
    assert out[:, 0].tolist() == [x if x < 13 else 2**64 - 7 for x in lane.tolist()]
    assert out[:, 1].tolist() == [0x3F800000 if x < 13 else x for x in lane.tolist()]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_selection_by_sign(width):
    check_integers(f"slct.b{width}.s32", [width, width, 32], width, lambda a, b, c: a if s(c, 32) >= 0 else b)
    values = floats(4)
    values[:2] = [-1e-40, 1e-40]
    columns = [operands(width, 1), operands(width, 2), values.view(np.uint32).tolist()]
    for ftz, tested in (("", values), (".ftz", flushed(values))):
        wanted = [a if c >= 0 else b for a, b, c in zip(*columns[:2], tested, strict=True)]
        assert run(f"slct{ftz}.b{width}.f32", [width, width, 32], width, columns).tolist() == wanted


@pytest.mark.parametrize("type_name", ["f32", "f64"])
def test_properties(type_name):
    a, _, width, columns = columns_of(type_name)
    tiny = np.finfo(FLOATS[type_name]).tiny
    a = np.array(columns[0], f"u{width // 8}").view(FLOATS[type_name])
    wanted = {
        "finite": np.isfinite(a),
        "infinite": np.isinf(a),
        "number": ~np.isnan(a),
        "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": (a != 0) & (np.abs(a) < tiny),
    }
    for name, expected in wanted.items():
        TESTED.add(f"testp.{name}.{type_name}")
        out = np.zeros(32, np.uint32)
        r = REGISTER[width]
        text = f"""
            mad.wide.u32 %rd1, %tid, {width // 8}, %a1; ld.global.b{width} {r}2, [%rd1];
            testp.{name}.{type_name} %p1, {r}2; selp.b32 %r3, 1, 0, %p1;
            mad.wide.u32 %rd3, %tid, 4, %a0; st.global.b32 [%rd3], %r3;
        """
        launch(text, out, np.array(columns[0], f"u{width // 8}"))
        assert out.astype(bool).tolist() == expected.tolist(), name
