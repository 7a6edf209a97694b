"""Work of the tensor core that compiled code issues and executes, with the results and errors of its Python rows."""

import numpy as np
import pytest

from nogpu import errors
from nogpu.compiler.translate import Runner
from nogpu.errors import EmulatorError, OrderingWarning
from nogpu.execution.machine import TURNS_AT_ONCE
from nogpu.hardware.mbarriers import MBarrier
from nogpu.hardware.memory import SHARED_BASE
from nogpu.ops import tcgen05
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import launch
from tests.support.tensor_kernels import A_TILE, B_TILE, CLUSTER_SYNC, COPY, END, TILE, WAIT, body, image
from tests.support.tensor_operands import descriptor, instruction

TIMES = 8
ISSUES = ("tcgen05.mma", "tcgen05.cp", "tcgen05.commit")
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar+8];"
MULTICAST = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar+8], %h1;"
SECOND = """
    @!%leader mbarrier.init.shared.b64 [%bar+8], 1; @!%leader mbarrier.init.shared.b64 [%bar+24], 1;
    @!%leader fence.mbarrier_init.release.cluster;
"""
# %p7: the iteration before the last one. %p6: D is added to.
LOOP = """
    mov.u32 %r40, 0; mov.u16 %h1, 3; setp.ne.u32 %p2, %rank, 0; or.pred %p, %leader, %p2;
AGAIN: setp.ne.u32 %p6, %r40, 0; setp.eq.u32 %p7, %r40, {last}; and.b32 %r41, %r40, 1;
    @%p bra ISSUED; {issue}
ISSUED: mov.u32 %r42, 0;
TESTED: mbarrier.try_wait.parity.shared.b64 %p4, [%bar+8], %r41; @!%p4 bra TESTED;
    tcgen05.fence::after_thread_sync; {between} tcgen05.fence::before_thread_sync; {sync}
    tcgen05.fence::after_thread_sync;
    add.u32 %r40, %r40, 1; setp.lt.u32 %p5, %r40, {times}; @%p5 bra AGAIN;
"""
# CTA 1 lets CTA 0 go on.
PAIR_SYNC = """
    bar.sync 0; @%leader bra MET; @%p2 bra TELLS;
HEARS: mbarrier.try_wait.parity.shared.b64 %p12, [%bar+24], %r41; @!%p12 bra HEARS; bra MET;
TELLS: mapa.shared::cluster.u32 %r46, %bar, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r46+24];
MET: bar.sync 0;
"""
READ = WAIT[WAIT.index("tcgen05.fence::after_thread_sync") :].replace("%tid, 64", "%r43, 64")
MMA = "tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, %p6;"
PLAIN = instruction("f16", 128, 16)


@pytest.fixture
def rows(noting):
    """The opcodes of the tensor core's work whose Python rows have run."""
    return noting(lambda index, opcode: opcode.startswith(ISSUES))


def run(issue, idesc=PLAIN, between="", group=1, commit=None, matrices=None, times=TIMES, **options):
    """uint32[128 * group, 16]: the first columns of D."""
    a, b = matrices or operands()
    out = np.zeros((128 * group, 16), np.uint32)
    commit = commit or (COMMIT if group == 1 else MULTICAST)
    begin = body("", idesc, A_TILE, B_TILE, group, COPY + SECOND)
    begin = begin[: begin.index("or.pred %p, %leader, %zero")]
    sync = "bar.sync 0;" if group == 1 else PAIR_SYNC
    loop = LOOP.format(issue=issue + commit, between=between, sync=sync, last=times - 2, times=times)
    read = "mad.lo.u32 %r43, %rank, 128, %tid;" + READ
    end = END if group == 1 else END.replace("cta_group::1", "cta_group::2").replace("bar.sync 0;", CLUSTER_SYNC)
    source = begin + loop + read + end
    launch(source, out, image(a), image(b), threads=128, shared=0x8000, grid=group, cluster=group, **options)
    return out


def operands():
    rng = np.random.default_rng(6)
    return tuple(rng.integers(-3, 4, (rows, 16)).astype(np.float16) for rows in (128, 16))


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


# Python does the first work of each instruction; the next begins with a plan.
FEW = 3


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_products(schedule, rows):
    a, b = operands()
    issue = (
        MMA + "mov.u32 %r8, 2; tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, {%r8, %r2, %r2, %r2}, %one;"
    )
    found = run(issue, schedule=schedule).view(np.float32)
    expected = 2 * TIMES * product(a, b)
    expected[1] /= 2
    assert np.array_equal(found, expected)
    if schedule == "late":
        assert len(rows) <= 3 * FEW


def test_scaled_products_and_copies(rows):
    """Scale factors of 2 for A, which tcgen05.cp brings from a tile, and for B."""
    a = np.full((128, 32), 0x22, np.uint8)
    a[4:64] = 128
    scales = descriptor(SHARED_BASE + TILE + 0x400, 128)
    issue = f"""
        mov.b64 %rank64, {scales}; mov.b64 %a, %b;
        tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfa], %rank64; tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %rank64;
        tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%tmem], %a, %b, %idesc, [%sfa], [%sfb], %p6;
    """
    found = run(issue, instruction("mxf4", 128, 16, scale="ue8m0"), matrices=(a, np.full((128, 32), 0x22, np.uint8)))
    assert np.array_equal(found.view(np.float32), np.full((128, 16), 4.0 * 64 * TIMES))
    assert len(rows) <= 4 * FEW


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_a_pair_and_arrivals_in_both_ctas(schedule, rows, monkeypatch):
    """The first arrival of a warp in another CTA is Python's."""
    revived, original = [], tcgen05.pending_arrival
    monkeypatch.setattr(tcgen05, "pending_arrival", lambda *taken: revived.append(1) or original(*taken))
    a, b = operands()
    issue = MMA.replace("::1", "::2")
    found = run(issue, instruction("f16", 256, 32), group=2, schedule=schedule).view(np.float32)
    assert np.array_equal(found, np.tile(TIMES * product(a, b), (2, 1)))
    if schedule == "late":
        assert len(rows) <= 2 * FEW and len(revived) <= 1


def test_many_before_a_wait(rows):
    """More than a queue holds at first, and more commits than compiled code has releases for."""
    issue = f"""
        mov.u32 %r44, 0; @%p6 bra MORE; mbarrier.init.shared.b64 [%bar+16], 1; fence.mbarrier_init.release.cluster;
    MORE: or.b32 %r45, %r40, %r44; setp.ne.u32 %p6, %r45, 0; {MMA} {COMMIT.replace("+8", "+16")}
        add.u32 %r44, %r44, 1; setp.lt.u32 %p9, %r44, 50; @%p9 bra MORE;
    """
    found = run(issue, times=4)
    assert np.array_equal(found.view(np.float32), 4 * 50 * product(*operands()))
    assert len(rows) <= 4 * FEW


def test_python_has_no_turn_for_each_mma(monkeypatch):
    """Compiled code does the work where no warp can run, or those that can only find that they have to wait."""
    calls, original = [], Runner.run_turns
    monkeypatch.setattr(Runner, "run_turns", lambda *a: (calls.append(1), original(*a))[1])
    run(MMA, times=4 * TURNS_AT_ONCE)
    warps, turns = 4, 4  # turns of a warp in an iteration, at most
    assert len(calls) < 4 * warps * turns + 20


def test_a_sanitized_launch_has_the_rows(rows):
    run(MMA, sanitizer=Sanitizer())
    assert len(rows) == 2 * TIMES


def test_a_later_launch_begins_with_the_plans(rows):
    """A warp's first work is Python's in any case."""
    run(MMA)
    first = len(rows)
    run(MMA)
    assert len(rows) - first <= first


WARP_1 = "setp.ne.u32 %p8, %r1, 1; not.pred %p9, %p7; or.pred %p8, %p8, %p9; @%p8 bra PASSED; {} PASSED:"
LOAD = "shl.b32 %r6, %r1, 21; add.u32 %r6, %r6, %tmem; tcgen05.ld.sync.aligned.32x32b.x1.b32 %r20, [%r6];"
# An own commit of warp 1, whose arrival comes when the work of warp 0 is done.
STALL = f"""
    setp.ne.u32 %p10, %tid, 32; @%p10 bra STALLED; mbarrier.init.shared.b64 [%bar+16], 1;
    fence.mbarrier_init.release.cluster; {COMMIT.replace("+8", "+16")}
STALLING: mbarrier.try_wait.parity.shared.b64 %p10, [%bar+16], 0; @!%p10 bra STALLING;
STALLED:
"""
UNCOMMITTED = f"@!%p7 bra COMMITTED; mbarrier.arrive.shared.b64 _, [%bar+8]; bra DONE; COMMITTED: {COMMIT} DONE:"
FREED = """
    not.pred %p9, %p7; or.pred %p9, %p9, %p1; @%p9 bra PASSED;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 256; PASSED:
"""
# A barrier of two arrivals, so that its phase outlives an iteration.
AT_FIRST = "@%p6 bra SKIPPED; mbarrier.init.shared.b64 [%bar+16], 2; fence.mbarrier_init.release.cluster; SKIPPED:"
ANOTHER = AT_FIRST + MMA + "{}" + COMMIT.replace("+8", "+16") + "{}"
TWO_LANES = """
    setp.ge.u32 %p10, %tid, 2; and.pred %p10, %p10, %p7; not.pred %p9, %p7; and.pred %p9, %p9, %p;
    or.pred %p, %p9, %p10;
"""
INVALID = "setp.eq.u32 %p8, %tid, 0; and.pred %p8, %p7, %p8; @%p8 mbarrier.inval.shared.b64 [%bar+8];"
WRONG = {
    "columns that have been freed": (MMA, {"between": FREED}, "is not allocated"),
    "bytes that a thread has stored": (
        MMA,
        {"between": f"@%p7 st.shared.b32 [%smem+{TILE}], %r2;"},
        "fence.proxy.async is missing",
    ),
    "an incomplete load of D": (MMA, {"between": WARP_1.format(LOAD)}, "tcgen05.wait::ld is missing"),
    "no commit": (
        MMA,
        {"commit": UNCOMMITTED, "between": WARP_1.format(STALL + LOAD)},
        "no tcgen05.commit behind it has arrived",
    ),
    "an mbarrier that has been invalidated": (MMA, {"between": INVALID}, "there is no mbarrier"),
    "an mbarrier that is invalidated while the commit is pending": (
        ANOTHER.format("", "@%p7 mbarrier.inval.shared.b64 [%bar+16];"),
        {},
        "after mbarrier.inval",
    ),
    "two lanes": (MMA, {"between": TWO_LANES}, "is executed by 2 lanes"),
    "a commit that is left out": (MMA, {"commit": f"@%p7 bra DONE; {COMMIT} DONE:"}, "last: tcgen05.commit of warp 0"),
    "a commit of a pair that is left out": (
        MMA.replace("::1", "::2"),
        {"idesc": instruction("f16", 256, 32), "group": 2, "commit": f"@%p7 bra DONE; {MULTICAST} DONE:"},
        "last: tcgen05.commit of warp 0",
    ),
    "an mbarrier of the other CTA that has been invalidated": (
        MMA.replace("::1", "::2"),
        {"idesc": instruction("f16", 256, 32), "group": 2, "between": "and.pred %p7, %p7, %p2;" + INVALID},
        "there is no mbarrier",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_python_refuses(name, rows):
    """Compiled code has begun and finished work of the instruction before the rule is broken."""
    issue, parts, reason = WRONG[name]
    with pytest.raises(EmulatorError, match=reason) as found:
        run(issue, **parts)
    seen = len(rows)
    with pytest.raises(EmulatorError) as plain:
        run(issue, **parts, kernels=False)
    assert str(found.value) == str(plain.value)
    assert 2 * seen <= len(rows) - seen


def test_an_mbarrier_whose_initialisation_the_commit_may_not_see():
    again = "@!%p7 bra KEPT; mbarrier.inval.shared.b64 [%bar+16]; mbarrier.init.shared.b64 [%bar+16], 2; KEPT:"
    with pytest.warns(OrderingWarning, match=r"tcgen05.commit .* fence.mbarrier_init is missing"):
        run(ANOTHER.format(again, ""))


NEW = "mbarrier.inval.shared.b64 [%bar+16]; mbarrier.init.shared.b64 [%bar+16], 1;"


@pytest.mark.parametrize("kernels", [True, False])
def test_commits_that_may_not_see_an_initialisation(kernels, monkeypatch):
    """A commit arrives at a new mbarrier in each iteration. Python performs the first, of which it warns."""
    monkeypatch.setattr(errors, "_reported", set())
    pending, original = [], MBarrier._check_visible
    monkeypatch.setattr(MBarrier, "_check_visible", lambda *a: (pending.append(1), original(*a))[1])
    with pytest.warns(OrderingWarning, match=r"tcgen05.commit .* fence.mbarrier_init is missing") as warned:
        found = run(ANOTHER.format(NEW, ""), kernels=kernels)
    assert np.array_equal(found.view(np.float32), TIMES * product(*operands()))
    assert len(warned) == 1 and len(pending) == (1 if kernels else TIMES)


@pytest.mark.parametrize("kernels", [True, False])
def test_scale_factors_whose_copies_differ(kernels, rows):
    """Lanes of warp 1 have other scale factors from the iteration before the last on."""
    tile = np.full((128, 32), 0x22, np.uint8)
    tile[4:64] = 128
    scales = descriptor(SHARED_BASE + TILE + 0x400, 128)
    issue = f"""
        mov.b64 %rank64, {scales}; mov.b64 %a, %b; @%p6 bra COPIED;
        tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfa], %rank64; tcgen05.cp.cta_group::1.32x128b.warpx4 [%sfb], %rank64;
    COPIED: tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%tmem], %a, %b, %idesc, [%sfa], [%sfb], %p6;
    """
    other = (
        "add.u32 %r6, %sfa, 0x200000; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6], %r2; tcgen05.wait::st.sync.aligned;"
    )
    idesc = instruction("mxf4", 128, 16, scale="ue8m0")
    with pytest.raises(EmulatorError, match="scale factors|SFA"):
        run(issue, idesc, WARP_1.format(other), matrices=(tile, tile), times=6, kernels=kernels)
    assert not kernels or len(rows) <= 4 * FEW
