"""The PTX kernels of the emulator's benchmark (bench.py): a loop with many copies of one operation."""

from __future__ import annotations

from dataclasses import dataclass

UNROLL = 16  # default number of operations per iteration
TILE_BYTES = 16384  # 128 rows of 128 bytes
SHARED_BYTES = 4 * TILE_BYTES
START = 1024  # shared offset of `smem`

BEGIN = """
    .reg .pred %p<10>; .reg .b16 %h<4>; .reg .b32 %r<100>; .reg .b64 %rd<20>;
    .reg .b32 %tid, %rank, %i, %n, %bar, %tmem;
    ld.param.b64 %rd1, [memory]; ld.param.b32 %n, [iterations]; mov.u32 %tid, %tid.x; mov.u32 %rank, %cluster_ctarank;
    mov.u32 %r1, smem; add.u32 %bar, %r1, 49152; mad.lo.u32 %r2, %tid, 16, %r1; mul.wide.u32 %rd2, %tid, 16;
    add.s64 %rd2, %rd1, %rd2; mov.u32 %r3, %tid; mov.u32 %r4, 1; mov.b32 %r5, 0x3F800000; mov.b32 %r6, 0x3C003C00;
    setp.ne.u32 %p1, %tid, 0; mov.u32 %r7, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%bar], 1;
    mbarrier.init.shared.b64 [%bar+8], 1; fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
WAIT = "W{at}: mbarrier.try_wait.parity.shared.b64 %p2, [%bar], %r7; @!%p2 bra W{at}; xor.b32 %r7, %r7, 1;"
ARRIVE_AND_WAIT = "arrive and wait, one thread"  # name of the case
ALLOC = "tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r1], 512; ld.shared.b32 %tmem, [%r1];"
DEALLOC = "tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %tmem, 512;"
SCALES = 50176  # offset of the scale factors, all 1.0, from `smem`


@dataclass(frozen=True)
class Case:
    """An operation to measure."""

    family: str
    name: str
    operation: str  # PTX; {at} is the number of its copy
    setup: str = ""  # PTX ahead of the loop
    finish: str = ""  # PTX behind the loop
    per_loop: int = UNROLL  # copies in the loop
    work: float = 0.0  # work of one operation, in `unit`s
    unit: str = ""
    threads: int = 32
    cluster: int = 1  # CTAs of a cluster
    free: str = "loop"  # name of the case that is part of the loop and is subtracted


def _descriptor(offset: int, swizzle: int = 128) -> int:
    """Shared memory descriptor of K-major groups of 8 rows, of 128 bytes each with 128-byte swizzle, else of 16."""
    stride, mode = (1024, 2) if swizzle else (128, 0)
    return (START + offset) >> 4 | 1 << 16 | (stride >> 4) << 32 | 1 << 46 | mode << 61


def _mma(kind: str, m: int, n: int, k: int, group: int) -> Case:
    """Accumulating MMAs of one thread. The scale factors' TMEM columns begin at 384 (A: 4) and 448 (B: 8)."""
    block = "" if kind == "f16" else ".block_scale.block16"
    scales = "" if kind == "f16" else "[%r91], [%r92], "
    types = 1 << 4 if kind == "f16" else 1 << 7 | 1 << 10
    copies = "".join(
        f"add.u32 %r8, %tmem, {column}; @!%p6 tcgen05.cp.cta_group::{group}.32x128b.warpx4 [%r8], %rd12;"
        for column in (384, 448, 452)
    )
    issue = f"@!%p6 tcgen05.mma.cta_group::{group}.kind::{kind}{block} [%tmem], %rd10, %rd11, %r90, {scales}%p5;"
    setup = f"""
        {ALLOC.format(group=group)} add.u32 %r91, %tmem, 384; add.u32 %r92, %tmem, 448; mov.b32 %r8, 0x38383838;
        st.shared.v4.b32 [%r2+{SCALES}], {{%r8, %r8, %r8, %r8}}; fence.proxy.async.shared::cta;
        mov.b32 %r90, {types | n >> 3 << 17 | m >> 4 << 24}; mov.b64 %rd12, {_descriptor(SCALES, swizzle=0)};
        mov.b64 %rd10, {_descriptor(0)}; mov.b64 %rd11, {_descriptor(TILE_BYTES)};
        setp.ne.u32 %p6, %rank, 0; or.pred %p6, %p6, %p1; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        {copies} setp.ne.u32 %p5, 0, 0; {issue} setp.eq.u32 %p5, 0, 0;
    """
    finish = f"""
        mov.b16 %h1, {2**group - 1};
        @!%p6 tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64
            [%bar], %h1;
        {WAIT.format(at="L")} tcgen05.fence::after_thread_sync; {DEALLOC.format(group=group)}
    """
    name = f"{kind} {m} x {n} x {k}{', a pair of CTAs' if group == 2 else ''}"
    return Case("MMA", name, issue, setup, finish, 8, 2 * m * n * k, "FLOP", cluster=group)


_BULK = "shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], {}"
_TILE = "tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [map, {{%r8, %r8}}]"
_STORES = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
_WORDS = ", ".join(f"%r{20 + i}" for i in range(32))


def _load(copy: str) -> str:
    """PTX of a bulk load of TILE_BYTES by one thread, and of the wait of its warp."""
    arrive = f"@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%bar], {TILE_BYTES};"
    return f"{arrive} @!%p1 cp.async.bulk.{copy}, [%bar];{WAIT}"


def _copy(name: str, operation: str, setup: str = "", free: str = "loop") -> Case:
    """The case of a copy of TILE_BYTES."""
    return Case("copy", name, operation, setup, work=TILE_BYTES, unit="byte", free=free)


CASES = [
    Case("loop", "loop", "", per_loop=1, free=""),
    Case("warp instruction", "integer, the same in all lanes", "add.u32 %r4, %r4, 7;"),
    Case("warp instruction", "integer, by lane", "add.u32 %r3, %r3, %tid;"),
    Case(
        "warp instruction",
        "f32 FMA, by lane",
        "fma.rn.f32 %r9, %r8, %r5, %r9;",
        "cvt.rn.f32.u32 %r8, %tid; mov.b32 %r9, %r8;",
    ),
    Case(
        "warp instruction",
        "f16x2 FMA, by lane",
        "fma.rn.f16x2 %r9, %r8, %r6, %r9;",
        "add.u32 %r8, %r6, %tid; mov.b32 %r9, %r8;",
    ),
    Case(
        "warp instruction",
        "mma.sync m16n8k16, f16 to f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%r20, %r21, %r22, %r23}}, {{%r8, %r8, %r8, %r8}}, "
        "{{%r8, %r8}}, {{%r20, %r21, %r22, %r23}};",
        "add.u32 %r8, %r6, %tid;" + "".join(f"mov.b32 %r{place}, 0;" for place in range(20, 24)),
        work=2 * 16 * 8 * 16,
        unit="FLOP",
    ),
    Case("warp instruction", "shuffle", "shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1;"),
    Case(
        "warp instruction",
        "branch around an add, taken by 24 lanes",
        "@%p3 bra D{at}; add.u32 %r3, %r3, 1;\nD{at}:",
        "setp.gt.u32 %p3, %tid, 7;",
    ),
    Case("warp memory access", "shared load, 4 bytes a lane", "ld.shared.b32 %r9, [%r2];"),
    Case("warp memory access", "shared load, 16 bytes a lane", "ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r2];"),
    Case("warp memory access", "shared store, 4 bytes a lane", "st.shared.b32 [%r2], %r3;"),
    Case(
        "warp memory access",
        "ldmatrix x4",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r2];",
    ),
    Case("warp memory access", "global load, 4 bytes a lane", "ld.global.b32 %r9, [%rd2];"),
    Case("warp memory access", "global load, 16 bytes a lane", "ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd2];"),
    Case("warp memory access", "global store, 4 bytes a lane", "st.global.b32 [%rd2], %r3;"),
    Case(
        "warp memory access",
        "tcgen05.ld 32x32b.x32 and its wait",
        f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{{{_WORDS}}}}}, [%tmem]; tcgen05.wait::ld.sync.aligned;",
        ALLOC.format(group=1),
        DEALLOC.format(group=1),
    ),
    *(_mma("mxf4nvf4", 128, n, 64, 1) for n in (64, 128, 256)),
    *(_mma("mxf4nvf4", 256, n, 64, 2) for n in (128, 256)),
    *(_mma("f16", 128, n, 16, 1) for n in (128, 256)),
    Case("mbarrier", ARRIVE_AND_WAIT, "@!%p1 mbarrier.arrive.shared.b64 _, [%bar];" + WAIT),
    Case(
        "mbarrier",
        "hand-over to another warp and back",
        "@!%p1 mbarrier.arrive.shared.b64 _, [%bar]; @%p7 bra X{at};"
        + WAIT.replace("[%bar]", "[%bar+8]")
        + "bra Y{at};\nX{at}: "
        + WAIT.replace("W{at}", "V{at}")
        + "@!%p8 mbarrier.arrive.shared.b64 _, [%bar+8];\nY{at}:",
        "setp.gt.u32 %p7, %tid, 31; setp.ne.u32 %p8, %tid, 32;",
        threads=64,
    ),
    _copy("bulk load of 16 KB", _load(_BULK.format(TILE_BYTES)), free=ARRIVE_AND_WAIT),
    _copy(
        "tile load of 128 x 128 bytes, 128-byte swizzle", _load(_TILE), setup="mov.u32 %r8, 0;", free=ARRIVE_AND_WAIT
    ),
    _copy(
        "bulk store of 16 KB",
        f"@!%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], {TILE_BYTES};" + _STORES,
    ),
    _copy(
        "tile store of 128 x 128 bytes, 128-byte swizzle",
        "@!%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {{%r8, %r8}}], [%r1];" + _STORES,
        setup="mov.u32 %r8, 0;",
    ),
]


def ptx(case: Case) -> str:
    """The PTX of a case: a module with the kernel `k`.

    Its parameters are memory, the device address of TILE_BYTES; map, a tensor map of these as 128 x 128 bytes; and
    iterations.
    """
    operations = "\n".join(case.operation.format(at=i) for i in range(case.per_loop))
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 memory, .param .align 128 .b8 map[128], .param .u32 iterations)
{{ {BEGIN} {case.setup} mov.u32 %i, 0;
LOOP: {operations}
    add.u32 %i, %i, 1; setp.lt.u32 %p9, %i, %n; @%p9 bra LOOP;
    {case.finish} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret; }}
"""
