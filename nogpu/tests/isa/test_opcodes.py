"""Every row of integer instructions against a reference in Python integers: per lane, and on uniform values. And that
every row of the whole table refuses other numbers of operands.
"""

from fractions import Fraction

import numpy as np
import pytest

from nogpu.compiler import translate
from nogpu.errors import EmulatorError
from tests.support.opcode_runs import TESTED, check_integers, operands, s, typed
from tests.support.small_kernels import entry, launch, store


def truncated(a, b):
    return int(Fraction(a, b)) if b else -1


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


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_multiply_add(type_name):
    width = int(type_name[1:])
    check_integers(f"mad.lo.{type_name}", [width] * 3, width, lambda a, b, c: a * b + c)
    check_integers(f"mad.hi.{type_name}", [width] * 3, width, typed(lambda a, b, c: (a * b >> width) + c, type_name))
    check_integers(f"sad.{type_name}", [width] * 3, width, typed(lambda a, b, c: c + abs(a - b), type_name))


def clamp(value, width=32):
    return min(max(value, -(1 << width - 1)), (1 << width - 1) - 1)


SATURATING = {
    "add.sat.s32": (2, lambda a, b: clamp(a + b)),
    "sub.sat.s32": (2, lambda a, b: clamp(a - b)),
    "mad.hi.sat.s32": (3, lambda a, b, c: clamp((a * b >> 32) + c)),
    "min.relu.s32": (2, lambda a, b: max(min(a, b), 0)),
    "max.relu.s32": (2, lambda a, b: max(a, b, 0)),
}


@pytest.mark.parametrize("opcode", SATURATING)
def test_saturation(opcode):
    count, reference = SATURATING[opcode]
    check_integers(opcode, [32] * count, 32, typed(reference, "s32"))


@pytest.mark.parametrize("sign", "us")
def test_products_of_24_bits(sign):
    def low24(value):
        return s(value & 0xFFFFFF, 24) if sign == "s" else value & 0xFFFFFF

    for name, shift in (("lo", 0), ("hi", 16)):
        check_integers(f"mul24.{name}.{sign}32", [32] * 2, 32, lambda a, b, shift=shift: low24(a) * low24(b) >> shift)
        check_integers(
            f"mad24.{name}.{sign}32", [32] * 3, 32, lambda a, b, c, shift=shift: (low24(a) * low24(b) >> shift) + c
        )
    if sign == "s":
        check_integers("mad24.hi.sat.s32", [32] * 3, 32, lambda a, b, c: clamp((low24(a) * low24(b) >> 16) + s(c, 32)))


def parts(value, width, sign):
    fields = [value >> i & (1 << width) - 1 for i in range(0, 32, width)]
    return [s(field, width) for field in fields] if sign == "s" else fields


@pytest.mark.parametrize("b_sign", "us")
@pytest.mark.parametrize("a_sign", "us")
def test_dot_products(a_sign, b_sign):
    types = f"{a_sign}32.{b_sign}32"
    check_integers(
        f"dp4a.{types}", [32] * 3, 32, lambda a, b, c: c + np.dot(parts(a, 8, a_sign), parts(b, 8, b_sign)).item()
    )
    for half, start in (("lo", 0), ("hi", 2)):

        def reference(a, b, c, start=start):
            return c + np.dot(parts(a, 16, a_sign), parts(b, 8, b_sign)[start : start + 2]).item()

        check_integers(f"dp2a.{half}.{types}", [32] * 3, 32, reference)


PAIRS = {
    "add.u16x2": lambda a, b: a + b,
    "add.s16x2": lambda a, b: a + b,
    "min.u16x2": min,
    "max.u16x2": max,
    "min.s16x2": min,
    "max.s16x2": max,
    "min.relu.s16x2": lambda a, b: max(min(a, b), 0),
    "max.relu.s16x2": lambda a, b: max(a, b, 0),
}


@pytest.mark.parametrize("opcode", PAIRS)
def test_pairs_of_16_bits(opcode):
    def reference(a, b):
        pairs = zip(parts(a, 16, opcode[-5]), parts(b, 16, opcode[-5]), strict=True)
        return sum((PAIRS[opcode](x, y) & 0xFFFF) << 16 * i for i, (x, y) in enumerate(pairs))

    check_integers(opcode, [32] * 2, 32, reference)


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


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extensions(mode):
    def mask(a, b):
        if mode == "wrap":
            a, b = a & 31, b & 31
        return sum(1 << i for i in range(32) if a <= i < a + b)

    def extended(a, b, sign):
        length = b if mode == "clamp" and b >= 32 else b & 31
        if length >= 32:
            return a
        return s(a & (1 << length) - 1, length) if sign == "s" and length else a & (1 << length) - 1

    check_integers(f"bmsk.{mode}.b32", [32, 32], 32, mask, small=(0, 1))
    for sign in "us":
        check_integers(f"szext.{mode}.{sign}32", [32, 32], 32, lambda a, b, sign=sign: extended(a, b, sign), small=(1,))


@pytest.mark.parametrize("base", [0, 2, 3, 31])
@pytest.mark.parametrize("offset", [0, 1, 2, 5, -1, -3])
def test_nth_set_bit(base, offset):
    def reference(mask):
        if offset == 0:
            found = [base] if mask >> base & 1 else []
        else:
            places = range(base, 32) if offset > 0 else range(base, -1, -1)
            found = [place for place in places if mask >> place & 1][abs(offset) - 1 :]
        return found[0] if found else -1

    check_integers("fns.b32", [32], 32, reference, suffix=f", {base}, {offset}")


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


MODES = {  # bytes of the result, the highest first, for c = 0, 1, 2, 3 (PTX ISA, "prmt", table of modes)
    "f4e": "3210 4321 5432 6543",
    "b4e": "5670 6701 7012 0123",
    "rc8": "0000 1111 2222 3333",
    "ecl": "3210 3211 3222 3333",
    "ecr": "0000 1110 2210 3210",
    "rc16": "1010 3232 1010 3232",
}


@pytest.mark.parametrize("mode", MODES)
def test_byte_permutation_modes(mode):
    def reference(a, b, c):
        source = (b << 32 | a).to_bytes(8, "little")
        return int.from_bytes(bytes(source[int(digit)] for digit in MODES[mode].split()[c & 3]), "big")

    check_integers(f"prmt.b32.{mode}", [32] * 3, 32, reference, small=(2,))


@pytest.mark.parametrize("name", ["and", "or"])
def test_truth_table_with_predicate(name):
    columns = [operands(32, seed) for seed in (1, 2, 3)]
    columns[0][::4] = columns[1][::4] = [0] * 8
    out, sources = np.zeros((32, 2), np.uint32), np.array(columns, np.uint32).T.copy()
    TESTED.add(f"lop3.{name}.b32")
    text = f"""
        mad.wide.u32 %rd1, %tid, 12, %a1; ld.global.b32 %r1, [%rd1]; ld.global.b32 %r2, [%rd1+4];
        ld.global.b32 %r3, [%rd1+8];
        setp.lt.u32 %p1, %tid, 9; lop3.{name}.b32 %r4|%p2, %r1, %r2, %r3, 0xE0, %p1; selp.b32 %r5, 1, 0, %p2;
        mov.u32 %r6, 3; mov.u32 %r7, 4; setp.eq.u32 %p3, %r6, 3; lop3.{name}.b32 _|%p4, %r6, %r7, %r6, 0xC0, %p3;
        @%p4 add.u32 %r5, %r5, 2;
        mad.wide.u32 %rd2, %tid, 8, %a0; st.global.v2.b32 [%rd2], {{%r4, %r5}};
    """
    launch(text, out, sources)
    a, b, c = sources.T
    expected = a & (b | c)
    first = np.arange(32) < 9
    holds = (expected != 0) & first if name == "and" else (expected != 0) | first
    assert out[:, 0].tolist() == expected.tolist()
    assert out[:, 1].tolist() == (holds + 2 * (name == "or")).tolist()


def test_predicates():
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


def test_unknown_instructions_are_refused_by_name_and_line():
    for text in ("tcgen05.shift.cta_group::1.down [%r1];", "wgmma.fence.sync.aligned;", "add.s8 %r1, %r2, %r3;"):
        with pytest.raises(EmulatorError) as error:
            translate.translate(entry(f"mov.u32 %r1, 0;\n{text}"))
        assert (
            text.split()[0].rstrip(";") in str(error.value)
            and error.value.ptx_line
            and error.value.ptx_text == text.rstrip(";")
        )


@pytest.mark.parametrize(
    "opcode",
    ["mad.lo.u16", "mad.lo.u32", "mad.lo.s64", "mad.hi.u32", "mad.hi.s64", "mad.wide.u16", "mad.wide.s32", "sad.s32"],
)
def test_a_third_source_by_lane(opcode):
    """The first two are the same in all lanes, their product or difference fits no register of their width."""
    width = int(opcode[-2:])
    wide = 2 * width if "wide" in opcode else width
    a, b = (1 << width) - 3, (1 << width - 1) + 5
    names = {16: "%h", 32: "%r", 64: "%rd"}
    first, second, zero, c, d = (
        f"{names[bits]}{i}" for bits, i in zip((width, width, width, wide, wide), range(10, 15))
    )
    uniform = f"mov.b{width} {first}, {a}; mov.b{width} {second}, {b}; cvt.u{wide}.u32 {c}, %tid;"
    by_lane = f"cvt.u{width}.u32 {zero}, %tid; sub.u{width} {zero}, {zero}, {zero};"
    by_lane += "".join(f"add.u{width} {source}, {source}, {zero};" for source in (first, second))
    results = []
    for sources in (uniform, uniform + by_lane):
        out = np.zeros(32, f"u{wide // 8}")
        launch(f"{sources} {opcode} {d}, {first}, {second}, {c};" + store(d, f"b{wide}"), out)
        results.append(out.tolist())
    assert results[0] == results[1] and len(set(results[0])) > 1


@pytest.mark.parametrize(
    "text,count",
    [
        ("add.f32 %r1, %r2, %r3, %r4;", "4 operands; it takes 3"),
        ("max.f32 %r1, %r2, %r3, %r4, %r5;", "5 operands; it takes 3 or 4"),
        ("max.xorsign.abs.f32 %r1, %r2, %r3, %r4;", "4 operands; it takes 3"),
        ("lop3.b32 %r1, %r2, %r3, %r4, 1, 2;", "6 operands; it takes 5"),
        ("setp.lt.u32 %p1, %r2, %r3, %p2, %p3;", "5 operands; it takes 3 or 4"),
        ("neg.s32 %r1, %r2, %r3;", "3 operands; it takes 2"),
        ("addc.u32 %r1, %r2;", "2 operands; it takes 3"),
        ("cvt.rn.f16x2.f32 %r1, %r2;", "2 operands; it takes 3"),
        ("and.pred %p1, %p2;", "2 operands; it takes 3"),
    ],
)
def test_other_operand_counts_are_refused(text, count):
    with pytest.raises(EmulatorError) as error:
        translate.translate(entry(f"mov.u32 %r1, 0;\n{text}"))
    assert f"{text.split()[0]} with {count}" in str(error.value) and error.value.ptx_line
