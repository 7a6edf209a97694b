"""Bugs that others have reported in public, each as a small kernel. The sanitizer or a rule names each under every
schedule, and is silent about the mended kernel. The kernels are written from the reports.

A row is (place of the report, words of the emulator's report, kernel): the kernel has holes for the bug and its fix.
"""

import warnings

import pytest

from nogpu import EmulatorError
from nogpu.errors import OrderingWarning
from nogpu.sanitizer.observer import Sanitizer
from tests.support.encoding import block_scaled_idesc, smem_descriptor
from tests.support.small_kernels import aligned, launch
from tests.support.twins import twin

# %r10: shared memory, %r11: its mbarriers, %r2: this thread's word. %p1: thread 0, %p2: warp 0, %p3: thread 32.
BEGIN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 2048; mad.lo.u32 %r2, %tid, 4, %r10;
    setp.eq.u32 %p1, %tid, 0; setp.lt.u32 %p2, %tid, 32; setp.eq.u32 %p3, %tid, 32;
"""
SYNC, LANES = "bar.sync 0;", "bar.warp.sync -1;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PROXY = "fence.proxy.async.shared::cta;"


def init(count, offset=0):
    return f"@%p1 mbarrier.init.shared.b64 [%r11+{offset}], {count};"


INITIALISED = "@%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"


def wait(name, phase=0, offset=0):
    return f"{name}: mbarrier.try_wait.parity.shared.b64 %p9, [%r11+{offset}], {phase}; @!%p9 bra {name};\n"


def arrive(predicate, offset=0):
    return f"{predicate} mbarrier.arrive.shared.b64 _, [%r11+{offset}];\n"


def alloc(group):
    return f"@%p2 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r10+3072], 64;"


def dealloc(group):
    return f"@%p2 tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r12, 64;"


COLUMNS = "ld.shared.b32 %r12, [%r10+3072];"
LOADS = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12]; tcgen05.wait::ld.sync.aligned;"
# The tensor core of one thread writes columns; the commit arrives on an mbarrier.
WRITES = "mov.b64 %rd5, 0x0000400800000040; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r12], %rd5;\n"


def commit(offset=0):
    return f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11+{offset}];\n"


# A pair allocates and frees.
PAIR = f"{{before}} {alloc(2)} {SYNC} {COLUMNS} {{between}} {dealloc(2)} {{after}}"
HALF_MET, MET = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"

# All lanes of warp 0 store; warp 1 waits for their mbarrier and loads.
LOAD_WARP = (
    f"{{init}} {INITIALISED} @!%p2 bra COMPUTE; st.shared.b32 [%r2], %tid; {PROXY} {{arrive}} bra DONE;\n"
    f"COMPUTE: {wait('FULL')} ld.shared.b32 %r5, [%r10+4];\nDONE:\n"
)
# All lanes of warp 0 load what warp 1 stores in turn, and hand the place back.
CONSUMER_RELEASE = (
    f"{init(1)} {INITIALISED} @!%p2 bra PRODUCER; ld.shared.b32 %r5, [%r2]; {{edge}} {arrive('@%p1')} bra DONE;\n"
    f"PRODUCER: {wait('EMPTY')} st.shared.b32 [%r2+-128], %tid;\nDONE:\n"
)

# Warp 0 drains columns and signals that they are free; then lane 0 of warp 1 has the tensor core write there.
TWO_BARRIERS = f"{init(1)} {init(1, 8)} {INITIALISED} {alloc(1)} {SYNC} {COLUMNS}"
LAST = f"DONE: bar.sync 0; {dealloc(1)}"
DRAIN = (
    f"{TWO_BARRIERS} @!%p2 bra MMA; {{drain}} bra DONE;\nMMA: @!%p3 bra DONE;\n"
    f"{wait('FREE')} {WRITES} {commit(8)} {wait('LAST', offset=8)} {LAST}"
)
HANDED_OVER = LANES + arrive("@%p1")

# Threads of two warps store rows, one of them has each row added to global memory, then all store the next ones.
STAGING = (
    "st.shared.b32 [%r2], 0; {stored} "
    "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r10], 256;"
    "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group.read 0; {read} st.shared.b32 [%r2], 1;"
    "@%p1 cp.async.bulk.wait_group 0;"
)

# Warp 1 allocates and frees; warp 0 loads columns.
FREED = (
    "@%p2 bra ALLOCATED; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+3072], 64;\n"
    f"ALLOCATED: bar.sync 0; {COLUMNS} @!%p2 bra FREES; {LOADS} {{read}} bra DONE;\n"
    "FREES: {wait} tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;\nDONE:"
)

# A search by all threads, of which thread 0 decides whether it goes on: the flag is at [%r10].
SEARCH = (
    "@%p1 st.shared.b32 [%r10], 0; bar.sync 0; mov.u32 %r6, 0;\nAGAIN: ld.shared.b32 %r5, [%r10]; {read}"
    "add.u32 %r6, %r6, 1; setp.gt.u32 %p4, %r6, 2; and.pred %p5, %p1, %p4; @%p5 st.shared.b32 [%r10], 1; bar.sync 0;"
    "ld.shared.b32 %r5, [%r10]; setp.eq.u32 %p6, %r5, 0; @%p6 bra AGAIN;"
)

# A warp stores a tile and loads it in another order.
TILE = "st.shared.b32 [%r2], %tid; {edge} xor.b32 %r3, %tid, 1; mad.lo.u32 %r4, %r3, 4, %r10; ld.shared.b32 %r5, [%r4];"

# cp.async fills a tile, which the tensor core then copies.
FILLED = (
    f"{init(1)} {INITIALISED} {alloc(1)} mul.wide.u32 %rd1, %tid, 16; add.s64 %rd1, %a0, %rd1;"
    "mad.lo.u32 %r4, %tid, 16, %r10; @!%p2 bra FILLED;"
    "cp.async.cg.shared.global [%r4], [%rd1], 16; cp.async.wait_all; {fence}\nFILLED: bar.sync 0;"
    f"{COLUMNS} @!%p3 bra DONE; {WRITES} {commit()} {wait('LAST')} {LAST}"
)

# Both CTAs of a cluster have a stage, which CTA 0's copy fills, and read it by their tensor core. CTA 0 fills it again.
MULTICAST = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%r10], [%a0], 512, [%r11], %h2;"
)
FILL = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 512, [%r11];"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 512;\n"
STAGE = (
    f"{init(1)} {{init}} {init(2, 16)} @%p1 fence.mbarrier_init.release.cluster; {alloc(1)} {SYNC} {COLUMNS} {MEET}"
    f"mov.b16 %h2, 3; mov.b16 %h3, 1; setp.eq.u32 %p4, %rank, 0; @!%p1 bra DONE; {EXPECT} @%p4 {MULTICAST}"
    f"{wait('FULL')} {WRITES} {{commit}} @!%p4 bra NEXT; {wait('EMPTY', offset=8)} {MULTICAST}"
    f"NEXT: {EXPECT} {wait('AGAIN', phase=1)} {LAST} {MEET}"
)
COMMIT_TO = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r11+{}], {};\n"

# Two accumulators: warp 0 drains a tile's, behind thread 32's tensor core, which has written it. The first tiles find
# both free. mbarriers 0 and 8: tile is there, 16 and 24: accumulator is free.
RING = init(1) + init(1, 8) + init(1, 16) + init(1, 24) + INITIALISED + alloc(1) + SYNC + COLUMNS + "@!%p2 bra MMA;"
for tile in range(4):
    RING += wait(f"FULL{tile}", tile // 2, tile % 2 * 8)
    RING += f"add.u32 %r13, %r12, {tile % 2 * 4}; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r13];"
    RING += "tcgen05.wait::ld.sync.aligned;" + LANES + arrive("@%p1", 16 + tile % 2 * 8)
RING += "bra DONE;\nMMA: @!%p3 bra DONE; mov.b64 %rd5, 0x0000400800000040;"
for tile in range(4):
    RING += f"{{tile{tile}}} add.u32 %r13, %r12, {tile % 2 * 4}; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], %rd5;"
    RING += commit(tile % 2 * 8)
RING += LAST

# Warp 0 waits for a tile, reads whether it is the last word, and drains it; thread 32 issues and ends the work.
ENDED = (
    f"{TWO_BARRIERS} @!%p2 bra MMA; {wait('DRAINS')} {LOADS} {LANES} {arrive('@%p1', 8)} {wait('ENDS', 1)}"
    f"bra DONE;\nMMA: @!%p3 bra DONE; {WRITES} {{ends}} {LAST}"
)

# Thread 0 has a stage filled, which its tensor core reads, begins with new mbarriers, and has the stage filled again.
REFILLED = (
    f"{TWO_BARRIERS} @!%p1 bra DONE; {EXPECT} {FILL} {wait('FULL')} {WRITES} {commit(8)}"
    "{wait} mbarrier.inval.shared.b64 [%r11]; mbarrier.init.shared.b64 [%r11], 1;"
    f"fence.mbarrier_init.release.cluster; {EXPECT} {FILL} {wait('AGAIN')} {{later}} {LAST}"
)

# Each CTA of a pair has 512 bytes copied, which complete on CTA 0's mbarrier.
PAIR_OF_CTAS = {"grid": 2, "cluster": 2}
FEWER = (
    f"{init(1)} {INITIALISED} {MEET} setp.eq.u32 %p4, %rank, 0; @!%p1 bra DONE; mapa.shared::cluster.u32 %r5, %r11, 0;"
    "mapa.shared::cluster.u32 %r6, %r10, 0; @!%p4 add.u32 %r6, %r6, 512;"
    "@%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {expected};"
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%a0], 512, [%r5];"
    f"@!%p4 bra DONE; {wait('FULL')} DONE: barrier.sync 0; {MEET}"
)

# Threads store a tile, which a bulk store writes to global memory, and store the next one.
TILES = (
    f"st.shared.b32 [%r2], %tid; {{fence}} {SYNC} @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 256;"
    f"{{commit}} @%p1 cp.async.bulk.wait_group.read 0; {SYNC} st.shared.b32 [%r2], 1; @%p1 cp.async.bulk.wait_group 0;"
)
COMMIT_GROUP = "@%p1 cp.async.bulk.commit_group;"
# Warp 0 loads columns and stores what it has loaded.
DRAINED = f"{alloc(1)} {SYNC} {COLUMNS} @!%p2 bra DONE; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r12];"
DRAINED += f"{{wait}} st.shared.b32 [%r2], %r5; {LAST}"
LOAD_ENDS = "tcgen05.wait::ld.sync.aligned;"

# Both CTAs add to a histogram by atomics, arrive and wait; then they load it.
HISTOGRAM = (
    "shr.u32 %r3, %tid, 1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd2, %a0, %rd2; red.global.add.u32 [%rd2], 1; {sync}"
    "@!%p1 bra MET; fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%a0+512], 1;"
    "ARRIVES: ld.acquire.gpu.global.b32 %r5, [%a0+512]; setp.ne.u32 %p4, %r5, 2; @%p4 bra ARRIVES;"
    f"MET: {SYNC} ld.global.b32 %r6, [%rd2];"
)
# Thread 32 hands items to warp 0, in a ring of slots, and looks whether the one four items back has been read.
# mbarriers 0 to 24: item is there, 32 to 56: item has been read.
HANDOFF = "".join(init(1, 8 * n) for n in range(8)) + INITIALISED + "@%p2 bra TAKES; @!%p3 bra DONE;"
for item in range(5):
    HANDOFF += wait("FREE", 0, 32) if item == 4 else ""
    HANDOFF += f"st.shared.b32 [%r10+{{slot{item}}}], {item};" + arrive("", item % 4 * 8)
HANDOFF += "bra DONE;\nTAKES:"
for item in range(5):
    HANDOFF += wait(f"FULL{item}", item // 4, item % 4 * 8) + f"ld.shared.b32 %r5, [%r10+{{slot{item}}}];"
    HANDOFF += LANES + arrive("@%p1", 32 + item % 4 * 8)
HANDOFF += "DONE:"


def slots(depth):
    return {f"slot{item}": item % depth * 4 for item in range(5)}


# Thread 0 has a stage filled, for which it waits, before or after its tensor core reads it.
CONSUMED = f"{TWO_BARRIERS} @!%p1 bra DONE; {EXPECT} {FILL} {{wait}} {WRITES} {commit(8)} {{late}}"
CONSUMED += f"{wait('READ', offset=8)} {LAST}"

# Threads store a tile and, with a barrier missing, some of them store or load others' words of it.
WORDS = "st.shared.b32 [%r2], %tid; {edge} "
CLEARED = WORDS + "setp.lt.u32 %p4, %tid, 6; @%p4 st.shared.b32 [%r2+40], 0;"
GUARDED = "setp.lt.u32 %p4, %tid, 48; @%p4 " + WORDS + "sub.u32 %r3, 47, %tid; mad.lo.u32 %r4, %r3, 4, %r10;"
GUARDED += "@%p4 ld.shared.b32 %r5, [%r4];"
REPEATED = "@%p2 " + WORDS + "and.b32 %r3, %tid, 31; mad.lo.u32 %r4, %r3, 4, %r10; ld.shared.b32 %r5, [%r4];"
COUNTED = (
    "xor.b32 %r3, %tid, 1; mad.lo.u32 %r4, %r3, 4, %r10; st.shared.b32 [%r4], 0; bar.sync 0;"
    "red.shared.add.u32 [%r2], 1; {edge} ld.shared.b32 %r5, [%r4];"
)
# Thread 0 has two tiles filled, each with an mbarrier of its own, and loads the second one.
SECOND_FILL = FILL.replace("[%r10]", "[%r10+512]").replace("[%r11]", "[%r11+8]")
FILLS = (
    f"{init(1)} {init(1, 8)} {INITIALISED} @!%p1 bra DONE; {EXPECT} {FILL} {wait('FIRST')}"
    f"{EXPECT.replace('[%r11]', '[%r11+8]')} {SECOND_FILL} {{wait}} ld.shared.b32 %r5, [%r10+512];"
    f"{wait('LAST', offset=8)} DONE:"
)
# Threads store the scale factors' and operands' bytes, which a block-scaled MMA of thread 0 reads. D: 16 columns, scale
# factors of A and of B from columns 32 and 40 on.
IDESC, OPERAND = block_scaled_idesc(128, 16), smem_descriptor(0x400, 128, leading=128)
SCALED = (
    f"{init(1)} {INITIALISED} {alloc(1)} mad.lo.u32 %r4, %tid, 32, %r10; mov.u32 %r5, 0x38383838;"
    "st.shared.v4.b32 [%r4], {{%r5, %r5, %r5, %r5}}; st.shared.v4.b32 [%r4+16], {{%r5, %r5, %r5, %r5}};"
    f"{{fence}} bar.sync 0; {COLUMNS} @!%p1 bra DONE; mov.b64 %rd5, {OPERAND}; mov.b32 %r15, {IDESC};"
    f"setp.ne.u32 %p4, %tid, 0; add.u32 %r13, %r12, 32; add.u32 %r14, %r12, 40;"
    "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r13], %rd5; tcgen05.cp.cta_group::1.32x128b.warpx4 [%r14], %rd5;"
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r12], %rd5, %rd5, %r15, [%r13], [%r14], %p4;"
    f"{commit()} {wait('READ')} {LAST}"
)

UNHEARD = r"tcgen05\.alloc\.cta_group::2 where this warp has not heard of the other CTA"
MISSED = "phase 0 was waited for and missed"  # text of the error in the schedule that shows it first

BUGS = {
    "NVIDIA/cutlass#3316: a pair allocates before the other CTA has started": twin(
        UNHEARD, PAIR, before=("", MEET), between=MEET, after=(MEET, "")
    ),
    "NVIDIA/cutlass#3435: nothing stands between alloc and dealloc": twin(
        UNHEARD, PAIR, before=("", MEET), between="", after=("", MEET)
    ),
    "NVIDIA/cutlass#3435: dealloc before the other CTA's alloc": twin(
        UNHEARD.replace("alloc", "dealloc"), PAIR, before=(HALF_MET, HALF_MET + MET), between="", after=(MET, MEET)
    ),
    "NVIDIA/cudnn-frontend#426: 32 lanes store, one arrives": twin(
        "rule threads", LOAD_WARP, init=(init(1), init(32)), arrive=(arrive("@%p1"), arrive(""))
    ),
    "NVIDIA/cutlass, primitives/pipeline_software_fill.py: 32 lanes load, one arrives": twin(
        "rule threads", CONSUMER_RELEASE, edge=("", LANES)
    ),
    "NVIDIA/cudnn-frontend#396: columns are drained behind the arrival that frees them": twin(
        "rule tensor-memory", DRAIN, drain=(HANDED_OVER + LOADS, LOADS + HANDED_OVER)
    ),
    "NVIDIA/cudnn-frontend#1049: the thread that has a row added has not heard of all that store it": twin(
        "rule staging", STAGING, stored=(PROXY, PROXY + SYNC), read=SYNC
    ),
    "NVIDIA/cudnn-frontend#1049: one thread waits for the row to be read, others store the next one": twin(
        "rule staging", STAGING, stored=PROXY + SYNC, read=("", SYNC)
    ),
    "Dao-AILab/flash-attention#2312: columns are freed while another warp loads them": twin(
        "rule tensor-memory|column 0 .* is not allocated",
        FREED,
        read=("", "bar.arrive 1, 64;"),
        wait=("", "bar.sync 1, 64;"),
    ),
    "NVIDIA/TensorRT-LLM#18339: a flag that ends a loop is stored while others still read it": twin(
        "rule (threads|lanes)", SEARCH, read=("", SYNC)
    ),
    "JustVugg/colibri#1099: a tile is loaded by other lanes than stored it": twin("rule lanes", TILE, edge=("", LANES)),
    "NVIDIA/cutlass#3643: the tensor core reads what cp.async has filled": twin(
        "rule proxy-fence", FILLED, fence=("", PROXY)
    ),
    "NVFP4_Kernels sub_v6_2_multicast (hangs): a stage of two CTAs is filled again when one of them has read it": twin(
        "rule tensor-core", STAGE, init=(init(1, 8), init(2, 8)), commit=(commit(8), COMMIT_TO.format(8, "%h3"))
    ),
    "NVFP4_Kernels sub_v6_splitk (hangs): phase 0 / 5 - 1 of a stage that was never filled": twin(
        "phase parity 4294967295: must be 0 or 1",
        init(1) + INITIALISED + arrive("@%p1") + "mov.u32 %r5, {phase};" + wait("W").replace(", 0;", ", %r5;"),
        phase=("-1", "0"),
    ),
    "NVFP4_Kernels sub_v6_tmem_circ (hangs): the wait for a free accumulator begins a tile too late": twin(
        f"rule tensor-memory|{MISSED}",
        RING,
        tile0="",
        tile1="",
        tile2=("", wait("FREE2", 0, 16)),
        tile3=wait("FREE3", 0, 24),
    ),
    "NVFP4_Kernels submission_v5_1 (hangs, faults): the end's arrival completes the last tile's phase": twin(
        f"rule tensor-memory|{MISSED}",
        ENDED,
        ends=(arrive("") + commit(), commit() + wait("DRAINED", offset=8) + arrive("")),
    ),
    "NVFP4_Kernels submission_v5_static_overlap (faults): new mbarriers for a tile under the last one's MMAs": twin(
        "rule tensor-core", REFILLED, wait=("", wait("READ", offset=8)), later=(wait("READ", offset=8), "")
    ),
    "mgoin/humming, epilogue: registers of tcgen05.ld are used, and nothing waits for it": twin(
        "rule fragment", DRAINED, wait=("", LOAD_ENDS)
    ),
    "mgoin/humming, epilogue: no fence.proxy.async between the tile's stores and its bulk store": twin(
        "rule proxy-fence", TILES, fence=("", PROXY), commit=COMMIT_GROUP
    ),
    "mgoin/humming, epilogue: no commit_group, so that the wait waits for nothing": twin(
        "rule staging", TILES, fence=PROXY, commit=("", COMMIT_GROUP)
    ),
    "flashinfer#5334: columns are handed back while tcgen05.ld is under way": twin(
        "rule tensor-memory|not complete",
        DRAIN,
        drain=(
            LOADS.replace(LOAD_ENDS, HANDED_OVER + LOAD_ENDS),
            LOADS + HANDED_OVER,
        ),
    ),
    "flashinfer#4126 (PR 5251): thread 0 tells that a histogram is complete to which others still add": twin(
        "rule clusters", HISTOGRAM, {"grid": 2}, sync=("", SYNC)
    ),
    "ferro-kittens#146: one slot, where items may be four ahead": (
        "rule (threads|lanes)",
        {},
        HANDOFF.format(**slots(1)),
        HANDOFF.format(**slots(4)),
    ),
    "tile-ai/tilelang#2644 C12: a pair allocates behind a barrier of the CTA": twin(
        UNHEARD, PAIR, before=(SYNC, MEET), between=MEET, after=(MEET, "")
    ),
    "tile-ai/tilelang#2644, copy.cc:1745: bytes are expected of four CTAs, and the pair's two bring them": twin(
        "the kernel hangs", FEWER, PAIR_OF_CTAS, expected=("2048", "1024")
    ),
    "tile-ai/tilelang#2634 (PR 3139): a block-scaled MMA reads what threads have stored": twin(
        "rule proxy-fence", SCALED, fence=("", PROXY)
    ),
    "tile-ai/tilelang#2698: a part of a tile is cleared that other threads store": twin(
        "rule lanes", CLEARED, edge=("", SYNC)
    ),
    "tile-ai/tilelang#2556: 48 of 64 threads load what others have stored": twin(
        "rule (threads|lanes)", GUARDED, edge=("", SYNC)
    ),
    "tile-ai/tilelang#1604: all warps load what the first one stores": twin("rule threads", REPEATED, edge=("", SYNC)),
    "tile-ai/tilelang#1257: counters are loaded that another lane adds to": twin(
        "rule lanes", COUNTED, edge=("", SYNC)
    ),
    "tile-ai/tilelang#2927: the parity of a wait is the loop's, and the mbarrier is another one": twin(
        "rule copy|the kernel hangs", FILLS, wait=(wait("SECOND", 1, 8), wait("SECOND", 0, 8))
    ),
    "facebookresearch/CUTracer#106, missing wait": twin("rule tensor-core", CONSUMED, wait=("", wait("FULL")), late=""),
    "facebookresearch/CUTracer#106, late wait": twin(
        "rule tensor-core", CONSUMED, wait=("", wait("FULL")), late=(wait("FULL"), "")
    ),
    "NVFP4_Kernels submission_v5_static_overlap (faults): bar.sync where a warp has parted": twin(
        r"bar\.sync is executed by lanes 0xfffffffe of 0xffffffff",
        "@%p1 bra PARTED; {barrier} bra DONE;\nPARTED: {barrier}\nDONE:",
        barrier=("bar.sync 3, 64;", "barrier.sync 3, 64;"),
    ),
}


def run(body, schedule, options):
    pair = {"grid": 2, "cluster": 2} if "barrier.cluster" in body or "group::2" in body else {}
    launch(BEGIN + body, aligned(256), schedule=schedule, threads=64, sanitizer=Sanitizer(), **pair | options)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_named_and_its_mended_twin_is_silent(name, schedule, monkeypatch):
    words, options, wrong, mended = BUGS[name]
    if words == "rule fragment":  # a doubt
        monkeypatch.setenv("NOGPU_LENIENT", "0")
    with warnings.catch_warnings(), pytest.raises(EmulatorError, match=words):
        warnings.simplefilter("ignore", OrderingWarning)
        run(wrong, schedule, options)
    run(mended, schedule, options)
