"""mbarriers, named barriers, cluster barriers: what completes them, and what breaks their rules."""

import numpy as np
import pytest
from small_kernels import launch, store

from emulator.barriers import ClusterBarrier, MBarrier, NamedBarrier
from emulator.errors import EmulatorError, Fault

WHO = None
SCHEDULES = ["late", "eager", "random:1", "random:2"]


def lanes(body, threads=32, **options):
    out = np.full(threads, 0xDEAD, np.uint32)
    launch(body + store("%r1"), out, threads=threads, **options)
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


def test_limits_of_an_mbarrier():
    for count in (0, -1, 1 << 20):
        with pytest.raises(Fault, match="must be 1 to 1048575"):
            MBarrier("b", count)
    barrier = MBarrier("b", 2)
    with pytest.raises(Fault, match="3 arrival.* phase 0 has 2 pending of 2: the count would underflow"):
        arrive(barrier, 3)
    with pytest.raises(Fault, match="tx-count of b would be 1048576"):
        barrier.expect(1 << 20)


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
    body = (
        INIT.format(count=32)
        + """
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
    )
    assert lanes(body, threads=64, schedule=schedule) == [9 * (i % 32) for i in range(64)]


@pytest.mark.parametrize("wait", ["mbarrier.try_wait.shared.b64", "mbarrier.test_wait.shared::cta.b64"])
@pytest.mark.parametrize("schedule", ["late", "random:5"])
def test_state_tokens_and_counts(wait, schedule):
    body = (
        INIT.format(count=3)
        + f"""
        mov.b32 %r1, 0; setp.eq.u32 %p2, %r11, 1; elect.sync _|%p3, -1; @%p2 bra OTHER; @!%p3 bra WAITED;
        mbarrier.arrive.shared.b64 %rd3, [%r10], 1;
    LOOP: {wait} %p4, [%r10], %rd3; @!%p4 bra LOOP;
        {wait} %p5, [%r10], %rd3; selp.b32 %r1, 7, 8, %p5; bra WAITED;
    OTHER: @!%p3 bra WAITED; mbarrier.arrive.shared.b64 _, [%r10], 2;
    WAITED:
    """
    )
    got = lanes(body, threads=64, schedule=schedule)
    assert got[0] == 7 and set(got[1:]) == {0}


def test_peek_does_not_wait():
    body = (
        INIT.format(count=1)
        + """
        mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; selp.b32 %r1, 1, 0, %p2; bar.sync 0; @%p1 bra A;
        mbarrier.arrive.shared.b64 _, [%r10];
    A:  bar.sync 0; mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; selp.b32 %r2, 2, 0, %p3;
        mbarrier.test_wait.parity.shared.b64 %p4, [%r10], 1; selp.b32 %r3, 4, 0, %p4; or.b32 %r1, %r1, %r2;
        or.b32 %r1, %r1, %r3;
    """
    )
    assert lanes(body) == [2] * 32


def test_transaction_bytes():
    body = (
        INIT.format(count=1)
        + """
        elect.sync _|%p2, -1; @!%p2 bra A; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 64;
        mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r10], 48;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16;
    A:  mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; @!%p2 bra B;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], 32;
    B:  mbarrier.test_wait.parity.shared.b64 %p4, [%r10], 0; selp.b32 %r1, 1, 0, %p3; selp.b32 %r2, 2, 0, %p4;
    add.u32 %r1, %r1, %r2;
    """
    )
    assert lanes(body) == [2] * 32


def test_remote_arrival():
    body = (
        INIT.format(count=32)
        + """
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; mov.u32 %r1, 5; setp.ne.u32 %p3, %rank, 0;
        @%p3 bra REMOTE;
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra W; bra END;
    REMOTE: mapa.shared::cluster.u32 %r12, %r10, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12], 1;
    END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    """
    )
    assert lanes(body, grid=2, cluster=2) == [5] * 32


def test_arrivals_by_lane_on_different_barriers():
    body = (
        INIT.format(count=16)
        + """
        setp.ne.u32 %p2, %tid, 1; @%p2 bra A; mbarrier.init.shared.b64 [%r10+8], 16;
    A:  bar.sync 0; and.b32 %r2, %tid, 1; mad.lo.u32 %r3, %r2, 8, %r10; mbarrier.arrive.shared.b64 _, [%r3];
        mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0; mbarrier.test_wait.parity.shared.b64 %p4, [%r10+8], 0;
        and.pred %p3, %p3, %p4; selp.b32 %r1, 1, 0, %p3;
    """
    )
    assert lanes(body) == [1] * 32


def test_reinitialisation_after_inval():
    body = (
        INIT.format(count=1)
        + "mov.u32 %r1, 3; @%p1 bra A; mbarrier.inval.shared.b64 [%r10]; mbarrier.init.shared.b64 [%r10], 2; A:"
    )
    assert lanes(body) == [3] * 32


@pytest.mark.parametrize(
    "instructions,reason",
    [
        ("mbarrier.init.shared.b64 [%r10], 1;", "of a live barrier without mbarrier.inval"),
        ("mbarrier.init.shared.b64 [%r10+8], 0;", "must be 1 to 1048575"),
        ("mbarrier.init.shared.b64 [%r10+4], 1;", "must be 8-byte aligned"),
        ("mbarrier.init.shared.b64 [%r10+4096], 1;", "inside of the launch's shared memory"),
        ("mbarrier.arrive.shared.b64 _, [%r10+8];", "was not initialised"),
        ("mbarrier.arrive.shared.b64 _, [%r10], 3;", "2 pending of 2: the count would underflow"),
        ("mbarrier.test_wait.parity.shared.b64 %p2, [%r10], 2;", "phase parity 2: must be 0 or 1"),
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 0x100000;",
            "tx-count of mbarrier .* would be 1048576",
        ),
        (
            "add.u32 %r2, %r10, 0x1000000; mbarrier.arrive.shared::cluster.b64 _, [%r2];",
            "names CTA rank 1 of a cluster of 1",
        ),
    ],
)
def test_broken_rules(instructions, reason):
    with pytest.raises(EmulatorError, match=reason):
        lanes(INIT.format(count=2) + f"mov.u32 %r1, 0; @%p1 bra A;\n{instructions}\nA:")


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


@pytest.mark.parametrize(
    "wait", ["mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0;", "mbarrier.test_wait.b64 %p2, [%rd1], %rd2;"]
)
def test_waiting_for_the_barrier_of_another_cta(wait):
    body = (
        INIT.format(count=1)
        + f"""
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; xor.b32 %r2, %rank, 1; mov.u64 %rd2, 0;
        mapa.shared::cluster.u32 %r12, %r10, %r2; cvta.shared::cluster.u64 %rd1, %r12; mov.u32 %r1, 0; {wait}
    """
    )
    with pytest.raises(EmulatorError, match="the instruction takes this CTA's only"):
        lanes(body, grid=2, cluster=2)


@pytest.mark.parametrize("loop", ["", "@!%p2 bra W;"])
def test_a_state_token_two_phases_old(loop):
    body = (
        INIT.format(count=1)
        + f"""
        mov.u32 %r1, 0; @%p1 bra END; mbarrier.arrive.shared.b64 %rd2, [%r10]; mbarrier.arrive.shared.b64 _, [%r10];
    W:  mbarrier.test_wait.shared.b64 %p2, [%r10], %rd2; {loop}
    END:
    """
    )
    with pytest.raises(EmulatorError, match="the state token is of phase 0, .* phase 2, 1 of 1"):
        lanes(body)


def test_initialised_by_lanes_that_disagree():
    with pytest.raises(EmulatorError, match="mbarrier.init of the barrier at .* with counts 0 and 1 by lanes of one"):
        lanes("mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], %tid; mov.u32 %r1, 0;")


def test_initialised_by_two_warps():
    with pytest.raises(EmulatorError, match="of a live barrier without mbarrier.inval"):
        lanes("mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 1; mov.u32 %r1, 0;", threads=64)


def test_missed_phase():
    """Warp 1 completes phases 0 and 1 before warp 0, which has begun to wait for phase 0, runs again."""
    body = (
        INIT.format(count=1)
        + """
        mov.u32 %r1, 0; setp.eq.u32 %p2, %r11, 1; @%p2 bra OTHER; bar.arrive 1, 64;
    W:  mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra W; bra END;
    OTHER: bar.sync 1, 64; elect.sync _|%p4, -1; @!%p4 bra END; mbarrier.arrive.shared.b64 _, [%r10];
    mbarrier.arrive.shared.b64 _, [%r10];
    END:
    """
    )
    with pytest.raises(EmulatorError, match="phase 0 was waited for and missed") as error:
        lanes(body, threads=64)
    assert "try_wait" in error.value.ptx_text


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
    body = (
        INIT.format(count=1)
        + """
        setp.eq.u32 %p2, %r11, 0; mov.u32 %r1, 8; @%p2 bra FIRST; setp.ne.u32 %p3, %tid, 32; @%p3 bra MEET;
        mbarrier.arrive.shared.b64 _, [%r10];
    MEET: bar.sync 0; bra END;
    FIRST: bar.warp.sync -1;
    W:  mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0; @!%p4 bra W; ret;
    END:
    """
    )
    assert lanes(body, threads=96) == [0xDEAD] * 32 + [8] * 64


@pytest.mark.parametrize(
    "instruction,reason",
    [
        ("bar.sync 16;", "there are 16 per CTA"),
        ("bar.sync 1, 48;", "must be a positive multiple of 32"),
        ("bar.arrive 1, 32; bar.arrive 1, 64; bar.arrive 1, 32;", "is used with 32 threads while"),
        ("setp.gt.u32 %p1, %tid, 7; @%p1 bra A; barrier.sync 1, 64; A:", "by a part of a warp, .* is not modelled"),
        ("barrier.cluster.wait.aligned;", "without a barrier.cluster.arrive"),
        ("barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;", "arrive twice"),
    ],
)
def test_broken_rules_of_named_and_cluster_barriers(instruction, reason):
    with pytest.raises(EmulatorError, match=reason):
        lanes(f"mov.u32 %r1, 0; {instruction}", threads=64)


def test_warp_barrier_of_lanes_that_have_parted():
    """Volta's rule: the lanes named meet at any bar.warp.sync, here one on each side of a branch."""
    body = """
        mov.u32 %r10, smem; mad.lo.u32 %r12, %tid, 4, %r10; setp.lt.u32 %p1, %tid, 16; @%p1 bra LOW;
        st.shared.b32 [%r12], %tid; bar.warp.sync -1; mov.u32 %r1, 1; bra END;
    LOW: bar.warp.sync -1; ld.shared.b32 %r1, [%r12+64];
    END:
    """
    assert lanes(body) == [*range(16, 32)] + [1] * 16
