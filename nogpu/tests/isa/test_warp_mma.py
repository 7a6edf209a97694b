"""mma.sync: every shape and type against NumPy, with the fragments of the PTX ISA's tables, element by element."""

import re

import ml_dtypes
import numpy as np
import pytest

from nogpu.compiler.opcodes import warp_mma
from nogpu.errors import EmulatorError
from tests.support.ptxas import assembles
from tests.support.small_kernels import launch

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
DTYPES |= {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
FORMS = [
    (shape, d, a, b)
    for a, (of_b, results, shapes) in warp_mma._FORMS.items()
    for b in of_b
    for d in results
    for shape in shapes
]
EXACT = [form for form in FORMS if form[1] in ("s32", "f64")]


def sizes(shape):
    return tuple(map(int, re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups()))


def a_place(m, per, register, lane, i):
    """The (row, column) of element i of a register of A: PTX ISA, "Matrix Fragments for mma.m16n8k..."."""
    group, member = lane >> 2, lane % 4
    if m == 8:
        return group, per * (member + 4 * register) + i
    return group + (8 if register % 2 else 0), per * (member + 4 * (register // 2)) + i


def b_place(per, register, lane, i):
    """The (row, column) of element i of a register of B."""
    return per * (lane % 4 + 4 * register) + i, lane >> 2


def c_place(packed, register, lane, i):
    """The (row, column) of element i of a register of C or D."""
    if packed:
        return (lane >> 2) + 8 * register, 2 * (lane % 4) + i
    return (lane >> 2) + 8 * (register // 2), 2 * (lane % 4) + register % 2


def codes(matrix, type_name):
    """The elements' bits."""
    if type_name in ("s4", "u4"):
        return matrix.astype(np.int64) & 15
    if type_name in ("s8", "u8"):
        return matrix.astype(np.int64) & 255
    dtype = np.dtype(DTYPES["f32" if type_name == "tf32" else type_name])
    return matrix.astype(dtype).view(f"u{dtype.itemsize}").astype(np.uint64)


def registers(matrix, type_name, bits, count, place):
    """The registers of a matrix, uint[count, 32]. place(register, lane, element) -> (row, column)."""
    width = max(bits, 32)
    found = np.zeros((count, 32), np.uint64)
    values = codes(matrix, type_name)
    for register, lane in np.ndindex(count, 32):
        for i in range(width // bits):
            found[register, lane] |= np.uint64(int(values[place(register, lane, i)]) << bits * i)
    return found.astype(f"u{width // 8}")


def counts(shape, d, a):
    m, n, k = sizes(shape)
    unit = max(32, BITS[a])
    of_d = m * n * (16 if d == "f16" else 64 if d == "f64" else 32) // (64 if d == "f64" else 32) // 32
    return of_d, m * k * BITS[a] // unit // 32, k * n * BITS[a] // unit // 32


def opcode(shape, d, a, b, modifiers=""):
    return f"mma.sync.aligned.{shape}.row.col{modifiers}.{d}.{a}.{b}.{d}"


def operand(name, kind, first, count):
    return "{" + ", ".join(f"%{kind}{first + i}" for i in range(count)) + "}"


def run(shape, d, a, b, words_a, words_b, words_c, modifiers="", uniform=False):
    """The registers of D. uniform: every lane's registers are lane 0's, and the compiler knows it."""
    of_d, of_a, of_b = counts(shape, d, a)
    wide = a == "f64"
    width, kind = (64, "d") if wide else (32, "w")
    out = np.zeros((of_d, 32), "u8" if wide else "u4")
    body = [f".reg .b{width} %{kind}<60>; mad.wide.u32 %rd1, %tid, {width // 8}, %a0;"]
    for array, first, count in ((1, 20, of_a), (2, 40, of_b), (3, 50, of_d)):
        offset = "%rd2" if not uniform else f"%a{array}"
        if not uniform:
            body.append(f"mad.wide.u32 %rd2, %tid, {width // 8}, %a{array};")
        for i in range(count):
            body.append(f"ld.global.b{width} %{kind}{first + i}, [{offset}+{4 * width * i}];")
    names = [operand("", kind, first, count) for first, count in ((1, of_d), (20, of_a), (40, of_b), (50, of_d))]
    body.append(f"{opcode(shape, d, a, b, modifiers)} {', '.join(names)};")
    body += [f"st.global.b{width} [%rd1+{4 * width * i}], %{kind}{1 + i};" for i in range(of_d)]
    launch("\n".join(body), out, *(np.ascontiguousarray(x) for x in (words_a, words_b, words_c)))
    return out


def packed(shape, d, a, b, left, right, c):
    """The registers of A, B and C."""
    m, _, _ = sizes(shape)
    of_d, of_a, of_b = counts(shape, d, a)
    per = max(32, BITS[a]) // BITS[a]
    bits = {"f16": 16, "f64": 64}.get(d, 32)
    return (
        registers(left, a, BITS[a], of_a, lambda r, lane, i: a_place(m, per, r, lane, i)),
        registers(right, b, BITS[b], of_b, lambda r, lane, i: b_place(per, r, lane, i)),
        registers(c, d, bits, of_d, lambda r, lane, i: c_place(d == "f16", r, lane, i)),
    )


def drawn(rng, shape, type_name):
    """Numbers of a type whose sums of products are exact."""
    if type_name in ("s8", "u8", "s4", "u4"):
        low, high = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}[type_name]
        return rng.integers(low, high, shape)
    return rng.integers(-4, 5, shape).astype(np.float64)


@pytest.mark.parametrize("shape,d,a,b", EXACT)
def test_exact_products(shape, d, a, b):
    rng, (m, n, k) = np.random.default_rng(1), sizes(shape)
    left, right = drawn(rng, (m, k), a), drawn(rng, (k, n), b)
    c = rng.integers(-100, 100, (m, n)) * (1 if d == "s32" else 0.5)
    expected = (left @ right + c).astype(DTYPES[d])
    words = packed(shape, d, a, b, left, right, c)
    found = run(shape, d, a, b, *words)
    bits = {"f16": 16, "f64": 64}.get(d, 32)
    assert np.array_equal(
        found, registers(expected, d, bits, len(found), lambda r, lane, i: c_place(d == "f16", r, lane, i))
    )


def numbers(words, type_name, shape, bits, place):
    """float64 of a matrix in registers, whose NaNs are any."""
    values, found = np.zeros(shape), words.astype(np.uint64)
    for register, lane in np.ndindex(words.shape):
        for i in range(max(bits, 32) // bits):
            code = np.array(int(found[register, lane]) >> bits * i & (1 << bits) - 1, f"u{bits // 8}")
            code = code & np.uint32(0xFFFFE000) if type_name == "tf32" else code
            values[place(register, lane, i)] = code.view(DTYPES["f32" if type_name == "tf32" else type_name])
    return values


def product(left, right, c, dtype):
    """Exact products, summed in order of k in double precision, C last, and rounded once; NaNs are canonical."""
    total = np.zeros(c.shape)
    for k in range(left.shape[1]):
        total += left[:, k, None] * right[k]
    rounded = (total + c).astype(dtype)
    bits = rounded.view(f"u{rounded.itemsize}")
    bits[np.isnan(rounded)] = (1 << 8 * rounded.itemsize - 1) - 1
    return rounded


@pytest.mark.parametrize("shape,d,a,b", [form for form in FORMS if form not in EXACT])
def test_the_bits_of_any_product(shape, d, a, b):
    """Random registers: every code, NaNs, infinities and subnormals, sums that are rounded."""
    rng = np.random.default_rng(2)
    of_d, of_a, of_b = counts(shape, d, a)
    for special in (False, True):
        words = [rng.integers(0, 1 << 32, (count, 32), np.uint32) for count in (of_a, of_b, of_d)]
        if not special:
            m, n, k = sizes(shape)
            with np.errstate(all="ignore"):
                words = packed(
                    shape, d, a, b, rng.normal(size=(m, k)), rng.normal(size=(k, n)), rng.normal(size=(m, n))
                )
        for uniform in (False, True):
            used = [np.repeat(x[:, :1], 32, axis=1) for x in words] if uniform else words
            (m, n, k), per, bits = sizes(shape), max(32, BITS[a]) // BITS[a], 16 if d == "f16" else 32
            with np.errstate(all="ignore"):
                left = numbers(used[0], a, (m, k), BITS[a], lambda *at, m=m, per=per: a_place(m, per, *at))
                right = numbers(used[1], b, (k, n), BITS[b], lambda *at, per=per: b_place(per, *at))
                c = numbers(used[2], d, (m, n), bits, lambda *at: c_place(d == "f16", *at))
                expected = product(left, right, c, DTYPES[d]).view(f"u{bits // 8}")
            found = run(shape, d, a, b, *words, uniform=uniform)
            for register, lane in np.ndindex(found.shape):
                codes_of_d = [int(expected[c_place(d == "f16", register, lane, i)]) for i in range(32 // bits)]
                assert found[register, lane] == sum(code << bits * i for i, code in enumerate(codes_of_d))


@pytest.mark.parametrize("shape,d,a,b", [("m16n8k16", "f32", "f16", "f16"), ("m16n8k8", "f32", "bf16", "bf16")])
def test_accuracy(shape, d, a, b):
    """Within the bound of docs/manual.md of the exact sum."""
    rng, (m, n, k) = np.random.default_rng(3), sizes(shape)
    left, right = (rng.normal(size=size).astype(DTYPES[a]).astype(np.float64) for size in ((m, k), (k, n)))
    c = rng.normal(size=(m, n)).astype(np.float32).astype(np.float64)
    found = run(shape, d, a, b, *packed(shape, d, a, b, left, right, c))
    expected = registers(left @ right + c, d, 32, len(found), lambda r, lane, i: c_place(False, r, lane, i))
    bound = k * 2.0**-24 / (1 - k * 2.0**-24) * (np.abs(left) @ np.abs(right) + np.abs(c)).max()
    assert np.abs(found.view(np.float32) - expected.view(np.float32)).max() <= bound


@pytest.mark.parametrize("saturates", [False, True])
def test_sums_of_integers_that_overflow(saturates):
    shape, types = "m16n8k32", ("s32", "s8", "s8")
    left, right = np.full((16, 32), 127), np.full((32, 8), 127)
    c = np.full((16, 8), (1 << 31) - 1)
    found = run(shape, *types, *packed(shape, *types, left, right, c), ".satfinite" if saturates else "")
    total = (1 << 31) - 1 + 32 * 127 * 127
    assert set(found.view(np.int32).ravel().tolist()) == {(1 << 31) - 1 if saturates else total - (1 << 32)}


def test_all_lanes_take_part():
    text = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r7}, {%r1,%r2,%r3,%r4};"
    with pytest.raises(EmulatorError, match="needs all 32 lanes"):
        launch(f"setp.gt.u32 %p1, %tid, 7; @%p1 bra END; {text} END:", np.zeros(1, np.uint32))
    launch(f"setp.gt.u32 %p1, %tid, 31; @%p1 bra END; {text} END:", np.zeros(1, np.uint32))


def test_ptxas_takes_the_same_forms():
    """The combinations and numbers of registers are those of sm_100a."""
    lines = []
    for shape, d, a, b in FORMS:
        of_d, of_a, of_b = counts(shape, d, a)
        of_c = {"f32": "f", "f64": "d", "s32": "r", "f16": "r"}[d]
        of_ab = "d" if a == "f64" else "r"
        names = [operand("", *x) for x in ((of_c, 1, of_d), (of_ab, 20, of_a), (of_ab, 30, of_b), (of_c, 10, of_d))]
        lines.append(f"{opcode(shape, d, a, b)} {', '.join(names)};")
    declared = ".reg .b32 %r<40>; .reg .f32 %f<40>; .reg .f64 %d<40>;\n"
    text = (
        ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n"
        + declared
        + "\n".join(lines)
        + "\nret; }"
    )
    assert assembles(text, "sm_100a")
