"""Lenient runs keep the latencies of copies and MMAs in proportion, as on hardware; other runs take any legal order."""

import numpy as np
import pytest

from nogpu import errors
from nogpu.errors import EmulatorError
from nogpu.ops import copy_operands
from tests.support.small_kernels import aligned, launch

SEEDS = [f"random:{seed}" for seed in range(1, 25)]

# One thread issues {first} and then {second}, waits for mbarrier 1 and then looks whether mbarrier 0 is complete.
IN_TURN = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE;
    mbarrier.init.shared.b64 [%r11], 1; mbarrier.init.shared.b64 [%r11+8], 1; fence.mbarrier_init.release.cluster;
    {first} {second}
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r11+8], 0; @!%p2 bra W;
    mbarrier.test_wait.parity.shared.b64 %p3, [%r11], 0; selp.u32 %r1, 1, 0, %p3; st.global.b32 [%a0], %r1;
V:  mbarrier.try_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra V;
DONE:
"""
LOAD = (
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r11+{place}], 64; "
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10+{place}*8], [%a1], 64, [%r11+{place}];"
)
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11+{place}];"


def seen(first, second):
    """True if the first operation was complete when the second one was, under any seed."""
    found = set()
    for schedule in SEEDS:
        out = np.full(1, 9, np.uint32)
        body = IN_TURN.format(first=first.format(place=0), second=second.format(place=8))
        launch(body, out, aligned(16), schedule=schedule)
        found.add(int(out[0]))
    return found


@pytest.mark.parametrize("first", [COMMIT, LOAD], ids=["commit", "load"])
def test_a_load_lands_after_what_was_issued_before_it(first, monkeypatch):
    """The load follows the tensor core's work and earlier loads of the CTA; their order is free in a strict run."""
    assert seen(first, LOAD) == {0, 1}
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    assert seen(first, LOAD) == {1}


def test_the_tensor_core_does_not_wait_for_loads(monkeypatch):
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    assert seen(LOAD, COMMIT) == {0, 1}


# A commit is under way when its mbarrier is initialised anew.
ANEW = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE;
    mbarrier.init.shared.b64 [%r11], 2; fence.mbarrier_init.release.cluster; mbarrier.arrive.shared.b64 _, [%r11];
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];
    {inval} mbarrier.init.shared.b64 [%r11], 1; mbarrier.arrive.shared.b64 _, [%r11];
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra W;
    mov.u32 %r1, 1; st.global.b32 [%a0], %r1;
DONE:
"""


@pytest.mark.filterwarnings("ignore::nogpu.errors.OrderingWarning")
def test_a_commit_that_comes_behind_a_new_initialisation(monkeypatch):
    """A lenient run counts the commit for the earlier mbarrier. If mbarrier.inval ends that, it is an error, too."""
    out = np.zeros(1, np.uint32)
    with pytest.raises(EmulatorError, match="of a live barrier without mbarrier.inval"):
        launch(ANEW.format(inval=""), out, schedule="late")
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    with pytest.warns(errors.OrderingWarning, match="tcgen05.commit of .* after that has been initialised anew"):
        launch(ANEW.format(inval=""), out, schedule="late")
    assert out[0] == 1
    with pytest.raises(EmulatorError, match="tcgen05.commit of .* after mbarrier.inval"):
        launch(ANEW.format(inval="mbarrier.inval.shared.b64 [%r11];"), out, schedule="late")


# A commit, for which nobody waits, is under way when its mbarrier ends.
ENDED = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; @%p1 bra DONE;
    mbarrier.init.shared.b64 [%r11], 1; mbarrier.init.shared.b64 [%r11+8], 1; fence.mbarrier_init.release.cluster;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11];
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r11+8];
    mbarrier.inval.shared.b64 [%r11]; {use}
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r11+8], 0; @!%p2 bra W;
    mov.u32 %r1, 1; st.global.b32 [%a0], %r1;
DONE:
"""


@pytest.mark.filterwarnings("ignore::nogpu.errors.OrderingWarning")
def test_a_commit_that_comes_behind_the_end_of_its_mbarrier(monkeypatch):
    """A lenient run goes on if nobody has used the eight bytes since: what the commit changes there nobody sees."""
    late = "tcgen05.commit of .* after mbarrier.inval"
    monkeypatch.setattr(errors, "_reported", set())
    out = np.zeros(1, np.uint32)
    with pytest.raises(EmulatorError, match=late):
        launch(ENDED.format(use=""), out, schedule="late")
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    with pytest.warns(errors.OrderingWarning, match=late):
        launch(ENDED.format(use=""), out, schedule="late")
    assert out[0] == 1
    for use in ("st.shared.u8 [%r11+7], 0;", "mbarrier.init.shared.b64 [%r11], 1;"):
        with pytest.raises(EmulatorError, match=late):
            launch(ENDED.format(use=use), out, schedule="late")


# CTA 1 sends to both CTAs at once; CTA 0 initialises its mbarrier {late}.
EARLY = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; setp.ne.u32 %p2, %rank, 0; mov.b16 %h1, 3;
    @%p1 bra DONE; @%p2 bra INIT; {late}
INIT: mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 256; @!%p2 bra W;
    {load}.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [%a1{place}], {size}[%r11], %h1;
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra W;
    ld.shared.b32 %r1, [%r10+252]; mad.wide.u32 %rd1, %rank, 4, %a0; st.global.b32 [%rd1], %r1;
DONE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
BULK = {"load": "cp.async.bulk.shared::cluster.global", "place": "", "size": "256, "}
AFTER_A_WHILE = "mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 2000; @%p3 bra L;"
NEVER = "L: ld.volatile.shared.b32 %r3, [%r10]; setp.ne.u32 %p3, %r3, 5; @%p3 bra L;"


def early(late, schedule):
    out, source = np.zeros(2, np.uint32), aligned(64)
    source[63] = 5
    launch(EARLY.format(late=late, **BULK), out, source, grid=2, cluster=2, schedule=schedule)
    return out.tolist()


@pytest.mark.parametrize("schedule", ["late", "eager", *SEEDS[:8]])
def test_bytes_wait_for_the_barrier_of_a_cta_that_has_just_started(schedule, monkeypatch):
    """A strict run fails; a lenient one warns, and the bytes land after the initialisation."""
    with pytest.raises(EmulatorError, match="where this warp has not heard of that CTA"):
        early(AFTER_A_WHILE, schedule)
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    monkeypatch.setattr(errors, "_reported", set())
    with pytest.warns(errors.OrderingWarning, match="where this warp has not heard of that CTA"):
        assert early(AFTER_A_WHILE, schedule) == [5, 5]


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.filterwarnings("ignore::nogpu.errors.OrderingWarning")
def test_bytes_do_not_wait_for_a_barrier_for_ever(schedule, monkeypatch):
    """CTA 0 polls a word, or ends, and never comes to its mbarrier.init."""
    monkeypatch.setattr(copy_operands, "PATIENCE", 100)
    monkeypatch.setenv("NOGPU_LENIENT", "1")
    with pytest.raises(EmulatorError, match="there is no mbarrier at shared offset"):
        early(NEVER, schedule)
    with pytest.raises(EmulatorError, match="there is no mbarrier at shared offset"):
        early("bra DONE;", schedule)
