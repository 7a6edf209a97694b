"""CTAs that compiled code keeps: equal to Python's, and without Python."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.execution import kept_ctas
from nogpu.execution.device import Device
from nogpu.execution.kept_ctas import SEATS, KeptCta
from nogpu.hardware.cluster import Cluster
from nogpu.hardware.properties import LaunchConfig
from tests.support.small_kernels import entry, launch

THREADS = 64
HEAD = f"""
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %smid; mad.lo.u32 %r3, %r1, {THREADS}, %tid; mul.wide.u32 %rd1, %r3, 4;
    add.s64 %rd1, %a0, %rd1; mov.u32 %r10, smem; mad.lo.u32 %r11, %tid, 4, %r10; xor.b32 %r12, %r11, 128;
"""
MEET = "st.shared.b32 [%r11], %r3; bar.sync 0; ld.shared.b32 %r4, [%r12]; {} bar.sync 0;"
COPY = "cp.async.ca.shared.global [{}], [%rd1], 4;"
STORE = "st.global.b32 [%rd1], {};"


def run(body, ctas, **options):
    """(uint32[ctas, THREADS], the launch's counters) of HEAD and a body."""
    out = np.zeros((ctas, THREADS), np.uint32)
    counters = launch(HEAD + body, out, grid=ctas, threads=THREADS, **options)
    return out, counters


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize(
    "body, expected",
    [
        (MEET.format("") + STORE.format("%r4"), lambda cta, thread: THREADS * cta + (thread ^ 32)),
        # The shared memory and the registers of a CTA are those of a new one.
        (
            "ld.shared.b32 %r4, [%r11]; st.shared.b32 [%r11], %r1; and.b32 %r4, %r4, %r30; mov.u32 %r30, 0;"
            + STORE.format("%r4"),
            lambda cta, thread: 0xFFFFFFFF + 0 * (cta + thread),
        ),
        (STORE.format("%r2"), lambda cta, thread: cta % 148 + 0 * thread),
        (
            STORE.format("%r3") + COPY.format("%r11") + "cp.async.commit_group; cp.async.wait_group 0; bar.sync 1, 64;"
            "ld.shared.b32 %r4, [%r12]; bar.sync 0;" + STORE.format("%r4"),
            lambda cta, thread: THREADS * cta + (thread ^ 32),
        ),
        # A predicate ignores the sources of some lanes.
        *(
            (
                "and.b32 %r5, %tid, 3; setp.eq.u32 %p2, %r5, 1;"
                + STORE.format("%r3")
                + COPY.format("%r11").replace("4;", f"4, {ignored};")
                + "cp.async.wait_all; bar.sync 0; ld.shared.b32 %r4, [%r12];"
                + STORE.format("%r4"),
                lambda cta, thread, zero=zero: np.where(zero(thread), 0, THREADS * cta + (thread ^ 32)),
            )
            for ignored, zero in (("%p2", lambda x: x % 4 == 1), ("!%p2", lambda x: x % 4 != 1))
        ),
        # The exit of the other warp completes the barrier.
        (
            "setp.ge.u32 %p1, %tid, 32; @%p1 ret; bar.sync 0;" + STORE.format("%r3"),
            lambda cta, thread: np.where(thread < 32, THREADS * cta + thread, 0),
        ),
        ("atom.global.exch.b32 %r5, [%rd1], %r3;", lambda cta, thread: THREADS * cta + thread),
        # Some lanes of a warp exit, the others soon after them.
        (
            "setp.ne.u32 %p1, %tid, 3; @%p1 bra OUT;" + STORE.format("%r3") + "OUT:",
            lambda cta, thread: np.where(thread == 3, THREADS * cta + thread, 0),
        ),
        (
            "and.b32 %r5, %tid, 3; setp.eq.u32 %p1, %r5, 0; @%p1 ret; setp.eq.u32 %p2, %r5, 1; @!%p2 bra ON;"
            + "add.u32 %r3, %r3, 5; ON: setp.eq.u32 %p3, %r5, 2; @%p3 bra OUT;"
            + STORE.format("%r3")
            + "OUT:",
            lambda cta, thread: np.where(thread % 2, THREADS * cta + thread + np.where(thread % 4 == 1, 5, 0), 0),
        ),
    ],
)
def test_ctas_without_python(body, expected, schedule, pythons):
    out, counters = run(body, 300, schedule=schedule)
    assert np.array_equal(out, expected(*np.ogrid[:300, :THREADS]))
    assert len(pythons) < 30 and counters.ctas == 300
    assert counters.warp_instructions == 300 * run(body, 1, schedule=schedule)[1].warp_instructions


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize(
    "rows, expected",
    [
        ("activemask.b32 %r5;", 8),
        ("shfl.sync.idx.b32 %r5, %r6, 3, 31, -1;", 3),  # of a lane that has exited nothing is waited for
        ("vote.sync.ballot.b32 %r5, %p1, -1;", 0),
    ],
)
def test_lanes_that_have_exited(rows, expected, schedule):
    out, _ = run(
        "and.b32 %r6, %tid, 31; setp.ne.u32 %p1, %r6, 3; @%p1 ret;" + rows + STORE.format("%r5"), 5, schedule=schedule
    )
    assert np.array_equal(out, np.where(np.arange(THREADS) % 32 == 3, expected, 0) + np.zeros((5, 1), np.uint32))


@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
@pytest.mark.parametrize("rows", ["fence.proxy.async.global;", "bar.sync 1, %r40;"])
def test_python_takes_over(rows, schedule):
    """The second warp of CTA 123 needs Python while the first one waits, or has exited."""
    choose = "mov.u32 %r40, 64; setp.eq.u32 %p1, %r1, 123; setp.ge.and.u32 %p1, %tid, 32, %p1; @!%p1 bra OTHER;"
    if rows.startswith("bar"):
        choose = choose.replace("setp.ge.and.u32 %p1, %tid, 32, %p1; ", "")
    waiting, _ = run(f"{choose}{rows} OTHER: {MEET.format('')}{STORE.format('%r4')}", 200, schedule=schedule)
    assert np.array_equal(waiting, np.arange(200 * THREADS).reshape(200, THREADS) ^ 32)
    if not rows.startswith("bar"):
        gone, _ = run(f"{choose}{rows} {STORE.format('%r3')} OTHER:", 200, schedule=schedule)
        assert np.flatnonzero(gone).tolist() == list(range(123 * THREADS + 32, 124 * THREADS))


@pytest.mark.parametrize("kernels", [True, False])
def test_a_fault_names_its_cta(kernels):
    far = "setp.eq.u32 %p1, %r1, 123; @%p1 mov.b64 %rd1, 64;"
    with pytest.raises(EmulatorError, match="store of 4 bytes at 0x40") as error:
        run(MEET.format("") + far + STORE.format("%r4"), 200, kernels=kernels)
    assert error.value.cta == (123, 0, 0)


def test_a_hang_is_reported_as_python_reports_it():
    part = "setp.ge.u32 %p1, %tid, 32; setp.eq.and.u32 %p1, %r1, 123, %p1; @!%p1 bra L; bar.sync 1; L: bar.sync 0;"
    texts = []
    for kernels in (True, False):
        with pytest.raises(EmulatorError, match="32 of 64 threads, arrived: warp 0") as error:
            run(MEET.format("") + part, 200, kernels=kernels)
        texts.append(str(error.value))
    assert texts[0] == texts[1] and "CTA (123, 0, 0)" in texts[0]


def test_a_run_of_ctas_can_be_stopped():
    with pytest.raises(EmulatorError, match=r"stopped after \d+ warp instructions"):
        run(MEET.format(""), 1 << 14, max_instructions=100_000)


def test_what_compiled_code_kept_is_forgotten(monkeypatch):
    """Its state is freed once Python keeps the CTA: no warp may point at it."""
    taken, take_over = [], KeptCta.take_over

    def spied(self):
        take_over(self)
        taken.extend(warp.registers.context.cta for warp in self.cluster.warps)

    monkeypatch.setattr(KeptCta, "take_over", spied)
    run("griddepcontrol.launch_dependents;" + STORE.format("%r3"), 4)
    assert len(taken) >= 4 and not any(taken)


class Launches:
    """A device with results, on which kernels are launched, and how many clusters have been made for them."""

    def __init__(self, monkeypatch, schedule="late"):
        self.device, self.out = Device((schedule,)), np.zeros((2, 300, THREADS), np.uint32)
        for out in self.out:
            self.device.memory.register(out.ctypes.data, out.nbytes)
        self.made, made = 0, Cluster.__init__

        def counted(*arguments):
            self.made += 1
            made(*arguments)

        monkeypatch.setattr(Cluster, "__init__", counted)

    def __call__(self, kernel, grid, place=0, word=0, threads=THREADS, shared=4096):
        """uint32[grid, THREADS]: the results of a launch, into a place of `out` that was zero. word: parameter a1."""
        out = self.out[place]
        out[:] = 0
        config = LaunchConfig((grid, 1, 1), (threads, 1, 1), dynamic_shared_bytes=shared)
        values = [out.ctypes.data.to_bytes(8, "little"), word.to_bytes(8, "little")]
        self.device.launch(kernel, config, values)
        return out[:grid]


@pytest.fixture
def launches(monkeypatch):
    return Launches(monkeypatch)


def expected(grid, word=0):
    return np.arange(grid * THREADS).reshape(grid, THREADS) + word


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_a_launch_in_the_place_of_another_starts_anew(monkeypatch, schedule, pythons):
    """Shared memory, registers and predicates are unwritten again; the parameters, and CTAs, are the launch's own."""
    launches = Launches(monkeypatch, schedule)
    kernel = entry(
        HEAD
        + "ld.shared.b32 %r4, [%r11]; and.b32 %r4, %r4, %r30; mov.u32 %r30, 5; not.b32 %r4, %r4;"  # unwritten: 0
        + "@%p1 add.u32 %r4, %r4, 7; setp.eq.u32 %p1, %r1, %r1; bar.sync 0; st.shared.b32 [%r11], %r1;"
        + "cvt.u32.u64 %r5, %a1; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r4; bar.sync 0;"
        + STORE.format("%r3"),
        2,
    )
    for grid in (1, 3, 200, 1, 3, 200):
        for word in (5, 6, 7):
            assert np.array_equal(launches(kernel, grid, word % 2, word), expected(grid, word)), (grid, word)
    few = 1 + 1 + 7  # clusters for one, three and, at first, for two hundred CTAs
    assert launches.made <= few and len(pythons) < 30
    counters = launches.device.counters()
    assert [each.ctas for each in counters] == [1] * 3 + [3] * 3 + [200] * 3 + [1] * 3 + [3] * 3 + [200] * 3
    assert len({each.warp_instructions / each.ctas for each in counters}) == 1
    assert {each.stored_bytes // each.ctas for each in counters} == {4 * THREADS}


def test_local_memory_is_unwritten_in_the_place_of_another(launches):
    kernel = entry(
        ".local .align 4 .b8 stack[8];"
        + HEAD
        + "ld.local.b32 %r4, [stack+4]; not.b32 %r4, %r4; st.local.b32 [stack+4], %r1;"  # unwritten: 0
        + "add.u32 %r3, %r3, %r4;"
        + STORE.format("%r3"),
        2,
    )
    for place in (0, 1, 0):
        assert np.array_equal(launches(kernel, 1, place), expected(1))
    assert launches.made == 1


def test_shapes_have_places_of_their_own(launches):
    kernel = entry(HEAD + "mov.u32 %r5, %ntid.x; add.u32 %r3, %r3, %r5;" + STORE.format("%r3"), 2)
    for threads in (64, 32, 64, 32):
        found = launches(kernel, 2, threads=threads)
        assert np.array_equal(found[:, :32], expected(2, threads)[:, :32])
        assert np.array_equal(found[:, 32:], expected(2, threads)[:, 32:] * (threads > 32))
    far = entry("ld.shared.b32 %r5, [smem+4092];" + HEAD + STORE.format("%r3"), 2)
    launches(far, 2)
    launches(far, 2)
    with pytest.raises(EmulatorError, match="shared"):
        launches(far, 2, shared=2048)


def test_python_takes_over_in_the_place_of_another(launches):
    """Python does something for CTA 2 of some launches, whose second warp has exited by then or waits."""
    kernel = entry(
        HEAD
        + "cvt.u32.u64 %r5, %a1; setp.eq.u32 %p1, %r5, %r1; setp.lt.and.u32 %p1, %tid, 32, %p1;"
        + "@%p1 cp.async.commit_group;"
        + MEET.format("")
        + STORE.format("%r4"),
        2,
    )
    for word in (9, 9, 2, 9, 2, 2, 9):
        assert np.array_equal(launches(kernel, 4, word=word), expected(4) ^ 32)


def test_the_clusters_barrier_in_the_place_of_another(launches, monkeypatch):
    """It ends at a time of its own launch: a fence behind it is behind what this launch has initialised ahead of it."""
    monkeypatch.setenv("NOGPU_LENIENT", "0")
    kernel = entry(
        HEAD
        + "cvt.u32.u64 %r5, %a1; setp.eq.u32 %p1, %r5, 0; @%p1 bra OUT; setp.eq.u32 %p2, %tid, 32;"
        + "st.shared.b32 [%r11], %r3;" * 9
        + "@%p2 mbarrier.init.shared.b64 [%r10+512], 1; barrier.cluster.arrive; barrier.cluster.wait;"
        + "setp.ne.u32 %p2, %tid, 0; @%p2 bra OUT; fence.proxy.async;"
        + "mbarrier.arrive.expect_tx.shared.b64 _, [%r10+512], 16; cp.async.bulk.shared::cta.global"
        + ".mbarrier::complete_tx::bytes [%r10], [%a0], 16, [%r10+512];"
        + "WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r10+512], 0; @!%p3 bra WAIT; OUT:"
        + STORE.format("%r3"),
        2,
    )
    for word in (0, 0, 1, 0):
        assert np.array_equal(launches(kernel, 1, word=word), expected(1))
    assert launches.made == 2  # Python has the CTA of the third launch to its end


def test_an_error_in_the_place_of_another(launches):
    """It names the CTA; the launches that follow are as before."""
    kernel = entry(
        HEAD + "cvt.u32.u64 %r5, %a1; setp.eq.u32 %p1, %r5, %r1; @%p1 mov.b64 %rd1, 64;" + STORE.format("%r3"), 2
    )
    for word in (9, 9, 2, 9, 9):
        if word == 2:
            with pytest.raises(EmulatorError, match="store of 4 bytes at 0x40") as error:
                launches(kernel, 4, word=word)
            assert error.value.cta == (2, 0, 0)
        else:
            assert np.array_equal(launches(kernel, 4, word=word), expected(4))


def test_a_launch_in_the_place_of_another_sees_the_live_allocations(launches):
    kernel = entry(HEAD + STORE.format("%r3"), 2)
    memory, out = launches.device.memory, launches.out[0]
    launches(kernel, 4)
    launches(kernel, 4)
    memory.release(out.ctypes.data)
    with pytest.raises(EmulatorError, match="outside every live allocation"):
        launches(kernel, 4)
    memory.register(out.ctypes.data, out.nbytes)
    assert np.array_equal(launches(kernel, 4), expected(4))
    assert np.array_equal(launches(kernel, 4, 1), expected(4))


def test_a_run_in_the_place_of_another_can_be_stopped(launches):
    kernel = entry(
        HEAD
        + "cvt.u32.u64 %r5, %a1; L: sub.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra L;"
        + STORE.format("%r3"),
        2,
    )
    launches.device.max_instructions = 1_000_000
    for word in (5, 5, 10**7, 5):
        if word > 5:
            with pytest.raises(EmulatorError, match=r"stopped after \d+ warp instructions"):
                launches(kernel, 4, word=word)
        else:
            assert np.array_equal(launches(kernel, 4, word=word), expected(4))


def test_places_have_a_limit(launches):
    kernel = entry(HEAD + STORE.format("%r3"), 2)
    for grid in (*range(1, SEATS + 3), 1):
        assert np.array_equal(launches(kernel, grid), expected(grid))
    assert len(launches.device._seats._kept) == SEATS


def test_places_have_a_limit_of_bytes(launches, monkeypatch):
    kernel, seats = entry(HEAD + STORE.format("%r3"), 2), launches.device._seats
    launches(kernel, 1)
    (first,) = seats._kept.values()
    nbytes = first.nbytes
    assert nbytes > len(first.cluster.ctas[0].shared.data) + first._files.nbytes
    for most, places in ((3 * nbytes + 10_000, 3), (0, 0)):
        monkeypatch.setattr(kept_ctas, "SEAT_BYTES", most)
        for grid in (*range(1, 7), 6):
            assert np.array_equal(launches(kernel, grid), expected(grid))
        assert len(seats._kept) == places


# A thread's number in the order of all threads, which come together: the CTAs are resident together.
TICKET = "atom.global.add.u32 %r5, [%a1], 1; mad.lo.u32 %r6, %r5, 0, %r5;"
UNWRITTEN = "ld.shared.b32 %r4, [%r11]; and.b32 %r4, %r4, %r30; mov.u32 %r30, 5; not.b32 %r4, %r4;"  # 0
TOGETHER = {
    "an exit of all": "",
    "exits of lanes": "and.b32 %r7, %tid, 3; setp.eq.u32 %p2, %r7, 1; @%p2 exit;",
    "barriers": MEET.format("") + MEET.format("add.u32 %r3, %r3, 1; "),
    "shared memory and registers": UNWRITTEN + "st.shared.b32 [%r11], %r1; add.u32 %r6, %r6, %r4;",
    "Python for some": "setp.gt.u32 %p2, %r1, 120; setp.lt.and.u32 %p2, %r1, 260, %p2; @!%p2 bra ON;"
    "fence.proxy.async.global; ON:",
}


@pytest.mark.parametrize("schedule", ["late", "eager"])
@pytest.mark.parametrize("name", TOGETHER)
def test_ctas_that_are_resident_together(name, schedule, monkeypatch, pythons):
    """Others start in the places of those that are over, in the order in which Python starts them."""
    made, init = [], Cluster.__init__
    monkeypatch.setattr(Cluster, "__init__", lambda *a: (made.append(1), init(*a))[1])
    body, found, clusters = HEAD + TICKET + STORE.format("%r6") + TOGETHER[name] + STORE.format("%r6"), [], []
    for kernels in (True, False):
        out, count = np.zeros((700, THREADS), np.uint32), np.zeros(1, np.uint32)
        before = len(made)
        counters = launch(body, out, count, grid=700, threads=THREADS, schedule=schedule, kernels=kernels)
        found.append((out.tolist(), counters.warp_instructions, counters.ctas))
        clusters.append(len(made) - before)
        if kernels:
            assert len(pythons) < 30 or name == "Python for some"
    assert found[0] == found[1] and sorted(sum(found[0][0], [])) == list(range(700 * THREADS))
    assert clusters[0] < 500 and clusters[1] == 700


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_launches_of_ctas_that_are_resident_together(monkeypatch, schedule):
    """They run in the places of others, whatever the number of CTAs; parameters are the launch's own."""
    launches = Launches(monkeypatch, schedule)
    kernel = entry(
        HEAD
        + "atom.global.add.u32 %r5, [%a0], 0; mad.lo.u32 %r3, %r5, 0, %r3;"
        + "mov.u32 %r6, %nctaid.x; mad.lo.u32 %r3, %r6, 1000, %r3;"
        + UNWRITTEN
        + "st.shared.b32 [%r11], %r1; bar.sync 0; cvt.u32.u64 %r5, %a1; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r4;"
        + STORE.format("%r3"),
        2,
    )
    for grid in (1, 3, 40, 1, 20, 40, 3):
        for word in (5, 6, 7):
            assert np.array_equal(launches(kernel, grid, word % 2, word), expected(grid, word + 1000 * grid))
    assert launches.made == 40


def test_places_end_with_the_program(launches):
    """A CTA whose lanes wait for each other has the grid go on by lane: other registers, in other places."""
    kernel = entry(
        HEAD
        + "cvt.u32.u64 %r5, %a1; setp.lt.u32 %p1, %r1, %r5; setp.eq.and.u32 %p2, %tid, 0, %p1;"
        + "atom.global.add.u32 %r5, [%a0], 0; mad.lo.u32 %r3, %r5, 0, %r3; st.shared.b32 [%r11], 0; @!%p2 bra JOIN;"
        + "SPIN: ld.volatile.shared.b32 %r7, [%r10]; setp.ne.u32 %p3, %r7, 9; @%p3 bra SPIN;"
        + "JOIN: setp.eq.u32 %p4, %tid, 1; @%p4 st.volatile.shared.b32 [%r10], 9;"
        + STORE.format("%r3"),
        2,
    )
    for grid, word in ((40, 1), (300, 300), (40, 0), (300, 1), (300, 300)):
        assert np.array_equal(launches(kernel, grid, 0, word), expected(grid))


def test_errors_of_ctas_that_are_resident_together():
    far = "setp.eq.u32 %p1, %r1, 523; @%p1 mov.b64 %rd1, 64;"
    kept, python = both(TICKET.replace("[%a1]", "[%rd1]") + far + STORE.format("%r6"), 700)
    assert kept == python and "0x40" in kept and "CTA (523, 0, 0)" in kept


def both(body, ctas=200):
    """Results or errors of a body, under late, by compiled code and by Python rows."""
    found = []
    for kernels in (True, False):
        try:
            found.append(run(body, ctas, kernels=kernels)[0].tolist())
        except EmulatorError as error:
            found.append(str(error))
    return found


# Copies of three words, the last of which no commit follows, and what each thread has of them.
THREE = (
    STORE.format("%r3") + COPY.format("%r11") + "cp.async.commit_group; cp.async.commit_group;"
    "{2}" + COPY.format("%r11+512") + "cp.async.commit_group;" + COPY.format("%r11+1024") + "{0} {1};"
    "ld.shared.b32 %r4, [%r11]; ld.shared.b32 %r5, [%r11+512]; ld.shared.b32 %r6, [%r11+1024];"
    "mad.lo.u32 %r4, %r5, 3, %r4; mad.lo.u32 %r4, %r6, 5, %r4;" + STORE.format("%r4")
)
IN_PYTHON = "setp.eq.u32 %p1, %r1, 123; @%p1 fence.proxy.async.global;"


@pytest.mark.parametrize("first", ["", IN_PYTHON])
@pytest.mark.parametrize("second", ["", IN_PYTHON])
@pytest.mark.parametrize("wait", ["wait_all", *(f"wait_group {newest}" for newest in range(4))])
def test_copies_complete_as_late_as_in_python(wait, first, second):
    kept, python = both(THREE.format(second, f"cp.async.{wait}", first))
    assert kept == python


def test_lanes_that_have_exited_commit_no_copies():
    """Half of a warp exits ahead of the commit."""
    gone = "and.b32 %r5, %tid, 31; setp.lt.u32 %p1, %r5, 16; @%p1 ret;"
    body = STORE.format("%r3") + COPY.format("%r11") + gone + "cp.async.commit_group; cp.async.wait_group 0;"
    kept, python = both(body + "ld.shared.b32 %r4, [%r11]; ld.shared.b32 %r5, [%r11+-64];" + STORE.format("%r5"))
    assert kept == python


@pytest.mark.parametrize("period, needs_python", [(64, False), (1024, True)])
def test_more_copies_than_compiled_code_keeps(period, needs_python, rows):
    """All but 50 of 700 groups of each warp are waited for now and then."""
    body = (
        STORE.format("%r3")
        + "mov.u32 %r7, 0; L:"
        + COPY.format("%r11")
        + f"cp.async.commit_group; add.u32 %r7, %r7, 1; and.b32 %r8, %r7, {period - 1};"
        + "setp.ne.u32 %p2, %r8, 0; @%p2 bra ON; cp.async.wait_group 50; ON:"
        + "setp.lt.u32 %p1, %r7, 700; @%p1 bra L; cp.async.wait_group 0; ld.shared.b32 %r4, [%r11];"
        + STORE.format("%r4")
    )
    out, _ = run(body, 2)
    assert np.array_equal(out, np.arange(2 * THREADS).reshape(2, THREADS))
    assert bool(rows) == needs_python


@pytest.mark.parametrize("commits", ["", "cp.async.commit_group;"])
def test_copies_that_nobody_waits_for_are_checked(commits):
    far = f"setp.eq.u32 %p1, %r1, 123; @%p1 mov.b64 %rd1, 64; {COPY.format('%r11')} {commits}"
    kept, python = both(far)
    assert kept == python and "0x40" in kept and "CTA (123, 0, 0)" in kept


def test_a_copy_lands_while_another_warp_polls():
    """The first warp exits, and waits for no copy; the second one leaves its loop when the copy is there."""
    body = (
        f"st.shared.b32 [%r11], 7; bar.sync 0; mov.u32 %r3, 5; {STORE.format('%r3')} setp.ge.u32 %p1, %tid, 32;"
        + f"@%p1 bra POLL; {COPY.format('%r11')} ret; POLL: ld.volatile.shared.b32 %r4, [%r12];"
        + "setp.ne.u32 %p2, %r4, 5; @%p2 bra POLL;"
        + STORE.format("%r4")
    )
    kept, python = both(body, 20)
    assert kept == python == np.full((20, THREADS), 5).tolist()


@pytest.mark.parametrize(
    "body",
    [
        "setp.ge.u32 %p1, %tid, 32; @%p1 ret; bar.sync 1, 64;",
        "setp.lt.u32 %p1, %tid, 32; @%p1 bra L; mov.u32 %r5, 0; K: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 1000;"
        "@%p2 bra K; ret; L: bar.sync 1, 64;",
        "setp.ge.u32 %p1, %tid, 32; @%p1 bra L; bar.sync 1, 64; ret; L: bar.sync 1;",
        "bar.sync 1, 32; bar.sync 1, 96;",
    ],
)
def test_barriers_of_a_number_of_threads(body):
    """An exit does not complete them, and all warps must name the same number."""
    kept, python = both(body, 3)
    assert kept == python and isinstance(kept, str)


@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_stmatrix_of_a_value_that_all_lanes_share(transposed, rows):
    """The second matrix is of rows, the first one of a value: compiled code stores both."""
    body = (
        "and.b32 %r5, %tid, 31; mad.lo.u32 %r5, %r5, 16, %r10; mov.u32 %r6, 0x10001; ld.global.b32 %r7, [%a1];"
        + f"stmatrix.sync.aligned.m8n8.x2{transposed}.shared.b16 [%r5], {{%r7, %r6}}; bar.sync 0;"
        + "ld.shared.b32 %r4, [%r11];"
        + STORE.format("%r4")
    )
    out, value = np.zeros((4, THREADS), np.uint32), np.full(1, 0x30003, np.uint32)
    launch(HEAD + body, out, value, grid=4, threads=THREADS)
    assert np.array_equal(out, np.repeat([[0x30003] * 32 + [0x10001] * 32], 4, axis=0)) and not rows
