"""Lanes that go on alone behind a loop in which others spin: each has registers of its own."""

import numpy as np
import pytest

from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import launch

THREADS, CTAS = 6, 1
HEAD = f"""
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, {THREADS}, %tid; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %a0, %rd1;
    mov.u32 %r10, smem; setp.eq.u32 %p9, %tid, 0; @%p9 st.shared.b32 [%r10], 0; @%p9 st.shared.b32 [%r10+4], 0;
    and.b32 %r20, %tid, 0; mad.lo.u32 %r21, %tid, 4, %r10; st.shared.b32 [%r21+8], 0; bar.sync 0;
"""
LOCK = "{at}: atom.shared.cas.b32 %r4, [%r10], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra {at};"
UNLOCK = "atom.shared.exch.b32 %r5, [%r10], 0;"
A, B = (LOCK.format(at=at) for at in "AB")
# Each stores 1 if a lane's %r3 has been written by that lane alone.
BODIES = {
    "a word": f"mov.u32 %r3, 0; {A} add.u32 %r3, %r3, 1; {UNLOCK}",
    "a word of 64 bits": f"mov.b64 %rd2, 0; {A} add.s64 %rd2, %rd2, 1; {UNLOCK} cvt.u32.u64 %r3, %rd2;",
    "a row": f"mov.u32 %r3, %r20; {A} add.u32 %r3, %r3, 1; {UNLOCK}",
    "arithmetic behind the lock": f"""mov.u32 %r3, 5; mov.u32 %r6, 3; {A} {UNLOCK} add.u32 %r6, %r6, 4;
        bar.warp.sync -1; add.u32 %r3, %r3, %r6; mul.lo.u32 %r3, %r3, 5; sub.u32 %r3, %r3, 59;""",
    "a second lock": f"mov.u32 %r3, 3; {A} sub.u32 %r3, %r3, 1; {UNLOCK} {B} sub.u32 %r3, %r3, 1; {UNLOCK}",
    "a predicate": f"""setp.eq.u32 %p3, %r1, 999; {A} not.pred %p3, %p3; {UNLOCK} selp.u32 %r3, 1, 2, %p3;""",
    "a predicate of lanes": f"""setp.eq.u32 %p3, %r20, 1; {A} not.pred %p3, %p3; {UNLOCK} selp.u32 %r3, 1, 2, %p3;""",
    "a guard": f"""mov.u32 %r3, 0; setp.eq.u32 %p3, %r1, 999; {A} @!%p3 add.u32 %r3, %r3, 1; not.pred %p3, %p3;
        {UNLOCK}""",
    "a branch": f"""mov.u32 %r3, 0; setp.eq.u32 %p3, %r1, 999; {A} @%p3 bra C; add.u32 %r3, %r3, 1; C:
        not.pred %p3, %p3; {UNLOCK}""",
    "a loop counter": f"""mov.u32 %r3, 0; mov.u32 %r6, 0; {A} C: add.u32 %r3, %r3, 1; add.u32 %r6, %r6, 1;
        setp.lt.u32 %p2, %r6, 9; @%p2 bra C; {UNLOCK} sub.u32 %r3, %r3, 8;""",
    "a loop around the lock": f"""mov.u32 %r3, 0; mov.u32 %r6, 0; C: {A} add.u32 %r3, %r3, 1; {UNLOCK}
        add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra C; sub.u32 %r3, %r3, 2;""",
    "a load from one address": f"""{A} ld.shared.b32 %r6, [%r10+4]; add.u32 %r7, %r6, 1; st.shared.b32 [%r10+4], %r7;
        {UNLOCK} bar.warp.sync -1; shl.b32 %r7, %r6, 2; add.u32 %r7, %r7, %r10; atom.shared.add.u32 %r3, [%r7+8], 1;
        add.u32 %r3, %r3, 1;""",
    "the carry flag": f"""add.cc.u32 %r7, 0, 0; {A} addc.u32 %r6, 0, 0; xor.b32 %r6, %r6, 1;
        add.cc.u32 %r7, %r6, 0xffffffff; {UNLOCK} addc.u32 %r3, 0, 0;""",
}
STORE = "st.global.b32 [%rd1], %r3;"


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize("name", BODIES)
def test_each_lane_has_its_own_registers(name, schedule):
    out = np.zeros((CTAS, THREADS), np.uint32)
    launch(HEAD + BODIES[name] + STORE, out, grid=CTAS, threads=THREADS, schedule=schedule)
    assert np.unique(out).tolist() == [1]


@pytest.mark.parametrize(
    "options",
    [{"sanitizer": Sanitizer()}, {"kernels": False}, {"parted": True}],
    ids=["sanitizer", "without kernels", "parted"],
)
@pytest.mark.parametrize("name", ["a word", "a predicate"])
def test_each_lane_has_its_own_registers_in_other_translations(name, options):
    out = np.zeros((CTAS, THREADS), np.uint32)
    launch(HEAD + BODIES[name] + STORE, out, grid=CTAS, threads=THREADS, **options)
    assert np.unique(out).tolist() == [1]


SPIN = "{at}: atom.global.cas.b32 %r4, [%a0], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra {at};"
COUNT = """membar.gl; ld.volatile.global.u32 %r5, [%a0+4]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%a0+4], %r5;
    membar.gl; atom.global.exch.b32 %r6, [%a0], 0;"""
LOCKS = {
    "a loop until the lock is taken": SPIN.format(at="A") + COUNT,
    "a branch around what the lock guards": f"""A: atom.global.cas.b32 %r4, [%a0], 0, 1; setp.ne.u32 %p1, %r4, 0;
        @%p1 bra B; {COUNT} bra C; B: bra.uni A; C:""",
    "a loop until all are done": f"""mov.u32 %r7, 0; A: atom.global.cas.b32 %r4, [%a0], 0, 1; setp.ne.u32 %p1, %r4, 0;
        @%p1 bra B; {COUNT} mov.u32 %r7, 1; B: setp.eq.u32 %p2, %r7, 0; @%p2 bra A;""",
    "two locks in turn": SPIN.format(at="A") + COUNT + SPIN.format(at="B") + "atom.global.exch.b32 %r6, [%a0], 0;",
}


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize("ctas,threads", [(1, 64), (3, 64), (1, 1024), (50, 64)])
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_of_many_warps_soon_changes_hands(name, ctas, threads, schedule):
    """Each thread costs some hundred warp instructions, those that spin meanwhile included."""
    words = np.zeros(4, np.uint32)
    limit = 1000 * ctas * threads + 20000
    launch(LOCKS[name], words, grid=ctas, threads=threads, schedule=schedule, max_instructions=limit)
    assert words[:2].tolist() == [0, ctas * threads]
