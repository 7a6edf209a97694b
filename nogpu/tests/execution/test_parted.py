"""Lanes that part and meet within a turn: compiled code runs them in Python's order, and without Python."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import launch

THREADS, CTAS = 64, 4
# Each lane draws a number whenever it comes by: they tell the order of all lanes.
HEAD = f"""
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, {THREADS}, %tid; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %a0, %rd1;
    mov.u32 %r3, 0; mov.u32 %r10, smem; and.b32 %r4, %tid, 7; mov.u32 %r5, 0; mov.u32 %r6, 0; setp.eq.u32 %p9, %tid, 0;
    @%p9 st.shared.b32 [%r10], 0; @%p9 st.shared.b64 [%r10+1024], 0; bar.sync 0;
"""
DRAW = "atom.shared.add.u32 %r6, [%r10], 1; mad.lo.u32 %r3, %r3, 31, %r6;"
SELDOM = "and.b32 %r7, %r5, 63; setp.eq.u32 %p2, %r7, 9; @%p2 " + DRAW
STORE = "bar.sync 0; st.global.b32 [%rd1], %r3;"
LOOP = "{at}: {body} add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, {n}; @%p1 bra {at};"
BODIES = {
    "lanes leave a loop one after another": LOOP.format(at="A", body=DRAW, n="%r4"),
    "a loop of one thread": f"setp.ne.u32 %p2, %tid, 0; @%p2 bra B; {LOOP.format(at='A', body=DRAW, n=9)} B: {DRAW}",
    "loops on both sides": f"""setp.lt.u32 %p2, %r4, 3; @%p2 bra B; {LOOP.format(at="A", body=DRAW, n="%r4")} bra C;
        B: {LOOP.format(at="D", body=DRAW, n=5)} C: {DRAW}""",
    "a loop in a loop": LOOP.format(
        at="A", n="%r4", body=f"mov.u32 %r7, 0; B: {DRAW} add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r5; @%p2 bra B;"
    ),
    "a way back from the other side": f"""A: add.u32 %r5, %r5, 1; setp.eq.u32 %p1, %r5, %r4; @%p1 bra B; {DRAW}
        setp.lt.u32 %p2, %r5, 9; @%p2 bra A; bra C; B: {DRAW} setp.lt.u32 %p3, %r5, 6; @%p3 bra A; C: {DRAW}""",
    "loops longer than a turn": f"""mul.lo.u32 %r4, %r4, 40; {LOOP.format(at="A", body=SELDOM, n="%r4")} {DRAW}""",
    "a barrier of lanes": f"""setp.lt.u32 %p2, %r4, 3; @%p2 bra B; {LOOP.format(at="A", body=DRAW, n="%r4")}
        bar.warp.sync -1; bra C; B: {DRAW} bar.warp.sync -1; C: {DRAW}""",
    "an exit": f"""setp.eq.u32 %p2, %r4, 5; {LOOP.format(at="A", body=DRAW + "@%p2 exit;", n="%r4")} {DRAW}""",
    "exits of all, one after another": f"""setp.eq.u32 %p2, %r4, %r5; {
        LOOP.format(at="A", n=9, body=DRAW + "setp.eq.u32 %p2, %r4, %r5; @%p2 st.global.b32 [%rd1], %r3; @%p2 exit;")
    }""",
    "exits on both sides": f"""setp.lt.u32 %p2, %r4, 3; @%p2 bra B; setp.eq.u32 %p3, %r4, 6;
        {LOOP.format(at="A", body=DRAW + "@%p3 exit;", n="%r4")} bra C;
        B: {LOOP.format(at="D", body=DRAW + "setp.gt.u32 %p3, %r5, %r4; @%p3 exit;", n=2)} C: {DRAW}""",
    "an exit of one side": f"""setp.lt.u32 %p2, %r4, 3; @%p2 bra B; {LOOP.format(at="A", body=DRAW, n="%r4")} exit;
        B: {LOOP.format(at="D", body=DRAW, n=5)} {DRAW} bar.sync 0; {DRAW}""",
    "an exit ahead of Python": f"""setp.eq.u32 %p2, %r4, 5; @%p2 exit; {DRAW}
        {LOOP.format(at="A", body=DRAW + "cp.async.commit_group;", n="%r4")} {DRAW}""",
    "exits of warps ahead of Python": f"""setp.ge.u32 %p2, %tid, 32; setp.lt.u32 %p3, %r4, 5; @!%p2 bra B;
        {LOOP.format(at="A", body=DRAW, n=9)} @%p3 exit; {DRAW} exit; B: bar.sync 0;
        griddepcontrol.launch_dependents; griddepcontrol.launch_dependents; {DRAW}""",
    "Python": LOOP.format(at="A", body=DRAW + "cp.async.commit_group;", n="%r4") + DRAW,
}
IN_PYTHON = {
    "loops longer than a turn",
    "a barrier of lanes",
    "an exit ahead of Python",
    "exits of warps ahead of Python",
    "Python",
}


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("name", BODIES)
def test_the_order_is_that_of_python(name, schedule, pythons):
    """A sanitizer has Python part the lanes."""
    found = []
    for sanitizer in (None, Sanitizer()):
        out = np.zeros((CTAS, THREADS), np.uint32)
        before = len(pythons)
        counters = launch(
            HEAD + BODIES[name] + STORE, out, grid=CTAS, threads=THREADS, schedule=schedule, sanitizer=sanitizer
        )
        found.append((out.tolist(), counters.warp_instructions, counters.ctas))
        assert (len(pythons) - before > CTAS) == (sanitizer is not None or name in IN_PYTHON)
    assert found[0] == found[1] and np.unique(found[0][0]).size > 2


@pytest.mark.parametrize("kernels", [True, False])
def test_a_fault_of_some_lanes_names_its_place(kernels):
    body = LOOP.format(
        at="A", body="setp.eq.u32 %p2, %r5, 4; @%p2 mov.b64 %rd1, 64; st.global.b32 [%rd1], %r5;", n="%r4"
    )
    out = np.zeros((CTAS, THREADS), np.uint32)
    with pytest.raises(EmulatorError, match="store of 4 bytes at 0x40") as error:
        launch(HEAD + body, out, grid=CTAS, threads=THREADS, kernels=kernels)
    assert error.value.cta == (0, 0, 0) and out[0, 32:40].tolist() == [0, 0, 1, 2, 3, 3, 3, 3]
