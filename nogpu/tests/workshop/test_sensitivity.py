"""Constants that are moved, and what becomes of modelled times."""

import json

import pytest

from nogpu.clock.chip import profile
from tests.support.clocks import lines_of, recorded, tiny
from workshop.clock import sensitivity
from workshop.clock.sensitivity import HIGHER, LOWER, Work, figures, moved, varied_chip


@pytest.mark.parametrize(
    "value, of_count, lower, higher",
    [
        (10.0, False, 8.0, 12.0),
        (0.0, False, 0.0, 0.0),
        (132.0, True, 106.0, 158.0),
        (2.0, True, 1.0, 3.0),  # a step of at least one
        (1.0, True, 1.0, 2.0),  # a count that never becomes none
        (0.0, True, 0.0, 0.0),
        (1.27, True, 1.016, 1.524),  # a factor, no count of whole things
    ],
)
def test_constants_move_by_a_fifth_and_counts_by_whole_things(value, of_count, lower, higher):
    assert [moved(value, way, of_count) for way in (LOWER, HIGHER)] == pytest.approx([lower, higher])


def test_a_family_of_instructions_moves_with_all_of_its_costs():
    chip = profile("h200")
    before, after = (
        c.instructions["shuffle"] for c in (chip, varied_chip(chip, ("instructions", "shuffle", LOWER), ()))
    )
    assert (after.issue, after.interval, after.latency) == pytest.approx(
        (0.8 * before.issue, 0.8 * before.interval, 0.8 * before.latency)
    )
    assert chip.instructions["shuffle"] == before and after.pipe == before.pipe


def test_figures_are_shares_of_the_time_and_of_the_error():
    found = figures([10, 20, 40], [11, 20, 32], [None, 16, 40])
    # Errors before: 25 % and 0; after: 25 % and 20 %.
    assert found == {"median": 0.0, "largest": -0.2, "of": 2, "median error": 0.1}
    assert figures([10, 20], [None, 21], [None, None]) == {"no end": 1, "median": 0.05, "largest": 0.05, "of": 1}


def saved_chip(path, **changes):
    chip = tiny(**changes)
    data = json.loads((sensitivity.PROFILES / "h200.json").read_text())
    data["clock_ghz"]["value"], data["gpc_sms"]["value"] = chip.clock_ghz, chip.gpc_sms
    counts = {name for name, constant in data["constants"].items() if constant["unit"] == "count"}
    data["constants"] = {
        name: {"value": value, "unit": "count" if name in counts else "cycles"}
        for name, value in chip.constants.items()
    }
    path.write_text(json.dumps(data))
    return str(path)


def test_a_launch_of_loads_moves_with_their_latency_alone(tmp_path):
    """A CTA that waits for a line of DRAM, then ends."""
    trace = recorded("ld.global.b32 %r1, [%a0]; add.u32 %r1, %r1, 1;", lines_of(1))
    (tmp_path / "one").mkdir()
    trace.save(tmp_path / "one/0000.npz")
    path = saved_chip(tmp_path / "chip.json", dram_latency=5000, sm_threads=33, l2_slices=4)
    work = Work(tmp_path, "one", "ordinary launches", 1, silicon_us=10)
    *_, found = sensitivity.sensitivities([work], path, jobs=1)
    ((name, us),) = ((row["name"], row["us"]) for row in found["sample"])
    assert name == "one"
    change = found["constants"]["dram_latency"]
    assert change[HIGHER]["largest"] == pytest.approx(1 / us, abs=0.001) and change[HIGHER]["largest"] > 0.1
    assert change[LOWER]["largest"] == pytest.approx(-1 / us, abs=0.001)
    assert change[HIGHER]["median error"] == pytest.approx(-0.1, abs=0.001)  # modelled time below silicon's
    assert found["constants"]["sm_threads"][LOWER] == {"no end": 1}, "26 threads are no room for a warp"
    quiet = ("tma_line", "mbarrier_remote", "sm_out_rate")
    assert all(found["constants"][each][way]["largest"] == 0 for each in quiet for way in (LOWER, HIGHER))
    assert set(found["instructions"]) == set(profile(path).instructions)
    assert "sms" not in found["constants"], "GPCs say how many there are"


def test_a_profile_that_names_another_has_its_counts():
    """The unit of an entry {"as": CHIP} is that chip's."""
    assert {"sms", "l2_slices", "launch_ahead"} <= sensitivity.counts_of("b200")
    assert "l2_outside_cost" not in sensitivity.counts_of("b200")
