"""Reports of hangs, with their likely causes, and unforeseen exceptions of the emulator."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.ops import barriers
from tests.support.small_kernels import launch

INIT = """
    mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; and.b32 %r12, %tid, 31; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r10], {count}; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""
WAIT = "W{n}: mbarrier.try_wait.parity.shared.b64 %p9, [%r10], {parity}; @!%p9 bra W{n};\n"


def hang(body, threads=96, **options):
    with pytest.raises(EmulatorError, match="the kernel hangs") as error:
        launch(body, threads=threads, **options)
    return str(error.value)


def test_warps_that_arrived_in_an_earlier_phase():
    """Warps 0 and 1 arrive in phase 0; in phase 1 only warp 0 does, warp 1 has exited. Warp 2 waits."""
    arrive = "setp.ne.u32 %p2, %r12, 0; @!%p2 mbarrier.arrive.shared.b64 _, [%r10];"
    text = hang(
        f"{INIT.format(count=2)} setp.eq.u32 %p3, %r11, 2; @%p3 bra WAITS; {arrive}"
        f"setp.eq.u32 %p4, %r11, 1; @%p4 bra END; {WAIT.format(n=0, parity=0)}"
        "@!%p2 mbarrier.arrive.shared.b64 _, [%r10]; bra END;"
        f"WAITS: {WAIT.format(n=1, parity=0)} {WAIT.format(n=2, parity=1)} END:"
    )
    assert "phase 1, 1 of 2 arrivals pending" in text
    assert "has arrived in an earlier phase, not in phase 1: warp 1 of CTA (0, 0, 0), has exited" in text
    assert "not in phase 1: warp 0" not in text


def test_bytes_that_nobody_sends():
    sent = "@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 64;"
    text = hang(INIT.format(count=1) + sent + WAIT.format(n=0, parity=0))
    assert "all have arrived; no copy is outstanding that would bring the 64 bytes" in text


def test_nobody_has_ever_arrived():
    text = hang(INIT.format(count=1) + "setp.eq.u32 %p2, %r11, 1; @%p2 ret;" + WAIT.format(n=0, parity=0), 64)
    assert "has exited, and nobody has ever arrived: warp 1 of CTA (0, 0, 0), has exited" in text


def test_named_and_cluster_barriers():
    part = "shr.u32 %r11, %tid, 5; setp.eq.u32 %p1, %r11, 1; @%p1 bra OTHER;"
    text = hang(part + "bar.sync 3, 64; OTHER: bar.sync 4, 64;", 64)
    assert (
        "named barrier 3: 32 of 64 threads, arrived: warp 0\n      has not arrived: warp 1 of CTA (0, 0, 0), at" in text
    )
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    text = hang(f"setp.eq.u32 %p1, %rank, 1; @%p1 bra OTHER; {meet} OTHER: bar.sync 4, 64;", 32, grid=2, cluster=2)
    assert "cluster barrier: 32 of 64 threads arrived" in text
    assert "has not arrived: warp 0 of CTA (1, 0, 0), at PTX line" in text


def test_an_exception_of_the_emulator_has_a_place(monkeypatch):
    """An unforeseen exception, too, becomes an EmulatorError at the instruction."""

    def broken(*arguments):
        raise ValueError("no such axis")

    monkeypatch.setattr(barriers, "wait_cluster", broken)
    with pytest.raises(EmulatorError, match="emulator failed at this instruction: ValueError: no such axis") as error:
        launch("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", np.zeros(32, np.uint32))
    assert error.value.ptx_text.startswith("barrier.cluster.wait")
    assert error.value.warp == 0 and error.value.cta == (0, 0, 0)
