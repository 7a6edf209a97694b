"""The spread of uninitialised bits: known bits of a result do not depend on them, and many bits are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from nogpu.ptx.ir import Immediate, Register, Vector
from nogpu.sanitizer.propagate import spread
from tests.support.small_kernels import entry, launch

SOUND = """
    and.b32 %r9, %r1, %r2
    or.b32 %r9, %r1, %r2
    xor.b32 %r9, %r1, %r2
    not.b32 %r9, %r1
    and.b32 %r9, %r1, 4080
    or.b64 %rd9, %rd1, %rd2
    lop3.b32 %r9, %r1, %r2, %r3, 150
    mov.b32 %r9, %r1
    shl.b32 %r9, %r1, 7
    shr.u32 %r9, %r1, 7
    shr.s32 %r9, %r1, 7
    shr.s32 %r9, %r1, 40
    shl.b64 %rd9, %rd1, %r1
    shr.s64 %rd9, %rd1, 33
    shr.u16 %h9, %h1, 3
    selp.b32 %r9, %r1, %r2, %p1
    selp.b32 %r9, %r1, %r1, %p1
    prmt.b32 %r9, %r1, %r2, 30258
    prmt.b32 %r9, %r1, %r2, %r3
    mov.b64 %rd9, {%r1, %r2}
    mov.b32 %r9, {%h1, %h2}
    add.u32 %r9, %r1, %r2
    sub.s32 %r9, %r1, %r2
    mul.lo.u32 %r9, %r1, %r2
    mad.lo.s32 %r9, %r1, %r2, %r3
    mul.wide.s32 %rd9, %r1, %r2
    mul.wide.u32 %rd9, %r1, %r2
    mul.hi.u32 %r9, %r1, %r2
    neg.s32 %r9, %r1
    add.s64 %rd9, %rd1, %rd2
    add.f32 %r9, %r1, %r2
    fma.rn.f32 %r9, %r1, %r2, %r3
    add.rn.f32x2 %rd9, %rd1, %rd2
    cvt.u64.u32 %rd9, %r1
    cvt.s64.s32 %rd9, %r1
    cvt.u32.u8 %r9, %r1
    cvt.s32.s8 %r9, %r1
    cvt.u16.u32 %h9, %r1
    cvt.rn.f16x2.f32 %r9, %r1, %r2
    cvt.rn.f32.u32 %r9, %r1
    cvt.rzi.s32.f32 %r9, %r1
    cvt.sat.u8.s32 %r9, %r1
    setp.eq.u32 %p9, %r1, %r2
    setp.ne.s64 %p9, %rd1, %rd2
    setp.lt.u32 %p9, %r1, %r2
    and.pred %p9, %p1, %p2
    or.pred %p9, %p1, !%p2
    not.pred %p9, %p1
    bfe.u32 %r9, %r1, 5, 9
    bfe.s32 %r9, %r1, 5, 9
    bfi.b32 %r9, %r1, %r2, 4, 8
    min.u32 %r9, %r1, %r2
    max.s32 %r9, %r1, %r2
    abs.s32 %r9, %r1
    popc.b32 %r9, %r1
    clz.b32 %r9, %r1
    div.u32 %r9, %r1, 7
    rem.u32 %r9, %r1, 12
    shf.l.wrap.b32 %r9, %r1, %r2, 9
    brev.b32 %r9, %r1
    shfl.sync.bfly.b32 %r9, %r1, 5, 31, -1
    shfl.sync.idx.b32 %r9, %r1, 3, 31, -1
    shfl.sync.up.b32 %r9, %r1, 3, 0, -1
    vote.sync.ballot.b32 %r9, %p1, -1
    vote.sync.any.pred %p9, %p1, -1
    redux.sync.add.u32 %r9, %r1, -1
    fma.rn.f16x2 %r9, %r1, %r2, %r3
    add.rn.bf16x2 %r9, %r1, %r2
    copysign.f32 %r9, %r1, %r2
    dp4a.u32.u32 %r9, %r1, %r2, %r3
"""

LOADS = "".join(
    f"ld.global.b32 %r{n}, [%rd20+{128 * n - 128}]; ld.global.b64 %rd{n}, [%rd21+{256 * n - 256}];"
    f"cvt.u16.u32 %h{n}, %r{n}; and.b32 %r20, %r{n}, 1; setp.ne.u32 %p{n}, %r20, 0;"
    for n in (1, 2, 3)
)
BODY = f"""
    mul.wide.u32 %rd20, %tid, 4; mul.wide.u32 %rd21, %tid, 8; add.s64 %rd22, %rd21, %a2; add.s64 %rd20, %rd20, %a0;
    add.s64 %rd21, %rd21, %a1; {LOADS} mov.u32 %r9, 0; mov.u64 %rd9, 0; mov.u16 %h9, 0; setp.ne.u32 %p9, %tid, %tid;
    {{op}}; cvt.u64.u32 %rd10, %r9; cvt.u64.u16 %rd11, %h9; selp.u64 %rd12, 1, 0, %p9;
    or.b64 %rd9, %rd9, %rd10; or.b64 %rd9, %rd9, %rd11; or.b64 %rd9, %rd9, %rd12; st.global.b64 [%rd22], %rd9;
"""


def result(op, words, longs):
    out = np.zeros(32, np.uint64)
    launch(BODY.format(op=op), words, longs, out)
    return out


class Registers:
    """A replacement of `WarpRegisters`: values and uninitialised bits of the sources."""

    def __init__(self, values, bits):
        self._values, self._bits = values, bits

    def bits(self, operand):
        operand = getattr(operand, "register", operand)
        return self._bits.get(getattr(operand, "name", None), np.zeros(32, np.uint64))

    def value(self, operand):
        if isinstance(operand, Immediate):
            return np.full(32, operand.value & (1 << 64) - 1, np.uint64)
        found = self._values.get(getattr(getattr(operand, "register", operand), "name", None))
        return found ^ np.uint64(1) if hasattr(operand, "register") else found

    def width(self, name):
        return {"r": 32, "rd": 64, "h": 16, "p": 1}[name[1:].rstrip("0123456789")]


def by_name(words, longs):
    found = {}
    for n in (1, 2, 3):
        found[f"%r{n}"], found[f"%rd{n}"] = words[n - 1].astype(np.uint64), longs[n - 1].copy()
        found[f"%h{n}"], found[f"%p{n}"] = found[f"%r{n}"] & np.uint64(0xFFFF), found[f"%r{n}"] & np.uint64(1)
    return found


def instruction(op):
    return next(i for i in entry(BODY.format(op=op), 3).instructions if i.text.strip().rstrip(";") == op)


def registers_of(operand):
    operand = getattr(operand, "register", operand)
    if isinstance(operand, Vector):
        return [name for item in operand.items for name in registers_of(item)]
    return [operand.name] if isinstance(operand, Register) else []


def spread_of(op, values, bits):
    """The uninitialised bits of the result, uint64[32]."""
    i = instruction(op)
    uses = [name for operand in i.operands[1:] for name in registers_of(operand)]
    registers, defines = Registers(values, bits), tuple(registers_of(i.operands[0]))
    found = spread(
        SimpleNamespace(), 0xFFFFFFFF, i, defines, [n for n in uses if bits.get(n, np.zeros(1)).any()], registers
    )
    return found[defines[0]]


@pytest.mark.parametrize("op", [line.strip() for line in SOUND.splitlines() if line.strip()])
def test_known_bits_do_not_depend_on_unknown_ones(monkeypatch, op):
    monkeypatch.setattr("nogpu.ops.exchange.members", lambda *arguments: None)
    rng = np.random.default_rng(1)
    words, longs = rng.integers(0, 1 << 32, (3, 32), np.uint32), rng.integers(0, 1 << 64, (3, 32), np.uint64)
    words[:, ::4] &= 0xFF
    longs[:, ::4] = 0
    word_bits = rng.integers(0, 1 << 32, (3, 32), np.uint32) & rng.integers(0, 1 << 32, (3, 32), np.uint32)
    long_bits = rng.integers(0, 1 << 64, (3, 32), np.uint64) & rng.integers(0, 1 << 64, (3, 32), np.uint64)
    word_bits[1:, ::2] = 0
    long_bits[:, 1::3] = 0
    first = result(op, words, longs)
    unknown = spread_of(op, by_name(words, longs), by_name(word_bits, long_bits))
    for _ in range(3):
        other = result(
            op,
            words ^ (word_bits & rng.integers(0, 1 << 32, (3, 32), np.uint32)),
            longs ^ (long_bits & rng.integers(0, 1 << 64, (3, 32), np.uint64)),
        )
        assert not ((first ^ other) & ~unknown).any()


HALF, BYTE, LOW = 0xFFFF0000, 0xFF00, 0xFF
PRECISE = [
    *(("and.b32 %r9, %r1, 255", {"%r1": HALF}, 0), ("and.b32 %r9, %r1, 65280", {"%r1": 0xFFFFFFFF}, BYTE)),
    *(("or.b32 %r9, %r1, -65536", {"%r1": HALF}, 0), ("shr.u32 %r9, %r1, 16", {"%r1": 0xFFFF}, 0)),
    *(("shl.b32 %r9, %r1, 16", {"%r1": HALF}, 0), ("prmt.b32 %r9, %r1, %r2, 21520", {"%r2": HALF}, 0)),
    *(("mul.lo.u32 %r9, %r1, 0", {"%r1": 0xFFFFFFFF}, 0), ("mad.lo.u32 %r9, %r1, 0, %r2", {"%r1": 0xFFFFFFFF}, 0)),
    *(("add.u32 %r9, %r1, 1", {"%r1": BYTE}, 0xFFFFFF00), ("cvt.u32.u8 %r9, %r1", {"%r1": BYTE}, 0)),
    *(("cvt.u64.u32 %rd9, %r1", {"%r1": LOW}, LOW), ("cvt.rn.f16x2.f32 %r9, %r1, %r2", {"%r2": 1}, 0xFFFF)),
    *(("mov.b64 %rd9, {%r1, %r2}", {"%r2": LOW}, LOW << 32), ("selp.b32 %r9, %r1, %r2, %p1", {"%r2": 0xFFFFFFFF}, 0)),
    *(("setp.eq.u32 %p9, %r1, 2", {"%r1": HALF}, 0), ("bfe.u32 %r9, %r1, 8, 8", {"%r1": 0xFFFF00FF}, 0)),
    ("and.pred %p9, %p1, %p2", {"%p1": 1}, 0),
]


@pytest.mark.parametrize(("op", "bits", "want"), PRECISE)
def test_what_is_known_in_spite_of_unknown_bits(op, bits, want):
    values = by_name(np.ones((3, 32), np.uint32), np.ones((3, 32), np.uint64)) | {"%p2": np.zeros(32, np.uint64)}
    found = spread_of(op, values, {name: np.full(32, mask, np.uint64) for name, mask in bits.items()})
    assert (found == want).all()


def test_a_lane_has_what_the_lane_has_that_it_asks(monkeypatch):
    monkeypatch.setattr("nogpu.ops.exchange.members", lambda *arguments: None)
    bits = np.zeros(32, np.uint64)
    bits[7] = 0xFF
    ones = by_name(np.ones((3, 32), np.uint32), np.ones((3, 32), np.uint64))
    found = spread_of("shfl.sync.bfly.b32 %r9, %r1, 2, 31, -1", ones, {"%r1": bits})
    assert found.nonzero()[0].tolist() == [5] and found[5] == 0xFF
    found = spread_of("vote.sync.ballot.b32 %r9, %p1, -1", ones, {"%p1": bits & np.uint64(1)})
    assert (found == 1 << 7).all()


def test_rows_and_columns_of_mma_sync():
    """A register of A in lane 5 has row 1, one of B column 1; C has its own elements."""
    op = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r9, %r10, %r11, %r12}, {%r1, %r2, %r3, %r4},"
    i = next(i for i in entry(op + " {%r5, %r6}, {%r13, %r14, %r15, %r16};").instructions if i.opcode.startswith("mma"))
    bits = np.zeros(32, np.uint64)
    bits[5] = 1
    lanes = np.arange(32)
    for name, of in (("%r1", lanes // 4 == 1), ("%r5", lanes % 4 == 0), ("%r13", lanes == 5)):
        found = spread(SimpleNamespace(), 0xFFFFFFFF, i, (), [name], Registers({}, {name: bits}))
        both = {"%r1": ("%r9", "%r10"), "%r5": ("%r10", "%r12"), "%r13": ("%r9",)}[name]
        for register in ("%r9", "%r10", "%r11", "%r12"):
            assert np.array_equal(found[register] != 0, of if register in both else np.zeros(32, bool)), (
                name,
                register,
            )
