"""Loads and stores of tensor memory that complete late, and the fences and commits that order accesses."""

import numpy as np
import pytest

from nogpu.compiler.plan import plan
from nogpu.errors import EmulatorError
from tests.support.small_kernels import entry, launch, store

SCHEDULES = ["late", "eager", "random:1", "random:2"]

# Four warps; warp 0 allocates. %r12: the address of the warp's own quadrant, which holds its thread numbers.
SETUP = """
    mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.ne.u32 %p1, %r11, 0; mov.u32 %r1, 0; @%p1 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;
ALLOCATED: bar.sync 0; ld.shared.b32 %r12, [%r10]; shl.b32 %r13, %r11, 21; add.u32 %r12, %r12, %r13;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %tid; tcgen05.wait::st.sync.aligned;
"""
FREE = """
    bar.sync 0; @%p1 bra FREED; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, 64;
FREED:
"""


def lanes(body, threads=128, schedule="late"):
    out = np.full(threads, 0xDEAD, np.uint32)
    launch(SETUP + body + FREE + store("%r1"), out, threads=threads, schedule=schedule)
    return out.tolist()


LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r1, [%r12];"
OVERWRITE = "mov.u32 %r20, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %r20; tcgen05.wait::st.sync.aligned;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "use", ["tcgen05.wait::ld.sync.aligned;", "add.u32 %r1, %r1, 0;", "setp.eq.u32 %p5, %r1, 0;", ""]
)
def test_a_load_is_over_when_it_is_waited_for_or_used(schedule, use):
    """Loads and stores of a warp complete in order, so a store may follow the load."""
    assert lanes(LOAD + use + OVERWRITE, schedule=schedule) == list(range(128))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_load_is_used_behind_a_branch_and_in_a_loop(schedule):
    body = """
        mov.u32 %r21, 0; mov.u32 %r22, 0;
    AGAIN: tcgen05.ld.sync.aligned.32x32b.x1.b32 %r23, [%r12]; setp.gt.u32 %p3, %r21, 0; @!%p3 bra SKIP;
        add.u32 %r22, %r22, %r23;
    SKIP: add.u32 %r21, %r21, 1; bar.sync 1; setp.lt.u32 %p4, %r21, 3; @%p4 bra AGAIN; add.u32 %r1, %r22, %r23;
    """
    assert lanes(body, schedule=schedule) == [3 * i for i in range(128)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_write_behind_a_load_of_the_same_register_stays(schedule):
    assert lanes(LOAD + "mov.u32 %r1, 5; tcgen05.wait::ld.sync.aligned;", schedule=schedule) == [5] * 128


def uses(body):
    """The first uses as {text: texts of the loads}."""
    planned = plan(entry(SETUP + body + FREE + store("%r1")))
    texts = [instruction.text for instruction in planned.entry.instructions]
    found = planned.first_uses
    return {texts[index].split()[0]: {texts[load].split()[1] for load in loads} for index, loads in found.items()}


def test_first_uses():
    loads = "".join(f"tcgen05.ld.sync.aligned.32x32b.x1.b32 %r{n}, [%r12];" for n in (21, 22))
    assert uses(loads + "xor.b32 %r1, %r22, %r21; and.b32 %r2, %r21, 1;") == {"xor.b32": {"%r21,", "%r22,"}}
    assert uses(loads + "tcgen05.wait::ld.sync.aligned; and.b32 %r2, %r21, 1;") == {}
    assert uses(loads + "mov.u32 %r21, 3; and.b32 %r2, %r21, 1;") == {"mov.u32": {"%r21,"}}
    branch = "setp.eq.u32 %p3, %r11, 0; @%p3 bra A; tcgen05.wait::ld.sync.aligned; A: and.b32 %r2, %r21, 1;"
    assert uses(loads + branch) == {"and.b32": {"%r21,"}}


@pytest.mark.parametrize("schedule", ["late", "random:1", "random:3"])
def test_a_store_is_not_there_before_it_is_waited_for(schedule):
    """Warps 0 and 4 reach the same quadrant. Warp 4 sees the last store of warp 0 only after that warp's wait::st."""
    body = """
        setp.ne.u32 %p2, %r11, 0; mov.u32 %r20, 9; @%p2 bra STORED;
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], %r20; {wait}
    STORED: bar.sync 1; setp.ne.u32 %p3, %r11, 4; @%p3 bra END; sub.u32 %r12, %r12, 0x800000;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 %r1, [%r12]; tcgen05.wait::ld.sync.aligned;
    END: bar.sync 1;
    """
    setup = SETUP.replace("tcgen05.st", "setp.eq.u32 %p7, %r11, 4; @%p7 bra GO; tcgen05.st") + "GO:"

    def run(wait):
        out = np.zeros(160, np.uint32)
        launch(setup + body.format(wait=wait) + FREE + store("%r1"), out, threads=160, schedule=schedule)
        return out[128:].tolist()

    assert run("tcgen05.wait::st.sync.aligned;") == [9] * 32
    if schedule == "late":
        with pytest.raises(EmulatorError, match="tcgen05.wait::st is missing") as error:
            run("")
        assert error.value.warp == 4 and error.value.ptx_text.startswith("tcgen05.ld")


# Warp 0 reads 32 words per lane of columns 0-31, arrives, and warp 1's lane 0 then lets tcgen05.cp overwrite them.
READ_THEN_COPY = """
    setp.ne.u32 %p2, %tid, 32; @!%p1 mov.u32 %r1, 0; @%p1 bra COPY; {after}
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {{%r1, %r2, %r3, %r4}}, [%r12]; {wait} {before} bar.arrive 1, 64; bra DONE;
COPY: setp.ne.u32 %p4, %r11, 1; @%p4 bra DONE; bar.sync 1, 64; {copier_after} @%p2 bra DONE;
    mbarrier.init.shared.b64 [%r10+1024], 1; fence.mbarrier_init.release.cluster;
    add.u32 %r14, %r10, 2048; shr.u32 %r14, %r14, 4; and.b32 %r14, %r14, 0x3fff; cvt.u64.u32 %rd2, %r14;
    or.b64 %rd2, %rd2, 0x0000400800000000; ld.shared.b32 %r15, [%r10];
    tcgen05.cp.cta_group::1.32x128b.warpx4 [%r15], %rd2;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10+1024];
W:  mbarrier.try_wait.parity.shared.b64 %p5, [%r10+1024], 0; @!%p5 bra W;
DONE:
"""
LD_WAIT, BEFORE = "tcgen05.wait::ld.sync.aligned;", "tcgen05.fence::before_thread_sync;"
AFTER = "tcgen05.fence::after_thread_sync;"
FENCED = {"wait": LD_WAIT, "before": BEFORE, "after": "", "copier_after": AFTER}
# The stores of SETUP are those of other warps in the copier's view, and have to be released like the load.
STORED = f"{BEFORE} bar.sync 0; {AFTER}"


def read_then_copy(schedule="late", setup=STORED, **parts):
    out = np.zeros(128, np.uint32)
    body = SETUP + setup + READ_THEN_COPY.format(**{**FENCED, **parts}) + FREE + store("%r1")
    launch(body, out, threads=128, schedule=schedule)
    return out[:32].tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_accesses_in_order(schedule):
    assert read_then_copy(schedule) == list(range(32))


@pytest.mark.parametrize("schedule", ["late", "random:1"])
@pytest.mark.parametrize("fenced", [True, False])
def test_a_load_that_is_given_back_before_it_is_complete(schedule, fenced):
    """The wait is needed with all fences and without any."""
    parts = {} if fenced else {"before": "", "copier_after": "", "setup": "bar.sync 0;"}
    assert read_then_copy("eager", **parts) == read_then_copy("late", **parts) == list(range(32))
    if schedule == "late":
        with pytest.raises(EmulatorError, match="tcgen05.wait::ld is missing"):
            read_then_copy(schedule, wait="", **parts)


def test_kernels_without_fences_are_not_held_to_them():
    assert read_then_copy(before="", copier_after="", setup="bar.sync 0;") == list(range(32))
