"""The sample of the clock's sensitivity, and the table of the constants that matter."""

import json

from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from tools.clock import recordings, sensitivity
from tools.clock.sensitivity import table
from workshop.clock.sensitivity import HIGHER, LOWER


def test_the_sample_is_part_of_the_truth(tmp_path):
    points, sample = sensitivity.truth_sample(tmp_path)
    assert len(points) == len(sample) > 10 and all(work.silicon_us for work in sample)
    assert {recordings.name_of(point) for point in points} == {work.name for work in sample}


def test_without_a_truth_the_sample_is_what_is_chosen_in_each_launch_mode(tmp_path):
    points, sample = sensitivity.chosen_sample(tmp_path)
    assert [point["problem"] for point in points[::2]] == ["group_gemm", "dual_gemm", "gemm"] and len(sample) == 9
    ways = {(work.name, work.launches) for work in sample if work.name.startswith("gemm")}
    unpromised = {("gemm-2-chosen_nothing_promised", mode) for mode in (ORDINARY, PROGRAMMATIC)}
    assert ways == {("gemm-2-chosen", OVERLAPPING)} | unpromised
    assert not any(work.silicon_us for work in sample)


def test_the_table_shows_what_matters_and_counts_the_rest(tmp_path):
    assert "python -m tools.clock.sensitivity --profile b200" in table(tmp_path, "b200")

    def both(median, largest, **more):
        return {
            way: {"median": sign * median, "largest": sign * largest, **more}
            for way, sign in ((LOWER, -1), (HIGHER, 1))
        }

    saved = {
        "profile": "h200",
        "command": [],
        "share": 0.2,
        "sample": [{"name": "a", "launches": "ordinary launches", "us": 1.0, "silicon_us": 1.1}],
        "constants": {
            "small": both(0.001, 0.0099),
            "middle": both(0.01, 0.02, **{"median error": 0.013}),
            "large": both(0.1, 0.3),
            "room": {LOWER: {"no end": 1}, HIGHER: {"median": 0.0, "largest": 0.0}},
        },
        "instructions": {"alu": both(0.0, 0.01)},
    }
    (tmp_path / "sensitivity-h200.json").write_text(json.dumps(saved))
    lines = table(tmp_path, "h200").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:6]] == ["| room", "| large", "| middle", "| instructions: alu"]
    assert (
        "(1 come to no end)" in lines[2]
        and lines[4] == "| middle | -1.0%, -2.0%; +1.3 points | +1.0%, +2.0%; +1.3 points |"
    )
    assert "1 of 5 constants and families move no modelled time of the sample by 1%" in lines[-1]
