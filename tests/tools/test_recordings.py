"""tools.clock.recordings: the recordings of a truth's points, and the processes that make them."""

import json

import pytest

from harness import ROOT
from harness.launch_modes import LaunchMode
from nogpu.clock.chip import profile
from nogpu.clock.replay import replay
from tools.clock import recordings, validate
from workshop.clock.record import load

OF_GEMV = {"program": "submission.py", "configuration": "chosen", "problem": "gemv", "case": 2, "mode": "timing"}
LAUNCHING = """if True:
    import sys
    import nogpu, numpy
    data = nogpu.array(numpy.zeros(1, numpy.uint32))
    kernel = nogpu.load_ptx('''
        .version 8.6
        .target sm_100a
        .address_size 64
        .visible .entry k(.param .u64 p) {
            .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [p];
            red.global.add.u32 [%rd1], 1;
            ret;
        }''')["k"]
    for size in map(int, sys.argv[1:]):
        kernel.launch(1, 32 * size, [data])
    with open(__file__ + ".counts", "a") as file:
        print(data[0], file=file)
    sys.exit("some end")
"""


def test_launches_in_every_mode_are_one_recording():
    point = {
        "program": "submission.py",
        "configuration": "256x64, 1 per SM, 2 side by side",
        "problem": "gemm",
        "case": 1,
    }
    names = {recordings.name_of({**point, "mode": "timing", "launches": x}) for x in LaunchMode}
    assert names == {"gemm-1-256x64_1_per_SM_2_side_by_side"}


def test_every_point_of_the_truth_has_a_recording_of_its_own():
    """Points that differ only in their launches share one; two programs of one case do not."""
    points = json.loads((ROOT / "docs/results/h200-truth.json").read_text())["points"]
    names = ("program", "configuration", "problem", "case")
    facts = {recordings.name_of(point): tuple(map(point.get, names)) for point in points}
    wanted = {tuple(map(point.get, names)) for point in points}
    assert len(points) > 500 and set(facts.values()) == wanted and len(facts) == len(wanted)


def test_programs_of_others_are_found_below_the_named_folder(tmp_path):
    points = [{"program": name} for name in ("ring.cu", "one.py", "two.py", "none.py")]
    for place in ("a/one.py", "a/two.py", "b/two.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("")
    files, reasons = recordings.files_of(points, tmp_path)
    assert files == {"one.py": tmp_path / "a/one.py"}
    assert reasons == {"none.py": f"not below {tmp_path}", "two.py": f"2 files below {tmp_path} have this name"}
    assert set(recordings.files_of(points, None)[1]) == {"one.py", "two.py", "none.py"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """(points, folder, folder of programs of others, reasons): a plain read, a GEMV, a program of others, and points
    that have no recording.
    """
    folder, foreign = tmp_path_factory.mktemp("recordings"), tmp_path_factory.mktemp("foreign")
    (foreign / "launching.py").write_text(LAUNCHING)
    points = [
        {**OF_GEMV, "problem": "gemm", "program": "plain_read.cu", "configuration": "plain read", "mode": None},
        OF_GEMV,
        {**OF_GEMV, "configuration": "unknown"},
        *({"program": "launching.py", "configuration": text, "mode": "timing"} for text in ("1 2 3 2", "")),
        {"program": "missing.py", "configuration": "", "mode": "timing"},
    ]
    reasons = recordings.record(points, folder, 132, 1, foreign)
    return points, folder, foreign, reasons


@pytest.mark.slow
def test_launches_are_recorded_for_as_many_sms_as_asked(recorded):
    _, folder, *_ = recorded
    (trace,) = load(folder / "gemm-2-plain_read")
    assert trace.name == "plain_read" and trace.grid == (4 * 132, 1, 1)
    assert replay([trace], profile("h200")).usage.sm_in > 10_000_000


@pytest.mark.slow
def test_of_a_program_the_last_launch_is_recorded_and_a_repeated_one_runs_once(recorded):
    _, folder, foreign, _ = recorded
    (trace,) = load(folder / "launching-1_2_3_2")
    assert trace.block == (64, 1, 1)
    assert (foreign / "launching.py.counts").read_text().split() == [str(32 * (1 + 2 + 3)), "0"]


@pytest.mark.slow
def test_what_has_no_recording_has_a_reason(recorded):
    points, folder, _, reasons = recorded
    assert set(reasons) == {"gemv-2-unknown", "launching-", "missing-"}
    assert "no row 'unknown'" in reasons["gemv-2-unknown"]
    assert reasons["launching-"] == "launched nothing: some end"
    counts = recordings.by_program([*points, points[-1]], reasons)
    assert counts["missing.py"] == {reasons["missing-"]: 2} and set(counts) == {
        "submission.py",
        "launching.py",
        "missing.py",
    }
    with pytest.raises(FileNotFoundError, match="launching-"):
        load(folder / "launching-")


@pytest.mark.slow
def test_what_is_there_is_not_recorded_again(recorded):
    points, folder, *_ = recorded
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert recordings.record(points[:2], folder, 132, 1) == {}
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_recordings_are_validated(recorded):
    points, folder, *_ = recorded
    found = validate.validated({**points[1], "launches": "ordinary launches", "calls": 1, "us": 15.536}, folder, "h200")
    assert found["mode"] == "timing" and found["silicon_us"] == 15.536 and found["modelled_us"] > 7
    assert validate.set_of(found) == "gemv"
