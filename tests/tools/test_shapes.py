"""tools.clock.shapes: the points that are taken from times of random shapes, their recordings, replays and rows."""

import argparse
import json
import re
from pathlib import Path

import pytest

from harness import ROOT
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC, LaunchMode
from harness.plan_report import configuration_name
from tools.choice.times import CALLS, PROMISED, Drawn, legal
from tools.clock import recordings, shapes, validate
from tools.clock import tables as clock_tables
from workshop.clock.record import load

SIZES = [[40, 256, 1024, 1]]
SMALL = {"program": "submission.py", "problem": "gemm", "sizes": SIZES, "mode": None, "calls": 2, "us": 3.0}


def drawn(sizes, case=None):
    return Drawn("gemm", tuple(map(tuple, sizes)), case)


def names_of(sizes):
    return [configuration_name(shape) for shape in legal(drawn(sizes), 132)]


def times(*entries, us=2.0):
    """A file of times of GEMMs, (sizes, case) each, in which every configuration takes `us` in every mode."""
    every = [
        {
            "problem": "gemm",
            "sizes": sizes,
            "case": case,
            "us": {name: {mode: [us, us, us] for mode in LaunchMode} for name in names_of(sizes)},
        }
        for sizes, case in entries
    ]
    record = {"device": "NVIDIA H200", "sms": 132, "submission.py sha256": "0", "command": ["--seed", "18"]}
    return {**record, "shapes": every}


def test_the_rule_takes_the_chosen_configurations_and_two_by_hash(monkeypatch):
    """Each chosen configuration counts once; one that was not timed is an error."""
    (chosen, *_) = shapes.taken(drawn(SIZES), names_of(SIZES), 132)
    with pytest.raises(ValueError, match=f"no times of {chosen}"):
        shapes.taken(drawn(SIZES), set(names_of(SIZES)) - {chosen}, 132)
    monkeypatch.setattr(shapes, "choice", lambda drawn, sms, ready: "256x64, 1 per SM" if ready else "128x64, 2 per SM")
    names = names_of(SIZES)
    found = shapes.taken(drawn(SIZES), names, 132)
    assert found == [
        "256x64, 1 per SM",
        "128x64, 2 per SM",
        "256x192, 1 per SM, 2 side by side",
        "256x128, 1 per SM, 2 side by side",
    ]
    assert shapes.taken(drawn(SIZES), names[::-1], 132) == found
    assert shapes.taken(drawn([[41, 256, 1024, 1]]), names, 132)[2:] != found[2:]
    monkeypatch.setattr(shapes, "choice", lambda drawn, sms, ready: "256x64, 1 per SM")
    found = shapes.taken(drawn(SIZES), names_of(SIZES), 132)
    assert len(found) == len(set(found)) == 3 and found[0] == "256x64, 1 per SM"


def test_points_are_of_drawn_shapes_in_every_mode_and_independent_of_times():
    truth = shapes.truth(times((SIZES, None), ([[128, 7168, 16384, 1]], 0)))
    assert truth["shapes"] == 1 and truth["times"]["command"] == ["--seed", "18"]
    assert {json.dumps(point["sizes"]) for point in truth["points"]} == {json.dumps(SIZES)}
    taken = shapes.taken(drawn(SIZES), names_of(SIZES), 132)
    found = [(point["configuration"], point["launches"]) for point in truth["points"]]
    assert found == [(name, mode) for name in taken for mode in LaunchMode]
    others = shapes.truth(times((SIZES, None), us=7.0))
    assert [{**point, "us": 2.0} for point in others["points"]] == truth["points"]
    assert {point["calls"] for point in truth["points"]} == {CALLS}


def test_points_are_taken_by_number_and_mode():
    record = times((SIZES, None), ([[128, 7168, 16384, 1]], 0), ([[41, 256, 1024, 1]], None))
    assert shapes.truth(record, range(2, 4)) == shapes.truth({**record, "shapes": record["shapes"][2:]})
    assert shapes.truth(record, recordings.numbers("1-2")) == shapes.truth(record)
    for wrong in ("17", "0-3", "5-4", "a-b"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{wrong}' is not FIRST-LAST"):
            recordings.numbers(wrong)
    record = times((SIZES, None))
    for modes in record["shapes"][0]["us"].values():
        del modes[ORDINARY]
    assert {point["launches"] for point in shapes.truth(record)["points"]} == {OVERLAPPING, PROGRAMMATIC}


@pytest.mark.parametrize("file", [{}, {"promised": ["overlapping", "ordinary launches"]}])
def test_a_file_says_which_launches_have_promises(file):
    points = shapes.truth({**times((SIZES, None)), **file})["points"]
    promised = {point["launches"] for point in points if point["promised"]}
    assert promised == set(file.get("promised", PROMISED))
    names = {point["launches"]: recordings.name_of(point) for point in reversed(points)}
    configuration = re.sub(r"\W+", "_", points[0]["configuration"])
    for mode, name in names.items():
        end = "promised" if mode in promised else "nothing_promised"
        assert name == f"gemm-40x256x1024x1-{configuration}-{end}"


def test_the_promises_of_committed_times_are_stated():
    times = json.loads((ROOT / "docs/results/h200-choice.json").read_text())
    assert times["promised"] == [OVERLAPPING]


@pytest.mark.parametrize(("mode", "programmatic"), [(OVERLAPPING, None), (PROGRAMMATIC, None), (ORDINARY, False)])
def test_only_ordinary_launches_are_replayed_without_the_programmatic_attribute(monkeypatch, mode, programmatic):
    seen = []

    def loop(traces, chip, calls, programmatic, words, same_data):
        seen.append((traces, calls, programmatic, same_data))
        return type("Loop", (), {"us": 2.5})

    monkeypatch.setattr(validate, "modelled_loop", loop)
    monkeypatch.setattr(validate, "load", lambda folder: folder.name.rpartition("-")[2])
    point = {**SMALL, "configuration": "128x64, 1 per SM", "launches": mode, "promised": mode == OVERLAPPING}
    found = validate.validated(point, Path(), "h200")
    assert seen == [("promised" if mode == OVERLAPPING else "nothing_promised", 2, programmatic, False)]
    assert found["sizes"] == SIZES and (found["silicon_us"], found["modelled_us"]) == (3.0, 2.5)


@pytest.mark.slow
def test_a_shape_is_recorded_with_promises_and_without(tmp_path):
    points = [{**SMALL, "configuration": "128x64, 1 per SM", "promised": promised} for promised in (True, False)]
    assert recordings.record(points, tmp_path, 132, 1) == {}
    (promised,), (waiting,) = (load(tmp_path / recordings.name_of(point)) for point in points)
    for trace in (promised, waiting):  # the attribute of ordinary launches is left out in the replay
        assert trace.programmatic and trace.grid[0] == 2
    # Without promises operands are waited for, and outputs once more.
    assert len(promised.words) < len(waiting.words)


# ---- Rows ----


def modelled(configuration, mode, silicon, us, sizes=SIZES):
    facts = {"program": "submission.py", "problem": "gemm", "sizes": sizes, "configuration": configuration}
    return {**facts, "launches": mode, "silicon_us": silicon, "modelled_us": us}


POINTS = [
    modelled("a, 1 per SM", ORDINARY, 10.0, 11.0),
    modelled("b, 1 per SM, K in 2", ORDINARY, 20.0, 10.0),
    modelled("b, 1 per SM, K in 2", PROGRAMMATIC, 8.0, 8.8),
    modelled("b, 1 per SM, K in 2", OVERLAPPING, 5.0, 5.5),
    modelled("a, 1 per SM, 2 side by side", ORDINARY, 30.0, 27.0, [[9, 9, 9, 1]]),
]


def test_pairs_are_of_one_shape_and_one_mode():
    assert validate.ordered(POINTS) == (0, 1)  # of five points, the first two
    assert validate.ordered([*POINTS, modelled("c", ORDINARY, 15.0, 12.0)]) == (1, 3)


def test_rows_are_of_problems_of_kinds_of_configurations_of_long_calls_and_of_all():
    rows = {row[:2]: row[2:] for row in validate.summary(POINTS)}
    modes = [OVERLAPPING, PROGRAMMATIC, ORDINARY, "all"]
    assert [mode for name, mode in rows if name == "gemm"] == modes
    assert [mode for name, mode in rows if name == "split K"] == modes
    assert [mode for name, mode in rows if name == "calls over 10 us"] == [ORDINARY, "all"]
    assert list(rows)[-4:] == [("all", mode) for mode in modes]
    assert {name: figures[0] for (name, mode), figures in rows.items() if mode == "all"} == {
        "gemm": 5,
        "split K": 3,
        "side by side": 1,
        "calls over 10 us": 2,
        "all": 5,
    }
    count, median, p90, mean, alike, pairs = rows["split K", "all"]
    assert (count, alike, pairs) == (3, 0, 0)
    assert (median, p90, mean) == pytest.approx((0.1, 0.5, -0.1))
    assert rows["all", ORDINARY][-2:] == (0, 1)


def test_the_table_says_of_how_many_shapes_it_is(tmp_path):
    missing = clock_tables.clock(tmp_path, "h200-shapes")
    assert "--profile h200 --shapes docs/results/h200-shapes.json" in missing
    saved = {
        "device": "NVIDIA H200",
        "profile": "h200",
        "command": [],
        "points of truth": 9,
        "shapes": 3,
        "left out": {},
    }
    (tmp_path / "clock-h200-shapes.json").write_text(json.dumps({**saved, "points": POINTS}))
    table = clock_tables.clock(tmp_path, "h200-shapes")
    assert "5 of 9 points of 3 random shapes" in table
    assert "| calls over 10 us, ordinary launches | 2 | 30.0% | 50.0% | -30.0% | - |" in table


def test_the_command_reads_a_file_of_times(tmp_path, capsys, monkeypatch):
    file, saved = tmp_path / "times.json", tmp_path / "clock.json"
    file.write_text(json.dumps(times((SIZES, None))))
    monkeypatch.setattr(recordings, "record", lambda points, *rest: {recordings.name_of(points[0]): "too large"})
    monkeypatch.setattr(
        validate, "replayed", lambda points, *rest: [[{**p, "silicon_us": 2.0, "modelled_us": 3.0} for p in points]]
    )
    validate.main(["--shapes", str(file), "--recordings", str(tmp_path), "--save", str(saved)])
    found = json.loads(saved.read_text())
    assert (found["shapes"], found["points of truth"]) == (1, len(found["points"]) + 2)
    assert found["left out"] == {"submission.py": {"too large": 2}}  # of two modes
    assert "all, all: " in capsys.readouterr().out
