"""Replays against cycles, bytes and places computed by hand: pipes, GPCs, L2 and the leftovers of a flush."""

import dataclasses
import json

import pytest

from nogpu.clock.chip import PIPES, PROFILES, Cost, profile
from nogpu.clock.costs import costs_of, family_of
from nogpu.clock.loop import modelled_loop
from nogpu.clock.replay import replay
from tests.support.clocks import ROUND, life, lines_of, lives, recorded, tiny

WORK = "add.u32 %r1, %tid, 1;"
OWN_WORD = "mul.wide.u32 %rd2, %tid, 4; add.u64 %rd1, %a0, %rd2;"


def reads(lines, *, first=0, use=True):
    """PTX that reads lines of a0, a word by each lane, and waits for the last of them."""
    loads = "".join(f"ld.global.cg.b32 %r1, [%rd1+{128 * (first + line)}];" for line in range(lines))
    return loads + ("and.b32 %r2, %r1, 0; cvt.u64.u32 %rd3, %r2; add.u64 %rd1, %rd1, %rd3;" if use else "")


# Pipes


def slow_products(**changed):
    """The chip, with a pipe for products that takes one in four cycles."""
    chip = tiny(**changed)
    slow = {"multiply": Cost(PIPES.index("multiply"), 1, 4, 4)}
    return dataclasses.replace(chip, instructions=chip.instructions | slow)


def cycles(trace, chip):
    ((_, start, end), *_) = lives(replay([trace], chip, spans=1000))
    return end - start


@pytest.mark.parametrize("products_first", [True, False])
def test_a_warp_that_waits_for_its_pipe_leaves_the_port_to_others(products_first):
    """The 40 products need their pipe for 160 cycles; another warp's 300 sums go between them: 340 slots in all."""
    sums = "".join(f"add.u32 %r{1 + i % 50}, %tid, 1;" for i in range(300))
    products = "".join(f"mul.lo.u32 %r{1 + i}, %tid, %tid;" for i in range(40))
    first, second = (products, sums) if products_first else (sums, products)
    trace = recorded(f"setp.ge.u32 %p1, %tid, 128; @%p1 bra B; {first} exit; B: {second}", threads=256)
    assert cycles(trace, slow_products()) == pytest.approx(40 + 300, abs=24)


def test_a_warp_does_not_get_ahead_of_its_pipe():
    """A pause leaves the pipe free, too; a warp of another partition does the same."""
    products = "".join(f"mul.lo.u32 %r{1 + i}, %tid, %tid;" for i in range(40))
    trace = recorded(WORK * 200 + products, threads=64)
    assert cycles(trace, slow_products()) == pytest.approx(200 + 40 * 4, abs=5)


# GPCs


def places(grid, gpc_sms, cluster=1):
    """SMs of the CTAs, and the number of CTAs that were placed before one ended."""
    trace = recorded(WORK * 500, grid=grid, cluster=cluster, shared=1024)
    chip = tiny(gpc_sms, sm_ctas=1, cta_interval=0)
    found = lives(replay([trace], chip, spans=1000))
    first_end = min(end for _, _, end in found)
    return [sm for sm, _, _ in found], sum(start < first_end for _, start, _ in found)


@pytest.mark.parametrize("grid, cluster, sms", [(6, 1, [0, 1, 2, 3, 4, 5]), (8, 2, [0, 1, 4, 5, 2, 3, 6, 7])])
def test_ctas_fill_a_gpc_before_the_next_and_clusters_go_round(grid, cluster, sms):
    assert places(grid, (4, 4), cluster) == (sms, len(sms))


def test_a_cluster_fits_into_a_gpc_or_not_at_all():
    """A GPC of two of the 14 SMs has no room for a cluster of four, and those of six have room for one each."""
    sms, at_once = places(12, (2, 6, 6), cluster=4)
    assert at_once == 8 and not {0, 1} & set(sms)


def test_an_h200_runs_30_clusters_of_four_at_once():
    trace = recorded(WORK * 1000, grid=132, cluster=4, shared=200 << 10)
    found = lives(replay([trace], profile("h200"), spans=10_000))
    first_end = min(end for _, _, end in found)
    assert sum(start < first_end for _, start, _ in found) == 120


def test_gpcs_with_other_sms_than_the_chip_are_refused(tmp_path):
    data = json.loads((PROFILES / "h200.json").read_text())
    data["gpc_sms"]["value"][0] += 2
    (tmp_path / "chip.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match="gpc_sms: 134 SMs in all, the chip has 132"):
        profile(str(tmp_path / "chip.json"))
    with pytest.raises(ValueError, match="gpc_sms: 4 SMs in all, the chip has 5"):
        tiny((2, 2), sms=5)


# Costs


def test_a_hopper_converts_from_e2m1_by_six_instructions():
    """The lowering in nogpu/hopper takes six; to e2m1 and from 8-bit formats a Hopper has instructions."""
    assert family_of("cvt.rn.f16x2.e2m1x2")[1] == "convert_e2m1"
    assert family_of("cvt.rn.f16x2.e4m3x2")[1] == "convert_narrow"
    chip = profile("h200")
    e2m1, logic = (chip.instructions[name] for name in ("convert_e2m1", "logic"))
    assert e2m1.issue == 6 and e2m1.interval == pytest.approx(3 * logic.interval, abs=0.01)
    assert profile("b200").instructions["convert_e2m1"].issue == 1


@pytest.mark.parametrize("opcode", ["and.b32", "shl.b64", "lop3.b32", "setp.lt.s32", "selp.b32", "prmt.b32"])
def test_logic_has_a_family(opcode):
    assert family_of(opcode)[1] == ("alu_long" if opcode.endswith("64") else "logic")
    assert family_of("add.s32")[1] == "alu"


def test_costs_follow_families():
    trace = recorded("mul.lo.u32 %r1, %tid, %tid;")
    costs = costs_of(trace, slow_products())
    assert costs.table["interval"][costs.families.index("multiply")] == 4


# L2


def test_reads_of_a_line_by_neighbours_are_one_while_it_is_under_way():
    """SMs 0 and 1 share one read, SM 2 reads the line again; all get their bytes."""
    trace = recorded(OWN_WORD + reads(1), lines_of(1), grid=3)
    chip = {"sm_ctas": 1, "cta_interval": 0, "l2_coalesces": 2}
    usage = replay([trace], tiny(**chip)).usage
    assert (usage.l2_misses, usage.l2_hits, usage.sm_in) == (128, 128, 3 * 128)
    alone = replay([trace], tiny(**{**chip, "l2_coalesces": 0})).usage
    assert (alone.l2_misses, alone.l2_hits, alone.sm_in) == (128, 2 * 128, 3 * 128)


def test_a_line_that_has_come_is_read_again():
    trace = recorded(OWN_WORD + reads(1) + reads(1), lines_of(1))
    usage = replay([trace], tiny(l2_coalesces=2)).usage
    assert (usage.l2_misses, usage.l2_hits) == (128, 128)


@pytest.mark.parametrize("lanes, sectors", [(32, 4), (8, 1)])
def test_written_lines_go_to_dram_when_others_need_their_place(lanes, sectors):
    """An L2 of 16 lines: 16 are written, whole or a sector of each, then ten others are read."""
    stores = "".join(f"st.global.b32 [%rd1+{128 * line}], %tid;" for line in range(16))
    body = f"{OWN_WORD} setp.ge.u32 %p1, %tid, {lanes}; @%p1 exit; {stores} {WORK * 2000} {reads(10, first=16)}"
    usage = replay([recorded(body, lines_of(26))], tiny(l2_bytes=16 * 128)).usage
    assert usage.dram_written == 10 * 32 * sectors


def test_writes_back_take_dram_from_reads():
    """A rate of 64 bytes a cycle: 64 lines that are read push out as many of 128 bytes each."""
    trace = recorded(OWN_WORD + reads(64), lines_of(64))
    chip = {"lsu_in_flight": 128, "l2_dirty": 2**30, "l2_storage": 2**30}
    clean, dirty = (replay([trace], tiny(**chip), dirty_l2=dirty).ends[0] for dirty in (False, True))
    assert dirty - clean == pytest.approx(64 * 128 / 64, abs=16)
    costly = replay([trace], tiny(**chip, dram_write_cost=2), dirty_l2=True).ends[0]
    assert costly - clean == pytest.approx(2 * 64 * 128 / 64, abs=32)


def test_an_l2_that_rests_before_the_first_read_writes_nothing_back():
    trace = recorded(OWN_WORD + WORK * 1000 + reads(64), lines_of(64))
    rested, busy = (replay([trace], tiny(dram_idle_clean_share=share), dirty_l2=True).ends[0] for share in (1, 0))
    assert rested == busy


def test_what_a_flush_left_goes_as_its_share_of_l2():
    """A quarter of 64 lines is dirty: each line that is read pushes out a 64th of the remaining ones."""
    trace = recorded(OWN_WORD + reads(32), lines_of(32))
    usage = replay([trace], tiny(l2_storage=64 * 128, l2_dirty=16 * 128), dirty_l2=True).usage
    assert usage.dram_written == pytest.approx(16 * 128 * (1 - (1 - 1 / 64) ** 32))


def test_a_line_of_the_other_half_of_l2_comes_over_the_link():
    """Each half has a slice of 64 bytes a cycle. A far line is requested at two slices, and takes the way there and
    back and its time on the link; both halves keep it.
    """
    chip = {"l2_halves": 2, "l2_slices": 2, "l2_far": 60, "l2_link_rate": 16, "dram_spread": 0}
    far, near = set(), set()
    lines = lines_of(32 * 20)
    for page in range(20):  # pages of 4 KiB, each in one half, by its address
        once, twice = (recorded(OWN_WORD + reads(1, first=32 * page) * n, lines) for n in (1, 2))
        usage = replay([twice], tiny(**chip)).usage
        assert (usage.dram_read, usage.l2_misses, usage.l2_hits) == (128, 128, 128)
        (far if life(once, **{**chip, "l2_link_rate": 1e9}) < life(once, **chip) else near).add(life(once, **chip))
    assert len(far) == len(near) == 1
    assert far.pop() - near.pop() == pytest.approx(60 + 128 / 16 + 128 / 64, abs=0.01)


# Loops


def test_a_loop_begins_at_the_event_ahead_of_it():
    trace = recorded(WORK)
    plain, later = (modelled_loop([trace], tiny(launch_first=first), 4).us for first in (0, 800))
    assert later - plain == pytest.approx(0.8 / 4)
    assert ROUND["grid_end"] / 1e3 < plain
