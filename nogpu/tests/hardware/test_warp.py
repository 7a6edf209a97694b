"""Warps: divergence and reconvergence, uniform values, exchange between lanes, special registers."""

import numpy as np
import pytest

from nogpu import array, load_ptx
from nogpu.compiler.plan import plan
from nogpu.errors import EmulatorError
from tests.support.small_kernels import entry, launch, module, store

LANE = np.arange(32)


def lanes(body, threads=32, **options):
    """The final %r1 of each thread."""
    out = np.full(threads, 0xDEAD, np.uint32)
    launch(body + store("%r1"), out, threads=threads, **options)
    return out.tolist()


def test_if_else_of_lanes():
    body = """
        mov.u32 %r1, 7; setp.lt.u32 %p1, %tid, 10; @!%p1 bra ELSE;
        add.u32 %r1, %tid, 100; bra JOIN;
    ELSE: add.u32 %r1, %r1, %tid;
    JOIN: add.u32 %r1, %r1, 1;
    """
    assert lanes(body) == np.where(LANE < 10, LANE + 101, LANE + 8).tolist()


def test_loop_whose_lanes_leave_at_different_times():
    body = """
        mov.u32 %r1, 0; mov.u32 %r2, 0;
    LOOP: add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %tid; @%p1 bra LOOP;
        mad.lo.u32 %r1, %r2, 1000, %r1;
    """
    assert lanes(body) == [1000 * (lane + 1) + lane * (lane + 1) // 2 for lane in range(32)]


def test_uniform_value_written_on_one_side_of_a_branch():
    """%r2 holds the same constant in all lanes that write it, but not in all lanes."""
    body = """
        mov.u32 %r2, 1; setp.gt.u32 %p1, %tid, 4; @%p1 bra SKIP; mov.u32 %r2, 2;
    SKIP: mov.u32 %r1, %r2;
    """
    assert lanes(body) == np.where(LANE > 4, 1, 2).tolist()


@pytest.mark.parametrize(
    "condition,first",
    [("setp.lt.u32 %p1, %tid, 10;", 10), ("setp.eq.u32 %p1, %r3, 3;", 32), ("setp.eq.u32 %p1, %r3, 4;", 0)],
)
def test_a_value_that_one_side_changes_and_the_other_one_reads(condition, first):
    """%r2 and %r3 were written in an earlier segment; neither is read after the branch."""
    body = f"""
        mov.u32 %r2, 1; mov.u32 %r3, 3; bar.warp.sync -1; {condition} @%p1 bra FIRST;
        mov.u32 %r2, 50; mad.lo.u32 %r1, %r2, 10, %tid; bra JOIN;
    FIRST: add.u32 %r1, %r2, %r3; add.u32 %r1, %r1, %tid;
    JOIN:
    """
    assert lanes(body) == np.where(LANE < first, LANE + 4, LANE + 500).tolist()


@pytest.mark.parametrize(
    "condition,changed",
    [("setp.lt.u32 %p1, %tid, 10;", 10), ("setp.eq.u32 %p1, %r3, 3;", 32), ("setp.eq.u32 %p1, %r3, 4;", 0)],
)
def test_a_value_that_is_changed_or_not(condition, changed):
    body = f"""
        mov.u32 %r2, 1; mov.u32 %r3, 3; bar.warp.sync -1; {condition} @!%p1 bra SKIP; mov.u32 %r2, 50;
    SKIP: mov.u32 %r1, %r2; bar.warp.sync -1; add.u32 %r1, %r1, %r3;
    """
    assert lanes(body) == np.where(LANE < changed, 53, 4).tolist()


def test_nested_divergence_with_a_loop_inside():
    body = """
        mov.u32 %r1, 0; setp.lt.u32 %p1, %tid, 16; @!%p1 bra OUT;
        mov.u32 %r2, 0;
    LOOP: and.b32 %r3, %tid, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra EVEN;
        add.u32 %r1, %r1, 10; bra NEXT;
    EVEN: add.u32 %r1, %r1, 1;
    NEXT: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 3; @%p3 bra LOOP;
    OUT: vote.sync.ballot.b32 %r4, %p1, -1; add.u32 %r1, %r1, %r4;
    """
    assert lanes(body) == [0xFFFF + (0 if lane >= 16 else 3 if lane % 2 == 0 else 30) for lane in range(32)]


def test_lanes_meet_again_before_the_next_instruction_that_needs_all():
    """One lane waits on a barrier that is completed by another warp; the others wait for it where the branch ends."""
    body = """
        mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY;
        mbarrier.init.shared.b64 [%r10], 1;
    READY: bar.sync 0; setp.eq.u32 %p2, %r11, 1; @%p2 bra SECOND;
        mov.u32 %r2, 0;
        @%p1 bra MEET;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra WAIT;
    MEET: add.u32 %r2, %r2, 5; shfl.sync.idx.b32 %r1, %r2, 0, 31, -1; bra END;
    SECOND: setp.ne.u32 %p4, %tid, 32; @%p4 bra END; mbarrier.arrive.shared.b64 _, [%r10];
    END: selp.b32 %r1, 6, %r1, %p2;
    """
    for schedule in ("late", "random:1", "random:2"):
        assert lanes(body, threads=64, schedule=schedule) == [5] * 32 + [6] * 32


def test_both_sides_of_a_branch_run_when_one_polls_the_other():
    """Lanes 1.. spin on shared memory until lane 0, further on in the text, has written to it."""
    body = """
        mov.u32 %r10, smem; st.shared.b32 [%r10], 0; bar.warp.sync -1; setp.eq.u32 %p1, %tid, 0; @%p1 bra WRITE;
    SPIN: ld.volatile.shared.b32 %r2, [%r10]; setp.ne.u32 %p2, %r2, 9; @%p2 bra SPIN; bra END;
    WRITE: mov.u32 %r2, 9; st.volatile.shared.b32 [%r10], %r2;
    END: mov.u32 %r1, %r2;
    """
    assert lanes(body) == [9] * 32


def test_early_exit_of_some_lanes():
    out = np.zeros(32, np.uint32)
    body = "setp.ge.u32 %p1, %tid, 20; @%p1 ret; elect.sync %r2|%p2, -1; vote.sync.ballot.b32 %r1, %p2, -1;" + store(
        "%r1"
    )
    launch(body, out)
    assert out.tolist() == [1] * 20 + [0] * 12
    out[:] = 0
    launch("setp.lt.u32 %p1, %tid, 20; @%p1 exit; elect.sync %r1|%p2, -1;" + store("%r1"), out)
    assert out.tolist() == [0] * 20 + [20] * 12


def test_lanes_meet_in_a_part_that_ends_in_a_wait_and_an_exit():
    """The role of a warp as the DSL writes it: its only way out is the branch of the last wait to the common `ret`."""
    body = """
        mov.u32 %r10, smem; setp.ne.u32 %p1, %tid, 0; @%p1 bra READY; mbarrier.init.shared.b64 [%r10], 1;
        mbarrier.init.shared.b64 [%r10+8], 1;
    READY: bar.sync 0; setp.ge.u32 %p2, %tid, 32; @%p2 bra OTHER; mov.u32 %r2, 0;
    LOOP: elect.sync _|%p3, -1; not.pred %p4, %p3; @%p4 bra SKIP; st.shared.b32 [%r10+64], %r2;
    SKIP: elect.sync _|%p3, -1; not.pred %p4, %p3; @%p4 bra NEXT;
    W0: mbarrier.try_wait.parity.shared.b64 %p5, [%r10+8], 1; @!%p5 bra W0;
    NEXT: elect.sync %r3|%p3, -1; add.u32 %r2, %r2, 1; setp.lt.u32 %p6, %r2, 3; @%p6 bra LOOP;
        mad.wide.u32 %rd1, %tid, 4, %a0; st.global.b32 [%rd1], %r2;
    W1: mbarrier.try_wait.parity.shared.b64 %p7, [%r10], 0; @%p7 bra END; bra.uni W1;
    OTHER: setp.ne.u32 %p8, %tid, 32; @%p8 bra END; mbarrier.arrive.shared.b64 _, [%r10]; bra.uni END;
    END:
    """
    out = np.zeros(32, np.uint32)
    launch(body, out, threads=64)
    assert out.tolist() == [3] * 32


def test_exit_inside_of_a_loop():
    body = """
        mov.u32 %r1, 0;
    LOOP: add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, %tid; @%p1 bra STORE; setp.lt.u32 %p2, %r1, 40; @%p2 bra LOOP; ret;
    STORE:
    """
    assert lanes(body) == [0xDEAD, *range(1, 32)]


def test_predicated_instructions():
    body = """
        mov.u32 %r1, 1; setp.lt.u32 %p1, %tid, 3; @%p1 mov.u32 %r1, 2; @!%p1 add.u32 %r1, %r1, %tid;
        setp.eq.u32 %p2, 1, 1; @%p2 add.u32 %r1, %r1, 100; @!%p2 add.u32 %r1, %r1, 1000;
    """
    assert lanes(body) == np.where(LANE < 3, 102, 101 + LANE).tolist()


def test_elected_lane_computes_alone():
    body = """
        mov.u32 %r1, 5; elect.sync _|%p1, -1; @!%p1 bra SKIP; mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 2, 40;
        st.shared.b32 [%r2], %r3;
    SKIP: bar.warp.sync -1; mov.u32 %r4, smem; ld.shared.b32 %r1, [%r4];
    """
    assert lanes(body) == [40] * 32


@pytest.mark.parametrize(
    "mode,b,c,source",
    [
        ("idx", 3, 31, lambda i: 3),
        ("idx", 2, 0x181F, lambda i: (i & 24) + 2),
        ("up", 5, 0, lambda i: i - 5 if i >= 5 else i),
        ("up", 1, 0x1800, lambda i: i - 1 if i % 8 else i),
        ("down", 7, 31, lambda i: i + 7 if i + 7 < 32 else i),
        ("bfly", 9, 31, lambda i: i ^ 9),
    ],
)
def test_shuffles(mode, b, c, source):
    body = f"mul.lo.u32 %r2, %tid, 3; shfl.sync.{mode}.b32 %r1, %r2, {b}, {c}, -1;"
    assert lanes(body) == [3 * source(i) for i in range(32)]
    body = f"shfl.sync.{mode}.b32 %r2|%p1, %tid, {b}, {c}, -1; selp.b32 %r1, 1, 0, %p1;"
    moved = [int(source(i) != i or mode in ("idx", "bfly")) for i in range(32)]
    assert lanes(body) == moved


def test_shuffle_by_lanes():
    assert lanes("xor.b32 %r2, %tid, 31; mul.lo.u32 %r3, %tid, %tid; shfl.sync.idx.b32 %r1, %r3, %r2, 31, -1;") == [
        (31 - i) ** 2 for i in range(32)
    ]


def test_votes():
    body = """
        and.b32 %r2, %tid, 3; setp.eq.u32 %p1, %r2, 1; vote.sync.ballot.b32 %r1, %p1, -1;
        vote.sync.all.pred %p2, %p1, -1;
        vote.sync.any.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1; vote.sync.all.pred %p5, !%p2, -1;
        activemask.b32 %r3; not.b32 %r3, %r3;
        selp.b32 %r4, 1, 0, %p2; selp.b32 %r5, 2, 0, %p3; selp.b32 %r6, 4, 0, %p4; selp.b32 %r7, 8, 0, %p5;
        xor.b32 %r1, %r1, %r4; xor.b32 %r1, %r1, %r5; xor.b32 %r1, %r1, %r6; xor.b32 %r1, %r1, %r7;
        or.b32 %r1, %r1, %r3;
    """
    assert lanes(body) == [0x22222222 ^ 2 ^ 8] * 32


def test_match():
    assert lanes("and.b32 %r2, %tid, 1; match.any.sync.b32 %r1, %r2, -1;") == [0x55555555, 0xAAAAAAAA] * 16
    assert lanes("and.b32 %r2, %tid, 1; match.all.sync.b32 %r1|%p1, %r2, -1;") == [0] * 32
    body = "mov.u32 %r2, 4; match.all.sync.b32 %r1|%p1, %r2, -1; @!%p1 mov.u32 %r1, 3;"
    assert lanes(body) == [0xFFFFFFFF] * 32


@pytest.mark.parametrize(
    "opcode,expected",
    [
        ("redux.sync.add.u32", sum(3 * i - 40 for i in range(32))),
        ("redux.sync.min.s32", -40),
        ("redux.sync.max.s32", 53),
        ("redux.sync.max.u32", -1),
        ("redux.sync.and.b32", 0),
        ("redux.sync.or.b32", -1),
    ],
)
def test_reductions(opcode, expected):
    assert (
        lanes(f"mul.lo.u32 %r2, %tid, 3; sub.u32 %r2, %r2, 40; {opcode} %r1, %r2, -1;") == [expected & 0xFFFFFFFF] * 32
    )


def test_float_reduction():
    body = "cvt.rn.f32.s32 %r2, %tid; neg.f32 %r2, %r2; redux.sync.min.f32 %r1, %r2, -1;"
    assert lanes(body) == [int(np.float32(-31).view(np.uint32))] * 32


def test_special_registers():
    body = """
        mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.y;
        mov.u32 %r6, %laneid; mov.u32 %r7, %warpid;
        mov.u32 %r8, %cluster_ctarank; mov.u32 %r9, %cluster_nctarank; mov.u32 %r10, %clusterid.x;
        mov.u32 %r11, %cluster_ctaid.x;
        mad.lo.u32 %r12, %r2, 10, %r3; mad.lo.u32 %r12, %r12, 100, %r4; mad.lo.u32 %r12, %r12, 10, %r8;
        mad.lo.u32 %r12, %r12, 10, %r9;
        mad.lo.u32 %r12, %r12, 10, %r10; mad.lo.u32 %r12, %r12, 10, %r11;
        mad.lo.u32 %r13, %r5, 100, %r6; mad.lo.u32 %r13, %r13, 10, %r7; mov.b64 %rd5, {%r12, %r13};
        mad.lo.u32 %r14, %r5, 16, %tid; mad.lo.u32 %r14, %r2, 64, %r14; mad.wide.u32 %rd1, %r14, 8, %a0;
        st.global.b64 [%rd1], %rd5;
    """
    out = np.zeros(4 * 64, np.uint64)
    launch(body, out, block=(16, 4, 1), grid=4, cluster=2)
    cta, thread = np.arange(4 * 64) // 64, np.arange(4 * 64) % 64
    low = ((cta * 10 + 4) * 100 + 16) * 10000 + (cta % 2) * 1000 + 200 + (cta // 2) * 10 + cta % 2
    high = (thread // 16 * 100 + thread % 32) * 10 + thread // 32
    np.testing.assert_array_equal(out, low + (high << 32))


def test_lane_masks_and_clocks():
    body = """
        mov.u32 %r2, %lanemask_lt; mov.u32 %r3, %lanemask_ge; add.u32 %r1, %r2, %r3; mov.u32 %r4, %lanemask_eq;
        mov.u32 %r5, %lanemask_le;
        mov.u32 %r6, %lanemask_gt; add.u32 %r5, %r5, %r6; and.b32 %r1, %r1, %r5; xor.b32 %r1, %r1, %r4;
        mov.u32 %r7, %clock; mov.u32 %r8, %clock; setp.ge.u32 %p1, %r7, %r8; @%p1 mov.u32 %r1, 0;
        mov.u64 %rd2, %globaltimer; mov.u64 %rd3, %globaltimer; setp.ge.u64 %p2, %rd2, %rd3; @%p2 mov.u32 %r1, 0;
    """
    assert lanes(body) == [0xFFFFFFFF ^ 1 << i for i in range(32)]


@pytest.mark.parametrize(
    "instruction,reason",
    [
        ("bar.sync 0;", "the warp has diverged"),
        ("shfl.sync.idx.b32 %r1, %tid, 0, 31, -1;", "have diverged and are elsewhere"),
        ("elect.sync %r1|%p2, -1;", "have diverged and are elsewhere"),
        ("vote.sync.any.pred %p2, %p1, 1;", "are not in its membermask"),
        ("tcgen05.wait::ld.sync.aligned;", "the warp has diverged"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;", "the warp has diverged"),
        ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "the warp has diverged"),
    ],
)
def test_divergence_where_the_whole_warp_is_needed(instruction, reason):
    with pytest.raises(EmulatorError, match=reason) as error:
        lanes(f"mov.u32 %r1, 0; setp.ge.u32 %p1, %tid, 8; @%p1 bra SKIP;\n{instruction}\nSKIP:")
    assert error.value.ptx_text == instruction.rstrip(";") and error.value.warp == 0 and error.value.cta == (0, 0, 0)


@pytest.mark.parametrize(
    "lane,reason",
    [("31", "shfl.sync reads lane 31, which"), ("%tid", None), ("%r2", "shfl.sync: lane 0 reads lane 31, which")],
)
def test_shuffle_from_a_lane_that_is_gone(lane, reason):
    body = f"xor.b32 %r2, %tid, 31; setp.eq.u32 %p1, %tid, 31; @%p1 ret; shfl.sync.idx.b32 %r1, %tid, {lane}, 31, -1;"
    if reason is None:
        assert lanes(body) == [*range(31), 0xDEAD]
        return
    with pytest.raises(EmulatorError, match=f"{reason} does not take part"):
        lanes(body)


def test_trap():
    with pytest.raises(EmulatorError, match="trap is executed"):
        lanes("setp.eq.u32 %p1, %tid, 3; @%p1 trap; mov.u32 %r1, 0;")


@pytest.mark.parametrize("lane", ["%tid", "%ctaid.x"])
def test_trap_at_the_end(lane):
    """No exit follows: compilers put the traps of failed assertions behind the last one."""
    body = f"mov.u32 %r9, {lane}; setp.eq.u32 %p1, %r9, 3; @%p1 bra FAIL; st.global.u32 [%a0], %tid; ret; FAIL: trap;"
    text = module(body)
    ends = text.replace("trap;\n    ret;", "trap;")
    assert ends != text
    out = np.zeros(32, np.uint32)
    if lane == "%tid":
        with pytest.raises(EmulatorError, match="trap is executed"):
            load_ptx(ends)["k"].launch(1, 32, [array(out)])
    else:
        load_ptx(ends)["k"].launch(1, 32, [array(out)])
    with pytest.raises(EmulatorError, match="falls off the end"):
        load_ptx(ends.replace("FAIL: trap;", "FAIL: @%p1 trap;"))["k"].check()


def test_uniform_registers_are_found():
    """A loop over uniform values with elected parts holds no row."""
    body = """
        shr.u32 %r1, %tid, 5; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; mov.u32 %r3, 0; mov.u32 %r5, smem;
    LOOP: elect.sync _|%p1, -1; @!%p1 bra SKIP; mad.lo.u32 %r4, %r3, 8, %r5; st.shared.b32 [%r4], %r2;
    SKIP: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 4; @%p2 bra LOOP;
    """
    kinds = plan(entry(body, 0)).flow.kinds
    assert {name: kinds[f"%r{name}"] for name in range(1, 6)} == {1: "lanes", **{i: "uniform" for i in (2, 3, 4, 5)}}
    assert (kinds["%p1"], kinds["%p2"]) == ("bits", "uniform")


TILES = "shr.u32 %r2, %tid, 3; shl.b32 %r2, %r2, 3; mov.u32 %r3, 255; shl.b32 %r3, %r3, %r2; "
"""%r3: the membermask of the lane's tile of eight."""


@pytest.mark.parametrize(
    "body,expected",
    [
        ("mov.u32 %r1, %tid; bar.warp.sync %r3;", LANE),
        ("shfl.sync.down.b32 %r1, %tid, 3, 0x1807, %r3;", np.where(LANE % 8 < 5, LANE + 3, LANE)),
        ("shfl.sync.idx.b32 %r1, %tid, 2, 0x181f, %r3;", LANE // 8 * 8 + 2),
        (
            "and.b32 %r4, %tid, 9; setp.eq.u32 %p1, %r4, 9; vote.sync.ballot.b32 %r1, %p1, %r3;",
            [0, 0xAA00, 0, 0xAA000000],
        ),
        ("setp.gt.u32 %p1, %tid, 10; vote.sync.all.pred %p2, %p1, %r3; selp.u32 %r1, 1, 0, %p2;", [0, 0, 1, 1]),
        ("setp.gt.u32 %p1, %tid, 10; vote.sync.any.pred %p2, %p1, %r3; selp.u32 %r1, 1, 0, %p2;", [0, 1, 1, 1]),
        ("redux.sync.add.u32 %r1, %tid, %r3;", [28, 92, 156, 220]),
    ],
)
def test_tiles_of_a_warp_that_run_together(body, expected):
    """Each lane names its own tile (PTX ISA, "membermask")."""
    expected = np.repeat(expected, 32 // len(expected))
    assert lanes(TILES + body) == expected.tolist()
    # tiles whose other lanes are elsewhere
    assert lanes(f"{TILES} mov.u32 %r1, 7; setp.ge.u32 %p3, %tid, 16; @%p3 bra SKIP; {body}\nSKIP:") == [
        *expected[:16],
        *[7] * 16,
    ]


@pytest.mark.parametrize(
    "instruction,reason",
    [
        ("bar.warp.sync %r3;", "have diverged and are elsewhere"),
        ("shfl.sync.idx.b32 %r1, %tid, 2, 0x181f, %r3;", "have diverged and are elsewhere"),
        ("shl.b32 %r3, %r3, 8; vote.sync.ballot.b32 %r1, 1, %r3;", "are not in its membermask"),
    ],
)
def test_a_tile_of_which_lanes_are_elsewhere(instruction, reason):
    with pytest.raises(EmulatorError, match=reason):
        lanes(f"{TILES} mov.u32 %r1, 7; setp.ge.u32 %p3, %tid, 12; @%p3 bra SKIP;\n{instruction}\nSKIP:")


def test_a_shuffle_from_another_tile():
    with pytest.raises(EmulatorError, match="lane 0 reads lane 8, which does not take part"):
        lanes(TILES + "shfl.sync.down.b32 %r1, %tid, 8, 31, %r3;")
    assert lanes("shfl.sync.down.b32 %r1, %tid, 8, 31, -1;")[0] == 8
