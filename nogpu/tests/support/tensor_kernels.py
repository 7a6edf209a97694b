"""PTX kernels that issue tcgen05 operations on tiles of two matrices, or take over the work of other clusters."""

import numpy as np

from nogpu.hardware.memory import SHARED_BASE
from tests.support.tensor_operands import descriptor

TILE, OTHER = 0x1000, 0x5000  # byte offsets of A and B behind the start of dynamic shared memory
BARRIER, TMEM_POINTER = 0x40, 0x80

BEGIN = """
    .reg .b32 %smem, %tmem, %idesc, %sfa, %sfb, %bar; .reg .b64 %a, %b, %rank64; .reg .pred %leader, %p, %zero, %one;
    mov.u32 %smem, smem; add.u32 %bar, %smem, {barrier}; shr.u32 %r1, %tid, 5; setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %leader, %tid, 0; mov.u32 %r2, 0; setp.ne.u32 %zero, %r2, 0; setp.eq.u32 %one, %r2, 0;
    @%leader bra INITIALISED; mbarrier.init.shared.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
INITIALISED: {sync}
    @%p1 bra ALLOCATED; add.u32 %r3, %smem, {pointer};
    tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r3], 256;
ALLOCATED: {copy}
    fence.proxy.async.shared::cta; tcgen05.fence::before_thread_sync; {sync} tcgen05.fence::after_thread_sync;
    ld.shared.b32 %tmem, [%smem+{pointer}]; add.u32 %sfa, %tmem, 192; add.u32 %sfb, %tmem, 200;
    mov.b64 %a, {a}; mov.b64 %b, {b}; mov.b32 %idesc, {idesc};
"""
# 64 bytes of each thread go from global memory to A's and to B's place
COPY = """
    mad.wide.u32 %rd1, %tid, 64, %a1; mad.wide.u32 %rd2, %tid, 64, %a2; mad.lo.u32 %r4, %tid, 64, %smem;
""" + "".join(
    f"""ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd{source}+{i}];
    st.shared.v4.b32 [%r4+{place + i}], {{%r10, %r11, %r12, %r13}};
"""
    for source, place in ((1, TILE), (2, OTHER))
    for i in range(0, 64, 16)
)
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def body(instruction_text, idesc=0, a=0, b=0, group=1, copy=""):
    """PTX of the operation, issued by one thread of the even CTA, and of nothing after it."""
    begin = BEGIN.format(
        barrier=BARRIER,
        pointer=TMEM_POINTER,
        group=group,
        copy=copy,
        sync="bar.sync 0;" if group == 1 else CLUSTER_SYNC,
        a=a,
        b=b,
        idesc=idesc,
    )
    return begin + (
        "or.pred %p, %leader, %zero; setp.ne.u32 %p2, %rank, 0; "
        f"or.pred %p, %p, %p2;\n@%p bra ISSUED;\n{instruction_text}\nISSUED:"
    )


WAIT = """
    @%p bra COMMITTED; tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];
COMMITTED: mov.u32 %r5, 0;
POLL: mbarrier.try_wait.parity.shared.b64 %p3, [%bar], %r5; @!%p3 bra POLL;
    tcgen05.fence::after_thread_sync; shl.b32 %r6, %r1, 21; add.u32 %r6, %r6, %tmem; mad.wide.u32 %rd3, %tid, 64, %a0;
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27, %r28, %r29, %r30, %r31,
    %r32,
    %r33, %r34, %r35}, [%r6]; tcgen05.wait::ld.sync.aligned;
""" + "".join(f"st.global.b32 [%rd3+{4 * i}], %r{20 + i};" for i in range(16))
END = """
    tcgen05.fence::before_thread_sync; bar.sync 0; @%p1 bra END;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 256;
END:
"""


def aligned(array):
    storage = np.zeros(array.nbytes + 64, np.uint8)
    start = -storage.ctypes.data % 64
    storage[start : start + array.nbytes] = array.view(np.uint8).ravel()
    return storage[start : start + array.nbytes]


def image(rows):
    """A tile of 8 KB: rows of 32 bytes, not swizzled, chunks 128 bytes apart, groups of eight rows 256 bytes apart."""
    groups = rows.view(np.uint8).reshape(-1, 8, 2, 16).transpose(0, 2, 1, 3)
    return aligned(np.resize(groups, 8192))


A_TILE, B_TILE = descriptor(SHARED_BASE + TILE, 256, 0, 128), descriptor(SHARED_BASE + OTHER, 256, 0, 128)

# Every cluster counts itself in a0[ctaid], takes over others until there are none, and counts these in a1[ctaid].
TAKE_OVER = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 16; setp.ne.u32 %p1, %tid, 0; mov.u32 %r1, %ctaid.x; mov.u32 %r9, 0;
    mov.u32 %r20, 1; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd2, %a0, %rd1;
    @!%p1 st.global.b32 [%rd2], %r20;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
AGAIN: @%p1 bra WAIT; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;
    {condition} clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{multicast}.b128
    [%r10], [%r11];
WAIT: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], %r9; @!%p9 bra WAIT;
    xor.b32 %r9, %r9, 1;
    ld.shared.v2.b64 {{%rd3, %rd4}}, [%r10]; .reg .b128 %h128; mov.b128 %h128, {{%rd3, %rd4}};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %h128;
    @!%p2 bra END;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %h128;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r3, %r4, %r5, _}}, %h128;
    setp.ne.u32 %p3, %r2, %r3; @%p3 trap; setp.ne.u32 %p3, %r4, 0; @%p3 trap; setp.ne.u32 %p3, %r5, 0; @%p3 trap;
    add.u32 %r2, %r2, %rank; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd2, %a1, %rd1; @!%p1 st.global.b32 [%rd2], %r20;
    fence.proxy.async; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    bra.uni AGAIN;
END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
