"""Accesses to another CTA of the cluster: legal after a chain of causes from its start, an error before."""

import numpy as np
import pytest

from nogpu import errors
from nogpu.errors import EmulatorError
from tests.support.small_kernels import launch

SCHEDULES = ("late", "eager", "random:1", "random:2", "random:3")
REFUSED = r"is accessed where this warp has not heard of that CTA"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

# Each CTA accesses the other one of its pair. %r10 is a kilobyte of shared memory, %r11 an mbarrier that waits for an
# arrival, which expects {bytes} bytes; %r12 and %r13 are the same places of the other CTA.
EXCHANGE = (
    """
    .reg .b32 %peer; mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; xor.b32 %peer, %rank, 1; setp.ne.u32 %p1, %tid, 0;
    mapa.shared::cluster.u32 %r12, %r10, %peer; mapa.shared::cluster.u32 %r13, %r11, %peer; mov.b16 %h1, 3;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], {count}; fence.mbarrier_init.release.cluster;
READY: {start}
    @%p1 bra DONE; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {bytes};
    {access}
W: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W;
DONE:
"""
    + MEET
)
ACCESSES = {
    "store": ("st.shared::cluster.b32 [%r12], %tid;", 1, 0),
    "store to a generic address": (
        "cvt.u64.u32 %rd1, %r12; cvta.shared::cluster.u64 %rd1, %rd1; st.b32 [%rd1], 1;",
        1,
        0,
    ),
    "load": ("ld.shared::cluster.b32 %r5, [%r12];", 1, 0),
    "atom": ("atom.shared::cluster.add.u32 %r5, [%r12], 1;", 1, 0),
    "red": ("red.relaxed.cluster.shared::cluster.add.u32 [%r12], 1;", 1, 0),
    "st.async": ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], 5, [%r13];", 1, 4),
    "red.async": (
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12], 5, [%r13];",
        *(1, 4),
    ),
    "remote arrival": ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];", 2, 0),
    "remote complete_tx": ("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r13], 4;", 1, 4),
    "remote expect_tx": (
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r11], 4; "
        "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r13], 4;",
        *(2, 0),
    ),
    "bulk copy to the peer": (
        "add.u32 %r14, %r10, 64; "
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12], [%r14], 16, [%r13];",
        *(1, 16),
    ),
    "bulk load into the peer": (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%a0], 16, [%r13];",
        *(1, 16),
    ),
    "multicast": (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [%a0], 16, "
        "[%r11], %h1;",
        *(1, 32),
    ),
    "tcgen05.commit": (
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r11], %h1;",
        *(3, 0),
    ),
    "clusterlaunchcontrol": (
        "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"
        " [%r10], [%r11];",
        *(1, 32),
    ),
}


def exchange(access, start, schedule):
    text, count, nbytes = ACCESSES[access]
    body = EXCHANGE.format(start=start, access=text, count=count, bytes=nbytes)
    launch(body, aligned(np.zeros(32, np.uint32)), grid=2, cluster=2, schedule=schedule)


def aligned(array):
    storage = np.zeros(array.nbytes + 128, np.uint8)
    return storage[-storage.ctypes.data % 128 :][: array.nbytes].view(array.dtype)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("access", ACCESSES)
def test_accesses_to_a_cta_that_may_not_have_started(access, schedule):
    with pytest.raises(EmulatorError, match=REFUSED) as error:
        exchange(access, "bar.sync 0;", schedule)
    assert error.value.ptx_text and error.value.ptx_text in " ".join(ACCESSES[access][0].split())
    exchange(access, MEET, schedule)


def test_a_lenient_run_warns(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match=REFUSED):
        exchange("store", "bar.sync 0;", "late")


# Of a cluster of two, CTA 1 meets CTA 0 at the cluster barrier, CTA 0 arrives there and goes on. CTA 1 then arrives on
# CTA 0's mbarrier at %r11, or stores to a0; CTA 0 has a second mbarrier at %r14, on which only it arrives.
ONE_WAY = (
    """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; add.u32 %r14, %r10, 1032; setp.ne.u32 %p1, %tid, 0;
    mov.b32 %r1, 1; setp.eq.u32 %p3, %rank, 1;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], 1; mbarrier.init.shared.b64 [%r14], 1;
    fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.aligned;
    @%p3 bra TELL;
    mapa.shared::cluster.u32 %r12, %r10, 1;
    {heard}
    st.shared::cluster.b32 [%r12], %r1;
    E: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra E;
    barrier.cluster.wait.aligned; bra DONE;
TELL: barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %r13, %r11, 0;
    @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];
    @!%p1 st.release.gpu.global.b32 [%a0], %r1;
DONE:
"""
    + MEET
)
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p9, [{}], 0; @!%p9 bra W;"
POLL = "W: ld{}.global.b32 %r2, [%a0]; setp.eq.u32 %p9, %r2, 0; @%p9 bra W;"
OWN = "@!%p1 mbarrier.arrive.shared.b64 _, [%r14]; " + WAIT.format("%r14")
POLL_BARRIER = """
    mov.u32 %r2, 0;
P: mbarrier.test_wait.parity.shared.b64 %p9, [%r11], 0; add.u32 %r2, %r2, 1; @!%p9 bra P;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("heard", "legal"),
    [
        (WAIT.format("%r11"), True),
        (POLL_BARRIER, True),
        (POLL.format(".acquire.gpu"), True),
        (POLL.format(".volatile"), True),
        ("W: atom.acquire.gpu.global.or.b32 %r2, [%a0], 0; setp.eq.u32 %p9, %r2, 0; @%p9 bra W;", True),
        ("", False),
        (OWN, False),
        (POLL.format(""), False),
    ],
    ids=[
        *("mbarrier", "polled mbarrier", "acquired word", "volatile word", "atomic"),
        *("nothing", "another mbarrier", "weak load"),
    ],
)
def test_messages_of_the_other_cta(heard, legal, schedule):
    """The last three have waited long, or seen the other CTA's store, but no chain of causes comes from its start."""
    out = aligned(np.zeros(32, np.uint32))
    body = ONE_WAY.format(heard=heard)
    if legal:
        launch(body, out, grid=2, cluster=2, schedule=schedule)
        return
    with pytest.raises(EmulatorError, match=REFUSED) as error:
        launch(body, out, grid=2, cluster=2, schedule=schedule)
    assert error.value.cta == (0, 0, 0) and error.value.ptx_text == "st.shared::cluster.b32 [%r12], %r1"


# Warp 0 meets the other CTA at the cluster barrier, warp 1 only arrives there; then {passed}, and warp 1 stores.
PASSED_ON = (
    """
    mov.u32 %r10, smem; xor.b32 %r2, %rank, 1; mapa.shared::cluster.u32 %r12, %r10, %r2; mov.b32 %r1, 1;
    setp.gt.u32 %p2, %tid, 31; setp.gt.u32 %p3, %tid, 63;
    barrier.cluster.arrive.aligned; @%p2 bra OTHERS;
    barrier.cluster.wait.aligned; {first} bra DONE;
OTHERS: @%p3 bra THIRD;
    {second} st.shared::cluster.b32 [%r12], %r1; barrier.cluster.wait.aligned; bra DONE;
THIRD: {third} barrier.cluster.wait.aligned;
DONE:
"""
    + MEET
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("first", "second", "third", "legal"),
    [
        ("bar.sync 1, 64;", "bar.sync 1, 64;", "", True),
        ("bar.arrive 1, 64;", "bar.sync 1, 64;", "", True),
        ("bar.sync 1, 64;", "bar.sync 2, 64;", "bar.sync 1, 64; bar.sync 2, 64;", True),
        ("bar.sync 1, 64;", "bar.arrive 1, 64;", "", False),
        ("bar.sync 1, 64;", "bar.sync 2, 64;", "bar.sync 2, 64; bar.sync 1, 64;", False),
        ("", "", "", False),
    ],
)
def test_named_barriers_pass_it_on(first, second, third, legal, schedule):
    body = PASSED_ON.format(first=first, second=second, third=third)
    if legal:
        launch(body, threads=96, grid=2, cluster=2, schedule=schedule)
        return
    with pytest.raises(EmulatorError, match=REFUSED) as error:
        launch(body, threads=96, grid=2, cluster=2, schedule=schedule)
    assert error.value.warp == 1


# CTA 3 arrives on the mbarrier of CTA 2, which then arrives on that of CTA 0, which stores to CTA {target}.
CHAIN = (
    """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; mov.b32 %r1, 1;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.aligned;
    setp.eq.u32 %p2, %rank, 0; setp.eq.u32 %p3, %rank, 1; setp.eq.u32 %p4, %rank, 2; setp.eq.u32 %p5, %rank, 3;
    @%p2 bra LAST; @%p3 bra MET; @%p4 bra MIDDLE; barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %r13, %r11, 2; @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];
    bra DONE;
MIDDLE: M: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra M;
    barrier.cluster.wait.aligned; mapa.shared::cluster.u32 %r13, %r11, 0;
    @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13]; bra DONE;
LAST: L: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra L;
    mapa.shared::cluster.u32 %r12, %r10, {target}; st.shared::cluster.b32 [%r12], %r1;
MET: barrier.cluster.wait.aligned;
DONE:
"""
    + MEET
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target", [1, 2, 3])
def test_a_chain_of_messages(target, schedule):
    """CTA 0 gets a message from CTA 2 alone, which has messages from all."""
    launch(CHAIN.format(target=target), grid=4, cluster=4, schedule=schedule)


def test_knowledge_is_of_one_cta():
    """CTA 1 has sent CTA 0 its start through a word, CTA 2 has sent it to nobody."""
    body = (
        """
        mov.u32 %r10, smem; mov.b32 %r1, 1; setp.eq.u32 %p2, %rank, 0; setp.eq.u32 %p3, %rank, 1; @%p2 bra HEARS;
        @%p3 st.release.gpu.global.b32 [%a0], %r1; bra DONE;
        HEARS: W: ld.acquire.gpu.global.b32 %r2, [%a0]; setp.eq.u32 %p9, %r2, 0; @%p9 bra W;
        mapa.shared::cluster.u32 %r12, %r10, {target}; st.shared::cluster.b32 [%r12], %r1;
        DONE:
        """
        + MEET
    )
    for schedule in SCHEDULES:
        launch(body.format(target=1), np.zeros(32, np.uint32), grid=4, cluster=4, schedule=schedule)
        with pytest.raises(EmulatorError, match=r"shared memory of CTA \(2, 0, 0\) \(rank 2\) " + REFUSED):
            launch(body.format(target=2), np.zeros(32, np.uint32), grid=4, cluster=4, schedule=schedule)


PAIRED = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024;
    setp.gt.u32 %p2, %tid, 31; setp.ne.u32 %p3, %tid, 32; setp.ne.u32 %p4, %rank, 0;
    setp.ne.u32 %p5, %tid, 0; @%p5 bra READY; mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
    barrier.cluster.arrive.aligned; @%p2 bra COPIES; barrier.cluster.wait.aligned;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r10], 64; ld.shared.b32 %r12, [%r10]; bar.sync 1, 64;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r12, 64; bra DONE;
COPIES: {met} ld.shared.b32 %r12, [%r10]; mov.b64 %rd5, 0x0000400800000100; or.pred %p3, %p3, %p4;
    @!%p3 tcgen05.cp.cta_group::2.32x128b.warpx4 [%r12], %rd5;
    @!%p3 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r11]; @%p4 bra COPIED;
    W: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W;
COPIED: {late} barrier.cluster.wait.aligned;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
DONE:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_tensor_core_of_a_pair(schedule):
    launch(PAIRED.format(met="bar.sync 1, 64;", late=""), threads=64, grid=2, cluster=2, schedule=schedule)
    with pytest.raises(EmulatorError, match=REFUSED) as error:
        launch(PAIRED.format(met="", late="bar.sync 1, 64;"), threads=64, grid=2, cluster=2, schedule=schedule)
    assert error.value.ptx_text.startswith("@!%p3 tcgen05.cp.cta_group::2")


# CTA 1 arrives on CTA 0's mbarrier behind the cluster barrier; warp 1 of both allocates behind a CTA barrier.
PAIR_ALLOCATES = """
    mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r10], 1;
    fence.mbarrier_init.release.cluster;
READY: {meet} mapa.shared::cluster.u32 %r4, %r10, 0; setp.ne.u32 %p2, %rank, 1; or.pred %p2, %p1, %p2;
    @!%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
    bar.sync 0; setp.lt.u32 %p3, %tid, 32; @%p3 bra WAIT;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r10+8], 32; ld.shared.b32 %r5, [%r10+8];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r5, 32; bra END;
WAIT: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.ne.u32 %p2, %rank, 0; @%p2 bra END;
W:  mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0; @!%p4 bra W;
END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""


@pytest.mark.parametrize("schedule", (*SCHEDULES, *(f"random:{seed}" for seed in range(10, 20))))
def test_a_pair_allocates_while_messages_arrive(schedule):
    """A remote arrival keeps the release of an earlier cluster barrier."""
    launch(PAIR_ALLOCATES.format(meet=MEET), threads=64, grid=2, cluster=2, schedule=schedule)


def test_a_pair_that_has_not_met_may_not_allocate():
    with pytest.raises(EmulatorError, match="has not heard of that CTA"):
        launch(PAIR_ALLOCATES.format(meet="bar.sync 0;"), threads=64, grid=2, cluster=2, schedule="eager")
