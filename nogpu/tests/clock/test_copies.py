"""Replays of copies and of the tensor core against cycles computed by hand, and quantities that replays conserve."""

import dataclasses

import numpy as np
import pytest

import nogpu
from nogpu.clock.chip import profile
from nogpu.clock.costs import family_of
from nogpu.clock.replay import replay
from nogpu.clock.timeline import COPY, MULTIPLY, SIGNAL, WAIT
from nogpu.clock.trace import Trace
from tests.clock.test_trace import LOAD_TILE, WAIT_TILE, tile_kernel
from tests.support.clocks import ROUND, life, lines_of, lives, recorded, tiny
from tests.support.tensor_kernels import A_TILE, B_TILE, END, image
from tests.support.tensor_kernels import COPY as FILL
from tests.support.tensor_kernels import WAIT as COMMIT_AND_WAIT
from tests.support.tensor_kernels import body as tensor_body
from tests.support.tensor_operands import instruction

LINE, END_OF_COPY, WOKEN = 2, 50, 30  # cycles of a line, of a copy's end, of a wait's end
HIT = 200 + 1 + 2  # L2's latency, a line at its slice, a line at the SM's port

# A warp's thread loads N times STAGE bytes into a ring of S stages, each after the previous load there has come.
RING = """
    .reg .b32 %bar, %at, %i, %phase, %stage; .reg .b64 %from;
    setp.ne.u32 %p1, %tid, 0; @%p1 exit; mov.u32 %r1, smem; mov.u32 %i, 0; mov.u64 %from, %a0;
INIT: shl.b32 %r2, %i, 3; add.u32 %bar, %r1, %r2; mbarrier.init.shared.b64 [%bar], 1; add.u32 %i, %i, 1;
    setp.lt.u32 %p2, %i, STAGES; @%p2 bra INIT;
    fence.mbarrier_init.release.cluster; mov.u32 %i, 0; mov.u32 %stage, 0; mov.u32 %phase, 1;
LOAD: setp.lt.u32 %p3, %i, STAGES; shl.b32 %r2, %stage, 3; add.u32 %bar, %r1, %r2; @%p3 bra FREE;
POLL: mbarrier.try_wait.parity.shared.b64 %p4, [%bar], %phase; @!%p4 bra POLL;
FREE: mad.lo.u32 %at, %stage, BYTES, 1024; add.u32 %at, %at, %r1;
    mbarrier.arrive.expect_tx.shared.b64 _, [%bar], BYTES;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%at], [%from], BYTES, [%bar];
    add.u32 %i, %i, 1; add.u32 %stage, %stage, 1; setp.eq.u32 %p5, %stage, STAGES;
    @!%p5 bra NEXT; mov.u32 %stage, 0; xor.b32 %phase, %phase, 1;
NEXT: setp.lt.u32 %p6, %i, COUNT; @%p6 bra LOAD;
    mov.u32 %i, 0;
REST: shl.b32 %r2, %stage, 3; add.u32 %bar, %r1, %r2;
LAST: mbarrier.try_wait.parity.shared.b64 %p4, [%bar], %phase; @!%p4 bra LAST;
    add.u32 %stage, %stage, 1; setp.eq.u32 %p5, %stage, STAGES; @!%p5 bra MORE;
    mov.u32 %stage, 0; xor.b32 %phase, %phase, 1;
MORE: add.u32 %i, %i, 1; setp.lt.u32 %p6, %i, STAGES; @%p6 bra REST;
"""


def ring(stages, count, nbytes=1024):
    body = RING.replace("STAGES", str(stages)).replace("COUNT", str(count)).replace("BYTES", str(nbytes))
    return recorded(body, lines_of(nbytes // 128), shared=1024 + stages * nbytes)


def period(stages, nbytes=1024, **changed):
    """Cycles of a load in the ring's steady state, without the first loads, which miss L2."""
    short, long = (life(ring(stages, count, nbytes), **changed) for count in (24, 48))
    return (long - short) / 24


def test_a_ring_of_one_stage_takes_the_latency_of_a_load_and_one_of_two_half_of_it():
    latency = 8 * LINE + HIT + END_OF_COPY + WOKEN
    issued = 1 + 4 + 4 + 5  # branch of the wait, address of the stage, arrival
    assert period(1) == pytest.approx(latency + issued, abs=8)
    assert period(2) == pytest.approx(period(1) / 2, rel=0.05)


def test_a_deep_ring_takes_the_rate_of_its_slowest_part():
    """The slowest part is the engine's lines, its time for a copy, or where those are fast the SM's port or L2."""
    fast = {"tma_box": 0, "tma_line": 0.1}
    for changed, cycles in (
        *(({}, 32 * LINE), ({"tma_line": 3}, 32 * 3), ({"tma_box": 90}, 90), (fast, 4096 / 64)),
        (fast | {"sm_in_rate": 256, "l2_rate": 32}, 4096 / 32),
    ):
        assert period(12, 4096, **changed) == pytest.approx(cycles, rel=0.02)


def test_a_ring_is_no_slower_on_a_faster_chip():
    trace = ring(3, 12)
    slow = life(trace)
    for name, value in ROUND.items():
        if name in ("tensor_core", "l2_ways", "l2_slices", "dram_channels", "sms"):
            continue
        faster = value * 1.25 if "rate" in name or name.startswith(("sm_", "l2_bytes", "l1_lines")) else value * 0.8
        assert life(trace, **{name: faster}) <= slow + 1e-6, name


def test_bytes_into_the_sm_are_those_of_the_boxes():
    usage = replay([ring(4, 24)] * 3, tiny()).usage
    assert (usage.sm_in, usage.dram_read, usage.sm_out) == (3 * 24 * 1024, 3 * 1024, 0)
    assert usage.l2_hits + usage.l2_misses == usage.sm_in


def test_bytes_of_lines_that_a_copy_touches_in_part_are_those_of_the_copy():
    """A copy of 144 bytes takes a line and the first 16 bytes of the next, of which L2 reads a sector."""
    body = RING.replace("STAGES", "1").replace("COUNT", "3").replace("BYTES", "144")
    usage = replay([recorded(body, lines_of(2))], tiny()).usage
    assert (usage.sm_in, usage.dram_read) == (3 * 144, 128 + 32)


def test_replays_of_one_trace_are_equal(tmp_path):
    """Replays are equal to the bit, also of a loaded trace."""
    trace = ring(4, 24)
    trace.save(tmp_path / "trace.npz")
    loaded = Trace.load(tmp_path / "trace.npz")
    assert not any(instruction.operands for instruction in loaded.instructions)
    first, *others = (replay([each] * 2, tiny(), spans=10_000) for each in (trace, trace, loaded))
    assert len(first.spans) > 100
    for other in others:
        assert (other.starts, other.ends, other.usage) == (first.starts, first.ends, first.usage)
        assert other.spans.tobytes() == first.spans.tobytes()
        assert all(np.array_equal(a, b) for a, b in zip(other.waits, first.waits))


STORE = """
    setp.ne.u32 %p1, %tid, 0; @%p1 exit; mov.u32 %r1, smem;
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 1024;
    cp.async.bulk.commit_group; cp.async.bulk.wait_groupREAD 0;
"""


def test_bulk_groups_are_read_before_they_are_written():
    read, written = (life(recorded(STORE.replace("READ", text), lines_of(8))) for text in (".read", ""))
    issued = 4 + 1 + 1  # setp and branch, then the copy in the next cycle
    assert read == pytest.approx(issued + 8 * LINE + 1, abs=2)
    out = 128 / 64 + 200 + 1  # a line at the SM's port, L2's latency, the line at its slice
    assert written == pytest.approx(issued + 8 * LINE + out + 100 + 1, abs=2)
    usage = replay([recorded(STORE.replace("READ", ""), lines_of(8))], tiny()).usage
    assert (usage.sm_out, usage.sm_in) == (1024, 0)


def test_a_launch_ends_when_its_stores_have():
    """The only warp exits when the stores have read their source."""
    text = STORE.replace("READ", ".read")
    replayed = replay([recorded(text, lines_of(8))], tiny(), spans=100)
    ((_, _, end),) = lives(replayed)
    (copy,) = replayed.spans[replayed.spans["kind"] == COPY]
    assert end < copy["end"] and replayed.ends[0] == copy["end"] + ROUND["grid_end"]


OUTSIDE = f"""@%p10 mbarrier.arrive.expect_tx.shared.b64 _, [%r71], 1024; mov.u32 %r2, 0; mov.u32 %r3, 12;
    @%p10 {LOAD_TILE} [%r1], [%map, {{%r2, %r3}}], [%r71]; {WAIT_TILE}"""


@pytest.mark.parametrize("ctas", [1, 2])
def test_rows_outside_of_a_tensor_take_time_of_l2(ctas):
    """The copy has 4 of 8 rows of 128 bytes inside; each SM asks L2's slice for all, even if SMs share the inside."""
    data = nogpu.array(np.zeros((16, 64), np.float32))
    trace = tile_kernel(OUTSIDE, data, box_=(32, 8), cluster=ctas)
    chip = {"gpc_sms": (2,), "l2_rate": 1, "l2_coalesces": 2}
    low, high = (replay([trace], tiny(**chip, l2_outside_cost=cost)).ends[0] for cost in (10, 20))
    assert high - low == pytest.approx(ctas * 4 * 128 * 10, rel=0.05)


# The tensor core


def multiplied(count, columns, sparse=0):
    """The trace of `count` MMAs of 128 lanes and these columns, and of a commit that all warps wait for. A is 0, so
    that metadata of a sparse one place nothing.
    """
    operands = "[%tmem], %a, %b, [%tmem+192], %idesc, %one" if sparse else "[%tmem], %a, %b, %idesc, %one"
    issue = f"tcgen05.mma{'.sp' * sparse}.cta_group::1.kind::f16 {operands};" * count
    idesc = instruction("f16", 128, columns, sparse=sparse)
    source = tensor_body(issue, idesc, A_TILE, B_TILE, copy=FILL)
    out = nogpu.array(np.zeros((128, 16), np.float32))
    inputs = (nogpu.array(image(np.zeros((rows, 16), np.float16))) for rows in (128, 16))
    return recorded(source + COMMIT_AND_WAIT + END, out, *inputs, threads=128, shared=0x8000)


@pytest.mark.parametrize(
    "columns, rate, sparse, cycles",
    [(16, 1024, 0, 8), (64, 1024, 0, 32), (128, 1024, 0, 64), (16, 64, 0, 72), (64, 1024, 1, 32), (16, 64, 1, 80)],
)
def test_multiplications_follow_each_other_in_the_tensor_core(columns, rate, sparse, cycles):
    """The rate is that of columns, or of operands: 32 bytes of each of 128 rows of A and of B's columns, of
    which a sparse A makes 64.
    """
    replayed = replay([multiplied(4, columns, sparse)], tiny(mma_operand_rate=rate), spans=10_000)
    spans = replayed.spans[replayed.spans["kind"] == MULTIPLY]
    starts = spans["start"] - spans["start"][0]
    assert starts.tolist() == [0, cycles, 2 * cycles, 3 * cycles]
    assert (spans["end"] - spans["start"]).tolist() == [cycles] * 4
    assert replayed.usage.tensor_cycles == 4 * cycles


def test_a_commit_comes_after_the_last_multiplication():
    replayed = replay([multiplied(4, 128)], tiny(), spans=10_000)
    spans = replayed.spans
    done = spans[spans["kind"] == MULTIPLY]["end"][-1] + 80 + 35  # end of the last product, its result, the commit
    signals = spans[spans["kind"] == SIGNAL]
    assert len(signals) == 4 and set(signals["start"]) == {done + 10}
    assert set(signals["end"]) == {done + 10 + WOKEN}
    assert done + 10 + WOKEN in spans[spans["kind"] == WAIT]["end"]


def test_a_chip_without_the_tensor_core_does_not_wait_for_it():
    trace, none = multiplied(4, 128), {"tensor_core": 0}
    slow = none | {"mma_columns_rate": 0.01, "mma_latency": 10_000}
    there, without, without_slow = (replay([trace], tiny(**core)) for core in ({}, none, slow))
    assert without.usage.tensor_cycles == 0
    assert without.ends[0] == without_slow.ends[0] < there.ends[0]


# Profiles


@pytest.mark.parametrize("name", ["b200", "h200"])
def test_profiles_are_whole(name):
    """The profile has every constant that the replay needs and every family of instructions."""
    chip = profile(name)
    found = replay([ring(3, 6), multiplied(1, 16)], chip)
    assert found.ends[1] > found.ends[0] > 0
    families = {family_of(opcode)[1] for opcode in OPCODES} | {"special_register"}
    assert not families - set(chip.instructions)


OPCODES = (
    *("add.u32", "add.s64", "mul.lo.u32", "mul.lo.u64", "mul.wide.u32", "fma.rn.f32", "fma.rn.f64", "ex2.approx.f32"),
    *("div.s32", "cvt.rn.f32.s32", "cvt.rn.f16x2.f32", "cvt.rn.satfinite.e2m1x2.f32", "shfl.sync.idx.b32"),
    *("redux.sync.add.u32", "vote.sync.any.pred", "mma.sync.aligned.m16n8k16", "bra", "mov.b32", "ld.param.b64"),
    *("bar.sync", "cp.async.bulk.tensor", "tcgen05.mma", "bar.warp.sync", "ld.global.b32"),
)


def test_a_profile_without_a_constant_or_a_family_is_refused():
    trace, chip = ring(1, 1), tiny()
    constants = {name: value for name, value in chip.constants.items() if name not in ("dram_rate", "tma_box")}
    with pytest.raises(ValueError, match="'tiny' lacks dram_rate, tma_box"):
        replay([trace], dataclasses.replace(chip, constants=constants))
    with pytest.raises(ValueError, match="'tiny' lacks the instruction family 'copy', of cp.async.bulk"):
        families = {name: cost for name, cost in chip.instructions.items() if name != "copy"}
        replay([trace], dataclasses.replace(chip, instructions=families))


def test_a_sustained_clock():
    """Latencies in cycles stay; rates in bytes a second become more bytes a cycle."""
    chip, slow = profile("b200"), profile("b200", sustained=True)
    assert slow.clock_ghz == chip.sustained.clock_ghz < chip.clock_ghz
    assert slow.constants["l2_latency"] == chip.constants["l2_latency"]
    for part in ("dram_rate", "l2_rate"):
        assert slow.constants[part] * slow.clock_ghz == pytest.approx(chip.constants[part] * chip.clock_ghz)
    with pytest.raises(ValueError, match="h200.json: ValueError: it has no sustained clock"):
        profile("h200", sustained=True)


def test_profiles_that_are_not_there_or_not_profiles(tmp_path):
    with pytest.raises(ValueError, match="'b201': known are b200, h200, or the path"):
        profile("b201")
    for text in ("{", "{}", '{"clock_ghz": {"value": 1}, "constants": {"sms": {"value": 1, "unit": "miles"}}}', "[]"):
        (tmp_path / "chip.json").write_text(text)
        with pytest.raises(ValueError, match="chip.json"):
            profile(str(tmp_path / "chip.json"))
