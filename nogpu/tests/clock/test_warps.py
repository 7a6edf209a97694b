"""Replays of small kernels against cycles computed by hand: issue, memory, barriers between warps."""

import pytest

from nogpu.clock.replay import replay
from tests.support.clocks import life, lines_of, recorded, tiny

RET = 1


# Issue


@pytest.mark.parametrize("count", [1, 5, 40])
def test_instructions_of_a_warp_take_a_slot_each(count):
    body = "".join(f"add.u32 %r{1 + i % 50}, %tid, 1;" for i in range(count))
    assert life(recorded(body)) == count + RET


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_result_is_waited_for(count):
    """The next instruction's slot is free, but its source comes only after four cycles."""
    assert life(recorded("mov.b32 %r1, 0;" + "add.u32 %r1, %r1, 1;" * count)) == 4 * (count - 1) + RET


@pytest.mark.parametrize(
    "opcode, cycles", [("rcp.rn.f32", 4), ("div.rn.f32", 4), ("rcp.approx.f32", 1), ("add.f32", 1)]
)
def test_a_warp_does_one_subroutine_at_a_time(opcode, cycles):
    """Ten independent subroutines, each with a latency of four cycles."""
    sources = "%r50, %r51" if opcode[:3] in ("div", "add") else "%r50"
    body = "".join(f"{opcode} %r{n}, {sources};" for n in range(10))
    assert life(recorded(body)) == pytest.approx(10 * cycles + RET, abs=4)


@pytest.mark.parametrize("warps, share", [(1, 1), (4, 1), (8, 2), (16, 4)])
def test_warps_of_a_partition_share_its_issue_slots(warps, share):
    body = "".join(f"add.u32 %r{1 + i % 50}, %tid, 1;" for i in range(100))
    trace = recorded(body, threads=32 * warps)
    assert life(trace) == pytest.approx(share * (100 + RET), abs=share)
    (busy,) = replay([trace], tiny()).busy
    assert busy.tolist() == [100 + RET] * warps


def test_pipes_share_the_issue_port():
    """Two warps of a partition, each in a pipe of its own, take as long as in one pipe."""
    sums, products = ("".join(f"{name} %r{1 + i}, %tid, %tid;" for i in range(40)) for name in ("add.u32", "mul.f32"))
    trace = recorded(f"setp.ge.u32 %p1, %tid, 128; @%p1 bra B; {sums} exit; B: {products}", threads=256)
    assert 2 * (40 + RET) <= life(trace) <= 2 * (40 + RET) + 12


def test_no_slot_is_issued_twice():
    """A partition never issues more than a cycle's worth per cycle."""
    trace = recorded("mov.b32 %r1, 0;" + "add.u32 %r1, %r1, 1; add.u32 %r2, %tid, 3;" * 60, threads=512)
    (busy,) = replay([trace], tiny()).busy
    assert life(trace) >= busy[0::4].sum() == 4 * (120 + RET)


# Memory

LSU, L2, SLICE, DRAM, PORT = 1, 200, 128 / 128, 128 / 64, 128 / 64
LOAD = "ld.global.cg.b32 %r1, [%rd1];"


def dependent(*loads):
    """Loads from a0's first line, each address from the previous value, and a use of the last value."""
    body = "mul.wide.u32 %rd2, %tid, 4; add.u64 %rd1, %a0, %rd2;"
    for load in loads:
        body += f"{load} and.b32 %r2, %r1, 0; cvt.u64.u32 %rd3, %r2; add.u64 %rd1, %rd1, %rd3;"
    return body


def test_loads_from_dram_l2_and_l1():
    data = lines_of(1)
    begin = 4 + 4  # product and sum
    use = 3 * 4  # three results from the value to the next address
    miss = LSU + ROUND_TRIP + DRAM_MORE
    assert life(recorded(dependent(LOAD), data)) == begin + miss + 8 + RET
    hit = LSU + L2 + SLICE + PORT
    assert life(recorded(dependent(LOAD, LOAD), data)) == begin + miss + use + hit + 8 + RET
    kept = LSU + 30
    first = LOAD.replace(".cg", "")
    assert life(recorded(dependent(first, first), data)) == begin + miss + use + kept + 8 + RET


SIDES = """ld.global.cg.b32 %r3, [%rd1{at}]; shl.b32 %r4, %r3, 16; setp.lt.u32 %p1, %tid, {lanes}; @%p1 bra A{n};
    st.shared.b32 [smem], %r3; bra.uni B{n};
    A{n}: {more} st.shared.b32 [smem+{place}], %r3; B{n}:"""
MANY = "add.u32 %r5, %r5, 1;" * 20


def sides(lanes, more="", place=64, between=""):
    """Four loads, each of a line of its own, each before a condition whose sides store its value to shared memory."""
    parts = (SIDES.format(at=f"+{128 * n}", lanes=lanes, n=n, more=more, place=place) for n in range(4))
    body = "mul.wide.u32 %rd2, %tid, 4; add.u64 %rd1, %a0, %rd2;" + between.join(parts)
    return life(recorded(body, lines_of(4)))


@pytest.mark.parametrize("lanes", [0, 16, 32])
def test_loads_pass_stores_to_shared_memory_between_short_branches(lanes):
    """One or both sides may run: ptxas predicates them, and issues all loads first."""
    assert sides(lanes) < 2 * (ROUND_TRIP + DRAM_MORE)


@pytest.mark.parametrize(
    "change", [{"more": MANY}, {"between": "bar.sync 0;"}, {"between": "ld.shared.b32 %r6, [smem];"}]
)
def test_loads_do_not_pass_far_branches_barriers_and_loads_of_shared_memory(change):
    assert sides(0, **change) > 4 * (ROUND_TRIP + DRAM_MORE)


ROUND_TRIP, DRAM_MORE = L2 + SLICE + PORT, DRAM + (600 - 200)


def test_a_sector_takes_a_quarter_of_the_bytes():
    data = lines_of(1)
    body = "setp.ge.u32 %p1, %tid, 8; @%p1 exit;" + dependent(LOAD)
    whole = recorded("setp.ge.u32 %p1, %tid, 32; @%p1 exit;" + dependent(LOAD), data)
    assert life(whole) - life(recorded(body, data)) == 3 / 4 * (SLICE + DRAM + PORT)


def test_bytes_of_loads_are_counted():
    data = lines_of(1)
    usage = replay([recorded(dependent(LOAD, LOAD), data)], tiny()).usage
    assert (usage.dram_read, usage.l2_misses, usage.l2_hits, usage.sm_in) == (128, 128, 128, 256)


def test_launches_find_in_l2_what_others_have_left():
    trace = recorded(dependent(LOAD), lines_of(1))
    reads = [replay([trace] * 4, tiny(), other_data=other).usage.dram_read for other in (True, False, [0, 0, 1, 1])]
    assert reads == [4 * 128, 128, 2 * 128]


# mbarriers

PING_PONG = """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 8; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r1], 1; mbarrier.init.shared.b64 [%r2], 1;
READY: bar.sync 0; and.b32 %r5, %tid, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit;
    setp.eq.u32 %p2, %tid, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; @!%p2 bra SECOND;
FIRST: mbarrier.arrive.shared.b64 _, [%r1];
A: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], %r4; @!%p3 bra A;
    xor.b32 %r4, %r4, 1; add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, TURNS; @%p4 bra FIRST; exit;
SECOND:
B: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra B;
    mbarrier.arrive.shared.b64 _, [%r2];
    xor.b32 %r4, %r4, 1; add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, TURNS; @%p4 bra SECOND;
"""


def test_two_warps_play_ping_pong():
    """A round is: end and branch of a wait, visible, woken, in both warps; then the end of the first warp's loop."""
    woken = 10 + 30
    after = 1  # branch
    loop = 3 + 1 + 4 - 1  # xor and add; setp one cycle later, on which the branch depends
    short, long = (life(recorded(PING_PONG.replace("TURNS", str(turns)), threads=64)) for turns in (10, 30))
    assert (long - short) / 20 == pytest.approx(woken + after + woken + after + loop, abs=3)
    slower = [life(recorded(PING_PONG.replace("TURNS", str(n)), threads=64), mbarrier_wait=31) for n in (10, 30)]
    assert slower[1] - slower[0] - (long - short) == 2 * 20


POLLS = """
    mov.u32 %r1, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r1], 1;
READY: bar.sync 0; and.b32 %r5, %tid, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit;
    setp.eq.u32 %p2, %tid, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; @%p2 bra POLL;
LATE: add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 300; @%p4 bra LATE;
    mbarrier.arrive.shared.b64 _, [%r1]; exit;
POLL: add.u32 %r3, %r3, 1; mbarrier.test_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra POLL;
"""


def test_polls_in_vain_are_left_out():
    """The instructions of the polling warp in a replay do not depend on the number of polls in the recording."""
    trace = recorded(POLLS, threads=64)
    polls = sum(trace.instructions[r.pc].opcode.startswith("mbarrier.test_wait") for r in trace.records(0, 0))
    assert polls > 10, "the recording has polls in vain"
    (busy,) = replay([trace], tiny()).busy
    assert busy[0] < 25 and busy[1] > 900


def test_a_program_that_goes_on_after_a_poll_in_vain_does_not_wait():
    """The warp polls for each of two phases once, in vain, and does its work."""
    body = """
        mov.u32 %r1, smem; mov.u32 %r4, 0; mov.u32 %r3, 0; setp.ne.u32 %p1, %tid, 0; @%p1 exit;
        mbarrier.init.shared.b64 [%r1], 1;
        TRY: mbarrier.test_wait.parity.shared.b64 %p3, [%r1], %r4; st.shared.b32 [%r1+64], %r3;
        mbarrier.arrive.shared.b64 _, [%r1]; xor.b32 %r4, %r4, 1; add.u32 %r3, %r3, 1;
        setp.lt.u32 %p4, %r3, 2; @%p4 bra TRY;"""
    trace = recorded(body)
    waits = [r.words for r in trace.records(0, 0) if trace.instructions[r.pc].opcode.startswith("mbarrier.test_wait")]
    assert [words[1:] for words in waits] == [(0, 0), (1, 0)]
    (busy,) = replay([trace], tiny()).busy
    issued = [record for record in trace.records(0, 0) if not trace.instructions[record.pc].opcode.startswith("mov")]
    assert busy[0] == len(issued)


# Barriers of a CTA and of a cluster


@pytest.mark.parametrize("late", [0, 200])
def test_a_named_barrier_opens_after_the_last_warp(late):
    """The first warp is late because it waits for results; both leave together."""
    body = "mov.b32 %r1, 0; setp.ge.u32 %p1, %tid, 32; @%p1 bra SYNC;"
    body += "add.u32 %r1, %r1, 1;" * late + "setp.eq.u32 %p2, %r1, 7; @%p2 bra SYNC; SYNC: bar.sync 0;"
    trace = recorded(body, threads=64)
    tested = 4 + 1  # setp's result, the branch
    assert life(trace) == tested + 4 * late + tested + 15 + RET
    assert life(trace, bar_latency=115) == life(trace) + 100


def test_a_cluster_barrier():
    body = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    trace = recorded(body, grid=2, cluster=2)
    # The second CTA is dispatched, and so arrives, ten cycles after the first.
    assert life(trace) == 10 + 100 + RET
    assert life(trace, cluster_latency=150) == life(trace) + 50


FENCES = {"proxy.async.shared::cta": 7, "acq_rel.cta": 7, "acq_rel.gpu": 70}
FENCES["proxy.tensormap::generic.acquire.gpu [%rd0], 128"] = 4


@pytest.mark.parametrize("fence", FENCES)
def test_a_fence_holds_up_its_warp(fence):
    """The warp takes a cycle to issue and the fence's own; a fence of an edited map has its family's latency."""
    data = lines_of(1)
    alone, many = (life(recorded(f"fence.{fence};" * count, data), fence_wide=70) for count in (1, 5))
    assert many - alone == 4 * (1 + FENCES[fence])
