"""atom and red: every operation and type against NumPy in lane order."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.small_kernels import launch, store

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
PLACES = 4  # places; lanes i, i + 4, ... share one


def lanes(body, *arrays):
    out = np.full(32, 0xDEAD, np.uint32)
    launch(body + store("%r1"), out, *arrays)
    return out.tolist()


@pytest.mark.parametrize("space", ["global", "shared", "shared::cluster", ""])
@pytest.mark.parametrize(
    "operation,start,operand,final",
    [
        ("add.u32", 5, "%tid", 5 + 496),
        ("add.s32", 5, "2", 69),
        ("min.s32", -3, "%r9", -20),
        ("max.u32", 3, "%tid", 31),
        ("and.b32", 0xFF, "%r8", 0x40),
        ("or.b32", 0, "%r7", -1),
        ("xor.b32", 1, "%r7", -2),
        ("exch.b32", 1, "%tid", 31),
        ("inc.u32", 30, "31", 30),
        ("dec.u32", 1, "31", 1),
    ],
)
def test_integers(operation, start, operand, final, space):
    place, dotted = "%r2" if space.startswith("shared") else "%a1", f".{space}" if space else ""
    prepare = (
        "shl.b32 %r7, 1, 0; mov.u32 %r6, 1; shl.b32 %r7, %r6, %tid; or.b32 %r8, %tid, 0x40; "
        "sub.u32 %r9, 11, %tid; mov.u32 %r2, smem;"
    )
    prepare += "ld.global.b32 %r3, [%a1]; st.shared.b32 [%r2], %r3;"
    counter = np.array([start & 0xFFFFFFFF], np.uint32)
    finish = "ld.shared.b32 %r4, [%r2]; st.global.b32 [%a1], %r4;" if place == "%r2" else ""
    old = lanes(f"{prepare} atom{dotted}.{operation} %r1, [{place}], {operand}; {finish}", counter)
    assert counter[0] == final & 0xFFFFFFFF and old[0] == start & 0xFFFFFFFF
    if operation != "exch.b32":
        counter[0] = start & 0xFFFFFFFF
        lanes(f"{prepare} mov.u32 %r1, 0; red.relaxed.gpu{dotted}.{operation} [{place}], {operand}; {finish}", counter)
        assert counter[0] == final & 0xFFFFFFFF


@pytest.mark.parametrize("type_name", ["u64", "s64"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_wide_minimum_and_maximum(operation, type_name):
    rng = np.random.default_rng(3)
    values = rng.integers(0, 1 << 64, 32, dtype=np.uint64)
    values[:3] = (0, 1 << 63, (1 << 64) - 1)
    word = np.array([1 << 62], np.uint64)
    body = "mad.wide.u32 %rd2, %tid, 8, %a2; ld.global.b64 %rd3, [%rd2]; mov.u32 %r1, 0;"
    lanes(f"{body} atom.global.{operation}.{type_name} %rd4, [%a1], %rd3;", word, values)
    kind = np.int64 if type_name == "s64" else np.uint64
    everything = np.append(values, np.uint64(1 << 62)).view(kind)
    assert word.view(kind)[0] == (everything.min() if operation == "min" else everything.max())


def test_compare_and_swap():
    word = np.array([4], np.uint32)
    old = lanes("add.u32 %r2, %tid, 1; add.u32 %r3, %tid, 4; atom.global.cas.b32 %r1, [%a1], %r3, %r2;", word)
    assert word[0] == 1 and old == [4] + [1] * 31
    half = np.array([7, 9], np.uint16)
    body = (
        "mov.b16 %h1, 9; mov.b16 %h2, 3; atom.acquire.cta.global.cas.b16 %h3, [%a1+2], %h1, %h2; cvt.u32.u16 %r1, %h3;"
    )
    assert lanes(body, half) == [9] + [3] * 31 and half.tolist() == [7, 3]
    table = np.zeros(4, np.uint64)
    body = (
        "and.b32 %r2, %tid, 3; mad.wide.u32 %rd2, %r2, 8, %a1; mov.u64 %rd3, 1; atom.add.u64 %rd4, [%rd2], %rd3; "
        "cvt.u32.u64 %r1, %rd4;"
    )
    assert lanes(body, table) == [i // 4 for i in range(32)] and table.tolist() == [8] * 4


def numbers(type_name, count, seed):
    """Random numbers of all sizes, zeros, subnormals, infinities and NaN."""
    kind = np.dtype(TYPES[type_name])
    words = {2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize]
    rng = np.random.default_rng(seed)
    values = rng.integers(0, np.iinfo(words).max, count, dtype=words, endpoint=True).view(kind)
    near = (rng.standard_normal(count) * 4).astype(kind)
    values = np.where(rng.random(count) < 0.6, near, values)
    exponent = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[type_name]
    subnormal = rng.integers(1, 1 << exponent, count).astype(words).view(kind)
    return np.where(rng.random(count) < 0.15, subnormal, values).astype(kind)


def modified(operation, type_name, flushes, old, new):
    if flushes:
        old, new = (np.float32(0) * x if 0 < abs(x) < np.finfo(np.float32).tiny else x for x in (old, new))
    with np.errstate(all="ignore"):
        if operation != "add":
            if np.isnan(old) or np.isnan(new):
                return new if np.isnan(old) else old
            return min(old, new) if operation == "min" else max(old, new)
        total = old + new
    return np.float32(0) * total if flushes and abs(total) < np.finfo(np.float32).tiny else total


def same(got, expected):
    got, expected = (np.asarray(x).astype(np.float64) for x in (got, expected))
    return np.array_equal(got, expected, equal_nan=True)


FORMS = [
    ("add", "f32", 1),
    ("add", "f32", 2),
    ("add", "f32", 4),
    ("add", "f64", 1),
    *[("add", half, count) for half in ("f16", "bf16") for count in (1, 2, 4, 8)],
    *[("add", half, count) for half in ("f16x2", "bf16x2") for count in (1, 2, 4)],
    *[(operation, half, 4) for half in ("f16", "bf16", "f16x2", "bf16x2") for operation in ("min", "max")],
]


@pytest.mark.parametrize("name", ["atom", "red"])
@pytest.mark.parametrize(
    "operation,type_name,count,space",
    [(*form, space) for form in FORMS for space in ("global", "shared", "") if form[2] == 1 or space != "shared"],
)
def test_floats(operation, type_name, count, space, name):
    """Parameters: a1, PLACES vectors; a2, a vector per lane; a3, the place of each lane's old vector."""
    element = type_name.removesuffix("x2")
    size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[element] * (2 if "x2" in type_name else 1)
    elements = count * (2 if "x2" in type_name else 1)
    storage = np.zeros(4096, np.uint8)
    storage = storage[-storage.ctypes.data % 256 :][: count * size * PLACES]
    memory = storage.view(TYPES[element])
    memory[:] = start = numbers(element, memory.size, 1)
    sources = np.zeros(2048 + 256, np.uint8)
    sources = sources[-sources.ctypes.data % 256 :][: count * size * 32].view(TYPES[element])
    sources[:] = numbers(element, sources.size, 2)
    old = np.zeros_like(sources)
    letter = {2: "h", 4: "r", 8: "rd"}[size]
    one, two = ([f"%{letter}{first + i}" for i in range(count)] for first in (10, 20))
    vector = f".v{count}" if count > 1 else ""
    rounding = ".noftz" if "f16" in type_name else ""
    dotted = f".{space}" if space else ""
    moves = "".join(
        f"ld.global.b{8 * size} {one[i]}, [%rd3+{size * i}];" for i in range(count)
    )  # piecewise: vectors of some sizes have no load
    saves = "".join(f"st.global.b{8 * size} [%rd4+{size * i}], {two[i]};" for i in range(count))
    a, d = (f"{{{', '.join(items)}}}" if count > 1 else items[0] for items in (one, two))
    place = "%rd2"
    copy_in = copy_out = ""
    if space == "shared":
        place = "%r5"
        copy_in = (
            f"mov.u32 %r5, smem; mad.lo.u32 %r5, %r2, {size}, %r5; ld.global.b{8 * size} %{letter}9, [%rd2]; "
            f"st.shared.b{8 * size} [%r5], %{letter}9; bar.warp.sync -1;"
        )
        copy_out = (
            f"bar.warp.sync -1; ld.shared.b{8 * size} %{letter}9, [%r5]; st.global.b{8 * size} [%rd2], %{letter}9;"
        )
    what = (
        f"{name}{dotted}.{operation}{rounding}{vector}.{type_name} {d + ', ' if name == 'atom' else ''}[{place}], {a};"
    )
    body = f"""
        and.b32 %r2, %tid, {PLACES - 1}; mad.wide.u32 %rd2, %r2, {count * size}, %a1;
        mad.wide.u32 %rd3, %tid, {count * size}, %a2; mad.wide.u32 %rd4, %tid, {count * size}, %a3;
        {copy_in} {moves} {what} {saves if name == "atom" else ""} {copy_out}
    """
    launch(body, np.zeros(1, np.uint32), storage, sources, old)
    expected = start.reshape(PLACES, elements).copy()
    before = np.zeros((32, elements), TYPES[element])
    flushes = element == "f32" and space != "shared"
    for lane in range(32):
        before[lane] = expected[lane % PLACES]
        for i in range(elements):
            new = sources.reshape(32, elements)[lane, i]
            expected[lane % PLACES, i] = modified(operation, element, flushes, expected[lane % PLACES, i], new)
    assert same(memory, expected.ravel())
    assert name == "red" or same(old, before.ravel())


@pytest.mark.parametrize("word", [0x00000001, 0x007FFFFF])
def test_where_subnormal_sums_are_flushed(word):
    """PTX ISA, "atom": f32 sums flush in global memory and keep subnormal numbers in shared memory."""
    cell = np.array([word], np.uint32)
    lanes("mov.b32 %r1, 0; atom.global.add.f32 %r2, [%a1], %r1;", cell)
    assert cell[0] == 0
    body = f"mov.u32 %r3, smem; mov.b32 %r4, {word}; st.shared.b32 [%r3], %r4; mov.b32 %r5, 0;"
    generic = "cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd2, %rd2;"
    assert set(lanes(f"{body} atom.shared.add.f32 %r1, [%r3], %r5;")) == {word}
    assert set(lanes(f"{body} {generic} atom.add.f32 %r1, [%rd2], %r5;")) == {word}
    cell[0] = word
    choice = "and.b32 %r6, %tid, 1; setp.eq.u32 %p1, %r6, 0; selp.b64 %rd2, %rd2, %a1, %p1;"
    assert set(lanes(f"{body} {generic} {choice} atom.add.f32 %r1, [%rd2], %r5;", cell)[::2]) == {word}
    assert cell[0] == 0
    cell[0] = word
    lanes("mov.b32 %r1, 0; atom.add.f32 %r2, [%a1], %r1;", cell)
    assert cell[0] == 0


def test_modifiers_in_any_order():
    word = np.array([1.0, 2.0], np.float32)
    lanes(
        (
            "mov.b32 %r1, 0f3F800000; red.relaxed.gpu.global.v2.f32.add [%a1], {%r1, %r1}; "
            "red.global.add.v2.f32 [%a1], {%r1, %r1};"
        ),
        word,
    )
    assert word.tolist() == [65.0, 66.0]
    body = "mov.u64 %rd3, 0; atom.global.relaxed.gpu.add.u32.L2::cache_hint %r1, [%a1], 1, %rd3;"
    counter = np.array([10, 0], np.uint32)
    assert lanes(body, counter) == list(range(10, 42))
    lanes(
        (
            "mov.u64 %rd3, 0; mov.u32 %r1, 0; red.release.sys.global.L2::cache_hint.add.u32 [%a1], 1, %rd3; "
            "atom.add.u32 _, [%a1], 1;"
        ),
        counter,
    )
    assert counter[0] == 42 + 64
