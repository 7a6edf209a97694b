"""The eight bytes of a live mbarrier: no other instruction may read or write them."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import aligned, launch, store

SETUP = """
    mov.u32 %r1, 0; mov.u32 %r4, 0; mov.u32 %r2, smem; add.u32 %r3, %r2, 1024; mov.u64 %rd3, 0;
    cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd2, %rd2;
    setp.eq.u32 %p1, %tid, 0; mad.lo.u32 %r5, %tid, 8, %r2; add.u32 %r5, %r5, 904; and.b64 %rd7, %a0, -128;
    @%p1 mbarrier.init.shared.b64 [%r3], 1; @%p1 mbarrier.init.shared.b64 [%r3+16], 1; bar.warp.sync -1;
"""


def run(body, **options):
    launch(SETUP + body + store("%r1"), aligned(np.zeros(4096, np.uint32)), **options)


@pytest.mark.parametrize(
    "instruction",
    [
        "st.shared.b32 [%r3], %r4;",
        "st.shared.b8 [%r3+7], %r4;",
        "ld.shared.b32 %r1, [%r3+4];",
        "ld.shared.v2.b64 {%rd5, %rd6}, [%r3];",
        "st.shared.b64 [%r5], %rd3;",
        "ld.shared.b64 %rd4, [%r5];",
        "ld.b32 %r1, [%rd2];",
        "st.b32 [%rd2], %r4;",
        "st.shared::cluster.b32 [%r3], %r4;",
        "ld.shared::cluster.b64 %rd4, [%r5];",
        "atom.shared.add.u32 %r1, [%r3], 1;",
        "red.add.u32 [%rd2], 1;",
        "atom.shared.add.noftz.f16x2 %r1, [%r3], %r4;",
        "cp.async.ca.shared.global [%r3], [%a0], 4;",
        "cp.async.cg.shared.global [%r3], [%rd7], 16;",
        "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2+1008], [%a0], 32, [%r3+16];",
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 2048;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r3];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r4};",
        "@%p1 st.bulk.shared::cta [%r2+1000], 48, 0;",
    ],
)
def test_access_to_a_live_barrier(instruction):
    with pytest.raises(EmulatorError) as error:
        run(instruction + " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; cp.async.wait_all;")
    assert "touches a live barrier" in str(error.value)
    assert "mbarrier at shared offset 0x800 of CTA (0, 0, 0)" in str(error.value)
    assert instruction.startswith((error.value.ptx_text, f"@%p1 {error.value.ptx_text}"))


def test_neighbours_of_a_barrier_are_data():
    body = """
        st.shared.b64 [%r3+8], %rd3; st.shared.b32 [%r3+-4], %r4; ld.shared.b64 %rd4, [%r3+24];
        atom.shared.exch.b32 %r1, [%r3+12], 9;
        cp.async.ca.shared.global [%r3+8], [%a0], 8; cp.async.wait_all; mov.u32 %r1, 0;
    """
    run(body)


def test_a_barrier_that_is_no_longer_live():
    body = """
        @%p1 mbarrier.inval.shared.b64 [%r3]; bar.warp.sync -1; st.shared.b32 [%r3], %r4; ld.shared.b32 %r1, [%r3];
    """
    run(body)


def test_barriers_that_are_no_longer_live_take_no_memory(live_barriers):
    """A loop initialises, uses and invalidates barriers, as long persistent kernels do for every tile."""
    run("""
        mov.u32 %r6, 0; @!%p1 bra END;
    NEXT: mbarrier.init.shared.b64 [%r3+32], 1; mbarrier.arrive.shared.b64 _, [%r3+32];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r3+32], 0; @!%p2 bra WAIT;
        mbarrier.inval.shared.b64 [%r3+32];
        add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 20; @%p3 bra NEXT;
    END:
    """)
    assert len(live_barriers) == 22 and max(live_barriers) == 3


def test_barriers_of_other_ctas():
    """A remote store affects the barriers of the CTA that it goes to, not those of the storing CTA."""
    start = SETUP.replace("add.u32 %r3, %r2, 1024;", "mad.lo.u32 %r3, %rank, 256, %r2; add.u32 %r3, %r3, 1024;")
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    target = "xor.b32 %r8, %rank, 1; mapa.shared::cluster.u32 %r9, %r3, %r8;"
    out = np.zeros(64, np.uint32)
    launch(start + meet + target + "st.shared::cluster.b32 [%r9], %r4;" + meet, out, grid=2, cluster=2)
    with pytest.raises(
        EmulatorError, match=r"touches a live barrier.*mbarrier at shared offset 0x800 of CTA \(0, 0, 0\)"
    ):
        body = (
            "setp.eq.u32 %p2, %rank, 1; mapa.shared::cluster.u32 %r9, %r2, 0; "
            "@%p2 st.shared::cluster.b32 [%r9+1024], %r4;"
        )
        launch(start + meet + body + meet, out, grid=2, cluster=2)
