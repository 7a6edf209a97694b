"""Instructions that are refused: the words of each error, and the text, by the kernel around it.

A row is WORDS | TEXT, as in `support.tables`. The error names the last statement of the text. `test_strictness.py` has
rules beside legal twins.
"""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.isa import test_async_rows, test_async_stores
from tests.support import tables
from tests.support.encoding import tensor_map
from tests.support.small_kernels import aligned, launch
from tests.support.tensor_kernels import body

REDUCE, BYTES = "cp.reduce.async.bulk.global.shared::cta.bulk_group", "mbarrier::complete_tx::bytes"
TILE_LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
TILE_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile"
ST, MMA_SYNC = "st.async.shared::cluster.mbarrier::complete_tx::bytes", "mma.sync.aligned"
FOUR, TWO = "{%r1, %r2, %r3, %r4}", "{%r5, %r6}"
INTO, SCALES = "[%tmem], %a, %b, %idesc", "[%sfa], [%sfb]"


def zeros(count=128, dtype=np.uint32):
    return aligned(np.zeros(count, dtype))


def maps():
    """A map of u32, 256 bytes that are none, a map of s64, and what the maps are of."""
    tensor, wide = zeros((4, 16)), zeros((4, 16), np.int64)
    signed = aligned(tensor_map(wide.ctypes.data, (16, 4), (128,), (16, 1), "s64"))
    return test_async_rows.map_of(tensor, (2, 16)), aligned(np.full(256, 0xFF, np.uint8)), signed, tensor, wide


# Name -> the kernel, its arrays, the launch's options, rows
FRAMES = {
    "one warp": (
        """
        .reg .b128 %w, %v; mov.u32 %r1, 0; mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 16, %r2;
        mad.wide.u32 %rd2, %tid, 16, %a1; setp.lt.u32 %p1, %tid, 5; {}
        """,
        lambda: (zeros(32), zeros()),
        {},
        r"""
the limit is 128, in global memory 256 | ld.shared.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [smem];
a 128-bit register is expected, not %rd1 | ld.global.b128 %rd1, [%a0];
at most 256 bits | ld.global.v8.b128 {%rd1, %rd2}, [%a0];
ld has no .f16 | ld.global.f16 %h1, [%a0];
ld without a type | ld.global [%a0], %r1;
needs an access of 256 bits, this one has 32 | ld.global.L2::evict_last.b32 %r1, [%a0];
.ca and .L1::evict_first exclude each other | ld.global.ca.L1::evict_first.b32 %r1, [%a0];
ld has no .wb | ld.global.wb.b32 %r1, [%a0];
st has no .ca | st.global.ca.b32 [%a0], %r1;
st has no .L2::128B | st.global.L2::128B.b32 [%a0], %r1;
.L2::cache_hint is for global memory | ld.shared.L2::cache_hint.b32 %r1, [smem], %rd1;
with 2 operands; it takes 3 | ld.global.L2::cache_hint.b32 %r1, [%a0];
with 3 operands; it takes 2 | st.global.b32 [%a0], %r1, %rd1;
a scope goes with | ld.acquire.global.b32 %r1, [%a0];
a scope goes with | ld.gpu.global.b32 %r1, [%a0];
a scope goes with | ld.volatile.gpu.global.b32 %r1, [%a0];
.acquire excludes .ca | ld.acquire.gpu.global.ca.b32 %r1, [%a0];
.volatile excludes .L1::no_allocate | ld.volatile.global.L1::no_allocate.b32 %r1, [%a0];
.relaxed is not for .local | ld.relaxed.gpu.local.b32 %r1, [%a0];
st has no .acquire | st.acquire.gpu.global.b32 [%a0], %r1;
.mmio goes with .relaxed.sys | ld.mmio.relaxed.gpu.global.b32 %r1, [%a0];
.nc is for global memory | ld.nc.b32 %r1, [%a0];
register %r1 has 32 bits, the access 64 | st.global.b64 [%a0], %r1;
an operand of 1 elements, 2 expected | ld.global.v2.b32 %r1, [%a0];
_ is not a source here | st.global.v4.b32 [%a0], {%r1, _, %r1, %r1};
ldu has no .shared | ldu.shared.b32 %r1, [smem];
must be 128 bytes | discard.global.L2 [%a0], 64;
at a multiple of 128 | applypriority.L2::evict_normal [%a0+4], 128;
atom.min.f32 does not exist: .min takes u32, s32, u64, s64 | atom.global.min.f32 %r1, [%a0], %r2;
red.max.f32 does not exist | red.global.max.f32 [%a0], %r2;
atom.add.s64 does not exist | atom.global.add.s64 %rd1, [%a0], %rd2;
atom.and.u32 does not exist | atom.global.and.u32 %r1, [%a0], %r2;
atom.exch.b16 does not exist | atom.global.exch.b16 %h1, [%a0], %h2;
128-bit atomics are not modelled | atom.global.exch.b128 %rd1, [%a0], %rd2;
they must have it | atom.global.add.f16x2 %r1, [%a0], %r2;
.noftz belongs to f16 | atom.global.add.noftz.u32 %r1, [%a0], %r2;
atom.min.f16x2 does not exist | atom.global.min.noftz.f16x2 %r1, [%a0], %r2;
are for global memory | atom.shared.add.v2.f32 {%r1, %r3}, [smem], {%r2, %r2};
red.add.v8.f32 does not exist | red.global.add.v8.f32 [%a0], {%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1};
red has no .exch | red.global.exch.b32 [%a0], %r2;
red has no .acquire | red.acquire.gpu.global.add.u32 [%a0], 1;
atom has no .global here | atom.global.global.add.u32 %r1, [%a0], 1;
atom has no .local | atom.local.add.u32 %r1, [%a0], 1;
3 operands after the destination, 2 expected | atom.global.add.u32 %r1, [%a0], 1, %rd2;
an operand of 1 elements, 2 expected | atom.global.add.v2.f32 {%r1, %r3}, [%a0], %r2;
2 operands after the destination, 3 expected | atom.global.cas.b32 %r1, [%a0], 1;
misaligned by 8 bytes | atom.global.add.v4.f32 {%r1, %r2, %r3, %r4}, [%a0+8], {%r1, %r2, %r3, %r4};
past the end of a0 | red.global.add.v2.f32 [%a0+128], {%r1, %r2};
atomic at generic address .* of local memory | .local .align 8 .b8 stack[8]; mov.u64 %rd1, stack; cvta.local.u64 %rd1,
    %rd1; atom.add.f32 %r1, [%rd1], %r2;
a 128-bit register is expected, not %a0 | mov.b128 %w, %a0;
two of 64 bits are expected | mov.b128 %w, {%a0, %a0, %a0};
register %tid has 32 bits | mov.b128 %w, {%tid, %a0};
takes a 128-bit register and another | mov.b128 {%rd1, %rd2}, {%a0, %a0};
takes a 128-bit register and another | mov.b128 %w, %v, %v;
4 elements|2 expected | st.global.b128 [%a0], {%w, %v};
a 128-bit register is expected, not 5 | st.global.b128 [%a0], 5;
register %w has 128 bits | add.u64 %w, %a0, %a0;
tcgen05.shift.cta_group::1.down is not modelled | tcgen05.shift.cta_group::1.down [%r1];
add.s8 is not modelled | add.s8 %r1, %r2, %r3;
cvt.rs.satfinite.e2m1x4.f32 is not modelled | cvt.rs.satfinite.e2m1x4.f32 %h1, {%r1, %r2, %r3, %r4}, %r5;
cvt.rs.satfinite.e4m3x4.f32 is not modelled | cvt.rs.satfinite.e4m3x4.f32 %r6, {%r1, %r2, %r3, %r4}, %r5;
cvt.rn.s2f6x2.f32 is not modelled | cvt.rn.s2f6x2.f32 %h1, %r1, %r2;
max.f32 with 5 operands; it takes 3 or 4 | max.f32 %r1, %r2, %r3, %r4, %r5;
max.xorsign.abs.f32 with 4 operands; it takes 3 | max.xorsign.abs.f32 %r1, %r2, %r3, %r4;
lop3.b32 with 6 operands; it takes 5 | lop3.b32 %r1, %r2, %r3, %r4, 1, 2;
setp.lt.u32 with 5 operands; it takes 3 or 4 | setp.lt.u32 %p1, %r2, %r3, %p2, %p3;
neg.s32 with 3 operands; it takes 2 | neg.s32 %r1, %r2, %r3;
addc.u32 with 2 operands; it takes 3 | addc.u32 %r1, %r2;
cvt.rn.f16x2.f32 with 2 operands; it takes 3 | cvt.rn.f16x2.f32 %r1, %r2;
and.pred with 2 operands; it takes 3 | and.pred %p1, %p2;
is not modelled | ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1, %r3}, [%r2];
is not modelled | ldmatrix.sync.aligned.m16n16.x4.trans.b8 {%r1, %r3}, [%r2];
is not modelled | ldmatrix.sync.aligned.m8n16.x1.trans.b8x16.b4x16_p64 {%r1}, [%r2];
1 registers for .m16n16.x1, 2 expected | ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1}, [%r2];
1 registers for .m8n16.x2, 2 expected | ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%r1}, [%r2];
1 registers for .m16n8.x2, 2 expected | stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%r2], {%r1};
misaligned by 8 bytes | ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2+8];
is not in shared memory | ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%a0];
the warp has diverged | @%p1 ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r3}, [%r2];
the warp has diverged | @%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r3;
shared address 0x1000400 names CTA rank 1 | add.u32 %r2, %r2, 0x1000000;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1};
D is 3 registers, 4 expected | $MMA_SYNC.m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r2, %r3}, $FOUR, $TWO, $FOUR;
A is 4 registers, 2 expected | $MMA_SYNC.m16n8k8.row.col.f32.f16.f16.f32 $FOUR, $FOUR, {%r8}, $FOUR;
no combination of shape and types | $MMA_SYNC.m16n8k16.row.col.f32.f16.bf16.f32 $FOUR, $FOUR, $TWO, $FOUR;
no combination of shape and types | $MMA_SYNC.m16n8k32.row.col.f32.f16.f16.f32 $FOUR, $FOUR, $TWO, $FOUR;
.satfinite is for integers | $MMA_SYNC.m16n8k16.row.col.satfinite.f32.f16.f16.f32 $FOUR, $FOUR, $TWO, $FOUR;
register %rd4 has 64 bits | $MMA_SYNC.m16n8k16.row.col.f32.f16.f16.f32 $FOUR, {%rd4, %r5, %r6, %r7}, $TWO, $FOUR;
is not modelled | $MMA_SYNC.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 $FOUR,
    $FOUR, $TWO, $FOUR;
cp-size 12: must be 4 or 8 or 16 | cp.async.ca.shared.global [%r3], [%rd2], 12;
an integer literal is expected, not %r2 | cp.async.ca.shared.global [%r3], [%rd2], %r2;
0 operands after cp-size, 1 or 2 expected | cp.async.ca.shared.global.L2::cache_hint [%r3], [%rd2], 4;
2 operands after cp-size, 0 or 1 expected | cp.async.ca.shared.global [%r3], [%rd2], 4, 4, %rd2;
destination 0x408 is misaligned | cp.async.ca.shared.global [%r3+8], [%rd2], 16;
source 0x[0-9a-f]+ is misaligned | cp.async.ca.shared.global [%r3], [%rd2+4], 8;
cp.async store of 4 bytes at shared offset 0x1400 | cp.async.ca.shared.global [%r3+4096], [%rd2], 4;
past the end of a1 | cp.async.ca.shared.global [%r3], [%rd2+16], 16;
past the end of a1 | cp.async.ca.shared.global [%r3], [%rd2+16], 16, 3;
shared address 0x1000... names CTA rank 1 | add.u32 %r3, %r3, 0x1000000; cp.async.ca.shared.global [%r3], [%rd2], 16;
an integer literal is expected, not %r2 | cp.async.wait_group %r2;
st.async in a cluster of 1 CTA | $ST.b32 [%r2], 1, [%r2+8];
register %w has 128 bits, the access 64 | mov.b128 %w, {%a0, %a0}; ld.global.b64 %w, [%a0];
register %w has 128 bits, the access 64 | mov.b128 %w, {%a0, %a0}; st.global.b64 [%a0], %w;
address 0x404 is not a multiple of 8 | st.bulk.shared::cta [%r2+4], 8, 0;
size 0xc is not a multiple of 8 | st.bulk.shared::cta [%r2], 12, 0;
the limit is 16777216 | st.bulk.shared::cta [%r2], 16777224, 0;
store of 4104 bytes at shared offset | st.bulk.shared::cta [%r2], 4104, 0;
initval must be 0 | st.bulk.shared::cta [%r2], 8, 1;
is not in shared memory | st.bulk [%a0], 8, 0;
address 16 is a literal | atom.add.u32 %r1, [16], 1;
address 16 is a literal | atom.shared.add.u32 %r1, [16], 1;
address 16 is a literal | red.global.add.u32 [16], 1;
address 16 is a literal | ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [16];
address 16 is a literal | stmatrix.sync.aligned.m8n8.x1.shared.b16 [16], {%r1};
address 1024 is a literal | cp.async.ca.shared.global [1024], [%a0], 4;
address 16 is a literal | cp.async.ca.shared.global [smem], [16], 4;
address 16 is a literal | mbarrier.init.shared.b64 [16], 1;
address 16 is a literal | wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [16];
shared memory, \[0x400, 0x1400\) | mov.u32 %r1, 0x3fff0; mbarrier.arrive.shared.b64 %rd1, [%r1];
\.add\.s64 is no reduction .*; types of \.add: u32, s32, u64, f32, f64 | $REDUCE.add.s64 [%a0], [%r10], 16;
.add.f16 is no reduction | $REDUCE.add.f16 [%a0], [%r10], 16;
.min.noftz.f16 is no | $REDUCE.min.noftz.f16 [%a0], [%r10], 16;
.add.f32 is no reduction in shared::cluster memory | cp.reduce.async.bulk.shared::cluster.shared::cta.$BYTES.add.f32
    [%r10], [%r10], 16, [%r11];
tile::scatter4 of 3 dimensions: there are two | cp.async.bulk.tensor.3d.global.shared::cta.tile::scatter4.bulk_group
    [%a0, {%r1, %r1, %r1, %r1, %r1}], [%r10];
2 coordinates in a copy of | $TILE_STORE::scatter4.bulk_group [%a0, {%r1, %r1}], [%r10];
0 optional operands where .* ask for 1 | cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a0], [%r10], 16;
is executed by 32 lanes | clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%r2], [%r2];
the operand is no response | mov.u64 %rd1, 5; mov.b128 %w, {%rd1, %rd1};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %w;
""",
    ),
    "copies that are not over when the kernel ends": (
        test_async_rows.SETUP + "@%p1 bra A; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128; {}\nA:",
        maps,
        {"shared": 16384},
        r"""
0x448 is not a multiple | $TILE_LOAD [%r10+72], [%a0, {%r1, %r2}], [%r11];
offset 0x4400 | $TILE_LOAD [%r10+16384], [%a0, {%r1, %r2}], [%r11];
load of 128 bytes at .* 0x4400 | $TILE_STORE.bulk_group [%a0, {%r1, %r2}], [%r10+16384];
load of 64 bytes at shared offset 0x43e0 | cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10+16352], 64;
store of 512 bytes at .*past the end of a1 | cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 512;
source 0x408 is not | cp.async.bulk.shared::cluster.shared::cta.$BYTES [%r10], [%r10+8], 16, [%r11];
coordinates .0, -3., must not be | $TILE_STORE.bulk_group [%a0, {%r1, -3}], [%r10];
s64 elements | cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%a2, {%r1, %r2}], [%r10];
multicast mask 0x0002 | mov.b16 %h1, 2; cp.async.bulk.shared::cluster.global.$BYTES.multicast::cluster [%r10], [%a1],
    16, [%r11], %h1;
prefetch: global address .* is not a multiple of 16 | cp.async.bulk.prefetch.L2.global [%a1+4], 64;
load of 512 bytes | cp.async.bulk.prefetch.L2.global [%a1], 512;
prefetch.tensormap of .* must be a 64-byte aligned | prefetch.tensormap [%a0+16];
tensor map rank 8 | cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%a1, {%r1, %r2}];
""",
    ),
    "two CTAs": (
        test_async_stores.SETUP.replace("BYTES", "128").replace("START", "0") + "{}",
        lambda: (zeros(256),),
        {"grid": 2, "cluster": 2},
        r"""
the barrier is in CTA rank [01], the destination in rank [01] | $ST.b32 [%r6], %r8, [%r4];
misaligned, 8 bytes | $ST.v2.b32 [%r6+4], {%r8, %r8}, [%r7];
st.async of 4 bytes at shared offset 0x1400 | $ST.b32 [%r6+4096], %r8, [%r7];
there is no mbarrier at | $ST.b32 [%r6], %r8, [%r7+8];
touches a live barrier | $ST.b32 [%r7], %r8, [%r7];
the limit is 128 bits | $ST.v4.b64 [%r6], {%rd4, %rd4, %rd4, %rd4}, [%r7];
st.async of 1 elements | $ST.v2.b32 [%r6], %r8, [%r7];
red.async.max.u64 does not exist: .max takes u32, s32 |
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u64 [%r6], %rd4, [%r7];
is not modelled: asynchronous stores to global | st.async.mmio.release.sys.global.b32 [%a0], %r8;
is not modelled: a multimem address stands for | multimem.red.release.sys.global.add.u32 [%a0], 1;
is not modelled: a multimem address stands for | multimem.st.relaxed.sys.global.f32 [%a0], %r8;
""",
    ),
    "cluster launch control": (
        """
        mov.u32 %r10, smem; add.u32 %r11, %r10, 16; setp.ne.u32 %p1, %tid, 0; @%p1 bra END;
        mbarrier.init.shared.b64 [%r11], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16; {}
    END:""",
        lambda: (zeros(1),),
        {"shared": 1024},
        r"""
response at shared offset 0x408, must be a multiple of 16 |
    clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%r10+8], [%r11];
was not initialised | clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%r10], [%r11+8];
store of 16 bytes at shared offset 0x800 | clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128
    [%r10+1024], [%r11];
""",
    ),
    "tensor core": (
        body("{}"),
        lambda: (zeros(1),),
        {},
        r"""
kind::f16 has no .block_scale | tcgen05.mma.cta_group::1.kind::f16.block_scale $INTO, $SCALES, %zero;
mxf4nvf4 with no .scale_vectorsize; must be .scale_vec::2X, .block32, .scale_vec::4X, .block16 |
    tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale $INTO, $SCALES, %zero;
ends in \[scale-A\], \[scale-B\], enable-input-d | tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 $INTO,
    %zero;
disable-output-lane of 3 words; it has 4 for cta_group::1 | tcgen05.mma.cta_group::1.kind::f16 $INTO, {%r2, %r2, %r2},
    %zero;
disable-output-lane of 4 words; it has 8 for cta_group::2 | tcgen05.mma.cta_group::2.kind::f16 $INTO, {%r2, %r2, %r2,
    %r2}, %zero;
scale-input-d is 16, must be 0 to 15 | tcgen05.mma.cta_group::1.kind::f16 $INTO, %zero, 16;
for kinds f16 and tf32, an immediate scale-input-d | tcgen05.mma.cta_group::1.kind::f8f6f4 $INTO, %zero, 1;
ashift with .* .collector::a::use | tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use [%tmem], [%tmem], %b,
    %idesc, %zero;
tcgen05.mma.sp.cta_group::1.kind::f16 with 5 operands | tcgen05.mma.sp.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc,
    %zero;
tcgen05.mma.sp.ashift is not modelled | tcgen05.mma.sp.cta_group::1.kind::f16.ashift [%tmem], [%tmem], %b, [%tmem],
    %idesc, %zero;
for kinds f16 and tf32, an immediate scale-input-d | tcgen05.mma.sp.cta_group::1.kind::i8 [%tmem], %a, %b, [%tmem],
    %idesc, %zero, 1;
tcgen05.shift | tcgen05.shift.cta_group::1.down [%tmem];
tcgen05.mma.ws.sp.cta_group::1.kind::f16 | tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%tmem], %a, %b, [%sfa], %idesc,
    %zero;
tcgen05.mma.ws.cta_group::2.kind::f16 | tcgen05.mma.ws.cta_group::2.kind::f16 $INTO, %zero;
tcgen05.mma.ws.cta_group::1.kind::mxf4 | tcgen05.mma.ws.cta_group::1.kind::mxf4 $INTO, %zero;
""",
    ),
}
ROWS = [
    pytest.param(frame, words, text, id=f"{frame}: {text.split()[0].rstrip(';')}, {words}")
    for frame in FRAMES
    for words, text in tables.pairs(FRAMES[frame][-1], globals())
]


@pytest.mark.parametrize(("frame", "words", "text"), ROWS)
def test_what_is_refused(frame, words, text):
    kernel, arrays, options, _ = FRAMES[frame]
    with pytest.raises(EmulatorError, match=words) as error:
        launch(kernel.replace("{}", text), *arrays(), **options)
    assert error.value.ptx_line and error.value.ptx_text == text.split("; ")[-1].rstrip(";")
