"""tools.clock.validate: modelled times, errors and orders of points."""

import json

import pytest

from tools.clock import tables as clock_tables
from tools.clock.validate import ordered, set_of, summary


def point(configuration, silicon, modelled, launches="ordinary launches", case=0):
    facts = {
        "program": "submission.py",
        "problem": "gemm",
        "case": case,
        "launches": launches,
        "configuration": configuration,
    }
    return {**facts, "silicon_us": silicon, "modelled_us": modelled}


def test_errors_and_orders_of_points():
    """Pairs count where silicon differs by more than 5 % in the same case and launches."""
    points = [point("a", 10, 3), point("b", 10.4, 2), point("c", 12, 4), point("d", 20, 1, case=1)]
    assert ordered(points) == (2, 2)  # a-c and b-c; a and b are too near, d is another case
    assert ordered([*points, point("e", 15, 3.5)]) == (4, 5)  # c-e is not in order
    *_, (problem, launches, count, median, p90, mean, alike, pairs) = summary([point("a", 10, 11), point("b", 20, 16)])
    assert (problem, launches, count, alike, pairs) == ("all", "all", 2, 1, 1)
    assert (median, p90, mean) == pytest.approx((0.15, 0.2, -0.05))
    failed = {key: value for key, value in point("a", 1, 1).items() if key != "modelled_us"}
    assert summary([failed]) == []


def test_points_are_counted_by_problem_of_our_kernel_and_by_other_program():
    ring, bare = point("ring, our traffic", 10, 12), point("chosen", 10, 12)
    ring["program"], bare["mode"] = "ring.cu", "bare"
    program = {"program": "a.py", "configuration": "--m 1", "launches": "alone", "silicon_us": 10, "modelled_us": 30}
    points = [point("a", 20, 11), ring, bare, program, {**program, "configuration": "--m 2", "silicon_us": 20}]
    assert [set_of(each) for each in points] == ["gemm", "ring.cu", "gemm, bare conversions", "a.py", "a.py"]
    rows = summary(points)
    assert [(row[:3], row[-1]) for row in rows] == [
        (("gemm", "ordinary launches", 1), 0),
        (("ring.cu", "ordinary launches", 1), 0),
        (("gemm, bare conversions", "ordinary launches", 1), 0),
        (("a.py", "alone", 2), 0),  # of different work: no pair
        (("all", "ordinary launches", 3), 0),
        (("all", "alone", 2), 0),
        (("all", "all", 5), 0),
    ]


def test_a_table_says_what_is_left_out(tmp_path):
    failed = {**point("b", 10, 0), "error": "comes to no end"}
    del failed["modelled_us"]
    saved = {"device": "NVIDIA H200", "profile": "h200", "command": [], "points of truth": 9}
    saved |= {"points": [point("a", 20, 11), failed], "left out": {"a.py": {"not below here": 3}}}
    (tmp_path / "clock-h200.json").write_text(json.dumps(saved))
    table = clock_tables.clock(tmp_path, "h200")
    assert "1 of 9 points" in table
    assert "left out: a.py 3 (not below here), 1 that come to no end in the replay" in table
