"""bar.sync in compiled code of CTAs that Python keeps: equal to Python's, and without Python."""

import re

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from tests.support.small_kernels import launch

THREADS = 128
TO_PYTHON = "griddepcontrol.launch_dependents;"  # Python keeps the CTA from here on
HEAD = f"""
    mov.u32 %r10, smem; mad.lo.u32 %r11, %tid, 4, %r10; xor.b32 %r12, %r11, 256; shr.u32 %r5, %tid, 5;
    mov.u32 %r1, %ctaid.x; mad.lo.u32 %r3, %r1, {THREADS}, %tid; mul.wide.u32 %rd1, %r3, 4; add.s64 %rd1, %a0, %rd1;
    {TO_PYTHON}
"""
FIRST = "setp.lt.u32 %p1, %tid, 32;"
STORE = "st.global.b32 [%rd1], {};"
LOOP = """
    mov.u32 %r20, 0; mov.u32 %r6, 0;
AGAIN: st.shared.b32 [%r11], %r20; {barrier}; ld.shared.b32 %r7, [%r12]; add.u32 %r6, %r6, %r7; {barrier};
    add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, 9; @%p9 bra AGAIN;
"""


def run(body, ctas=2, **options):
    out = np.zeros((ctas, THREADS), np.uint32)
    launch(HEAD + body, out, grid=ctas, threads=THREADS, **options)
    return out


def refusal(body, **options):
    with pytest.raises(EmulatorError) as error:
        run(body, **options)
    return str(error.value)


def called(rows):
    return [opcode for opcode in rows if opcode.startswith("bar")]


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("barrier", ["bar.sync 0", "bar.sync 3, 128", "barrier.sync.aligned 15", "barrier.sync 1, 128"])
def test_without_python(barrier, schedule, rows):
    found = run(LOOP.format(barrier=barrier) + STORE.format("%r6"), schedule=schedule)
    assert (found == 36).all() and not called(rows)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("schedule", ["late", "eager", "random:3"])
@pytest.mark.parametrize(
    "body",
    [
        # Two pairs of warps, each at a barrier of its own.
        "setp.ge.u32 %p2, %tid, 64; @%p2 bra OTHER; bar.sync 1, 64; bra ON; OTHER: bar.sync 2, 64; ON: bar.sync 0;",
        # The exit of a warp completes the barrier at which the others wait.
        "bar.sync 0; @!%p1 bra ON; mov.u32 %r20, 0; SPIN: add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, 2000;"
        f"@%p9 bra SPIN; {STORE.format('%r3')} ret; ON: bar.sync 0;",
        # Warps that only arrive, ahead of those that wait and behind them.
        "@%p1 bra ON; bar.sync 1, 128; bra OUT; ON: bar.arrive 1, 128; OUT: bar.sync 2, 128;",
        "@!%p1 bra ON; bar.sync 1, 128; bra OUT; ON: bar.arrive 1, 128; OUT: bar.sync 2;",
        # Votes between barriers.
        "bar.sync 0; bar.red.popc.u32 %r8, 0, %p1; sub.u32 %r8, %r8, 32; add.u32 %r3, %r3, %r8; bar.sync 0;",
        # A warp that has parted.
        "and.b32 %r8, %tid, 1; setp.eq.u32 %p2, %r8, 1; bar.sync 0; @!%p1 bra ALL; @%p2 bra ODD; barrier.sync 0;"
        "bra ON; ODD: barrier.sync 0; ON: bra OUT; ALL: barrier.sync 0; OUT: bar.sync 0;",
    ],
)
def test_beside_what_python_does(body, schedule, kernels):
    found = run(FIRST + body + STORE.format("%r3"), schedule=schedule, kernels=kernels)
    assert (found.ravel() == np.arange(2 * THREADS)).all()


@pytest.mark.parametrize(
    "body, reason",
    [
        ("@%p1 bra ON; bar.sync 1, 64; ON: bar.sync 1, 128;", "with 128 threads while|with 64 threads while"),
        ("@%p1 bra OUT; bar.sync 0, 128; OUT:", "the kernel hangs"),
        ("bar.sync 0; @%p1 bra ON; bar.sync 2; ON: bar.sync 0;", "the kernel hangs"),
        ("bar.sync 0, 96;", "128 threads have arrived|96 of 96|the kernel hangs"),
        ("mov.u32 %r8, 0; bar.sync 0; @%p1 bra ON; bar.sync 1, 128; ON: bar.sync 1, 96;", "threads while"),
    ],
)
def test_what_is_wrong_reads_as_python_has_it(body, reason):
    texts = [refusal(FIRST + body + STORE.format("%r3"), kernels=kernels) for kernels in (True, False)]
    assert texts[0] == texts[1]
    assert re.search(reason, texts[0])


PUBLISH = """
    {early} @!%p1 st.shared.b32 [%r11], %r3; {late} setp.ne.u32 %p2, %tid, 0; @%p2 bra DONE;
    fence.proxy.async.shared::cta; cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r10], 512;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE:
"""


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_a_barrier_orders_stores_before_a_fence(schedule, kernels):
    """The fence of a warp that has waited since counts for the stores of the others."""
    options = {"schedule": schedule, "kernels": kernels}
    body = FIRST + "bar.sync 0; bar.sync 0;" + PUBLISH
    assert run(body.format(early="", late="bar.sync 0;"), ctas=1, **options)[0, 32:].any()
    text = refusal(body.format(early="bar.sync 0;", late=""), ctas=1, **options)
    assert "reads shared offset" in text and "fence.proxy.async is missing" in text
