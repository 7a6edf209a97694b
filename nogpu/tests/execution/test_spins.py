"""Spinning warps: legal ones go on, repeating ones are a hang."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError
from nogpu.execution import machine
from nogpu.execution.device import Device, LaunchConfig
from nogpu.hardware.properties import DeviceProperties
from tests.support.small_kernels import entry, launch, store

SCHEDULES = ["late", *(pytest.param(each, marks=pytest.mark.slow) for each in ("eager", "random:1", "random:2"))]
# Warp instructions after which a test fails whose spin does not end, or is not named a hang.
BOUND, HANG_BOUND = 30_000_000, 3_000_000

# Counts to {n} without a store or a barrier. Labels are named by {name}, registers are %r4{name} and %p4.
COUNT = (
    "mov.u32 %r4{name}, 0; C{name}: add.u32 %r4{name}, %r4{name}, 1; setp.lt.u32 %p4, %r4{name}, {n}; @%p4 bra C{name};"
)
# Polls word {word} of a0 until it is not 0.
POLL = "POLL{word}: ld.volatile.global.b32 %r50, [%a0+{word}]; setp.eq.u32 %p5, %r50, 0; @%p5 bra POLL{word};"
SET = "mov.u32 %r51, 1; st.volatile.global.b32 [%a0+{word}], %r51;"
# Warp 0 goes on, warp 1 branches to OTHER.
PART = "mov.u32 %r10, smem; shr.u32 %r11, %tid, 5; setp.eq.u32 %p1, %r11, 1; @%p1 bra OTHER;"


LONG = 75_000  # iterations: of 2,000 turns of each warp


@pytest.fixture
def short_turns(monkeypatch):
    """Turns of 16 segments in place of 256, so that a loop of a given number of turns is short."""
    monkeypatch.setattr(machine, "QUANTUM", 16)


def run(body, words=4, **options):
    """The words of a0 after a launch."""
    out = np.zeros(words, np.uint32)
    launch(body, out, max_instructions=BOUND, **options)
    return out.tolist()


def hang(body, *arrays, **options):
    with pytest.raises(EmulatorError) as error:
        launch(body, *(arrays or (np.zeros(4, np.uint32),)), max_instructions=HANG_BOUND, **options)
    text = str(error.value)
    assert text.startswith("the kernel hangs: all warps that can run poll without an effect"), text
    return text


@pytest.mark.parametrize("schedule, n", [("late", 1_100_000), ("eager", 1_100_000), ("random:1", 40_000)])
def test_counting(schedule, n):
    out = np.zeros(32, np.uint32)
    launch(COUNT.format(name=0, n=n) + store("%r40"), out, schedule=schedule)
    assert set(out.tolist()) == {n}


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("schedule", SCHEDULES)
class TestLoopsThatEnd:
    def test_counting_while_others_poll(self, schedule):
        n = LONG // 3 if schedule.startswith("random") else LONG
        body = PART + COUNT.format(name=0, n=n) + SET.format(word=0) + "ret; OTHER:" + POLL.format(word=0)
        assert run(body + SET.format(word=4), threads=64, schedule=schedule)[:2] == [1, 1]

    @pytest.mark.parametrize("effect", [SET, "red.global.add.u32 [%a0+{word}], 1;"])
    def test_taking_turns(self, schedule, effect):
        """Each warp polls while the other one counts."""
        first = COUNT.format(name=0, n=6_000) + effect.format(word=0) + POLL.format(word=4)
        second = POLL.format(word=0) + COUNT.format(name=1, n=6_000) + effect.format(word=4)
        assert all(run(PART + first + "ret; OTHER:" + second, threads=64, schedule=schedule)[:2])

    def test_counting_in_local_memory(self, schedule):
        """Local memory alone differs from one iteration to the next, as in code that is not optimised."""
        body = """
            .local .align 4 .b8 stack[8]; mov.u32 %r1, 0; st.local.b32 [stack], %r1;
        L:  ld.local.b32 %r1, [stack]; add.u32 %r1, %r1, 1; st.local.b32 [stack], %r1;
            setp.lt.u32 %p1, %r1, 3000; mov.u32 %r1, 0; @%p1 bra L; ld.local.b32 %r1, [stack];
        """
        out = np.zeros(32, np.uint32)
        launch(body + store("%r1"), out, schedule=schedule)
        assert set(out.tolist()) == {3000}

    def test_a_long_way_without_a_loop(self, schedule):
        """The place alone differs from one segment to the next."""
        steps = "".join(f"B{i}: setp.eq.u32 %p7, %r30, {i}; @%p7 bra B{i};" for i in range(1500))
        assert run("mov.u32 %r30, 9999;" + steps + SET.format(word=0), schedule=schedule)[0] == 1

    def test_a_group_of_lanes_for_each_turn(self, schedule):
        """All lanes but the last have loops of their own, which the last ends after two of its turns, one in 32."""
        part = "".join(f"setp.eq.u32 %p7, %tid, {i}; @%p7 bra L{i};" for i in range(31))
        loops = "".join(
            f"L{i}: ld.volatile.global.b32 %r5, [%a0]; setp.eq.u32 %p6, %r5, 0; @%p6 bra L{i}; ret;" for i in range(31)
        )
        steps = "".join(f"B{i}: setp.eq.u32 %p7, %tid, {i}; @%p7 bra B{i};" for i in range(20))
        assert run(part + "bra B0;" + loops + steps + SET.format(word=0), schedule=schedule)[0] == 1

    def test_a_lock_that_is_held_for_long(self, schedule):
        """A compare-and-swap that fails has no effect; the one that succeeds ends the spin."""
        take = "TAKE: atom.global.cas.b32 %r5, [%a0], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra TAKE;"
        free = "mov.u32 %r6, 0; st.release.gpu.global.b32 [%a0], %r6;"
        one_lane = "and.b32 %r12, %tid, 31; setp.ne.u32 %p3, %r12, 0;"
        start = one_lane + "@!%p3 atom.global.exch.b32 %r5, [%a0], 1; bar.sync 0; @%p3 bra END;"
        body = start + PART + COUNT.format(name=0, n=3_000) + free + "bra END; OTHER:" + take + SET.format(word=4)
        assert run(body + "END:", threads=64, schedule=schedule)[:2] == [1, 1]

    def test_a_lock_between_lanes_of_a_warp(self, schedule):
        """The lane that has it waits for the others where they reconverge, and goes on alone."""
        take = "TAKE: atom.acquire.gpu.global.cas.b32 %r5, [%a0], 0, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra TAKE;"
        add = "ld.relaxed.gpu.global.b32 %r6, [%a0+4]; add.u32 %r6, %r6, 1; st.relaxed.gpu.global.b32 [%a0+4], %r6;"
        free = "mov.u32 %r6, 0; st.release.gpu.global.b32 [%a0], %r6;"
        assert run(take + add + free, threads=4, schedule=schedule)[:2] == [0, 4]

    @pytest.mark.parametrize("clock", ["%clock64", "%globaltimer"])
    def test_a_deadline(self, schedule, clock):
        """Nobody sets the word; the wait ends after 10**9 cycles, or half a second."""
        body = f"""
            mov.u64 %rd2, {clock};
        W:  ld.volatile.global.b32 %r2, [%a0]; nanosleep.u32 64; setp.ne.u32 %p1, %r2, 0; @%p1 bra END;
            mov.u64 %rd3, {clock}; sub.s64 %rd4, %rd3, %rd2; setp.lt.u64 %p2, %rd4, 1000000000; @%p2 bra W;
            {SET.format(word=4)}
        END:
        """
        assert run(body, threads=64, schedule=schedule)[:2] == [0, 1]

    def test_a_deadline_of_32_bits(self, schedule):
        body = f"""
            mov.u32 %r2, %clock;
        W:  mov.u32 %r3, %clock; sub.u32 %r3, %r3, %r2; setp.lt.u32 %p2, %r3, 3000000000; @%p2 bra W;
            {SET.format(word=4)}
        """
        assert run(body, schedule=schedule)[1] == 1

    @pytest.mark.parametrize("work", ["sleep", "count"])
    def test_the_longer_deadline_is_not_over_before_the_shorter_one(self, schedule, work):
        """Warp 0 sets the word after 10**6 cycles, or after much work; warp 1 traps if that takes 3 * 10**6."""
        first = {
            "sleep": "S: mov.u64 %rd5, %clock64; setp.lt.u64 %p3, %rd5, 1000000; @%p3 bra S;",
            "count": COUNT.format(name=0, n=20_000),
        }
        body = PART + first[work] + SET.format(word=0)
        body += """ret; OTHER:
        W:  mov.u64 %rd3, %clock64; setp.gt.u64 %p2, %rd3, 3000000; @%p2 trap;
            ld.volatile.global.b32 %r2, [%a0]; setp.eq.u32 %p1, %r2, 0; @%p1 bra W;
        """
        assert run(body, threads=64, schedule=schedule)[0] == 1

    def test_stores_in_a_spin_that_waits_for_a_copy(self, schedule):
        """The poll has an effect of its own, which is no reason to put the copy off for ever."""
        body = """
            mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; @%p1 bra END; mov.u32 %r2, 0;
            mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster; and.b64 %rd2, %a0, -16;
            mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 16;
            cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%rd2+16], 16, [%r11];
        W:  add.u32 %r2, %r2, 1; st.volatile.shared.b32 [%r10+64], %r2;
            mbarrier.test_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra W; END:
        """
        run(body, words=16, schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_that_wait_for_lanes_of_their_warp(schedule):
    """The lower lanes poll, and part and meet in every iteration; the upper ones end that. The loops have as many
    segments as let turns of 256 end at the same places.
    """

    def stay(name, count):
        return "".join(f"{name}{i}: setp.eq.u32 %p7, %r30, {i}; @%p7 bra {name}{i};" for i in range(count))

    for polling, even in ((7, 2), (6, 3)):
        body = f"""
            mov.u32 %r10, smem; mov.u32 %r30, 999; setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.b32 [%r10], 0;
            bar.warp.sync -1; setp.ge.u32 %p2, %tid, 16; and.b32 %r3, %tid, 1; setp.eq.u32 %p3, %r3, 0;
            @%p2 bra UPPER; bra POLL;
        EVEN: mov.u32 %r4, 6; {stay("E", even)} bra MEET;
        POLL: ld.volatile.shared.b32 %r2, [%r10]; {stay("P", polling)} @%p3 bra EVEN; mov.u32 %r4, 5; {stay("O", 1)}
        MEET: setp.eq.u32 %p4, %r2, 0; @%p4 bra POLL; bra END;
        UPPER: mov.u32 %r5, 1; st.volatile.shared.b32 [%r10], %r5;
        END:
        """
        run(body, schedule=schedule)


@pytest.mark.usefixtures("short_turns")
class TestClusters:
    """Clusters that wait for others of their launch, on chips of few SMs."""

    # Takes a ticket and polls until all {n} are taken.
    TICKETS = """
        setp.ne.u32 %p1, %tid, 0; @%p1 bra SPIN; atom.global.add.u32 %r2, [%a0], 1;
    SPIN: ld.acquire.gpu.global.b32 %r1, [%a0]; setp.ne.u32 %p2, %r1, {n}; @%p2 bra SPIN;
    """

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_as_many_as_the_chip_holds(self, schedule):
        """Two CTAs of 1024 threads fit on an SM, so that three are not there at once on one."""
        options = dict(threads=1024, schedule=schedule, properties=DeviceProperties(sm_count=1))
        assert run(self.TICKETS.format(n=2), grid=2, **options)[0] == 2
        if schedule == "late":
            hang(self.TICKETS.format(n=3), grid=3, **options)

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_another_cluster_ends_the_spin_after_long_work(self, schedule):
        parts = "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 3; @%p1 bra LAST;", POLL.format(word=0), "ret; LAST:"
        n = LONG // 5 if schedule.startswith("random") else LONG
        body = "".join(parts) + COUNT.format(name=0, n=n) + SET.format(word=0)
        assert run(body, grid=4, schedule=schedule, properties=DeviceProperties(sm_count=2))[0] == 1

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("last", [0, 1])
    def test_launches_that_overlap(self, schedule, last):
        """One of two launches works for long, the other polls for its end and stores meanwhile."""
        polling = "AGAIN: add.u32 %r6, %r6, 1; st.volatile.global.b32 [%a0+8], %r6; ld.volatile.global.b32 %r7, [%a0];"
        polling += "setp.eq.u32 %p6, %r7, 0; @%p6 bra AGAIN;"
        working = "".join(COUNT.format(name=i, n=100) + SET.format(word=12) for i in range(9)) + SET.format(word=0)
        bodies = [polling, polling]
        bodies[last] = working
        out = np.zeros(4, np.uint32)
        device = Device((schedule,), max_instructions=BOUND)
        device.memory.register(out.ctypes.data, out.nbytes, "out")
        config = LaunchConfig((1, 1, 1), (32, 1, 1), programmatic=True)
        for body in bodies:
            kernel = entry("mov.u32 %r6, 0; griddepcontrol.launch_dependents;" + body)
            device.launch(kernel, config, [out.ctypes.data.to_bytes(8, "little")])
        device.synchronize()
        assert out[0] == 1


LOCK = "TAKE: atom.global.{}; setp.{}.u32 %p2, %r5, 0; @%p2 bra TAKE;"
HANGS = {  # name: (body, threads); a single thread takes a word that is 1
    "a word that nobody sets": (POLL.format(word=0).replace("setp", "nanosleep.u32 64; setp"), 32),
    # Each warp's registers have a period of their own, and each lane its values.
    "registers that come round again": (
        """shr.u32 %r11, %tid, 5; mul.lo.u32 %r12, %r11, 4; add.u32 %r12, %r12, 7; mov.u32 %r2, %tid;
        L:  add.u32 %r2, %r2, 1; rem.u32 %r2, %r2, %r12; ld.volatile.global.b32 %r3, [%a0]; or.b32 %r4, %r3, %r2;
            setp.lt.u32 %p1, %r4, 1000; @%p1 bra L;""",
        96,
    ),
    # A counter starts anew at a prime, so that turns end at all of its values.
    "a long period": (
        """mov.u32 %r2, 0; L:  add.u32 %r2, %r2, 1; setp.eq.u32 %p2, %r2, 251; selp.b32 %r2, 0, %r2, %p2;
            ld.volatile.global.b32 %r3, [%a0]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;""",
        32,
    ),
    "after long work": (COUNT.format(name=0, n=20_000) + POLL.format(word=0), 32),
    "a lock that nobody frees": (LOCK.format("cas.b32 %r5, [%a0], 0, 1", "ne"), 1),
    "an exchange that nobody undoes": (LOCK.format("exch.b32 %r5, [%a0], 1", "ne"), 1),
    "a word that is read by an atomic": (LOCK.format("or.b32 %r5, [%a0], 0", "ne"), 1),
    "a sum that changes nothing": ("mov.u32 %r6, 0;" + LOCK.format("add.f32 %r5, [%a0], %r6", "eq"), 2),
    "local memory": (
        """.local .align 4 .b8 stack[8]; mov.u32 %r1, 0;
        L:  add.u32 %r1, %r1, 1; and.b32 %r1, %r1, 3; st.local.b32 [stack], %r1; ld.local.b32 %r2, [stack];
            mov.b64 %rd1, stack; cvta.local.u64 %rd1, %rd1; st.b32 [%rd1+4], %r2; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;
        """,
        32,
    ),
    "lanes that part and meet": (
        """and.b32 %r3, %tid, 1; setp.eq.u32 %p3, %r3, 0;
        L:  ld.volatile.global.b32 %r2, [%a0]; @%p3 bra EVEN;
        O:  setp.ne.u32 %p5, %r2, 0; @%p5 bra O; bra MEET;
        EVEN: setp.ne.u32 %p5, %r2, 0; @%p5 bra EVEN;
        MEET: setp.eq.u32 %p4, %r2, 0; @%p4 bra L;""",
        32,
    ),
}


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("schedule", SCHEDULES)
class TestHangs:
    @pytest.mark.parametrize("name", HANGS)
    def test_spins_without_an_effect(self, schedule, name):
        body, threads = HANGS[name]
        text = hang(body, np.full(4, threads == 1, np.uint32), threads=threads, schedule=schedule)
        place = "warp 0 lanes 0x" if "part" in name else "warp 0 at PTX line"
        assert f"CTA (0, 0, 0) {place}" in text and "[can run]" in text

    def test_a_branch_to_itself(self, schedule):
        assert "[can run]" in hang("L: bra.uni L;", schedule=schedule)

    def test_lanes_that_do_not_meet_again(self, schedule):
        """The upper half polls for ever, the lower half waits at the reconvergence point."""
        body = "setp.lt.u32 %p1, %tid, 16; @%p1 bra END;" + POLL.format(word=0) + "END: bar.warp.sync -1;"
        assert "lanes 0xffff0000" in hang(body, schedule=schedule)

    def test_beside_warps_that_wait(self, schedule):
        """The report has the barrier on which warp 1 waits."""
        text = hang(PART + POLL.format(word=0) + "OTHER: bar.sync 3, 64;", threads=64, schedule=schedule)
        assert "named barrier 3: 32 of 64 threads, arrived: warp 1" in text and "[can run]" in text
