"""cp.async: copied bytes, their time of arrival under each schedule, groups."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import aligned, launch

POISON = 0xFFFFFFFF
SCHEDULES = ["late", "eager", "random:1", "random:2"]
ADDRESSES = "mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 16, %r2; mad.wide.u32 %rd2, %tid, 16, %a1;"


def source(count=128):
    return aligned(np.random.default_rng(5).integers(0, 1 << 31, count, np.uint32))


def words(body, *arrays, **options):
    """The threads' %r4 to %r7, uint32[32, 4]."""
    out = aligned(np.zeros(128, np.uint32))
    save = "mad.wide.u32 %rd9, %tid, 16, %a0; st.global.v4.b32 [%rd9], {%r4, %r5, %r6, %r7};"
    launch(ADDRESSES + body + save, out, *arrays, **options)
    return out.reshape(32, 4)


LOAD = "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3];"
WAIT = "cp.async.wait_all;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("level,size", [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_sizes(level, size, schedule):
    data = source()
    got = words(f"cp.async.{level}.shared.global [%r3], [%rd2], {size}; {WAIT} {LOAD}", data, schedule=schedule)
    expected = np.full((32, 4), POISON, np.uint32)
    expected[:, : size // 4] = data.reshape(32, 4)[:, : size // 4]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_bytes_that_are_not_read_are_zeros(size):
    """The operand src-size is lane modulo (size + 1). Lanes that read nothing may have any address."""
    data = source()
    body = f"""
        rem.u32 %r8, %tid, {size + 1}; setp.eq.u32 %p1, %r8, 0; @%p1 mov.b64 %rd2, 3;
        cp.async.ca.shared::cta.global.L2::128B [%r3], [%rd2], {size}, %r8; {WAIT} {LOAD}
    """
    expected = np.full((32, 16), 0xFF, np.uint8)
    for lane in range(32):
        count = lane % (size + 1)
        expected[lane, :size] = 0
        expected[lane, :count] = data.reshape(32, 4)[lane].view(np.uint8)[:count]
    np.testing.assert_array_equal(words(body, data).view(np.uint8), expected)


@pytest.mark.parametrize("guard,ignored", [("%p1", range(10)), ("!%p1", range(10, 32)), ("%p2", range(32))])
def test_sources_that_are_ignored(guard, ignored):
    data = source()
    body = f"""
        setp.lt.u32 %p1, %tid, 10; setp.eq.u32 %p2, 1, 1; mov.u64 %rd3, 0;
        cp.async.cg.shared.global.L2::cache_hint [%r3], [%rd2], 16, {guard}, %rd3; {WAIT} {LOAD}
    """
    expected = data.reshape(32, 4).copy()
    expected[list(ignored)] = 0
    np.testing.assert_array_equal(words(body, data), expected)


def test_constant_sizes_and_cache_policies():
    data = source()
    body = f"""
        mov.u64 %rd3, 0; cp.async.ca.shared.global.L2::256B.L2::cache_hint [%r3], [%rd2], 8, 5, %rd3;
        cp.async.ca.shared.global.L2::cache_hint.L2::64B [%r3+8], [%rd2+8], 8, %rd3; {WAIT} {LOAD}
    """
    expected = data.reshape(32, 4).copy()
    expected[:, 1] &= 0xFF
    np.testing.assert_array_equal(words(body, data), expected)


def test_one_place_for_all_lanes():
    """A generic address is equal in all lanes, which all write the same bytes."""
    data = source()
    body = f"""
        cvt.u64.u32 %rd3, %r2; cvta.shared.u64 %rd3, %rd3; cp.async.ca.shared.global [%rd3], [%a1], 16; {WAIT}
        ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2];
    """
    np.testing.assert_array_equal(words(body, data), np.tile(data[:4], (32, 1)))


def test_some_lanes_and_generic_addresses():
    data = source()
    body = f"""
        setp.lt.u32 %p1, %tid, 7; cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3;
        @%p1 cp.async.ca.shared.global [%rd3], [%rd2], 16; {WAIT} {LOAD}
    """
    expected = np.full((32, 4), POISON, np.uint32)
    expected[:7] = data.reshape(32, 4)[:7]
    np.testing.assert_array_equal(words(body, data), expected)


@pytest.mark.parametrize("waiting", ["", "cp.async.commit_group;", "bar.sync 0;", "cp.async.wait_group 0;"])
def test_bytes_that_nobody_waits_for_are_late(waiting):
    """A wait covers only committed groups; a barrier of threads waits for no group."""
    data = source()
    body = f"cp.async.cg.shared.global [%r3], [%rd2], 16; {waiting} {LOAD}"
    assert (words(body, data) == POISON).all()
    np.testing.assert_array_equal(words(body, data, schedule="eager"), data.reshape(32, 4))


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_waiting_for_all_but_the_newest_groups(newest):
    """The kernel has three groups of four bytes, and an empty one after the first."""
    data = source()
    body = f"""
        cp.async.ca.shared.global [%r3], [%rd2], 4; cp.async.commit_group; cp.async.commit_group;
        cp.async.ca.shared.global [%r3+4], [%rd2+4], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r3+8], [%rd2+8], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r3+12], [%rd2+12], 4;
        cp.async.wait_group {newest}; {LOAD}
    """
    done = {0: 3, 1: 2, 2: 1, 3: 1}[newest]
    expected = np.full((32, 4), POISON, np.uint32)
    expected[:, :done] = data.reshape(32, 4)[:, :done]
    np.testing.assert_array_equal(words(body, data), expected)


def test_groups_are_of_each_thread():
    """Even lanes commit twice, so that their copy is in the last group but one."""
    data = source()
    body = f"""
        and.b32 %r8, %tid, 1; setp.eq.u32 %p1, %r8, 0;
        cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group; @%p1 cp.async.commit_group;
        cp.async.wait_group 1; {LOAD}
    """
    expected = data.reshape(32, 4).copy()
    expected[1::2] = POISON
    np.testing.assert_array_equal(words(body, data), expected)


@pytest.mark.parametrize("wait", ["cp.async.wait_all", "cp.async.wait_group 0"])
def test_lanes_wait_for_their_own_copies(wait):
    data = source()
    body = f"""
        setp.lt.u32 %p1, %tid, 9; cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group; @%p1 {wait};
        {LOAD}
    """
    expected = data.reshape(32, 4).copy()
    expected[9:] = POISON
    np.testing.assert_array_equal(words(body, data), expected)
    np.testing.assert_array_equal(words(body + WAIT + LOAD, data), data.reshape(32, 4))


PIPELINE = """
    mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r10, 0; mov.u32 %r11, 0;
    cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group;
LOOP:
    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 8; and.b32 %r12, %r10, 1; mad.lo.u32 %r12, %r12, 512, %r3;
    mad.wide.u32 %rd3, %r10, 512, %rd2;
    @%p1 cp.async.cg.shared.global [%r12], [%rd3], 16; cp.async.commit_group; cp.async.wait_group WAITED;
    bar.sync 0;
    xor.b32 %r12, %tid, 1; and.b32 %r13, %r11, 1; mad.lo.u32 %r12, %r12, 16, %r2; mad.lo.u32 %r12, %r13, 512, %r12;
    ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r12];
    add.u32 %r4, %r4, %r20; add.u32 %r5, %r5, %r21; add.u32 %r6, %r6, %r22; add.u32 %r7, %r7, %r23;
    bar.sync 0;
    add.u32 %r11, %r11, 1; @%p1 bra LOOP;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_of_two_stages(schedule):
    data = source(8 * 128)
    expected = data.reshape(8, 32, 4).sum(0, dtype=np.uint32)[np.arange(32) ^ 1]
    np.testing.assert_array_equal(words(PIPELINE.replace("WAITED", "1"), data, schedule=schedule), expected)
    if schedule == "late":
        assert (words(PIPELINE.replace("WAITED", "2"), data) != expected).any()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arrive,count", [("", 1), (".noinc", 33), (".noinc.shared::cta", 33), (".shared", 1)])
def test_arrival_on_a_barrier(arrive, count, schedule):
    """Without .noinc the barrier expects one arrival more for each; lane 0 has the last one of the phase."""
    data = source()
    place = "%rd5" if not arrive.endswith(("shared", "cta")) else "%r9"
    body = f"""
        add.u32 %r9, %r2, 2048; cvt.u64.u32 %rd5, %r9; cvta.shared.u64 %rd5, %rd5; setp.eq.u32 %p1, %tid, 0;
        @%p1 mbarrier.init.shared.b64 [%r9], {count}; bar.sync 0;
        cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.mbarrier.arrive{arrive}.b64 [{place}];
        @%p1 mbarrier.arrive.shared.b64 _, [%r9];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0; @!%p2 bra WAIT;
        {LOAD} bar.sync 0;
    """
    np.testing.assert_array_equal(words(body, data, schedule=schedule), data.reshape(32, 4))


@pytest.mark.parametrize("seed", range(12))
def test_an_arrival_comes_behind_its_copies(seed):
    """Lane 0 is alone: the bytes are there when the phase ends, in any order of the asynchronous operations."""
    data = source()
    body = f"""
        mov.u32 %r4, 0; setp.ne.u32 %p1, %tid, 0; @%p1 bra END;
        mbarrier.init.shared.b64 [%r2+2048], 1; cp.async.cg.shared.global [%r3], [%rd2], 16;
        cp.async.cg.shared.global [%r3+16], [%rd2+16], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r2+2048];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2+2048], 0; @!%p2 bra WAIT;
        {LOAD} ld.shared.b32 %r7, [%r3+16];
    END:
    """
    assert words(body, data, schedule=f"random:{seed}")[0].tolist() == [*data[:3], data[4]]


@pytest.mark.parametrize("arrive,pending", [(".noinc", 2), ("", 34)])
def test_arrivals_that_do_not_come(arrive, pending):
    """The kernel hangs: 32 lanes arrive where 34 arrivals are expected, or each arrival adds one."""
    body = f"""
        mbarrier.init.shared.b64 [%r2+2048], 34; bar.warp.sync -1;
        cp.async.mbarrier.arrive{arrive}.shared.b64 [%r2+2048];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2+2048], 0; @!%p2 bra WAIT;
        mov.u32 %r4, 0;
    """
    with pytest.raises(EmulatorError, match=f"{pending} of 34 arrivals pending.*last: arrival of warp 0"):
        words(body, source())
