"""st.async, red.async and st.bulk: results, and barriers that count the bytes."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import aligned, launch, store

SCHEDULES = ["late", "eager", "random:1", "random:2"]
# Every CTA has a barrier at 2048 that expects BYTES, and %r6, %r7 are the other CTA's place of the lane and barrier.
SETUP = """
    mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 16, %r2; add.u32 %r4, %r2, 2048; xor.b32 %r5, %rank, 1;
    setp.eq.u32 %p1, %tid, 0;
    mapa.shared::cluster.u32 %r6, %r3, %r5; mapa.shared::cluster.u32 %r7, %r4, %r5; mov.u32 %r20, START;
    mov.u64 %rd20, START;
    st.shared.v4.b32 [%r3], {%r20, %r20, %r20, %r20};
    @%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], BYTES;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mad.lo.u32 %r8, %rank, 1000, %tid; add.u32 %r9, %r8, 1; add.u32 %r10, %r8, 2; add.u32 %r11, %r8, 3;
    mul.wide.u32 %rd4, %r8, 65536; add.u64 %rd4, %rd4, 7; add.u64 %rd5, %rd4, 5;
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra WAIT;"
FINISH = """
    ld.shared.v4.b32 {%r12, %r13, %r14, %r15}, [%r3]; mad.lo.u32 %r16, %rank, 32, %tid;
    mad.wide.u32 %rd2, %r16, 16, %a0;
    st.global.v4.b32 [%rd2], {%r12, %r13, %r14, %r15}; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""


def words(body, nbytes, start=0xFFFFFFFF, schedule="late", waits=True):
    """The lanes' 16 bytes of either CTA, uint32[2, 32, 4], after `body` has sent each lane `nbytes` bytes."""
    out = aligned(np.zeros(256, np.uint32))
    setup = SETUP.replace("BYTES", str(32 * nbytes)).replace("START", str(start))
    launch(setup + body + (WAIT + FINISH if waits else FINISH + WAIT), out, grid=2, cluster=2, schedule=schedule)
    return out.reshape(2, 32, 4)


ST = "st.async.shared::cluster.mbarrier::complete_tx::bytes"
RED = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
OTHER = np.arange(64).reshape(2, 32) % 32 + 1000 * np.array([[1], [0]])  # %r8 of the other CTA's lane


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "modifiers,values,expected",
    [
        (".b32", "%r8", [OTHER]),
        (".u32", "%r9", [OTHER + 1]),
        (".v2.s32", "{%r8, %r10}", [OTHER, OTHER + 2]),
        (".v4.f32", "{%r8, %r9, %r10, %r11}", [OTHER, OTHER + 1, OTHER + 2, OTHER + 3]),
        (".b64", "%rd4", [OTHER << 16 | 7, OTHER >> 16]),
        (".v2.u64", "{%rd4, %rd5}", [OTHER << 16 | 7, OTHER >> 16, (OTHER << 16) + 12, OTHER >> 16]),
    ],
)
def test_asynchronous_stores(modifiers, values, expected, schedule):
    body = f"{ST}{modifiers} [%r6], {values}, [%r7];"
    got = words(body, 4 * len(expected), schedule=schedule)
    image = np.full((2, 32, 4), 0xFFFFFFFF, np.uint32)
    for i, part in enumerate(expected):
        image[:, :, i] = part
    np.testing.assert_array_equal(got, image)
    if schedule == "late":
        assert (words(body, 4 * len(expected), waits=False) == 0xFFFFFFFF).all()


def test_generic_addresses():
    body = """
        cvt.u64.u32 %rd6, %r6; cvta.shared::cluster.u64 %rd6, %rd6; cvt.u64.u32 %rd7, %r7;
        cvta.shared::cluster.u64 %rd7, %rd7;
        st.async.weak.mbarrier::complete_tx::bytes.b32 [%rd6+4], %r8, [%rd7];
    """
    got = words(body, 4)
    np.testing.assert_array_equal(got[:, :, 1], OTHER)
    assert (got[:, :, [0, 2, 3]] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "operation,function",
    [
        ("add.u32", lambda old, new: old + new),
        ("add.s32", lambda old, new: old + new),
        ("and.b32", lambda old, new: old & new),
        ("or.b32", lambda old, new: old | new),
        ("xor.b32", lambda old, new: old ^ new),
        ("inc.u32", lambda old, new: 0 if old >= new else old + 1),
        ("dec.u32", lambda old, new: new if old == 0 or old > new else old - 1),
        ("min.u32", min),
        ("max.u32", max),
    ],
)
def test_asynchronous_reductions(operation, function, schedule):
    """The operations of a lane have one address; the lanes' addresses differ."""
    got = words(f"{RED}.{operation} [%r6], %r8, [%r7]; {RED}.{operation} [%r6], %r8, [%r7];", 8, 515, schedule)
    expected = [[function(function(515, int(b)), int(b)) & 0xFFFFFFFF for b in row] for row in OTHER]
    np.testing.assert_array_equal(got[:, :, 0], expected)


def test_signed_and_wide_reductions():
    got = words(f"neg.s32 %r8, %r8; {RED}.min.s32 [%r6], %r8, [%r7]; {RED}.max.s32 [%r6+4], %r8, [%r7];", 8, 5)
    np.testing.assert_array_equal(got[:, :, 0], -OTHER & 0xFFFFFFFF)
    assert (got[:, :, 1] == 5).all()
    got = words(f"{RED}.add.u64 [%r6], %rd4, [%r7];", 8, 0xFFFFFFFF).view(np.uint64)
    total = (OTHER.astype(object) << 16) + 7 + (1 << 64) - 1 & (1 << 64) - 1
    np.testing.assert_array_equal(got[:, :, 0], total.astype(np.uint64))


def test_bytes_that_do_not_come():
    with pytest.raises(EmulatorError, match="128 bytes outstanding, last: complete_tx of"):
        words(f"{ST}.b32 [%r6], %r8, [%r7];", 8)


def test_bytes_that_nobody_waits_for():
    with pytest.raises(EmulatorError, match="reaches CTA .* which has exited"):
        words(f"{ST}.b32 [%r6], %r8, [%r7]; ret;", 4)


@pytest.mark.parametrize(
    "modifiers,place", [("", "%rd2"), (".weak", "%rd2"), (".shared::cta", "%r2"), (".weak.shared::cta", "%r2")]
)
@pytest.mark.parametrize("size", ["0", "8", "72", "%rd3"])
def test_bulk_zeros(modifiers, place, size):
    out = np.zeros(32, np.uint32)
    body = f"""
        mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 4, %r2; cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd2, %rd2;
        mov.u64 %rd3, 40; setp.eq.u32 %p1, %tid, 0;
        mov.u32 %r1, 9; st.shared.b32 [%r3], %r1; bar.warp.sync -1; @%p1 st.bulk{modifiers} [{place}+16], {size}, 0;
        bar.warp.sync -1; ld.shared.b32 %r1, [%r3];
    """
    launch(body + store("%r1"), out)
    count = 10 if size == "%rd3" else int(size) // 4
    assert out.tolist() == [0 if 4 <= i < 4 + count else 9 for i in range(32)]
