"""mbarriers, named barriers, cluster barriers: completion, and violations of their rules."""

import numpy as np
import pytest

from nogpu import errors
from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.barriers import ClusterBarrier, NamedBarrier
from nogpu.hardware.mbarriers import MBarrier
from tests.support.small_kernels import launch, store

WHO = None
SCHEDULES = ["late", "eager", "random:1", "random:2"]


def lanes(body, threads=32, count=0, **options):
    """%r1 of each thread after the body. count: of a barrier at %r10 that is initialised before."""
    out = np.full(threads, 0xDEAD, np.uint32)
    launch((INIT.format(count=count) if count else "") + body + store("%r1"), out, threads=threads, **options)
    return out.tolist()


def arrive(barrier, count=1):
    barrier.arrive(count, "arrival", WHO)


def test_phases_of_an_mbarrier():
    barrier = MBarrier("b", 2)
    assert barrier.passed(1) and not barrier.passed(0)
    arrive(barrier)
    assert not barrier.passed(0)
    arrive(barrier)
    assert barrier.phase == 1 and barrier.pending == 2 and barrier.passed(0) and not barrier.passed(1)
    arrive(barrier, 2)
    assert barrier.phase == 2


def test_bytes_of_an_mbarrier():
    barrier = MBarrier("b", 1)
    barrier.complete(64, "copy", WHO)
    assert barrier.phase == 0 and barrier.bytes == -64
    barrier.expect(96)
    arrive(barrier)
    assert barrier.phase == 0 and barrier.bytes == 32
    barrier.complete(32, "copy", WHO)
    assert barrier.phase == 1 and barrier.bytes == 0 and barrier.pending == 1


def test_dropped_arrivals():
    barrier = MBarrier("b", 3)
    barrier.arrive(1, "arrival", WHO, drop=True)
    arrive(barrier, 2)
    assert barrier.phase == 1 and barrier.expected == barrier.pending == 2


def test_named_barrier():
    barrier = NamedBarrier(3)
    barrier.arrive("warp 0", 32, 96, 96)
    barrier.arrive("warp 1", 32, 96, 96)
    assert barrier.generation == 0 and "64 of 96 threads, arrived: warp 0, warp 1" in str(barrier)
    with pytest.raises(Fault, match="barrier 3 is used with 64 threads while warp 0, warp 1 wait"):
        barrier.arrive("warp 2", 32, 64, 64)
    barrier.arrive("warp 2", 32, 96, 96)
    assert barrier.generation == 1 and not barrier.arrived
    barrier.arrive("warp 0", 32, None, 128)
    barrier.settle(64)
    assert barrier.generation == 1
    barrier.settle(32)
    assert barrier.generation == 2
    with pytest.raises(Fault, match="64 threads have arrived on barrier 3, which waits for 32: warp 0"):
        barrier.arrive("warp 0", 64, 32, 32)


def test_cluster_barrier_counts_threads_that_exit():
    barrier = ClusterBarrier(96)
    barrier.arrive(32, WHO)
    barrier.leave(32, 0)
    assert barrier.generation == 0
    barrier.leave(0, 32)
    barrier.arrive(32, WHO)
    assert barrier.generation == 1 and barrier.threads == 32
    barrier.arrive(32, WHO)
    assert barrier.generation == 2


INIT = """
    mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r10], {count}; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_producer_and_consumer(schedule):
    """Warp 1 writes, all of its lanes arrive; warp 0 waits in the loop of inline assembly and reads."""
    body = """
        setp.eq.u32 %p2, %r11, 1; and.b32 %r12, %tid, 31; mad.lo.u32 %r13, %r12, 4, %r10; @!%p2 bra CONSUMER;
        mul.lo.u32 %r1, %r12, 9; st.shared.b32 [%r13+64], %r1;
        mbarrier.arrive.release.cta.shared::cta.b64 _, [%r10]; bra END;
    CONSUMER:
        {
        .reg .pred P1;
        LAB_WAIT: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 P1, [%r10], 0, 10000000; @P1 bra.uni DONE;
        bra.uni LAB_WAIT;
        DONE:
        }
        ld.shared.b32 %r1, [%r13+64];
    END:
    """
    assert lanes(body, count=32, threads=64, schedule=schedule) == [9 * (i % 32) for i in range(64)]


@pytest.mark.parametrize("wait", ["mbarrier.try_wait.shared.b64", "mbarrier.test_wait.shared::cta.b64"])
@pytest.mark.parametrize("schedule", ["late", "random:5"])
def test_state_tokens_and_counts(wait, schedule):
    body = f"""
        mov.b32 %r1, 0; setp.eq.u32 %p2, %r11, 1; elect.sync _|%p3, -1; @%p2 bra OTHER; @!%p3 bra WAITED;
        mbarrier.arrive.shared.b64 %rd3, [%r10], 1;
    LOOP: {wait} %p4, [%r10], %rd3; @!%p4 bra LOOP;
        {wait} %p5, [%r10], %rd3; selp.b32 %r1, 7, 8, %p5; bra WAITED;
    OTHER: @!%p3 bra WAITED; mbarrier.arrive.shared.b64 _, [%r10], 2;
    WAITED:
    """
    got = lanes(body, count=3, threads=64, schedule=schedule)
    assert got[0] == 7 and set(got[1:]) == {0}


def test_peek_does_not_wait():
    body = """
        mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; selp.b32 %r1, 1, 0, %p2; bar.sync 0; @%p1 bra A;
        mbarrier.arrive.shared.b64 _, [%r10];
    A:  bar.sync 0; mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; selp.b32 %r2, 2, 0, %p3;
        mbarrier.test_wait.parity.shared.b64 %p4, [%r10], 1; selp.b32 %r3, 4, 0, %p4; or.b32 %r1, %r1, %r2;
        or.b32 %r1, %r1, %r3;
    """
    assert lanes(body, count=1) == [2] * 32


def test_transaction_bytes():
    body = """
        elect.sync _|%p2, -1; @!%p2 bra A; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 64;
        mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r10], 48;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16;
    A:  mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; @!%p2 bra B;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], 32;
    B:  mbarrier.test_wait.parity.shared.b64 %p4, [%r10], 0; selp.b32 %r1, 1, 0, %p3; selp.b32 %r2, 2, 0, %p4;
    add.u32 %r1, %r1, %r2;
    """
    assert lanes(body, count=1) == [2] * 32


def test_remote_arrival():
    body = """
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r1, 5; setp.ne.u32 %p3, %rank, 0;
        @%p3 bra REMOTE;
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra W; bra END;
    REMOTE: mapa.shared::cluster.u32 %r12, %r10, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12], 1;
    END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    """
    assert lanes(body, count=32, grid=2, cluster=2) == [5] * 32


def test_arrivals_by_lane_on_different_barriers():
    body = """
        setp.ne.u32 %p2, %tid, 1; @%p2 bra A; mbarrier.init.shared.b64 [%r10+8], 16;
    A:  bar.sync 0; and.b32 %r2, %tid, 1; mad.lo.u32 %r3, %r2, 8, %r10; mbarrier.arrive.shared.b64 _, [%r3];
        mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; mbarrier.test_wait.parity.shared.b64 %p4, [%r10+8], 0;
        and.pred %p3, %p3, %p4; selp.b32 %r1, 1, 0, %p3;
    """
    assert lanes(body, count=16) == [1] * 32


def test_counts_by_lane():
    """The lanes of a warp arrive with counts and bytes of their own: 0 + 1 + ... + 31 bytes, CUB's one lane of many."""
    body = """
        add.u32 %r2, %tid, 1; mbarrier.arrive.shared.b64 _, [%r10], %r2;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r10], %tid;
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], %tid;
        mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], %tid;
        mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], %tid;
        mbarrier.test_wait.parity.shared.b64 %p4, [%r10], 0; selp.b32 %r1, 1, 0, %p3; selp.b32 %r2, 2, 0, %p4;
        add.u32 %r1, %r1, %r2;
    """
    assert lanes(body, count=32 * 33 // 2 + 32) == [2] * 32


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_initialised_by_several_lanes(schedule):
    """The whole warp initialises one barrier, then each of four lanes one of its own."""
    body = """
        mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 32; mov.u32 %r1, 0; and.b32 %r2, %tid, 3;
        mad.lo.u32 %r3, %r2, 8, %r10; setp.gt.u32 %p1, %tid, 3; @%p1 bra READY; add.u32 %r4, %tid, 7;
        mbarrier.init.shared.b64 [%r3+8], %r4;
    READY: bar.sync 0; mbarrier.arrive.shared.b64 _, [%r10]; setp.lt.u32 %p2, %r2, 1;
        @%p2 mbarrier.arrive.shared.b64 _, [%r3+16]; mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0;
        mbarrier.test_wait.parity.shared.b64 %p4, [%r10+16], 0; mbarrier.test_wait.parity.shared.b64 %p5, [%r10+8], 0;
        selp.b32 %r1, 1, 0, %p3; selp.b32 %r5, 2, 0, %p4; selp.b32 %r6, 4, 0, %p5;
        add.u32 %r1, %r1, %r5; add.u32 %r1, %r1, %r6;
    """
    assert lanes(body, schedule=schedule) == [3] * 32


@pytest.mark.parametrize("loop", ["", "@!%p2 bra W;"])
def test_a_state_token_two_phases_old(loop):
    body = f"""
        mov.u32 %r1, 0; @%p1 bra END; mbarrier.arrive.shared.b64 %rd2, [%r10]; mbarrier.arrive.shared.b64 _, [%r10];
    W:  mbarrier.test_wait.shared.b64 %p2, [%r10], %rd2; {loop}
    END:
    """
    with pytest.raises(EmulatorError, match="the state token is of phase 0, .* phase 2, 1 of 1"):
        lanes(body, count=1)


def test_initialised_by_lanes_that_disagree():
    with pytest.raises(EmulatorError, match="mbarrier.init of the barrier at .* with counts 0 and 1 by lanes of one"):
        lanes("mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], %tid; mov.u32 %r1, 0;")


def test_initialised_by_two_warps(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    with pytest.raises(EmulatorError, match="of a live barrier without mbarrier.inval"):
        lanes("mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 1; mov.u32 %r1, 0;", threads=64)


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_a_used_barrier_that_is_initialised_again_starts_anew_in_a_lenient_run(schedule, monkeypatch):
    """Hardware has only eight bytes for it: phase 0 is not over, and two arrivals are missing."""
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    monkeypatch.setattr(errors, "_reported", set())
    body = """
        mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; mov.u32 %r1, 0; @%p1 bra DONE;
        mbarrier.init.shared.b64 [%r10], 1; mbarrier.arrive.shared.b64 _, [%r10]; mbarrier.init.shared.b64 [%r10], 2;
        mbarrier.arrive.shared.b64 _, [%r10]; mbarrier.test_wait.parity.shared.b64 %p2, [%r10], 0;
        selp.u32 %r1, 1, 0, %p2;
        mbarrier.arrive.shared.b64 _, [%r10]; mbarrier.test_wait.parity.shared.b64 %p2, [%r10], 0;
        selp.u32 %r2, 2, 0, %p2;
        add.u32 %r1, %r1, %r2;
        DONE:
    """
    with pytest.warns(errors.OrderingWarning, match="of a live barrier without mbarrier.inval"):
        assert lanes(body, schedule=schedule)[0] == 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_named_barriers_between_warps(schedule):
    """Warps 1 and 2 hand over to warp 0 on barrier 5 without waiting; warp 3 has exited before bar.sync 0."""
    body = """
        mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.eq.u32 %p1, %r11, 3; @%p1 ret;
        mad.lo.u32 %r12, %tid, 4, %r10; mov.u32 %r1, 0;
        setp.eq.u32 %p2, %r11, 0; @%p2 bra FIRST; st.shared.b32 [%r12], %tid; bar.arrive 5, 96; bra LAST;
    FIRST: barrier.cta.sync.aligned 5, 96; ld.shared.b32 %r1, [%r12+256];
    LAST: bar.sync 0;
    """
    assert lanes(body, threads=128, schedule=schedule) == [*range(64, 96)] + [0] * 64 + [0xDEAD] * 32


def test_a_warp_that_exits_after_the_others_have_arrived():
    body = """
        setp.eq.u32 %p2, %r11, 0; mov.u32 %r1, 8; @%p2 bra FIRST; setp.ne.u32 %p3, %tid, 32; @%p3 bra MEET;
        mbarrier.arrive.shared.b64 _, [%r10];
    MEET: bar.sync 0; bra END;
    FIRST: bar.warp.sync -1;
    W:  mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0; @!%p4 bra W; ret;
    END:
    """
    assert lanes(body, count=1, threads=96) == [0xDEAD] * 32 + [8] * 64


# Lane 0 of warp 0 jumps back into the others' way: the warp's lanes come to the barrier at MEET one group at a time.
PARTED = """
    shr.u32 %r11, %tid, 5; and.b32 %r12, %tid, 31; mov.u32 %r10, smem; mov.u32 %r1, 0;
    setp.eq.u32 %p1, %r11, 1; @%p1 bra OTHER; setp.ne.u32 %p2, %r12, 0; @%p2 bra MEET;
    st.shared.b32 [%r10], 7; setp.gt.u32 %p3, %r12, 40; @%p3 bra END; {lane0}
MEET: {barrier} 1, 64; {after} ld.shared.b32 %r1, [%r10]; bra END;
OTHER: bar.sync 1, 64; ld.shared.b32 %r1, [%r10];
END:
"""
ELECT = "elect.sync _|%p4, -1;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("after", ["", ELECT])
def test_lanes_of_a_parted_warp_wait_for_each_other(schedule, after):
    """The barrier is barrier.sync without .aligned; behind it the lanes go on together."""
    body = PARTED.format(barrier="barrier.sync", lane0="", after=after)
    assert lanes(body, threads=64, schedule=schedule) == [7] * 64


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("barrier", ["bar.sync", "barrier.sync.aligned"])
def test_an_aligned_barrier_of_a_parted_warp(schedule, barrier, monkeypatch):
    """The barrier is an error; in a lenient run it is a warning, and the lanes wait for each other."""
    body = PARTED.format(barrier=barrier, lane0="", after=ELECT)
    with pytest.raises(EmulatorError, match="bar.sync is executed by lanes 0x.* the warp has diverged"):
        lanes(body, threads=64, schedule=schedule)
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match="the warp has diverged"):
        assert lanes(body, threads=64, schedule=schedule) == [7] * 64


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_of_a_parted_warp_at_two_instructions(schedule):
    """The lanes meet at barrier 1 all the same, and stay apart behind it until they meet at END."""
    body = PARTED.format(barrier="barrier.sync", lane0="barrier.sync 1, 64; mov.u32 %r1, 9; bra END;", after="")
    assert lanes(body, threads=64, schedule=schedule) == [9] + [7] * 63
    with pytest.raises(EmulatorError, match="elect.sync: membermask 0xffffffff names lanes"):
        lanes(body.replace("MEET: barrier.sync 1, 64;", f"MEET: barrier.sync 1, 64; {ELECT}"), threads=64)


def test_a_lane_that_exits_is_not_waited_for():
    body = PARTED.format(barrier="barrier.sync", lane0="ret;", after="")
    assert lanes(body, threads=64) == [0xDEAD] + [7] * 63


def test_lanes_of_a_parted_warp_that_wait_for_ever():
    """Lane 0 is at another barrier: neither is complete."""
    body = PARTED.format(barrier="barrier.sync", lane0="barrier.sync 2, 64;", after="")
    with pytest.raises(EmulatorError, match="the kernel hangs") as error:
        lanes(body, threads=64)
    assert "lanes 0xfffffffe of warp 0 wait for its others" in error.value.reason
    assert "lanes 0x00000001 of warp 0 wait for its others" in error.value.reason


@pytest.mark.parametrize("number", [64, 96])
def test_lanes_of_a_parted_warp_that_do_not_agree(number):
    body = PARTED.format(barrier="barrier.sync", lane0=f"barrier.sync 1, {number}; bra END;", after="")
    if number == 64:
        assert lanes(body, threads=64) == [0] + [7] * 63
        return
    with pytest.raises(EmulatorError, match="arrive on barrier 1 with .* threads while lanes"):
        lanes(body, threads=64)


def test_reductions_of_a_parted_warp():
    body = PARTED.format(barrier="barrier.sync", lane0="", after="")
    body = body.replace("barrier.sync 1, 64;", "barrier.red.popc.u32 %r2, 1, 64, %p2;")
    with pytest.raises(EmulatorError, match="bar.red by a part of a warp, .* is not modelled"):
        lanes(body, threads=64)


@pytest.mark.parametrize(
    "instruction,reason",
    [
        ("bar.arrive 1, 32; bar.arrive 1, 64; bar.arrive 1, 32;", "is used with 32 threads while"),
        ("setp.gt.u32 %p1, %tid, 7; @%p1 barrier.sync 1, 64;", "whose predicate holds in a part .* is not modelled"),
        ("setp.gt.u32 %p1, %tid, 7; @%p1 bra A; barrier.sync 1, 64; A:", "the kernel hangs"),
    ],
)
def test_named_barriers_that_are_refused(instruction, reason):
    with pytest.raises(EmulatorError, match=reason):
        lanes(f"mov.u32 %r1, 0; {instruction}", threads=64)


def test_warp_barrier_of_lanes_that_have_parted():
    """Volta's rule applies: the named lanes meet at any bar.warp.sync, here one on each side of a branch."""
    body = """
        mov.u32 %r10, smem; mad.lo.u32 %r12, %tid, 4, %r10; setp.lt.u32 %p1, %tid, 16; @%p1 bra LOW;
        st.shared.b32 [%r12], %tid; bar.warp.sync -1; mov.u32 %r1, 1; bra END;
    LOW: bar.warp.sync -1; ld.shared.b32 %r1, [%r12+64];
    END:
    """
    assert lanes(body) == [*range(16, 32)] + [1] * 16


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("low", ["ret;", "bar.warp.sync 0xff; ret;"])
def test_a_warp_barrier_does_not_wait_for_lanes_that_exit(schedule, low):
    """The others wait while lanes 0 to 15 still run; the second time half of those meet at a barrier of their own."""
    body = f"""
        mov.u32 %r1, 0; setp.lt.u32 %p1, %tid, 16; setp.lt.u32 %p2, %tid, 8; @%p1 bra LOW;
        bar.warp.sync -1; mov.u32 %r1, 7; bra END;
    LOW: @!%p2 ret; {low}
    END:
    """
    assert lanes(body, schedule=schedule) == [0xDEAD] * 16 + [7] * 16


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reductions_on_a_named_barrier(schedule):
    """The first reduction is of all threads, the second of warps 0 and 1: lanes below 40 hold, all, none."""
    body = """
        setp.lt.u32 %p1, %tid, 40; setp.lt.u32 %p2, %tid, 1000; setp.gt.u32 %p3, %tid, 1000; mov.u32 %r1, 0;
        barrier.cta.red.popc.aligned.u32 %r2, 0, %p1; add.u32 %r1, %r1, %r2;
        bar.red.and.pred %p4, 0, %p1; selp.b32 %r3, 100, 0, %p4; add.u32 %r1, %r1, %r3;
        bar.red.and.pred %p4, 0, %p2; selp.b32 %r3, 200, 0, %p4; add.u32 %r1, %r1, %r3;
        barrier.red.or.pred %p4, 0, !%p2; selp.b32 %r3, 400, 0, %p4; add.u32 %r1, %r1, %r3;
        bar.red.or.pred %p4, 0, %p1; selp.b32 %r3, 800, 0, %p4; add.u32 %r1, %r1, %r3;
        setp.gt.u32 %p5, %tid, 63; @%p5 bra END; bar.red.popc.u32 %r2, 3, 64, !%p1; mad.lo.u32 %r1, %r2, 10000, %r1;
    END:
    """
    assert lanes(body, threads=96, schedule=schedule) == [241040] * 64 + [1040] * 32


def test_pending_counts_and_arrivals_that_do_not_complete():
    body = """
        mov.u32 %r1, 0; @%p1 bra END; mbarrier.arrive.noComplete.shared.b64 %rd3, [%r10], 3;
        mbarrier.arrive.shared::cta.b64 %rd4, [%r10]; mbarrier.pending_count.b64 %r2, %rd3;
        mbarrier.pending_count.b64 %r3, %rd4;
        mad.lo.u32 %r1, %r2, 10, %r3; mbarrier.arrive.shared.b64 _, [%r10];
        mbarrier.test_wait.shared.b64 %p3, [%r10], %rd4; @!%p3 mov.u32 %r1, 0;
    END:
    """
    assert lanes(body, count=5)[0] == 52


def test_a_phase_that_was_tested_for_and_missed():
    """Warp 0 tests once too early, and again when two phases have gone by, so that the parity is equal again."""
    body = """
        mov.u32 %r1, 0; setp.eq.u32 %p2, %r11, 1; @%p2 bra OTHER;
        mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; bar.sync 1, 64; bar.sync 2, 64; {seen}
        mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; selp.b32 %r1, 1, 2, %p3; bra END;
    OTHER: bar.sync 1, 64; setp.ne.u32 %p4, %tid, 32; @%p4 bra ARRIVED; mbarrier.arrive.shared.b64 _, [%r10];
        mbarrier.arrive.shared.b64 _, [%r10];
    ARRIVED: bar.sync 2, 64;
    END:
    """
    with pytest.raises(EmulatorError, match="phase 0 was waited for and missed") as error:
        lanes(body.format(seen=""), count=1, threads=64)
    assert error.value.ptx_text.startswith("mbarrier.test_wait")
    once = body.replace("mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; bar.sync 1", "bar.sync 1")
    assert lanes(once.format(seen=""), count=1, threads=64)[:32] == [2] * 32


@pytest.mark.parametrize("schedule", ["late", "random:1", "random:2"])
def test_arrivals_in_another_cta_may_be_late(schedule):
    """CTA 1 arrives in CTA 0, which exits without waiting for that: a relaxed barrier of the cluster is no wait."""
    body = """
        mov.u32 %r1, 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.eq.u32 %p3, %rank, 0;
        @%p3 bra MEET; mapa.shared::cluster.u32 %r12, %r10, 0; @%p1 bra MEET;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
    MEET: barrier.cluster.arrive{how}.aligned; barrier.cluster.wait.aligned;
    """
    assert lanes(body.format(how=""), count=1, grid=2, cluster=2, schedule=schedule) == [0] * 32
    body = body.format(how=".relaxed")
    seeds = range(20) if schedule == "random:1" else ()
    schedules = [f"random:{seed}" for seed in seeds] or [schedule]
    if schedule == "random:2":
        wait = "@!%p3 bra END; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra W; END:"
        assert lanes(body + wait, count=1, grid=2, cluster=2, schedule=schedule) == [0] * 32
        return
    with pytest.raises(EmulatorError, match="reaches CTA .*, which has exited") as error:
        for each in schedules:
            lanes(body, count=1, grid=2, cluster=2, schedule=each)
    assert error.value.ptx_text.startswith("mbarrier.arrive")


def test_register_counts_that_fit():
    body = """
        mov.u32 %r1, 3; setp.gt.u32 %p1, %tid, 127; @%p1 bra MORE; setmaxnreg.dec.sync.aligned.u32 40; bra END;
    MORE: setmaxnreg.inc.sync.aligned.u32 232;
    END:"""
    assert lanes(body, threads=384) == [3] * 384
