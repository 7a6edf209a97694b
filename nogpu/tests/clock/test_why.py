"""Causes of a launch's time: replays with free parts of the chip and free waits, against cycles computed by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from nogpu.clock.chip import profile
from nogpu.clock.costs import SKIP_DATA, SKIP_WAIT
from nogpu.clock.replay import constant_names, replay
from nogpu.clock.resources import KEPT, RESOURCES
from nogpu.clock.why import Gain, Study, lines, study_of_loop
from nogpu.errors import EmulatorError
from tests.clock.test_copies import STORE, multiplied, ring
from tests.clock.test_warps import PING_PONG
from tests.support.clocks import lines_of, recorded, tiny

NAMES = [part.name for part in RESOURCES]


def studied(traces, chip=None, **options):
    """A finished study of launches."""

    def run(chip, skips):
        found = replay(traces, chip, skips=skips, **options)
        return found.us, found

    study = Study(traces, chip or tiny(), run)
    while study.done < study.total:
        study.advance()
    assert study.failed == {}
    return study


def gain_of(study, name):
    (found,) = (gain for gain in study.gains if gain.name == name)
    return found


def skipped(trace, bits=SKIP_WAIT | SKIP_DATA):
    """A replay of a launch in which no wait costs anything."""
    return replay([trace], tiny(), skips=[np.full(len(trace.instructions), bits, np.uint8)], spans=10_000)


# Parts of the chip


def test_each_constant_of_a_profile_is_of_one_part_or_kept():
    """A new constant of the clock must be put into resources.RESOURCES or KEPT."""
    free = [name for part in RESOURCES for name in part.constants]
    assert sorted([*free, *KEPT]) == sorted(constant_names())
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("part", RESOURCES, ids=NAMES)
def test_a_part_for_nothing_leaves_the_others_as_they_are(part):
    chip = profile("b200")
    freed = part.freed(chip)
    changed = {name for name, value in freed.constants.items() if value != chip.constants[name]}
    assert changed <= set(part.constants) and (changed or part.instructions)
    families = {name for name, cost in freed.instructions.items() if cost != chip.instructions[name]}
    assert not families or part.instructions
    assert all(name.startswith("map_") == (part.instructions == "maps") for name in families)


FAST = {"tma_box": 0, "tma_line": 0.1}


@pytest.mark.parametrize(
    "changed, name",
    [
        ({"tma_line": 8}, "TMA: issue"),
        ({**FAST, "sm_in_rate": 16}, "SM: port for what comes in"),
        ({**FAST, "sm_in_rate": 256, "l2_rate": 16}, "L2: rate"),
        ({**FAST, "mbarrier_wait": 5000}, "mbarriers: arrivals, signals, waking"),
        ({**FAST, "grid_end": 90_000}, "launches: ends"),
    ],
)
def test_the_part_that_limits_gains_most(changed, name):
    study = studied([ring(12, 48, 4096)], tiny(**changed))
    gains = [gain for gain in study.gains if gain.name in NAMES]
    assert gains[0].name == name and gains[0].us > 0.4 * study.us > 2 * gains[1].us
    assert [gain.us for gain in study.gains] == sorted((gain.us for gain in study.gains), reverse=True)


def test_a_gain_is_what_the_part_takes():
    """The gain is ten multiplications' cycles less nine issues, and for a launch's end that end."""
    study = studied([multiplied(10, 128)], tiny())
    assert gain_of(study, "tensor core: products").us == pytest.approx((10 * 64 - 9) * 1e-3, abs=1e-6)
    assert gain_of(study, "launches: ends").us == pytest.approx(0.3)
    (place, share), _ = gain_of(study, "tensor core: products").places
    assert share == 0.5 and "mbarrier.try_wait: " in place and place.endswith(" for tensor core")


def test_parts_that_no_instruction_uses_are_not_tried():
    study = studied([recorded("add.u32 %r1, %tid, 1;")])
    names = {gain.name for gain in study.gains}
    assert "CTAs: start and end" in names
    assert not names & {"tensor core: products", "TMA: issue", "tensor memory: loads and stores", "atomics"}


# Waits


def test_a_named_barrier_that_nobody_waits_at():
    """Each warp sleeps, one before the barrier and one behind it; then neither waits."""
    body = "setp.ge.u32 %p1, %tid, 32; @%p1 bra LATE; bar.sync 0; nanosleep.u32 3000; exit; LATE: nanosleep.u32 2000;"
    study = studied([recorded(body + "bar.sync 0;", threads=64)])
    gain = gain_of(study, "wait at named barriers")
    assert study.gains[1] is gain and gain.us == pytest.approx(2.0, abs=0.05)
    ((place, share),) = gain.places
    assert share > 0.99 and place.endswith(", bar.sync: warp 0 for named barrier")
    assert study.gains[0].name == "nanosleep" and study.gains[0].us == pytest.approx(5.0, abs=0.01)


def test_waits_at_mbarriers_are_told_apart_by_who_waits_for_what():
    study = studied([multiplied(10, 128), ring(2, 8)])
    names = {gain.name for gain in study.gains}
    assert {"wait at mbarriers of loads for loads", "wait for data"} <= names
    assert any(name.startswith("wait at mbarriers of ") and name.endswith(" for tensor core") for name in names)


def test_a_ring_without_waits_has_a_stage_for_each_load():
    """Arrivals of later rounds of an mbarrier wait for earlier ones, and every byte comes."""
    trace = ring(2, 24)
    ordinary, free = replay([trace], tiny()), skipped(trace)
    assert free.usage == ordinary.usage
    assert (free.ends[0] - free.starts[0]) < 0.5 * (ordinary.ends[0] - ordinary.starts[0])
    gain = gain_of(studied([trace]), "wait at mbarriers of loads for loads")
    assert gain.us > 0 and gain.places[0][0].endswith(": loads for loads")


def test_a_wait_for_the_launch_before():
    work = "mov.b32 %r1, 0;" + "add.u32 %r1, %r1, 1;" * 1000
    first = recorded("griddepcontrol.launch_dependents;" + work)
    second = recorded("griddepcontrol.wait;" + work, programmatic=True)
    study = studied([first, second], tiny(launch_overlap=0))
    ((place, _),) = gain_of(study, "wait for the launch before").places
    assert study.gains[2].name == "wait for the launch before"  # after those of the chain of sums
    assert place.endswith(", griddepcontrol.wait: warp 0 for launch before")


COLUMNS = """
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 512; nanosleep.u32 5000;
    ld.shared.b32 %r1, [smem]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 512;
"""


def test_columns_of_tensor_memory():
    study = studied([recorded(COLUMNS, grid=8)], tiny())
    assert gain_of(study, "wait for columns of tensor memory").us == pytest.approx(5.0, rel=0.1)


CP_ASYNC = """
    mov.u32 %r1, smem; cp.async.ca.shared.global [%r1], [%a0], 4; cp.async.commit_group; cp.async.wait_group 0;
"""


MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
OTHERS = {
    "wait for groups of bulk copies": lambda: recorded(STORE.replace("READ", ""), lines_of(8)),
    "wait for cp.async copies": lambda: recorded(CP_ASYNC, lines_of(1)),
    "wait at cluster barriers": lambda: recorded(MEET, grid=2, cluster=2),
    "wait at mbarriers of warps for other warps": lambda: recorded(PING_PONG.replace("TURNS", "10"), threads=64),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_waits(name):
    trace = OTHERS[name]()
    gain = gain_of(studied([trace]), name)
    assert gain.us > 0 and sum(share for _, share in gain.places) > 0.9
    assert not any(launch.any() for launch in skipped(trace).waits), "nobody waits"


def test_bits_at_instructions_that_do_not_wait_change_nothing():
    for trace in (ring(2, 24), multiplied(10, 128), recorded(PING_PONG.replace("TURNS", "10"), threads=64)):
        plain = replay([trace], tiny())
        bits = np.where(plain.waits[0].any(axis=0), 0, SKIP_WAIT).astype(np.uint8)
        other = replay([trace], tiny(), skips=[bits])
        assert bits.any() and (other.starts, other.ends, other.usage) == (plain.starts, plain.ends, plain.usage)


# Loops and text


def test_a_loop_is_studied_by_its_call():
    trace = ring(12, 48, 4096)
    study = study_of_loop([trace], tiny(), 15)
    study.advance()
    assert study.done and 0 < study.us < replay([trace], tiny()).us + 5
    with pytest.raises(ValueError, match="there must be some of both"):
        study_of_loop([], tiny(), 15)


def test_launches_that_come_to_no_end_are_named():
    trace, chip = recorded("add.u32 %r1, %tid, 1;"), tiny()

    def run(other, skips):
        if other.constants["cta_start"] != chip.constants["cta_start"]:
            raise EmulatorError("comes to no end")
        found = replay([trace], other)
        return found.us, found

    study = Study([trace], chip, run)
    while study.done < study.total:
        study.advance()
    assert list(study.failed) == ["CTAs: start and end"]
    assert lines(study, "1 launch")[-1] == "  not replayed: CTAs: start and end: comes to no end"


def test_text_is_sorted_and_small_gains_are_one_line():
    gains = [Gain("a", 5, [("x.py:3: loads for loads", 0.7), ("x.py:9: MMA for data", 0.2)]), Gain("b", 2, [])]
    gains += [Gain("c", 0.04, []), Gain("d", 0.02, []), Gain("e", -0.01, []), Gain("f", -3, [])]
    study = SimpleNamespace(us=10.0, chip=SimpleNamespace(name="b200"), total=7, gains=gains, failed={"g": "why"})
    title, head, *rest = lines(study, "2 launches")
    assert title.startswith("clock: why 10.00 modelled us on b200 for 2 launches: ") and "7 replays" in title
    assert "modelled us" in head
    assert [" ".join(line.split()) for line in rest] == [
        *("5.00 50.0% a", "x.py:3: loads for loads 70%; x.py:9: MMA for data 20%", "2.00 20.0% b"),
        *("0.05 less than 0.5% each, together: c, d, e", "-3.00 -30.0% slower: f", "not replayed: g: why"),
    ]
