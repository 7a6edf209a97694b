"""Replays of launches in a queue, and the places of their CTAs, against cycles computed by hand."""

import dataclasses

import numpy as np
import pytest

from nogpu.clock.loop import LEAST, WORDS, modelled_loop
from nogpu.clock.replay import replay
from nogpu.clock.report import report
from nogpu.errors import EmulatorError
from tests.clock.test_copies import ring
from tests.support.clocks import lines_of, lives, recorded, tiny

START, END, GAP, OVERLAP, FREED, WOKEN = 100, 300, 1000, 500, 50, 250
WORK = "add.u32 %r1, %tid, 1;"  # work of a cycle
RET = 1


def kernel(body=WORK * 100, grid=1, **options):
    return recorded(body, grid=grid, **options)


def test_a_launch_by_itself():
    """The first CTA is dispatched after its interval, starts, works, and the grid ends."""
    replayed = replay([kernel()], tiny())
    assert (replayed.starts, replayed.first_ctas) == ([0], [10 + START])
    assert replayed.ends == [10 + START + 100 + RET + END]
    assert replayed.us == pytest.approx(0.511)


def test_launches_in_turn():
    replayed = replay([kernel()] * 3, tiny())
    whole = 10 + START + 101 + END
    assert replayed.starts == [0, whole + GAP, 2 * (whole + GAP)]
    assert replayed.ends == [whole, 2 * whole + GAP, 3 * whole + 2 * GAP]


EARLY = "griddepcontrol.launch_dependents;"
WAITS = "griddepcontrol.wait;"


def test_a_programmatic_launch_starts_when_the_one_ahead_has_triggered():
    first, second = kernel(EARLY + WORK * 2000), kernel(programmatic=True)
    replayed = replay([first, second], tiny())
    triggered = 10 + START
    assert replayed.starts == [0, triggered + OVERLAP]
    begun = triggered + OVERLAP + 10 + START
    assert replayed.first_ctas[1] == begun and begun < replayed.ends[0]


def test_launches_start_no_faster_than_their_period():
    traces = [kernel(EARLY + WORK * 2000, programmatic=True)] * 3
    assert replay(traces, tiny(launch_period=1500)).starts == [0, 1500, 3000]


@pytest.mark.parametrize("ctas, counted", [(1, 1), (2, 2), (5, 2)])
def test_the_period_of_launches_grows_with_ctas_up_to_one_an_sm(ctas, counted):
    traces = [kernel(EARLY, programmatic=True, grid=ctas)] * 2
    assert replay(traces, tiny((2,), launch_period=1500, launch_cta=2000)).starts[1] == 1500 + counted * 2000


def test_a_programmatic_launch_without_a_trigger_starts_after_the_last_exit():
    replayed = replay([kernel(), kernel(programmatic=True)], tiny())
    assert replayed.starts[1] == pytest.approx(10 + START + 100 + OVERLAP, abs=2)


def test_a_dependent_waits_for_the_end_of_the_launch_ahead():
    """The launch's own end comes later, even if it does not wait."""
    first, waiting = kernel(EARLY + WORK * 2000), kernel(WAITS + WORK * 10, programmatic=True)
    replayed = replay([first, waiting], tiny())
    assert replayed.ends[1] == replayed.ends[0] + WOKEN + 10 + RET + END
    replayed = replay([first, kernel(programmatic=True)], tiny())
    assert replayed.ends[1] == replayed.ends[0]


def test_programmatic_can_be_turned_off_and_on():
    traces = [kernel(EARLY + WORK * 2000), kernel(programmatic=True)]
    in_turn = replay(traces, tiny(), programmatic=False)
    assert in_turn.starts[1] == in_turn.ends[0] + GAP
    assert replay([traces[0]] * 2, tiny(), programmatic=True).starts[1] == 10 + START + OVERLAP


def test_ctas_go_to_the_emptiest_sm_and_wait_for_room():
    """Four SMs have room for two CTAs each: the ninth CTA is placed when the first one has ended."""
    replayed = replay([kernel(WORK * 500, grid=9)], tiny(), spans=1000)
    found = lives(replayed)
    assert len(found) == 9
    assert [sum(sm == at for sm, _, _ in found[:8]) for at in range(4)] == [2, 2, 2, 2]
    assert len({sm for sm, _, _ in found[:4]}) == 4
    assert [start for _, start, _ in found[:8]] == [10 * (i + 1) + START for i in range(8)]
    first_end = min(end for _, _, end in found)
    assert found[8][1] == first_end + FREED + 10 + START


@pytest.mark.parametrize(
    "resource", [{"sm_ctas": 1}, {"sm_threads": 63}, {"sm_shared_bytes": 8191}, {"sm_registers": 2 * 32 * 40 - 1}]
)
def test_an_sm_holds_as_many_ctas_as_it_has_room_for(resource):
    """A CTA of this kernel has 32 threads with 40 registers each and 4096 bytes of shared memory."""
    trace = dataclasses.replace(kernel(WORK * 500, grid=8), registers=40)
    replayed = replay([trace], tiny(**resource), spans=1000)
    found = lives(replayed)
    for sm in range(4):
        (_, start, end), (_, second, _) = sorted(life for life in found if life[0] == sm)
        assert second >= end + FREED + START > start


def test_clusters_stay_in_a_gpc():
    """Two GPCs have two SMs each: the CTAs of a pair get neighbouring SMs."""
    replayed = replay([kernel(WORK * 500, grid=8, cluster=2)], tiny(), spans=1000)
    found = lives(replayed)
    sms = [sm for sm, _, _ in found]
    assert [start for _, start, _ in found] == [10 * (i + 1) + START + 40 for i in range(8)], "a cluster starts later"
    assert all((first // 2, first + 1) == (second // 2, second) for first, second in zip(sms[::2], sms[1::2]))
    assert sorted(sms) == [0, 0, 1, 1, 2, 2, 3, 3]
    replayed = replay([kernel(WORK * 500, grid=4, cluster=2)], tiny((4,)), spans=1000)
    assert [sm for sm, _, _ in lives(replayed)] == [0, 1, 2, 3], "the emptiest pair"


def test_every_warp_ends():
    trace = kernel(WORK * 50, grid=23, threads=96)
    replayed = replay([trace] * 2, tiny(), spans=1000)
    for launch, busy in enumerate(replayed.busy):
        assert busy.tolist() == [23 * 51] * 3
        assert len(lives(replayed, launch)) == 23


# Errors


BLOCKED = """
    mov.u32 %r1, smem; mov.u32 %r4, 0; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r1], 1;
READY: bar.sync 0; and.b32 %r5, %tid, 31; setp.ne.u32 %p1, %r5, 0; @%p1 exit; setp.eq.u32 %p2, %tid, 0; @%p2 bra POLL;
    mbarrier.arrive.shared.b64 _, [%r1]; exit;
POLL: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra POLL;
"""


def test_a_launch_that_comes_to_no_end_is_named():
    trace = kernel(BLOCKED, threads=64)
    (at,) = (r for r in trace.records(0, 1) if trace.instructions[r.pc].opcode.startswith("mbarrier.arrive"))
    words = trace.words.copy()
    (place,) = np.flatnonzero((words & 0x7FFFFF == at.pc) & (words >> 24 == len(at.words)))
    words[place + 2] = 0  # arrivals
    blocked = dataclasses.replace(trace, words=words)
    replay([trace] * 2, tiny())
    with pytest.raises(EmulatorError, match=r"replay on tiny: launch 1 \(k\) comes to no end: 0 of 1 CTAs are over"):
        replay([trace, blocked, trace], tiny())
    words[place + 2] = 2
    with pytest.raises(EmulatorError, match=r"launch 1 \(k\), CTA 0, mbarrier at 0x400, .*more arrivals than it exp"):
        replay([trace, dataclasses.replace(trace, words=words)], tiny())


@pytest.mark.parametrize("name, value", [("sm_threads", 31), ("sm_shared_bytes", 4095), ("sm_registers", 31)])
def test_a_cta_without_room_is_refused(name, value):
    trace = dataclasses.replace(kernel(), registers=1)
    with pytest.raises(EmulatorError, match=rf"launch 1 \(k\): a CTA needs \d+ of {name}, an SM has {value}"):
        replay([dataclasses.replace(trace, block=(1, 1, 1), shared_bytes=0), trace], tiny(**{name: value}))


# Loops and reports


def test_a_loop_of_many_calls_goes_on_as_the_calls_that_were_replayed():
    trace = kernel()
    whole = 10 + START + 101 + END
    for calls, words, replayed in [(1, WORDS, 1), (50, WORDS, 50), (50, 0, LEAST), (50, 20 * len(trace.words), 20)]:
        loop = modelled_loop([trace], tiny(), calls, words=words)
        assert loop.us * 1000 == pytest.approx(whole + GAP * (calls - 1) / calls)
        assert len(loop.replay.ends) == replayed
    with pytest.raises(ValueError, match="a loop of 0 calls with 1 launches"):
        modelled_loop([trace], tiny(), 0)


def test_overlapping_calls_that_are_not_replayed_take_about_what_dram_needs():
    """Four calls share DRAM and end together: ends within a batch say little about a call's time."""
    load = "ld.global.b32 %r1, [%a0+{0}]; add.u32 %r1, %r1, 1; bra L{0}; L{0}:"
    body = EARLY + "".join(load.format(128 * line) for line in range(64))
    trace = recorded(body, lines_of(64), programmatic=True)
    chip = tiny((5,), sm_ctas=1, dram_rate=0.125, dram_write_cost=0)
    whole = modelled_loop([trace], chip, 50)
    assert whole.us * 1000 > 64 * 32 / 0.125 and whole.replay.starts[3] < whole.replay.ends[0]
    part = modelled_loop([trace], chip, 50, words=10 * len(trace.words))
    assert len(part.replay.ends) == 10
    assert part.us == pytest.approx(whole.us, rel=0.18)


def test_launches_of_a_call_share_its_data():
    data = lines_of(1)
    trace = recorded("ld.global.b32 %r1, [%a0];", data)
    usage = modelled_loop([trace, trace], tiny(), 5).replay.usage
    assert usage.dram_read == 5 * 32
    left = 2**20 * (1 - 128 / 2**20) ** 5  # bytes left after the reads of five lines
    assert usage.dram_written == pytest.approx(2**20 - left)
    assert modelled_loop([trace, trace], tiny(), 5, same_data=True).replay.usage.dram_read == 32


def test_a_report_says_who_waits_for_what():
    traces = [ring(2, 40)] * 2
    replayed = replay(traces, tiny())
    found = report(replayed, traces)
    ((role, waits),) = found.waits.items()
    assert role == "loads" and max(waits, key=waits.get) == "loads"
    assert sum(waits.values()) == pytest.approx(1)
    assert found.us == replayed.us
    cycles = replayed.ends[-1]
    assert found.utilisation["SMEM fill"] == pytest.approx(2 * 40 * 1024 / cycles / 4 / 64)
    assert found.utilisation["tensor core"] == 0


def test_l2_writes_back_what_it_can_while_dram_is_idle():
    """Others' 64 lines, 128 bytes each at 64 a cycle, are written before new lines come, or in a pause of reads."""
    data = lines_of(65)
    address = "mul.wide.u32 %rd2, %tid, 4; add.u64 %rd1, %a0, %rd2;"
    loads = "".join(f"ld.global.cg.b32 %r1, [%rd1+{128 * line}];" for line in range(64)) + "and.b32 %r2, %r1, 0;"

    def cycles(pause, share, dirty=True):
        first = f"ld.global.cg.b32 %r3, [%rd1+{128 * 64}]; and.b32 %r3, %r3, 0;"
        trace = recorded(address + first + WORK * pause + loads, data)
        return replay([trace], tiny(dram_idle_clean_share=share, lsu_in_flight=128), dirty_l2=dirty).ends[0]

    clean = cycles(0, 0, dirty=False)
    assert cycles(0, 0) == pytest.approx(clean + 64 * 128 / 64, abs=16)  # half an interval
    assert cycles(1000, 1) == cycles(1000, 0, dirty=False)
    assert cycles(1000, 0.01) > cycles(1000, 0, dirty=False) + 64
