"""Turns of warps in compiled code, and its repeated tile loads: equal to Python's, and without Python."""

import signal

import numpy as np
import pytest

from nogpu import errors
from nogpu.compiler.translate import Runner
from nogpu.errors import EmulatorError, OrderingWarning
from nogpu.hardware.mbarriers import MBarrier
from nogpu.hardware.tma import boxes
from nogpu.hardware.tma.encode import TiledMap
from nogpu.hardware.traffic import Traffic
from nogpu.ops import copies
from nogpu.ptx import module as ptx
from tests.support.small_kernels import launch, launch_entry, store

INIT = """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 8; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r1], {count}; mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""
WAIT = "{at}: mbarrier.try_wait.parity.shared.b64 %p2, [{barrier}], {parity}; @!%p2 bra {at};"
# Two warps that hand over to each other {n} times.
HAND_OVER = f"""{INIT.format(count=1)} mov.u32 %r3, 0; mov.u32 %r4, 0; shr.u32 %r5, %tid, 5; setp.ne.u32 %p3, %r5, 0;
    and.b32 %r6, %tid, 31; setp.ne.u32 %p4, %r6, 0;
LOOP: @%p3 bra SECOND; @!%p4 mbarrier.arrive.shared.b64 _, [%r1];
    {WAIT.format(at="A", barrier="%r2", parity="%r3")} bra NEXT;
SECOND: {WAIT.format(at="B", barrier="%r1", parity="%r3")} @!%p4 mbarrier.arrive.shared.b64 _, [%r2];
NEXT: xor.b32 %r3, %r3, 1; add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, {{n}}; @%p5 bra LOOP;"""


@pytest.fixture
def turns(monkeypatch):
    """The number of turns that Python has run."""
    counted = []
    for name in ("run", "conclude"):
        original = getattr(Runner, name)
        monkeypatch.setattr(Runner, name, lambda *a, original=original, **k: (counted.append(1), original(*a, **k))[1])
    return counted


def test_a_hand_over_needs_no_python(turns):
    launch(HAND_OVER.format(n=10), np.zeros(4, np.uint32), threads=64)
    few = len(turns)
    out = np.zeros(64, np.uint32)
    counters = launch(HAND_OVER.format(n=2000) + store("%r4"), out, threads=64)
    assert set(out.tolist()) == {2000} and len(turns) - few == few
    assert counters.warp_instructions > 2 * 2000 * 8


@pytest.mark.parametrize("parted", [(), (1,), (0, 2), (0, 1, 2, 3)])
def test_those_who_wait_are_woken_in_the_order_of_their_waits(parted):
    """Warps 0 to 3 wait, those in `parted` as two groups of lanes, which Python keeps; warp 4 arrives."""
    numbers = "".join(f"setp.eq.or.u32 %p7, %r5, {warp}, %p7;" for warp in parted)
    body = f"""{INIT.format(count=1)} shr.u32 %r5, %tid, 5; setp.ne.u32 %p7, 0, 0; {numbers}
        setp.eq.u32 %p3, %r5, 4; @%p3 bra ARRIVE; and.b32 %r6, %tid, 31; setp.lt.u32 %p4, %r6, 16;
        and.pred %p4, %p4, %p7; @%p4 bra LOW; {WAIT.format(at="A", barrier="%r1", parity="0")} bra MET;
    LOW: {WAIT.format(at="B", barrier="%r1", parity="0")}
    MET: setp.ne.u32 %p5, %r6, 0; @%p5 bra DONE; atom.global.add.u32 %r7, [%a0], 1;
        mul.wide.u32 %rd1, %r7, 4; add.s64 %rd1, %a0, %rd1; st.global.u32 [%rd1+4], %r5; bra DONE;
    ARRIVE: and.b32 %r6, %tid, 31; setp.eq.u32 %p6, %r6, 0; @%p6 mbarrier.arrive.shared.b64 _, [%r1]; DONE:"""
    out = np.full(6, 99, np.uint32)
    out[0] = 0
    launch(body, out, threads=160)
    assert out.tolist() == [4, 0, 1, 2, 3, 99]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    "wait, text",
    [
        (WAIT.format(at="A", barrier="%r2", parity="1"), r"waits for parity 1 \(phase 1\)"),
        ("A: mbarrier.try_wait.shared.b64 %p2, [%r1], %rd1; @!%p2 bra A;", r"waits for phase 0 \(phase 0\)"),
    ],
)
def test_a_hang_names_what_is_waited_for(wait, text, kernels):
    arrivals = "mbarrier.arrive.shared.b64 %rd1, [%r1]; @!%p1 mbarrier.arrive.shared.b64 _, [%r2];"
    with pytest.raises(EmulatorError, match=text):
        launch(INIT.format(count=64) + arrivals + wait, np.zeros(4, np.uint32), kernels=kernels)


@pytest.mark.parametrize("kernels", [True, False])
def test_a_hang_names_warps_in_order(kernels):
    """Warp 1 arrives before warp 0."""
    body = f"""{INIT.format(count=64)} setp.lt.u32 %p3, %tid, 32; @%p3 bra FIRST;
        mbarrier.arrive.shared.b64 _, [%r1]; bar.sync 1, 64; bra WAIT;
    FIRST: bar.sync 1, 64; mbarrier.arrive.shared.b64 _, [%r1];
    WAIT: {WAIT.format(at="A", barrier="%r1", parity="1")}"""
    with pytest.raises(EmulatorError) as error:
        launch(body, np.zeros(4, np.uint32), threads=64, kernels=kernels)
    named = [line for line in str(error.value).splitlines() if "has arrived in an earlier phase" in line]
    assert ["warp 0" in line for line in named] == [True, False]


def test_warps_that_have_effects_for_ever_can_be_stopped():
    with pytest.raises(EmulatorError, match=r"stopped after \d+ warp instructions"):
        launch(HAND_OVER.format(n=1 << 31), np.zeros(4, np.uint32), threads=64, max_instructions=500_000)


def test_ctrl_c():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch(HAND_OVER.format(n=1 << 31), np.zeros(4, np.uint32), threads=64)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_warps_that_end_may_be_many():
    """There are more clusters than the ring has places at first."""
    out = np.zeros(1, np.uint32)
    body = "mov.u32 %r5, 1; red.global.add.u32 [%a0], %r5;"
    counters = launch(body, out, threads=256, grid=40)
    assert out[0] == 40 * 256 and counters.ctas == 40


# Tile loads

ROWS, COLUMNS, TILE = 32, 64, 8  # bytes of the tensor's rows; rows of a box
HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 out, .param .align 128 .b8 map[128], .param .u32 iterations)
{{
    .reg .pred %p<10>; .reg .b32 %r<40>; .reg .b64 %rd<10>; .reg .b32 %tid;
    mov.u32 %tid, %tid.x; ld.param.b64 %rd1, [out]; ld.param.b32 %r9, [iterations];
"""
KERNEL = (
    HEAD
    + """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 2048; setp.ne.u32 %p1, %tid, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
    mov.u32 %r8, 0; mov.u32 %r10, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
LOOP: setp.eq.u32 %p4, %r5, 3; {before}
    @!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 512;
    @!%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [map, {{%r10, %r4}}],
        [%r2];
    {behind}
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r3; @!%p2 bra W;
    xor.b32 %r3, %r3, 1; shl.b32 %r6, %tid, 2; add.u32 %r6, %r6, %r1; ld.shared.b32 %r7, [%r6]; add.u32 %r8, %r8, %r7;
    add.u32 %r4, %r4, 8; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9; @%p3 bra LOOP;
    mul.wide.u32 %rd2, %tid, 4; add.s64 %rd2, %rd1, %rd2; st.global.b32 [%rd2], %r8; ret;
}}
"""
)


@pytest.fixture
def rows(monkeypatch):
    """Executions of the Python row of a tile load."""
    counted = []
    original = copies.load_tile
    monkeypatch.setattr(copies, "load_tile", lambda *a: (counted.append(1), original(*a))[1])
    return counted


def load(iterations, schedule="late", data_type=0, before="", behind="", **options):
    """The (tensor, uint8[ROWS, COLUMNS]; the words that the kernel sums; counters)."""
    tensor = np.arange(ROWS * COLUMNS, dtype=np.uint32).astype(np.uint8).reshape(ROWS, COLUMNS)
    out = np.zeros(64, np.uint32)
    elements = 2 * COLUMNS if data_type else COLUMNS
    tiled = TiledMap(data_type, tensor.ctypes.data, (elements, ROWS), (COLUMNS,), (elements, TILE), (1, 1))
    values = [out.ctypes.data.to_bytes(8, "little"), tiled.encode(), iterations.to_bytes(4, "little")]
    kernel = ptx.parse(KERNEL.format(before=before, behind=behind)).entries["k"]
    traffic = Traffic()
    counters = launch_entry(kernel, values, (tensor, out), schedule=schedule, traffic=traffic, **options)
    counters.account(traffic)
    return tensor, out[:32], counters


def expected(tensor, iterations):
    """Words 0 to 31 of each tile, summed; rows beyond the tensor are zeros."""
    padded = np.concatenate([tensor, np.zeros((TILE * iterations, COLUMNS), np.uint8)])
    tiles = [padded[TILE * i :].reshape(-1)[:128].view(np.uint32) for i in range(iterations)]
    return np.sum(tiles, axis=0, dtype=np.uint32)


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_tile_loads(schedule, rows):
    tensor, out, counters = load(6, schedule)
    assert np.array_equal(out, expected(tensor, 6))
    assert len(rows) == (2 if schedule == "late" else 6)
    others = load(6, schedule, kernels=False)[2]
    loaded = [(c.tma_load_requested_bytes, c.warp_instructions) for c in (counters, others)]
    assert loaded[0] == loaded[1] and counters.tma_load_requested_bytes == ROWS * COLUMNS


def test_loads_behind_other_asynchronous_work(rows, monkeypatch):
    """Python gives the turns while it has a store to do; compiled code executes its own loads all the same."""
    pending = []
    original = copies.pending_load
    monkeypatch.setattr(copies, "pending_load", lambda *a: (pending.append(1), original(*a))[1])
    store = "@!%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;"
    tensor, out, _ = load(6, before=store + "@!%p1 cp.async.bulk.commit_group;")
    assert np.array_equal(out, expected(tensor, 6))
    assert len(rows) == 2 and not pending


@pytest.fixture
def python_arrivals(monkeypatch):
    """Reports of arrivals, performed by Python, that may not see their mbarrier's initialisation."""
    counted, original = [], MBarrier._check_visible
    monkeypatch.setattr(MBarrier, "_check_visible", lambda *a: (counted.append(1), original(*a))[1])
    monkeypatch.setattr(errors, "_reported", set())
    return counted


@pytest.mark.parametrize("fence", ["", "@%p9 fence.proxy.async;", "@%p9 fence.acq_rel.gpu;"])
def test_loads_that_may_not_see_the_initialisation(fence, python_arrivals, monkeypatch):
    """Python reports one for each instruction; compiled code performs the others, and knows the fences. Each launch has
    Python ask again, for it may be a strict one.
    """
    monkeypatch.setitem(globals(), "KERNEL", KERNEL.replace("fence.mbarrier_init.release.cluster;", ""))
    before = f"setp.eq.u32 %p9, %r5, 1; {fence}"
    with pytest.warns(OrderingWarning, match=r"tensor copy .* fence.mbarrier_init is missing") as warned:
        for times in 1, 2:
            tensor, out, _ = load(6, before=before)
            assert np.array_equal(out, expected(tensor, 6))
            # Python performs two loads before compiled code does; a fence ahead of the second one makes it visible.
            assert len(python_arrivals) == times * (1 if "proxy" in fence else 2)
    assert len(warned) == 1
    with errors.leniency(False), pytest.raises(EmulatorError, match="fence.mbarrier_init is missing"):
        load(6, before=before)


# Both CTAs of a pair load a tile, each to its own shared memory, and signal the mbarrier of the even one.
PAIR = (
    HEAD
    + """
    mov.u32 %r11, %cluster_ctarank;
    mov.u32 %r1, smem; add.u32 %r2, %r1, 2048; and.b32 %r12, %r2, 0xFEFFFFFF; setp.ne.u32 %p1, %tid, 0;
    setp.ne.u32 %p5, %r11, 0; or.pred %p6, %p1, %p5; shl.b32 %r4, %r11, 3; mov.u32 %r3, 0; mov.u32 %r5, 0;
    mov.u32 %r8, 0; mov.u32 %r10, 0; @%p6 bra READY; mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
LOOP: setp.eq.u32 %p4, %r5, 3; setp.eq.and.u32 %p7, %r5, 3, !%p1; setp.ne.and.u32 %p8, %r5, 3, !%p1;
    @!%p6 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 1024;
    @%p8 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r1],
        [map, {{%r10, %r4}}], [%r12];
    @%p7 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{group} [%r1],
        [map, {{%r10, %r4}}], [%r12];
    {changed}
    @%p5 bra DONE;
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r3; @!%p2 bra W;
DONE: barrier.cluster.arrive; barrier.cluster.wait;
    xor.b32 %r3, %r3, 1; shl.b32 %r6, %tid, 2; add.u32 %r6, %r6, %r1; ld.shared.b32 %r7, [%r6]; add.u32 %r8, %r8, %r7;
    barrier.cluster.arrive; barrier.cluster.wait;
    add.u32 %r4, %r4, 16; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r9; @%p3 bra LOOP; mov.u32 %r13, %ctaid.x;
    mad.lo.u32 %r13, %r13, 32, %tid; mul.wide.u32 %rd2, %r13, 4; add.s64 %rd2, %rd1, %rd2; st.global.b32 [%rd2], %r8;
    ret;
}}
"""
)


def load_pairs(schedule, kernels=True, group=".cta_group::2", changed=""):
    """(The tensor, uint8[ROWS, COLUMNS]; the words that each of 8 CTAs sums in six rounds, uint32[8, 32])."""
    tensor = np.random.default_rng(4).integers(0, 256, (4 * ROWS, COLUMNS), np.uint8)
    out = np.zeros((8, 32), np.uint32)
    tiled = TiledMap(0, tensor.ctypes.data, (COLUMNS, 4 * ROWS), (COLUMNS,), (COLUMNS, TILE), (1, 1))
    values = [out.ctypes.data.to_bytes(8, "little"), tiled.encode(), (6).to_bytes(4, "little")]
    kernel = ptx.parse(PAIR.format(group=group, changed=changed)).entries["k"]
    options = {"schedule": schedule, "kernels": kernels, "grid": 8, "cluster": 2}
    launch_entry(kernel, values, (tensor, out), traffic=Traffic(), **options)
    return tensor, out


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize("changes", [False, True])
def test_loads_of_pairs(changes, schedule, rows, monkeypatch):
    """A load that Python has found legal for a CTA is legal for all of that rank, until the live allocations change:
    Python then does the loads in flight.
    """
    pending, original = [], copies.pending_load
    monkeypatch.setattr(copies, "pending_load", lambda *a: (pending.append(1), original(*a))[1])
    other = np.zeros(64, np.uint8)

    def change(g, *_):
        if not pending:
            g.grid.memory.register(other.ctypes.data, other.nbytes, "other")
            g.grid.memory.release(other.ctypes.data)

    monkeypatch.setattr(copies, "prefetch_map", change)
    changed = "@%p7 prefetch.tensormap [map];" * changes
    tensor, out = load_pairs(schedule, changed=changed)
    tiles = tensor.reshape(-1, 2, TILE * COLUMNS)[:6, :, :128].copy().view(np.uint32)
    assert np.array_equal(out.reshape(4, 2, 32), np.broadcast_to(tiles.sum(0, dtype=np.uint32), (4, 2, 32)))
    assert bool(pending) == (schedule == "late" and changes)
    assert len(rows) == 8 * 6 if schedule != "late" else len(rows) <= 12 + 12 * changes
    assert np.array_equal(out, load_pairs(schedule, kernels=False, changed=changed)[1])


@pytest.mark.parametrize("kernels", [True, False])
def test_a_route_of_pairs_is_none_of_single_ctas(kernels):
    with pytest.raises(EmulatorError, match="the barrier is in CTA rank 0, the destination in rank 1"):
        load_pairs("late", kernels, group="")


# Each thread stores a word of the tile ahead of a load. In the fifth round the tile before is copied to `out`.
STORED = """
    mad.lo.u32 %r20, %tid, 4, %r1; setp.eq.and.u32 %p7, %r5, 4, !%p1; {stored}
    @%p7 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 128; @%p7 cp.async.bulk.commit_group;
    @%p7 cp.async.bulk.wait_group 0; bar.sync 0; st.shared.b32 [%r20], 7; bar.sync 0;
"""


@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("kernels", [True, False])
def test_a_load_overwrites_stores_that_no_fence_has_followed(kernels, threads, rows, monkeypatch):
    """Python hears of no load but the first ones."""
    done, original = [], boxes.load_tile
    monkeypatch.setattr(boxes, "load_tile", lambda *a: (done.append(1), original(*a))[1])
    tensor, out, _ = load(6, before=STORED.format(stored=""), block=(threads, 1, 1), kernels=kernels)
    assert np.array_equal(out, expected(tensor, 6)) and len(rows) == len(done) == (2 if kernels else 6)
    with pytest.raises(EmulatorError, match=r"cp\.async\.bulk\.global.* reads shared offset .* has stored"):
        load(6, before=STORED.format(stored="st.shared.b32 [%r20], 7;"), block=(threads, 1, 1), kernels=kernels)


# Changes before or behind the fourth load that the loads found legal by Python cannot reveal.
@pytest.mark.parametrize(
    "change, reason",
    [
        ({"before": "@%p4 add.u32 %r10, %r10, 1;", "data_type": 13}, "coordinate 1 of 4-bit elements"),
        ({"before": "add.u32 %r11, %r1, 64; @%p4 mbarrier.init.shared.b64 [%r11], 1;"}, "touches a live barrier"),
    ],
)
@pytest.mark.parametrize("kernels", [True, False])
def test_a_load_that_is_no_longer_legal(change, reason, kernels):
    with pytest.raises(EmulatorError, match=reason) as error:
        load(6, kernels=kernels, **change)
    assert "cp.async.bulk.tensor.2d" in str(error.value)


# Two mbarriers, which change places in this process's memory before the fourth load.
RENEWED = """
    add.u32 %r12, %r2, 64; setp.eq.and.u32 %p5, %r5, 0, !%p1; setp.eq.and.u32 %p6, %r5, 3, !%p1;
    @%p5 mbarrier.init.shared.b64 [%r12], 1; {in_flight} @%p6 mbarrier.inval.shared.b64 [%r12];
    @%p6 mbarrier.inval.shared.b64 [%r2]; @%p6 mbarrier.init.shared.b64 [%r12], 1;
    @%p6 mbarrier.init.shared.b64 [%r2], 1; @%p6 fence.mbarrier_init.release.cluster; @%p4 mov.u32 %r3, 0;
"""
IN_FLIGHT = (
    "@%p6 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
    "[%r1], [map, {%r10, %r4}], [%r2];"
)


def test_a_barrier_that_is_initialised_anew_elsewhere():
    tensor, out, _ = load(6, before=RENEWED.format(in_flight=""))
    assert np.array_equal(out, expected(tensor, 6))


def test_a_barrier_that_is_initialised_anew_for_every_tile(rows, live_barriers):
    """Compiled code keeps no invalidated barrier, and finds the new one at its place."""
    renewed = """
        @!%p1 mbarrier.inval.shared.b64 [%r2]; @!%p1 mbarrier.init.shared.b64 [%r2], 1; mov.u32 %r3, 0;
        @!%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
    """
    tensor, out, _ = load(6, before=renewed)
    assert np.array_equal(out, expected(tensor, 6))
    assert len(live_barriers) == 7 and max(live_barriers) == 1 and len(rows) == 2


@pytest.mark.parametrize("kernels", [True, False])
def test_a_load_in_flight_to_a_barrier_that_is_invalidated(kernels):
    with pytest.raises(EmulatorError, match=r"tensor copy of .* reaches the mbarrier .* after mbarrier\.inval"):
        load(6, kernels=kernels, before=RENEWED.format(in_flight=IN_FLIGHT))


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_a_tensor_that_is_freed_during_the_launch(place, kernels, monkeypatch):
    """A finalizer would free it so, inside of the launch. `behind`: the load is in flight."""

    def free(g, mask, tensor_map, issuer):
        memory = g.grid.memory
        memory.release(next(allocation for allocation in memory.snapshot()[1] if allocation.name == "a0").start)

    monkeypatch.setattr(copies, "prefetch_map", free)
    with pytest.raises(EmulatorError, match="outside every live allocation") as error:
        # The turn ends behind it, and the next one has an effect.
        change = "setp.eq.and.u32 %p6, %r5, 2, !%p1; @%p6 prefetch.tensormap [map]; bar.sync 0;"
        change += "st.shared.b32 [%r2+128], %r5;"
        load(6, kernels=kernels, block=(64, 1, 1), **{place: change})
    assert "cp.async.bulk.tensor.2d" in str(error.value)


@pytest.mark.parametrize("kernels", [True, False])
def test_a_load_whose_cta_has_exited_is_doubted(kernels, monkeypatch):
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(OrderingWarning, match="a tensor copy reaches CTA .* which has exited"):
        load(6, kernels=kernels, behind="@%p4 exit;")
