"""Tensor copies and tensor map edits as a warp issues them; test_boxes.py tests the copies' results."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.encoding import tensor_map
from tests.support.small_kernels import aligned, launch

SCHEDULES = ["late", "eager", "random:4"]
SETUP = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 8192; setp.ne.u32 %p1, %tid, 0; mov.u32 %r1, 0; mov.u32 %r2, 2;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], 1; mbarrier.init.shared.b64 [%r11+8], 1;
    fence.mbarrier_init.release.cluster;
READY: bar.sync 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
WAIT = "W{n}: mbarrier.try_wait.parity.shared.b64 %p9, [{place}], {parity}; @!%p9 bra W{n};\n"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def map_of(array, box):
    """A map of a C-contiguous u32 array, dimensions and box outermost first."""
    return aligned(
        tensor_map(
            array.ctypes.data,
            array.shape[::-1],
            array.strides[-2::-1],
            box[::-1],
            "u32" if array.itemsize == 4 else "f16",
        )
    )


BOXES = {1: (8,), 2: (4, 8), 3: (2, 2, 8), 4: (2, 1, 2, 8), 5: (2, 1, 2, 2, 4)}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rank", BOXES)
def test_tensor_copies_of_every_rank(rank, schedule):
    """A box is loaded from one tensor and stored to another, at other coordinates."""
    shape = (3, 4, 3, 4, 16)[5 - rank :]
    source = aligned(np.arange(np.prod(shape), dtype=np.uint32).reshape(shape))
    target = aligned(np.zeros(shape, np.uint32))
    box = BOXES[rank]
    start = [1] * (rank - 1) + [4]  # coordinates, outermost first
    coordinates = ", ".join(str(c) for c in reversed(start))
    zeros = ", ".join(["%r1"] * rank)
    nbytes = 4 * int(np.prod(box))
    body = (
        SETUP
        + f"""
        @%p1 bra ISSUED; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {nbytes};
        cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10], [%a0,
        {{{coordinates}}}], [%r11];
    """
        + WAIT.format(n=0, place="%r11", parity=0)
        + f"""
        mov.u64 %rd9, 0;
        cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group.L2::cache_hint [%a1, {{{zeros}}}], [%r10], %rd9;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
    ISSUED:
    """
    )
    launch(body, map_of(source, box), map_of(target, box), source, target, shared=16384, schedule=schedule)
    taken = source[tuple(slice(s, s + b) for s, b in zip(start, box))]
    expected = np.zeros(shape, np.uint32)
    corner = tuple(slice(0, n) for n in taken.shape)
    expected[corner] = taken
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pair", [False, True])
def test_multicast_to_the_cluster(pair, schedule):
    """CTA 1 loads for both. With cta_group::2 the leader's barrier counts both halves."""
    source = aligned(np.arange(64, dtype=np.uint32).reshape(4, 16))
    out = np.zeros(64, np.uint32)
    group = ".cta_group::2" if pair else ""
    expect = (
        "setp.eq.u32 %p5, %rank, 0; @%p5 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256;"
        if pair
        else "mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;"
    )
    barrier = "and.b32 %r12, %r11, 0xFEFFFFFF;" if pair else "mov.u32 %r12, %r11;"
    wait = (
        "setp.ne.u32 %p6, %rank, 0; @%p6 bra NOT;" + WAIT.format(n=0, place="%r11", parity=0) + "NOT:"
        if pair
        else WAIT.format(n=0, place="%r11", parity=0)
    )
    body = (
        SETUP
        + f"""
        {barrier} @%p1 bra ISSUED; {expect} setp.eq.u32 %p2, %rank, 0; @%p2 bra ISSUED; mov.b16 %h1, 3; mov.u64 %rd9, 0;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint{group}
            [%r10], [%a1, {{%r1, %r2}}], [%r12], %h1, %rd9;
    ISSUED: {wait} {SYNC}
        mad.lo.u32 %r3, %tid, 4, %r10; ld.shared.b32 %r4, [%r3]; mad.lo.u32 %r5, %rank, 32, %tid;
        mad.wide.u32 %rd1, %r5, 4, %a0;
        st.global.b32 [%rd1], %r4; {SYNC}
    """
    )
    launch(body, out, map_of(source, (2, 16)), source, grid=2, cluster=2, shared=16384, schedule=schedule)
    assert out.tolist() == [*range(32, 64)] * 2


def test_stores_of_a_whole_warp_are_one():
    """The DSL issues tensor stores from all 32 lanes with the same operands."""
    target = aligned(np.zeros((4, 16), np.uint32))
    body = (
        SETUP
        + """
        mad.lo.u32 %r3, %tid, 4, %r10; st.shared.b32 [%r3], %tid; fence.proxy.async.shared::cta; bar.warp.sync -1;
        cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%a0, {%r1, %r2}], [%r10];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    """
    )
    launch(body, map_of(target, (2, 16)), target, shared=16384)
    assert target[2:].ravel().tolist() == list(range(32)) and not target[:2].any()


def edited_twice(schedule, wait):
    """A map is copied to shared memory, pointed at another tensor, published, used; then pointed at the next one.

    wait: text before each edit. Returns the data of the two copies.
    """
    tensors = [aligned(np.arange(64, dtype=np.uint32).reshape(4, 16) + 1000 * i) for i in range(3)]
    work, out = aligned(np.zeros(128, np.uint8)), np.zeros(64, np.uint32)
    edit = """
        bar.warp.sync -1; @%p1 bra E{i};
        tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r10+4096], %a{i};
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10+4096], 0, 16;
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10+4096], 1;
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r10+4096], 0, 64;
        {wait}
    E{i}: bar.warp.sync -1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a2], [%r10+4096], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%a2], 128; @%p1 bra L{i};
        mbarrier.arrive.expect_tx.shared.b64 _, [%r11+{bar}], 128;
        cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r10+{place}], [%a2, {{%r1,
        %r2}}], [%r11+{bar}];
    L{i}:
    """
    body = SETUP + (
        "mad.wide.u32 %rd1, %tid, 4, %a1; mad.lo.u32 %r3, %tid, 4, %r10; ld.global.b32 %r4, [%rd1]; "
        "st.shared.b32 [%r3+4096], %r4;"
    )
    body += edit.format(i=3, bar=0, place=0, wait=wait) + edit.format(i=4, bar=8, place=128, wait=wait)
    body += WAIT.format(n=0, place="%r11", parity=0) + WAIT.format(n=1, place="%r11+8", parity=0)
    body += (
        "mad.lo.u32 %r5, %tid, 8, %r10; ld.shared.v2.b32 {%r6, %r7}, [%r5]; mad.wide.u32 %rd2, %tid, 8, %a0; "
        "st.global.v2.b32 [%rd2], {%r6, %r7};"
    )
    launch(body, out, map_of(tensors[0], (2, 16)), work, tensors[1], tensors[2], shared=16384, schedule=schedule)
    return out.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_maps_edited_on_the_device(schedule):
    wait = "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
    assert edited_twice(schedule, wait) == [*range(1032, 1064), *range(2032, 2064)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lenient_run_reads_an_edited_map_when_a_load_is_issued(schedule, monkeypatch):
    """Nothing waits before the map is edited again: under "late" the first copy would read the second edit."""
    if schedule == "late":
        assert edited_twice(schedule, "") == [*range(2032, 2064)] * 2
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    assert edited_twice(schedule, "") == [*range(1032, 1064), *range(2032, 2064)]


STAGED = """
    mad.wide.u32 %rd1, %tid, 4, %a1; ld.global.b32 %r4, [%rd1]; mad.lo.u32 %r3, %tid, 4, %r10; st.shared.b32 [%r3], %r4;
    fence.proxy.async; bar.sync 0;
"""
DRAIN = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("hint", [False, True])
def test_bulk_reductions_to_global_memory(hint, schedule):
    """Two CTAs add the same bytes; max and the wrapping increment follow."""
    words, more = np.arange(32, dtype=np.uint32), aligned(np.arange(32, dtype=np.uint32) * 3)
    out = aligned(np.full((3, 32), 100, np.uint32))
    modifier, operand = (".L2::cache_hint", ", %rd9") if hint else ("", "")
    body = f"""{SETUP} {STAGED} mov.u64 %rd9, 0; @%p1 bra A;
        cp.reduce.async.bulk.global.shared::cta.bulk_group{modifier}.add.u32 [%a0], [%r10], 128{operand};
        cp.reduce.async.bulk.global.shared::cta.bulk_group{modifier}.max.u32 [%a0+128], [%r10], 128{operand};
        cp.reduce.async.bulk.global.shared::cta.bulk_group{modifier}.inc.u32 [%a0+256], [%r10], 64{operand};
        {DRAIN}
    A: {SYNC}"""
    launch(body, out, more, grid=2, cluster=2, shared=16384, schedule=schedule)
    assert out[0].tolist() == (100 + 6 * words).tolist()
    assert out[1].tolist() == np.maximum(100, 3 * words).tolist()
    first = [100] * 32
    for _ in range(2):
        first = [0 if old >= 3 * w else old + 1 for old, w in zip(first, range(32))]
    assert out[2].tolist() == first[:16] + [100] * 16


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reductions_by_every_lane_are_as_many(schedule):
    """ptxas makes a loop over the lanes for a reduction, but not for a plain store."""
    out = aligned(np.zeros(32, np.uint32))
    body = f"""{SETUP} {STAGED}
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r10], 128; {DRAIN}"""
    launch(body, out, aligned(np.arange(32, dtype=np.uint32)), shared=16384, schedule=schedule)
    assert out.tolist() == [32 * i for i in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_reductions_to_the_cluster(schedule):
    """Each of two CTAs adds its words to those of CTA 0, whose barrier counts the bytes."""
    out = aligned(np.zeros(32, np.uint32))
    body = f"""{SETUP} mad.lo.u32 %r3, %tid, 4, %r10; add.u32 %r5, %tid, %rank; st.shared.b32 [%r3], %r5;
        st.shared.b32 [%r3+512], %tid; fence.proxy.async; bar.sync 0; setp.eq.u32 %p5, %rank, 0;
        and.b32 %r12, %r11, 0x00FFFFFF; and.b32 %r13, %r10, 0x00FFFFFF; @%p1 bra A;
        @%p5 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256;
    A:  {SYNC} @%p1 bra B;
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r13+512], [%r10],
        128, [%r12];
    B:  @!%p5 bra END; {WAIT.format(n=0, place="%r11", parity=0)}
        ld.shared.b32 %r4, [%r3+512]; mad.wide.u32 %rd1, %tid, 4, %a0; st.global.b32 [%rd1], %r4;
    END: {SYNC}"""
    launch(body, out, grid=2, cluster=2, shared=16384, schedule=schedule)
    assert out.tolist() == [3 * i + 1 for i in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", ["", ".tile"])
def test_tensor_reductions(mode, schedule):
    """A box that lies half outside is added to the part inside; then the minimum."""
    target = aligned(np.full((4, 16), 50, np.uint32))
    body = f"""{SETUP} {STAGED} mov.u32 %r7, 3; mov.u64 %rd9, 0; @%p1 bra A;
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.add{mode}.bulk_group [%a0, {{%r1, %r7}}], [%r10];
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.min{mode}.bulk_group.L2::cache_hint [%a0, {{%r1, %r1}}],
        [%r10], %rd9; {DRAIN}
    A:"""
    box = aligned(np.arange(32, dtype=np.uint32) + 40)
    launch(body, map_of(target, (2, 16)), box, target, shared=16384, schedule=schedule)
    expected = np.full((4, 16), 50, np.uint32)
    expected[3] += np.arange(16, dtype=np.uint32) + 40
    expected[:2] = np.minimum(50, np.arange(32).reshape(2, 16) + 40)
    assert target.tolist() == expected.tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_four_rows_are_gathered_and_scattered(schedule):
    source = aligned(np.arange(96, dtype=np.uint32).reshape(6, 16))
    target = aligned(np.zeros((6, 16), np.uint32))
    body = f"""{SETUP} mov.u32 %r20, 5; mov.u32 %r21, 0; mov.u32 %r22, 3; mov.u32 %r23, 9; mov.u32 %r24, 1; @%p1 bra A;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256;
        cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%a0, {{%r1, %r20, %r21, %r22, %r23}}];
        cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r10],
        [%a0, {{%r1, %r20, %r21, %r22, %r23}}], [%r11]; {WAIT.format(n=0, place="%r11", parity=0)}
        cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%a1, {{%r1, %r21, %r24, %r20, %r22}}],
        [%r10]; {DRAIN}
    A:"""
    launch(body, map_of(source, (1, 16)), map_of(target, (1, 16)), source, target, shared=16384, schedule=schedule)
    expected = np.zeros((6, 16), np.uint32)
    expected[[0, 1, 5]] = source[[5, 0, 3]]
    assert target.tolist() == expected.tolist()


@pytest.mark.parametrize("hint", [False, True])
def test_stores_with_a_byte_mask(hint):
    out = aligned(np.full(128, 0xEE, np.uint8))
    modifier, operand = (".L2::cache_hint", " %rd9,") if hint else ("", "")
    body = f"""{SETUP} {STAGED} mov.b16 %h1, 0x00F1; mov.u64 %rd9, 0; @%p1 bra A;
        cp.async.bulk.global.shared::cta.bulk_group{modifier}.cp_mask [%a0], [%r10], 128,{operand} %h1; {DRAIN}
    A:"""
    data = aligned(np.random.default_rng(0).integers(0, 256, 128, dtype=np.uint8))
    launch(body, out, data, shared=16384)
    kept = np.array([i % 16 in (0, 4, 5, 6, 7) for i in range(128)])
    assert np.array_equal(out, np.where(kept, data, 0xEE))


@pytest.mark.parametrize("mask,refused", [(0x7FE0, False), (0xFFE0, True), (0x7FF0, True)])
def test_a_byte_mask_may_end_a_store_outside_of_memory(mask, refused):
    """The 16 bytes from 5 before out to 1 behind it, as CUB ends a tile."""
    memory, data = aligned(np.full(16, 0xEE, np.uint8)), aligned(np.arange(128, dtype=np.uint8))
    body = f"""{SETUP} {STAGED} mov.b16 %h1, {mask}; sub.u64 %rd1, %a0, 5; @%p1 bra A;
        cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r10], 16, %h1; {DRAIN}
    A:"""
    if refused:
        with pytest.raises(EmulatorError, match="the (first|last) 1 bytes are"):
            launch(body, memory[5:15], data, shared=16384)
    else:
        launch(body, memory[5:15], data, shared=16384)
        assert memory.tolist() == [0xEE] * 5 + list(range(5, 15)) + [0xEE]


PARTIAL = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob"


def partial_load(left, right, hint=""):
    """PTX that loads 128 bytes, of which all but those ignored are those of %a0, and stores them to %a1."""
    operand = ", %rd9" if hint else ""
    return f"""{SETUP} @%p1 bra A; mov.u64 %rd9, 0; mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
        sub.u64 %rd1, %a0, 5; mov.u32 %r5, {left};
        {PARTIAL.replace(".ignore_oob", f"{hint}.ignore_oob")} [%r10], [%rd1], 128, %r5,
        {right}, [%r11]{operand}; {WAIT.format(n=0, place="%r11", parity=0)}
        cp.async.bulk.global.shared::cta.bulk_group [%a1], [%r10], 128; {DRAIN}
    A:"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_bulk_loads_that_ignore_bytes_at_their_ends(hint, schedule):
    """Nothing is allocated at these bytes; in shared memory they are poison."""
    data = aligned(np.random.default_rng(0).integers(0, 255, 128, dtype=np.uint8))
    out = aligned(np.zeros(128, np.uint8))
    launch(partial_load(5, 15, hint), data[5:113], out, shared=16384, schedule=schedule)
    expected = np.full(128, 0xFF, np.uint8)
    expected[5:113] = data[5:113]
    assert np.array_equal(out, expected)


@pytest.mark.parametrize(
    "left,right,reason",
    [(4, 15, "the first 1 bytes are before"), (5, 14, "past the end"), (16, 15, "16 bytes are ignored")],
)
def test_bulk_loads_that_ignore_too_few_or_too_many_bytes(left, right, reason):
    data, out = aligned(np.zeros(128, np.uint8)), aligned(np.zeros(128, np.uint8))
    with pytest.raises(EmulatorError, match=reason):
        launch(partial_load(left, right), data[5:113], out, shared=16384)


def test_prefetches_have_no_effect():
    source = aligned(np.zeros((4, 16), np.uint32))
    body = f"""{SETUP} prefetch.tensormap [%a0]; cp.async.bulk.prefetch.L2.global [%a1], 64;
        mov.u64 %rd9, 0; cp.async.bulk.prefetch.L2.global.L2::cache_hint [%a1], 64, %rd9;
        cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%a0, {{%r1, %r1}}];
        cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [%a0, {{%r1, %r1}}], %rd9;"""
    counters = launch(body, map_of(source, (2, 16)), source, shared=16384)
    assert counters.tma_load_requested_bytes == 0 and not source.any()
