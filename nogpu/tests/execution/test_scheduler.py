"""Schedules, asynchronous copies, the tensor core's queue, clusters, and the reports of hangs and of errors."""

import warnings

import numpy as np
import pytest

from nogpu import errors
from nogpu.errors import EmulatorError
from nogpu.execution import machine
from nogpu.hardware.async_operations import Schedule
from tests.support.small_kernels import aligned, launch, store

SCHEDULES = ["late", "eager", "random:1", "random:2", "random:3", "last:1", "replay:-"]

SETUP = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 3072; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r11], 1; mbarrier.init.shared.b64 [%r11+8], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0; mov.u32 %r1, 0;
"""
LOADED = "W0: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W0;\n"
WAIT = "W{n}: mbarrier.try_wait.parity.shared.b64 %p9, [{place}], 0; @!%p9 bra W{n};\n"


def lanes(body, *arrays, threads=32, **options):
    out = np.full(threads, 0xDEAD, np.uint32)
    launch(body + store("%r1"), out, *arrays, threads=threads, **options)
    return out.tolist()


def test_schedule_names():
    assert Schedule.parse("late") == Schedule("late") and Schedule.parse("random:12") == Schedule("random", 12)
    assert Schedule.parse("last:3") == Schedule("last", 3)
    for text in ("", "lazy", "random", "random:", "random:x", "late:1", "last"):
        with pytest.raises(ValueError, match="eager, late, random:SEED, last:SEED or replay:HOLDS"):
            Schedule.parse(text)


BULK = """
    @%p1 bra ISSUED; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r10], [%a1], 128, [%r11], %rd9;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10+128], [%a1+128], 128, [%r11];
ISSUED:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_load(schedule):
    source = aligned(np.arange(64, dtype=np.uint32) * 3)
    body = f"{SETUP} mov.u64 %rd9, 0; {BULK} {LOADED} mad.lo.u32 %r2, %tid, 8, %r10; ld.shared.b32 %r1, [%r2+4];"
    assert lanes(body, source, schedule=schedule) == source[1::2].tolist()


def test_a_load_that_nobody_waits_for_is_late():
    """Without the wait the lanes read poison under "late" and the data under "eager"."""
    source = aligned(np.arange(64, dtype=np.uint32))
    body = f"{SETUP} {BULK} mad.lo.u32 %r2, %tid, 4, %r10; ld.shared.b32 %r1, [%r2]; {LOADED}"
    assert lanes(body, source, schedule="eager") == list(range(32))
    assert lanes(body, source, schedule="late") == [0xFFFFFFFF] * 32
    results = {tuple(lanes(body, source, schedule=f"random:{seed}")) for seed in range(8)}
    assert len(results) > 1


def test_copies_last_and_warps_in_any_order():
    """The copy is as late as possible, in any order of the warps."""
    source = aligned(np.arange(64, dtype=np.uint32))
    body = SETUP + BULK + "bar.sync 0; and.b32 %r4, %tid, 31; setp.ne.u32 %p2, %r4, 0; @%p2 bra OTHERS;"
    body += "shr.u32 %r4, %tid, 5; ld.shared.b32 %r2, [%r10]; atom.shared.exch.b32 %r1, [%r10+512], %r4;"
    body += "and.b32 %r1, %r1, %r2; OTHERS:" + LOADED
    for kind, least in (("late", 1), ("last", 4), ("random", 4)):
        found = [
            lanes(body, source, schedule=f"{kind}:{seed}" if kind != "late" else kind, threads=128)[::32]
            for seed in range(20)
        ]
        assert len(set(map(tuple, found))) >= least
        assert kind == "random" or all(0xFFFFFFFF in each for each in found)


def test_warps_far_ahead_of_others():
    """A warp with twenty times as much to do may be the first of two."""
    body = SETUP + BULK + "bar.sync 0; shr.u32 %r4, %tid, 5; mad.lo.u32 %r5, %r4, 400, 20; mov.u32 %r6, 0;"
    body += "D: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r5; @%p2 bra D; and.b32 %r7, %tid, 31;"
    body += "setp.ne.u32 %p2, %r7, 0; @%p2 bra OTHERS; atom.shared.exch.b32 %r1, [%r10+512], %r4; OTHERS:"
    body += LOADED
    firsts = set()
    for seed in range(30):
        found = lanes(body, aligned(64), schedule=f"last:{seed}", threads=64)[::32]
        firsts.add(found.index(0xFFFFFFFF))
    assert firsts == {0, 1}
    assert lanes(body, aligned(64), schedule="late", threads=64)[::32] == [0xFFFFFFFF, 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_polling_for_a_load(schedule):
    """The lanes poll shared memory until the poison is gone, and wait for the barrier only then."""
    source = aligned(64)
    body = SETUP + BULK + "P: ld.volatile.shared.b32 %r2, [%r10]; setp.ne.u32 %p2, %r2, 0; @%p2 bra P; mov.u32 %r1, 6;"
    assert lanes(body + LOADED, source, schedule=schedule) == [6] * 32


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_store_and_its_groups(schedule):
    out = aligned(64)
    body = f"""{SETUP}
        mad.lo.u32 %r2, %tid, 4, %r10; mul.lo.u32 %r3, %tid, 5; st.shared.b32 [%r2], %r3;
        fence.proxy.async.shared::cta; bar.sync 0;
        @%p1 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 128; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0; st.shared.b32 [%r10], 77; fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%a1+128], [%r10], 16;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    DONE:
    """
    lanes(body, out, schedule=schedule)
    assert out[:32].tolist() == [5 * i for i in range(32)] and out[32:].tolist() == [77, 5, 10, 15] + [0] * 28


@pytest.mark.parametrize("newest,expected", [(0, 1), (1, 1), (2, 2)])
def test_waiting_for_all_but_the_newest_groups(newest, expected):
    """The first of two stores of the same bytes has read them (or not) when they are overwritten."""
    out = aligned(8)
    body = f"""{SETUP}
        @%p1 bra DONE; st.shared.b32 [%r10], 1; fence.proxy.async.shared::cta;
        cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.global.shared::cta.bulk_group [%a1+16], [%r10], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read {newest}; st.shared.b32 [%r10], 2; fence.proxy.async; cp.async.bulk.wait_group 0;
    DONE:
    """
    lanes(body, out, schedule="late")
    assert out[0] == expected and out[4] == (1 if newest == 0 else 2)


STORED = """
    setp.ne.u32 %p2, %tid, 0; @%p2 bra STORED; st.shared.b32 [%r10], 9; fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 16;
STORED: {guard} cp.async.bulk.commit_group;
"""


@pytest.mark.parametrize("read,seen", [(".read", 0), ("", 9)])
def test_waiting_for_the_reads_of_a_store_is_not_waiting_for_its_writes(read, seen):
    """A store's bytes are there after wait_group and at the end, but not after wait_group.read."""
    out = aligned(4)
    body = f"""{SETUP} {STORED.format(guard="")}
        @%p2 bra SEEN; cp.async.bulk.wait_group{read} 0; ld.volatile.global.b32 %r1, [%a1];
        st.shared.b32 [%r10], 5; fence.proxy.async;
    SEEN:
    """
    assert lanes(body, out, schedule="late")[0] == seen
    assert out[0] == 9
    assert len({lanes(body, aligned(4), schedule=f"random:{seed}")[0] for seed in range(8)}) == (2 if read else 1)


@pytest.mark.parametrize("guard", ["", "@!%p2"])
def test_groups_are_of_the_thread_that_issued_their_stores(guard):
    """Lane 1 waits for its own groups only: lane 0's store is in none of them, even if the warp commits together."""
    out = aligned(4)
    body = f"""{SETUP} {STORED.format(guard=guard)}
        setp.ne.u32 %p3, %tid, 1; @%p3 bra OTHERS; cp.async.bulk.wait_group.read 0; st.shared.b32 [%r10], 5;
        fence.proxy.async; cp.async.bulk.wait_group 0;
    OTHERS: bar.warp.sync -1; cp.async.bulk.wait_group 0;
    """
    lanes(body, out, schedule="late")
    assert out[0] == 5


STORE_BULK = (
    "@%p1 bra D; cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 128; cp.async.bulk.commit_group; D:"
)


@pytest.mark.parametrize("body,what", [(STORE_BULK, "a bulk store"), (BULK, "a bulk copy")])
def test_bytes_of_a_cta_that_has_exited(monkeypatch, body, what):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match=f"{what} reaches CTA .*, which has exited") as error:
        lanes(SETUP + body, aligned(64), schedule="late")
    assert error.value.ptx_text.startswith("cp.async.bulk") and error.value.warp == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_commits_to_barriers_of_a_cta_that_has_exited(monkeypatch, schedule):
    """A CTA's own last commit is a doubt if it has exited; one to another CTA that has exited is refused."""
    monkeypatch.setattr(errors, "_reported", set())
    body = """
        mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; mov.b16 %h1, 1; setp.eq.u32 %p2, %rank, 0;
        @%p1 bra READY; mbarrier.init.shared.b64 [%r10], 2; fence.mbarrier_init.release.cluster;
    READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; {} @%p1 bra END;
        tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r10], %h1;
    END:
    """
    with warnings.catch_warnings(record=True) as found:
        launch(body.format("@!%p2 bra END;"), grid=2, cluster=2, schedule=schedule)
    assert len(found) == (schedule != "eager")
    later = "@%p2 bra END; mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 3000; @%p3 bra L;"
    with pytest.raises(EmulatorError, match="exited"):
        launch(body.format(later), grid=2, cluster=2, schedule=schedule)


@pytest.mark.parametrize(
    "instruction",
    [
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r10], %h1;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10+128], [%a0], 16, "
        "[%r10], %h1;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11+128], [%r10+128], 16, [%r11];",
    ],
)
def test_what_lands_in_another_cta_that_has_exited(monkeypatch, instruction):
    """CTA 1 issues it when both have met, and CTA 0 exits before it lands: no doubt, an error; lenient, a warning."""
    body = f"""
        mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; mov.b16 %h1, 1; setp.eq.u32 %p2, %rank, 0;
        @%p1 bra READY; mbarrier.init.shared.b64 [%r10], 2; fence.mbarrier_init.release.cluster;
    READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r11, %r10, 0;
        @%p2 bra END; @%p1 bra END; {instruction}
    END:
    """
    with pytest.raises(EmulatorError, match=r"reaches CTA \(0, 0, 0\), which has exited") as error:
        launch(body, aligned(64), grid=2, cluster=2, schedule="late")
    assert error.value.cta == (1, 0, 0) and "without waiting" not in error.value.reason
    monkeypatch.setattr(errors, "_reported", set())
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    with pytest.warns(errors.OrderingWarning, match=r"reaches CTA \(0, 0, 0\), which has exited"):
        launch(body, aligned(64), grid=2, cluster=2, schedule="late")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast_and_remote_copies(schedule):
    """CTA 0 loads for both; CTA 1 then sends a part of its copy back to CTA 0."""
    source = aligned(np.arange(64, dtype=np.uint32) + 7)
    body = f"""{SETUP}
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        @%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256; setp.ne.u32 %p2, %rank, 0; @%p2 bra A;
        mov.b16 %h1, 3;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [%a1], 256,
        [%r11], %h1;
    A:  setp.eq.u32 %p4, %rank, 0; @%p4 bra B;
        {WAIT.format(n=1, place="%r11")}
        @%p1 bra C; mapa.shared::cluster.u32 %r5, %r10, 0; mapa.shared::cluster.u32 %r6, %r11, 0;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5+512], [%r10+128], 64, [%r6+8];
        bra C;
    B:
        {WAIT.format(n=2, place="%r11")}
        @%p1 bra D; mbarrier.arrive.expect_tx.shared.b64 _, [%r11+8], 64;
    D:
        {WAIT.format(n=3, place="%r11+8")}
    C:  and.b32 %r2, %tid, 15; mad.lo.u32 %r2, %r2, 4, %r10; ld.shared.b32 %r1, [%r2]; @!%p4 bra E;
    ld.shared.b32 %r1, [%r2+512];
    E:  mad.lo.u32 %r3, %rank, 32, %tid; mad.wide.u32 %rd1, %r3, 4, %a0; st.global.b32 [%rd1], %r1;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    """
    out = np.zeros(64, np.uint32)
    launch(body, out, source, grid=2, cluster=2, schedule=schedule)
    i = np.arange(32) % 16
    assert out.tolist() == (i + 32 + 7).tolist() + (i + 7).tolist()


COPIES = {  # operands of a copy, and why it is refused
    "[%r10], [%a1], 24, [%r11]": "size 0x18 is not a multiple of 16",
    "[%r10], [%a1+8], 16, [%r11]": "is not a multiple of 16",
    "[%r10], [%a1], 512, [%r11]": "past the end of a1",
    "[%r10+4080], [%a1], 32, [%r11]": "shared memory",
    "[%r10], [%a1], 16, [%r11+16]": "was not initialised",
    "[%r10], [%a1], 16, [%r11], %h1": "multicast mask 0x0002",
}


@pytest.mark.parametrize("operands", COPIES)
def test_copies_that_are_refused(operands):
    where, cast = ("cta", "") if operands.endswith("]") else ("cluster", ".multicast::cluster")
    copy = f"cp.async.bulk.shared::{where}.global.mbarrier::complete_tx::bytes{cast} {operands};"
    issue = f"@%p1 bra A; mov.b16 %h1, 2; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16; {copy}\nA:"
    with pytest.raises(EmulatorError, match=COPIES[operands]) as error:
        lanes(SETUP + issue + LOADED, aligned(64))
    assert error.value.ptx_text.startswith("cp.async")
    with pytest.raises(EmulatorError, match="32 lanes .* issue the same copy"):
        lanes(
            SETUP + "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a1], 16, [%r11];",
            aligned(64),
        )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_per_lane(schedule):
    """Each lane loads its own 16 bytes and arrives for them."""
    source = aligned(np.arange(128, dtype=np.uint32))
    body = f"""mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r10+1024], 32;
        fence.mbarrier_init.release.cluster;
    READY: bar.sync 0; mad.lo.u32 %r2, %tid, 16, %r10; mad.wide.u32 %rd2, %tid, 16, %a1;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10+1024], 16;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd2], 16, [%r10+1024];
        {WAIT.format(n=0, place="%r10+1024")} ld.shared.b32 %r1, [%r2+4];
    """
    assert lanes(body, source, schedule=schedule) == [4 * i + 1 for i in range(32)]


TMEM = """
    mov.u32 %r10, smem; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    ld.shared.b32 %r12, [%r10];
"""
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;"


def test_tensor_memory_round_trip():
    body = f"""{TMEM}
        mul.lo.u32 %r2, %tid, 3; add.u32 %r3, %tid, 50; tcgen05.st.sync.aligned.32x32b.x2.b32 [%r12+4], {{%r2, %r3}};
        tcgen05.wait::st.sync.aligned;
        tcgen05.fence::before_thread_sync; tcgen05.fence::after_thread_sync;
        tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r4, %r5}}, [%r12+4]; tcgen05.wait::ld.sync.aligned;
        mad.lo.u32 %r1, %r4, 1000, %r5;
        {FREE}
    """
    assert lanes(body) == [3000 * i + i + 50 for i in range(32)]


@pytest.mark.parametrize(
    "body,reason",
    [
        (TMEM, "exits with tensor memory allocated: 64 at 0x0"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 %r1, [%r1];", "tcgen05.ld"),
        (TMEM + "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r12+63];" + FREE, "column 64 .* is not allocated"),
        (TMEM + "add.u32 %r13, %r12, 0x200000; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r1, [%r13];" + FREE, "lane 32"),
        (
            TMEM + "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r12, 64;",
            "cta_group::2 in a CTA that has used cta_group::1",
        ),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r10], 48;", "power of two"),
        (
            TMEM + "mov.u64 %rd2, 0; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd2;" + FREE,
            "tcgen05.cp is executed by 32 lanes",
        ),
    ],
)
def test_tensor_memory_rules(body, reason):
    with pytest.raises(EmulatorError, match=reason):
        lanes("mov.u32 %r10, smem; mov.u32 %r1, 0;" + body)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_allocation_waits_for_columns(schedule):
    """Warp 1 can't allocate until warp 0 has freed the columns."""
    body = """
        mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; mad.lo.u32 %r12, %r11, 4, %r10; setp.eq.u32 %p1, %r11, 1;
        @%p1 bra SECOND;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r12], 512; bar.sync 1; bra FREE;
    SECOND: bar.sync 1; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r12], 256;
    FREE: ld.shared.b32 %r1, [%r12]; @%p1 bra SMALL; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 512; bra END;
    SMALL: tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 256;
    END:
    """
    assert lanes(body, threads=64, schedule=schedule) == [0] * 64


def copied(committing, schedule):
    """Copy by tcgen05.cp 512 bytes to tensor memory in lane 0, commit in a lane, and read the copy in the four warps.
    Returns whether the copy was there.
    """
    source = aligned(np.arange(128, dtype=np.uint32) * 11)
    body = f"""{SETUP}
        shr.u32 %r13, %tid, 5; setp.ne.u32 %p2, %r13, 0; @%p2 bra ALLOCATED;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r11+16], 32;
    ALLOCATED: bar.sync 0; ld.shared.b32 %r12, [%r11+16]; @%p1 bra ISSUED;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 512;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a1], 512, [%r11];
        {LOADED}
        shr.u32 %r14, %r10, 4; and.b32 %r14, %r14, 0x3fff; cvt.u64.u32 %rd2, %r14;
        or.b64 %rd2, %rd2, 0x0000400800000000;
        tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd2;
    ISSUED: setp.ne.u32 %p3, %tid, {committing}; @%p3 bra COMMITTED;
        tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11+8];
    COMMITTED:
        {WAIT.format(n=1, place="%r11+8")}
        tcgen05.fence::after_thread_sync; shl.b32 %r15, %r13, 21; add.u32 %r15, %r15, %r12;
        tcgen05.ld.sync.aligned.32x32b.x4.b32 {{%r20, %r21, %r22, %r1}}, [%r15]; tcgen05.wait::ld.sync.aligned;
        bar.sync 0; @%p2 bra END;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 32;
    END:
    """
    try:
        return lanes(body, source, threads=128, schedule=schedule) == [(4 * (i % 32) + 3) * 11 for i in range(128)]
    except EmulatorError as error:
        assert "tcgen05.cp" in str(error)
        return False


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_commit_arrives_after_the_copies_before_it(schedule):
    assert copied(0, schedule)


def test_commit_counts_the_work_of_its_own_thread():
    assert not all(copied(1, f"random:{seed}") for seed in range(8))


def test_hang_report():
    """Warp 0 waits for bytes that do not come, warp 1 on a named barrier, warp 2 on the cluster barrier."""
    body = f"""{SETUP}
        @%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 96;
    A:  shr.u32 %r2, %tid, 5; setp.eq.u32 %p2, %r2, 1; @%p2 bra B; setp.eq.u32 %p3, %r2, 2; @%p3 bra C;
        {LOADED}
        bra E;
    B:  bar.sync 4, 64; bra E;
    C:  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    E:
    """
    with pytest.raises(EmulatorError, match="the kernel hangs") as error:
        lanes(body, threads=96)
    text = str(error.value)
    for words in (
        *("CTA (0, 0, 0) warp 0 at PTX line", "waits for parity 0 (phase 0) of mbarrier at shared offset 0x1000"),
        "phase 0, 0 of 1 arrivals pending, 96 bytes outstanding, last: arrival of warp 0 of CTA (0, 0, 0)",
        *("named barrier 4: 32 of 64 threads, arrived: warp 1", "cluster barrier: 32 of 96 threads arrived"),
    ):
        assert words in text
    assert error.value.ptx_text.startswith("mbarrier.try_wait")


def test_hang_of_warps_that_poll():
    spin = "SPIN: ld.volatile.global.b32 %r1, [%a1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;"
    with pytest.raises(EmulatorError, match="all warps that can run poll without an effect") as error:
        lanes(spin, np.zeros(1, np.uint32))
    assert "[can run]" in str(error.value)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ctas_wait_for_each_other_through_global_memory(schedule):
    """Each CTA takes a ticket and spins until all CTAs have one."""
    body = """
        setp.ne.u32 %p1, %tid, 0; @%p1 bra SPIN; atom.global.add.u32 %r2, [%a1], 1;
    SPIN: ld.acquire.gpu.global.b32 %r1, [%a1]; setp.ne.u32 %p2, %r1, 5; @%p2 bra SPIN;
    """
    assert lanes(body, np.zeros(1, np.uint32), grid=5, schedule=schedule) == [5] * 32


def test_counters():
    out = np.zeros(64, np.uint32)
    counters = launch("mov.u32 %r1, 1;" + store("%r1"), out, threads=64, grid=3)
    assert counters.ctas == 3 and counters.mma == 0
    # per warp: two moves of the header, the parameter, the body's four instructions and ret
    assert counters.warp_instructions == 3 * 2 * 8


def test_errors_carry_the_source_line():
    body = ".loc 1 42 5\nst.global.b32 [%a0+4], %tid;"
    with pytest.raises(EmulatorError) as error:
        launch(body, np.zeros(1, np.uint32), declarations='.file 1 "kernel.py"')
    assert error.value.source == "kernel.py:42" and error.value.kernel == "k" and "kernel.py:42" in str(error.value)


def test_instructions_without_an_effect():
    body = """
        mov.u32 %r1, 4; fence.acq_rel.gpu; membar.gl; fence.proxy.async; fence.proxy.alias; fence.sc.cluster;
        nanosleep.u32 20; pmevent 3;
        fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%a0], 128;
        fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
        fence.acquire.sync_restrict::shared::cluster.cluster; setmaxnreg.dec.sync.aligned.u32 40;
        griddepcontrol.wait; griddepcontrol.launch_dependents;
    """
    assert lanes(body) == [4] * 32


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PAIR = f"""
    mov.u32 %r10, smem; mov.u32 %r1, 0; {MEET} setp.eq.u32 %p1, %rank, {{rank}}; @!%p1 bra ALLOC; {{delay}}
ALLOC: tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r10], 64; {{after}}
    {MEET} ld.shared.b32 %r12, [%r10];
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r12, 64;
"""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pair_allocates_together(rank, schedule):
    """The CTA of that rank takes its time before its alloc. The odd one is not behind its own before the even one has
    come to its; the even one may be.
    """
    late = """
        mov.u32 %r2, 0;
    D:  add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 400; @%p2 bra D; atom.global.add.u32 %r3, [%a0], 1;
    """
    seen = """
        mul.wide.u32 %rd2, %rank, 4; add.s64 %rd2, %rd2, %a0; ld.acquire.gpu.global.b32 %r4, [%a0];
        st.global.b32 [%rd2+4], %r4;
    """
    out = np.zeros(3, np.uint32)
    launch(PAIR.format(rank=rank, delay=late, after=seen), out, grid=2, cluster=2, schedule=schedule)
    assert out[0] == out[2] == 32
    assert schedule not in ("late", "eager") or out[1] == (0 if rank else 32)


def test_a_pair_allocates_once_both_have_started():
    with pytest.raises(EmulatorError, match="has not heard of the other CTA"):
        launch(PAIR.replace(MEET, "", 1).format(rank=0, delay="", after=""), grid=2, cluster=2)


@pytest.mark.parametrize("schedule", ["late", "random:1"])
@pytest.mark.parametrize("skips,missing", [(1, None), (0, "the even CTA has not issued it")])
def test_hang_of_a_pair_in_which_one_cta_allocates(schedule, skips, missing):
    """Without the even CTA's alloc the odd CTA waits for ever; without the odd CTA's its columns stay allocated."""
    skipped = f"{MEET} {MEET} bra END;"
    body = PAIR.format(rank=skips, delay=skipped, after="") + "END:"
    with pytest.raises(EmulatorError, match=missing or "exits with tensor memory allocated") as error:
        launch(body, grid=2, cluster=2, schedule=schedule)
    if missing:
        text = str(error.value)
        assert "the kernel hangs" in text and "CTA (1, 0, 0) warp 0 at PTX line" in text
        assert "tcgen05.alloc.cta_group::2" in text


RACE = """
    mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; mov.u32 %r1, 0; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    st.shared.b32 [%r10+1024], 0;
READY: bar.sync 0; mov.u32 %r2, 0; setp.eq.u32 %p2, %r11, 1; @%p2 bra CONSUMER;
PRODUCER: and.b32 %r3, %r2, 127; mad.lo.u32 %r4, %r3, 4, %r10; st.shared.b32 [%r4], %r2; add.u32 %r2, %r2, 1;
    st.volatile.shared.b32 [%r10+1024], %r2; mov.u32 %r7, 0;
WORK: add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, 4; @%p3 bra WORK; setp.lt.u32 %p3, %r2, 512; @%p3 bra PRODUCER;
    bra END;
CONSUMER: ld.volatile.shared.b32 %r5, [%r10+1024]; setp.le.u32 %p3, %r5, %r2; @%p3 bra CONSUMER;
    and.b32 %r3, %r2, 127; mad.lo.u32 %r4, %r3, 4, %r10; ld.shared.b32 %r6, [%r4]; setp.ne.u32 %p4, %r6, %r2;
    selp.b32 %r1, 1, %r1, %p4; add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 512; @%p3 bra CONSUMER;
END:
"""


def test_random_schedules_let_a_warp_fall_far_behind(monkeypatch):
    """A producer that never waits for its consumer overwrites unread items only when it is 128 of them ahead."""

    def caught():
        return [seed for seed in range(4, 12) if any(lanes(RACE, threads=64, schedule=f"random:{seed}"))]

    assert caught()
    monkeypatch.setattr(machine, "PACES", (1.0,))
    assert not caught()
