"""nogpu explore: kernels that fail in one interleaving of thousands, the holds that show it, and replays of these."""

import pytest

from nogpu import EmulatorError
from nogpu.execution import replay, settings, status
from nogpu.execution.device import Device
from nogpu.execution.trials import Tried
from nogpu.hardware.properties import LaunchConfig
from nogpu.sanitizer.explore import Explorer
from nogpu.sanitizer.races import Found, Race
from nogpu.sanitizer.reversals import Traced
from tests.support import emulated
from tests.support.small_kernels import aligned, entry, module

DELAY = "mov.u32 %r20, 0; D{n}: add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, {turns}; @%p9 bra D{n};"
# Warp 0 sets X to 1 for a moment, warp 2 Y; warp 1 tells whether it has seen both.
WINDOWS = f"""
    mov.u32 %r10, smem; shr.u32 %r1, %tid, 5; and.b32 %r2, %tid, 31; setp.ne.u32 %p1, %r2, 0; @%p1 bra END;
    setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r1, 2; @%p2 bra FIRST; @%p3 bra THIRD;
    {DELAY.format(n=1, turns=90)} ld.{{order}}.shared.b32 %r5, [%r10+4];
    {DELAY.format(n=2, turns=40)} ld.{{order}}.shared.b32 %r6, [%r10+8];
    and.b32 %r5, %r5, %r6; and.b32 %r5, %r5, 1; st.global.b32 [%a0], %r5; bra END;
FIRST: {DELAY.format(n=3, turns=70)} st.{{order}}.shared.b32 [%r10+4], 1;
    {DELAY.format(n=5, turns=2)} st.{{order}}.shared.b32 [%r10+4], 2; bra END;
THIRD: {DELAY.format(n=4, turns=80)} st.{{order}}.shared.b32 [%r10+8], 1;
    {DELAY.format(n=6, turns=2)} st.{{order}}.shared.b32 [%r10+8], 2; END:
"""
INITIAL = (
    "mov.u32 %r10, smem; and.b32 %r3, %tid, 127; mad.lo.u32 %r4, %r3, 4, %r10; st.shared.b32 [%r4], 0; bar.sync 0;"
)


def run(*bodies, explore=None, schedule="late", threads=96, workers=1, programmatic=False):
    """Run bodies, one behind the other. Returns the words that they leave."""
    data, device = aligned(256), Device((schedule,), workers)
    device.memory.register(data.ctypes.data, data.nbytes, "a0")
    device.explorer = None if explore is None else Explorer(explore)
    config = LaunchConfig((1, 1, 1), (threads, 1, 1), (1, 1, 1), 4096, programmatic)
    for body in bodies:
        device.launch(entry(body), config, [data.ctypes.data.to_bytes(8, "little")])
    device.synchronize()
    return data


@pytest.mark.parametrize("order", ["relaxed.cta", "volatile"])
def test_one_interleaving_in_thousands(order):
    """No random schedule shows the failure. A few holds do, repeatedly, and each of them is needed."""
    body = INITIAL + WINDOWS.format(order=order)
    assert {int(run(body, schedule=f"random:{seed}")[0]) & 1 for seed in range(60)} == {0}
    with pytest.raises(EmulatorError, match="schedules disagree: byte 0 of") as error:
        run(body, explore=400)
    schedule = error.value.schedule
    assert f"again by --schedule '{schedule}':" in error.value.reason and "at PTX line" in error.value.reason
    assert run(body, schedule=schedule)[0] == 1
    holds = replay.parse(schedule.partition(":")[2])
    assert len(holds) == 2
    for index in range(len(holds)):
        fewer = replay.schedule_of(holds[:index] + holds[index + 1 :])
        assert run(body, schedule=fewer)[0] != 1


LOCK = "{name}: atom.acquire.cta.shared.cas.b32 %r6, [%r10+{lock}], 0, 1; setp.ne.u32 %p4, %r6, 0; @%p4 bra {name};"
FREE = "st.release.cta.shared.b32 [%r10+{lock}], 0;"
# Both warps take two locks, count, and give them back.
LOCKS = INITIAL + "and.b32 %r2, %tid, 31; setp.ne.u32 %p1, %r2, 0; @%p1 bra END; setp.eq.u32 %p2, %tid, 0;\n"
LOCKS += "@!%p2 bra OTHER;\n{one} {count} bra END;\nOTHER: {other} {count} END:"
COUNT = "ld.shared.b32 %r7, [%r10+16]; add.u32 %r7, %r7, 1; st.shared.b32 [%r10+16], %r7; st.global.b32 [%a0], %r7;"


def locks(*orders, count=COUNT):
    taken = [
        "".join(LOCK.format(name=f"{'AB'[warp]}{lock}", lock=lock) + "\n" for lock in locks)
        for warp, locks in enumerate(orders)
    ]
    body = count + "".join(FREE.format(lock=lock) for lock in (4, 8))
    return LOCKS.format(one=taken[0], other=taken[1], count=body)


def test_a_deadlock():
    """Two warps take two locks in different orders; one hold shows the deadlock, repeatedly."""
    for schedule in ("late", "eager", "replay:-"):
        assert run(locks((4, 8), (8, 4)), schedule=schedule, threads=64)[0] == 2
    with pytest.raises(EmulatorError, match=r"the kernel hangs: [\s\S]*again by --schedule 'replay:") as error:
        run(locks((4, 8), (8, 4)), explore=50, threads=64)
    assert error.value.schedule.count("@") == 1
    with pytest.raises(EmulatorError, match="the kernel hangs"):
        run(locks((4, 8), (8, 4)), schedule=error.value.schedule, threads=64)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_right_kernel_is_silent(workers):
    assert run(locks((4, 8), (4, 8)), explore=40, threads=64, workers=workers)[0] == 2


LOAD = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 3072; setp.eq.u32 %p1, %tid, 0; mad.lo.u32 %r4, %tid, 4, %r10;
    st.shared.b32 [%r4], 7; @%p1 mbarrier.init.shared.b64 [%r11], 1; @%p1 fence.mbarrier_init.release.cluster;
    fence.proxy.async; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    {before}
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a0], 128, [%r11];
    {after}
    W: mbarrier.try_wait.parity.shared.b64 %p9, [%r11], 0; @!%p9 bra W;
    mul.wide.u32 %rd1, %tid, 4; add.s64 %rd1, %a0, %rd1; st.global.b32 [%rd1+128], %r5;
"""
READS = "D: ld.shared.b32 %r5, [%r4]; add.u32 %r6, %r6, 1; setp.lt.u32 %p8, %r6, 2; @%p8 bra D;"


def test_a_copy_that_comes_too_soon():
    """The copy overwrites bytes that lanes still load: in the replay lanes wait for the copy."""
    body = LOAD.format(before="mov.u32 %r6, 0;", after=READS)
    assert run(body, threads=32)[32] == 7
    with pytest.raises(EmulatorError, match="schedules disagree") as error:
        run(body, explore=20, threads=32)
    assert "@c0w0j0" in error.value.schedule
    assert run(body, schedule=error.value.schedule, threads=32)[32] == 0
    run(LOAD.format(before="mov.u32 %r6, 0;" + READS + "bar.warp.sync -1;", after=""), explore=20, threads=32)


TRIGGER, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
ONE = "setp.ne.u32 %p1, %tid, 0; @%p1 bra END; "


def run_launches(*bodies, **options):
    """Run launches that overlap."""
    return run(*(f"{ONE} {body} END:" for body in bodies), threads=64, programmatic=True, **options)


# The first launch sets a word to 1 for a moment; the second tells whether it has seen that.
MOMENT = "st.{order}.global.b32 [%a0], 1;"
MOMENT = TRIGGER + DELAY.format(n=1, turns=60) + MOMENT + DELAY.format(n=2, turns=2) + MOMENT.replace("1;", "2;")
SEEN = "ld.{order}.global.b32 %r5, [%a0]; and.b32 %r5, %r5, 1; st.global.b32 [%a0+64], %r5;"


@pytest.mark.parametrize("order", ["volatile", "weak"])
@pytest.mark.parametrize("workers", [1, 2])
def test_launches_that_overlap(order, workers):
    """The second launch's part before griddepcontrol.wait may fall between any two steps of the first."""
    first, seen = MOMENT.format(order=order), DELAY.format(n=3, turns=20) + SEEN.format(order=order)
    assert {int(run_launches(first, seen + WAIT, schedule=f"random:{seed}")[16]) for seed in range(20)} == {0}
    with pytest.raises(EmulatorError, match="schedules disagree: byte 64 of") as error:
        run_launches(first, seen + WAIT, explore=40, workers=workers)
    schedule = error.value.schedule
    assert "g1c0w0." in schedule and "kernel   k overlapped by k" in str(error.value)
    assert run_launches(first, seen + WAIT, schedule=schedule)[16] == 1
    assert run_launches(first, WAIT + seen, explore=6, workers=workers)[16] == 0
    assert run_launches(first, WAIT + seen, schedule=schedule)[16] == 0


def test_three_launches_that_overlap():
    """The third launch waits for the second, which waits for none and so may precede the first."""
    bodies = [
        TRIGGER + "st.global.b32 [%a0], 1;",
        TRIGGER,
        WAIT + "ld.global.b32 %r5, [%a0]; st.global.b32 [%a0+64], %r5;",
    ]
    with pytest.raises(EmulatorError, match="found in run 2 of nogpu explore") as error:
        run_launches(*bodies, explore=20)
    assert "g2c0w0." in error.value.schedule
    assert run_launches(*bodies, schedule=error.value.schedule)[16] == 1
    assert run_launches(bodies[0], TRIGGER + WAIT, bodies[2], explore=20)[16] == 1


class _Trial:
    """A trial that shows the pair behind its held ones, and fails with some holds."""

    kernel, at_once, is_sanitized = "k", 3, False

    def __init__(self, needed):
        steps = [replay.Step(f"c0w{warp}", 3) for warp in range(7)]
        self.races = [Race(a, b, (i, i), "") for i, (a, b) in enumerate(zip(steps, steps[1:]))]
        self.needed, self.runs = {self.races[i].reversal for i in needed}, 0

    def run(self, schedules):
        self.runs += len(schedules)
        return [self._tried(replay.parse(schedule.partition(":")[2])) for schedule in schedules]

    def _tried(self, holds):
        failure = EmulatorError("wrong") if self.needed <= set(holds) else None
        trace = Traced(frozenset([hash(tuple(holds))]), [], frozenset(), 0, 1)
        return Tried(failure, Found(self.races[len(holds) : len(holds) + 1], trace), [])

    def check(self, schedule):
        return None


def test_a_failing_run_is_reduced():
    """The result lacks holds without which the run fails, too."""
    trial = _Trial([1, 4])
    with pytest.raises(EmulatorError, match="found in run 6 of nogpu explore") as error:
        Explorer(100).explore(trial)
    assert error.value.schedule == "replay:c0w1.3@c0w2.3+c0w4.3@c0w5.3"
    trial = _Trial([1, 4])
    Explorer(5).explore(trial)
    assert trial.runs == 5


def test_progress_is_shown(monkeypatch):
    """A line has the number of runs and their maximum; it ends with the search."""
    shown = []

    class Line:
        def __init__(self, title, units):
            shown.append((title, units))

        def __call__(self, *counts):
            shown.append(counts)

        def close(self):
            shown.append("closed")

    monkeypatch.setattr(status, "is_shown", lambda: True)
    monkeypatch.setattr(status, "Status", Line)
    Explorer(2).explore(_Trial([1, 4]))
    assert shown == [("exploring k", "runs"), (1, 2, 0), (2, 2, 0), "closed"]


@pytest.mark.slow
def test_programs_are_explored(tmp_path):
    """nogpu explore prints the schedule, which nogpu run --schedule takes."""
    ptx = module(locks((4, 8), (8, 4)))
    program = f"""
import nogpu, numpy as np
x = nogpu.array(np.zeros(64, np.uint32))
nogpu.load_ptx({ptx!r})['k'].launch(1, 64, [x], shared=4096)
assert x[0] == 2
"""
    assert emulated.run("-c", program).returncode == 0
    found = emulated.run("-c", program, options=["explore", "--runs", "40"])
    assert found.returncode == 101 and "the kernel hangs" in found.stderr
    schedule = found.stderr.partition("again by --schedule '")[2].partition("'")[0]
    again = emulated.run("-c", program, options=["--schedule", schedule])
    assert again.returncode == 101 and "the kernel hangs" in again.stderr
    right = program.replace(repr(ptx), repr(module(locks((4, 8), (4, 8)))))
    silent = emulated.run("-c", right, options=["explore", "--sanitize", "--runs", "9"])
    assert silent.returncode == 0 and silent.stderr.splitlines() == [
        "explore: 7 runs of 1 launch, 1 clean",
        "explore: k is clean for all interleavings: 2 different orders of up to 16 turns, in 7 runs",
        "nogpu explore: right: 1 launch of 1 kernel without a fault, 1 clean for all interleavings",
    ]


@pytest.mark.parametrize("holds", ["-", "c0w0.1@c0w1.2", "g1c0w0j1@c0w1.2", "c0w1.2@g2c3w1j2j0+c0w1.3@c0w0j0"])
def test_texts_of_replays(holds):
    """Texts that a search prints can be given again: overlapping launches, operations that operations issue."""
    assert settings.schedules(f"replay:{holds}") == (f"replay:{holds}",)
    assert replay.schedule_of(replay.parse(holds)) == f"replay:{holds}"


@pytest.mark.parametrize("holds", ["", "c0w0.1", "c0w0@c0w1.2", "c0w0.1@c0w1.2+", "c0w0.1@x"])
def test_texts_that_are_no_replay(holds):
    with pytest.raises(ValueError, match="is no schedule"):
        settings.schedules(f"late,replay:{holds}")
    with pytest.raises(ValueError, match="is no (hold|step) of a replay"):
        replay.parse(holds)


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_numbers_of_runs_that_are_none(refusal, number):
    assert "is no number of runs" in refusal("explore", "--runs", number, "-c", "")
