"""tools.clock.truth: the rows of our kernel, and the figures of a point."""

import pytest

import submission
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC, LaunchMode
from harness.plan_report import PRODUCTS, configuration_name, configurations
from tools.clock import truth


@pytest.mark.parametrize("problem", PRODUCTS)
def test_every_configuration_is_timed_both_ways(problem):
    found = [facts for _, facts in truth.our_rows(submission, [None], problem, hopper=True)]
    names = {configuration_name(shape) for shape in configurations(problem)} | {
        "chosen",
        "chosen, nothing promised",
    }
    ways = {mode: {x["configuration"] for x in found if x["launches"] == mode} for mode in LaunchMode}
    unpromised = {"chosen, nothing promised"}
    assert ways == {ORDINARY: names, PROGRAMMATIC: unpromised, OVERLAPPING: names - unpromised}
    assert len(found) == 2 * len(names)


def test_a_point_has_median_and_percentiles():
    times = [float(x) for x in (*range(9, -1, -1), 100)]
    found = truth.point(times, program="a")
    assert found == {"program": "a", "us": 5.0, "p10": 1.0, "p90": 9.0, "repeats": 11}
