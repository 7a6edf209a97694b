"""Fences between the proxies: the async proxy's view of threads' stores and initialised barriers."""

import numpy as np
import pytest

from nogpu import errors
from nogpu.errors import EmulatorError
from tests.support.small_kernels import aligned, launch

SCHEDULES = ["late", "eager", "random:1", "random:2"]


# Two warps store 256 bytes; lane 0 issues a copy of them to global memory.
STORED = """
    mov.u32 %r10, smem; mad.lo.u32 %r2, %tid, 4, %r10; {store} {writer} bar.sync 0; {issuer}
    setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 256;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:
"""
PLAIN = "mul.lo.u32 %r3, %tid, 3; st.shared.b32 [%r2], %r3;"
ATOMIC = "mul.lo.u32 %r3, %tid, 3; atom.shared.exch.b32 %r4, [%r2], %r3;"
FENCES = ["fence.proxy.async.shared::cta;", "fence.proxy.async;"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("store", [PLAIN, ATOMIC])
@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("where", ["writer", "issuer"])
def test_stores_that_are_fenced(schedule, store, fence, where):
    """A fence by the warps that store or, after the barrier, by the warp that issues the copy."""
    out = aligned(np.zeros(64, np.uint32))
    fences = {"writer": "", "issuer": "", where: fence}
    launch(STORED.format(store=store, **fences), out, threads=64, schedule=schedule)
    assert out.tolist() == [3 * i for i in range(64)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "store,writer",
    [
        (ATOMIC, ""),
        (f"fence.proxy.async; {PLAIN}", ""),
        (PLAIN, "fence.proxy.async.global;"),
    ],
)
def test_stores_that_are_not(schedule, store, writer):
    with pytest.raises(
        EmulatorError, match="reads shared offset 0x4.0 through the async proxy, which warp [01] of .* has stored"
    ) as error:
        launch(
            STORED.format(store=store, writer=writer, issuer=""),
            aligned(np.zeros(64, np.uint32)),
            threads=64,
            schedule=schedule,
        )
    assert error.value.ptx_text.startswith("cp.async.bulk.global") and "PTX line" in error.value.reason


def test_lenient_runs_warn_once(monkeypatch):
    """One warning for each pair of instructions, for any number of lanes, warps and launches; the copy happens."""
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    monkeypatch.setattr(errors, "_reported", set())
    out = aligned(np.zeros(64, np.uint32))
    with pytest.warns(errors.OrderingWarning, match="fence.proxy.async is missing") as found:
        for _ in range(2):
            launch(STORED.format(store=PLAIN, writer="", issuer=""), out, threads=64)
    assert len(found) == 1 and out.tolist() == [3 * i for i in range(64)]


def test_a_fence_of_the_other_warp_alone():
    """Before the barrier, a fence of warp 1 does not cover warp 0's stores."""
    only_second = "setp.lt.u32 %p2, %tid, 32; @%p2 bra SECOND; fence.proxy.async; SECOND:"
    with pytest.raises(EmulatorError, match="which warp 0 of"):
        launch(STORED.format(store=PLAIN, writer=only_second, issuer=""), aligned(np.zeros(64, np.uint32)), threads=64)


def test_stores_to_another_cta():
    """CTA 1 stores to CTA 0, which copies the bytes."""
    body = """
        mov.u32 %r10, smem; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.eq.u32 %p2, %rank, 0;
        @%p2 bra STORED; mapa.shared::cluster.u32 %r11, %r10, 0; mad.lo.u32 %r2, %tid, 4, %r11;
        st.shared::cluster.b32 [%r2], %tid; {fence}
    STORED: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE;
        @!%p2 bra DONE; cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    DONE:
    """
    out = aligned(np.zeros(32, np.uint32))
    launch(body.format(fence="fence.proxy.async;"), out, grid=2, cluster=2)
    assert out.tolist() == list(range(32))
    with pytest.raises(EmulatorError, match=r"which warp 0 of CTA \(1, 0, 0\) .* has stored"):
        launch(body.format(fence=""), aligned(np.zeros(32, np.uint32)), grid=2, cluster=2)


def test_bytes_that_a_copy_has_overwritten():
    """An unfenced store is forgotten once a copy has overwritten its bytes."""
    source, out = aligned(np.zeros(32, np.uint32)), aligned(np.zeros(32, np.uint32))
    source[:] = 5
    body = """
        mov.u32 %r10, smem; mad.lo.u32 %r2, %tid, 4, %r10; setp.ne.u32 %p1, %tid, 0; @%p1 bra STORE;
        mbarrier.init.shared.b64 [%r10+1024], 1; fence.mbarrier_init.release.cluster;
    STORE: st.shared.b32 [%r2], %tid; bar.sync 0; @%p1 bra DONE;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10+1024], 128;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a1], 128, [%r10+1024];
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r10+1024], 0; @!%p2 bra W;
        cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 128; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
    DONE:
    """
    launch(body, out, source)
    assert set(out.tolist()) == {5}


# Each CTA's barrier is initialised by lane 0 of warp 0; then something arrives on it.
INITIALISED = """
    mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r10], 1; {fence}
READY: {meet} @%p1 bra DONE; {arrival}
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra W;
DONE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
COPY = """
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 128;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10+1024], [%a0], 128, [%r10];
"""
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10];"
REMOTE = """
    xor.b32 %r3, %rank, 1; mapa.shared::cluster.u32 %r4, %r10, %r3;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
"""
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
MEET = "barrier.cluster.arrive{how}.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "arrival,fence,how,missing",
    [
        (COPY, INIT_FENCE, ".relaxed", None),
        (COPY, "fence.proxy.async;", ".relaxed", None),
        (COPY, "", ".release", "through the async proxy"),
        (COPY, "fence.acq_rel.cluster;", "", "through the async proxy"),
        (COMMIT, INIT_FENCE, ".relaxed", None),
        (COMMIT, "", "", "through the async proxy"),
        (REMOTE, INIT_FENCE, ".relaxed", None),
        (REMOTE, "", ".release", None),
        (REMOTE, "", "", None),
        (REMOTE, "fence.acq_rel.cluster;", ".relaxed", None),
        (REMOTE, "fence.acq_rel.cta;", ".relaxed", "from another CTA"),
        (REMOTE, "", ".relaxed", "from another CTA"),
    ],
)
def test_who_sees_that_a_barrier_is_initialised(monkeypatch, schedule, arrival, fence, how, missing):
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    body = INITIALISED.format(fence=fence, meet=MEET.format(how=how), arrival=arrival)
    if missing is None:
        launch(body, aligned(np.zeros(32, np.uint32)), grid=2, cluster=2, schedule=schedule)
        return
    with pytest.raises(
        EmulatorError, match=f"{missing}, which may not see that warp 0 of .* fence.mbarrier_init is missing"
    ):
        launch(body, aligned(np.zeros(32, np.uint32)), grid=2, cluster=2, schedule=schedule)
