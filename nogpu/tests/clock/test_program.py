"""nogpu time: a program's launches in modelled time, as text, timeline and picture."""

import gzip
import importlib.util
import json

import numpy as np
import pytest

from nogpu.clock.chip import profile
from nogpu.clock.paths import picture_path
from nogpu.clock.picture import _LAUNCHES, _all_sms, draw
from nogpu.clock.replay import replay
from nogpu.clock.summary import error_band, errors, summary
from nogpu.clock.timeline import CTA, write_timeline
from tests.clock.test_copies import multiplied, ring
from tests.support.clocks import lines_of, recorded, tiny
from tests.support.emulated import run
from tests.support.small_kernels import module, store

PROGRAM = f"""if True:
    import numpy as np
    import nogpu
    data = nogpu.array(np.zeros(64, np.uint32))
    kernel = nogpu.load_ptx({module(store("%tid"))!r})["k"]
    for _ in range(3):
        kernel.launch(2, 32, [data])
    print(data.sum())
"""


def clocked(*options, program=PROGRAM):
    return run("-c", program, options=["time", *options])


def test_a_program_prints_modelled_times_when_it_ends(tmp_path):
    file = tmp_path / "timeline.json.gz"
    done = clocked("--chip", "b200", "--timeline", file)
    assert (done.returncode, done.stdout) == (0, "496\n"), done.stderr
    title, _, *launches, total, used, waits, wrote = done.stderr.splitlines()
    assert title.startswith("clock: modelled on b200, error")
    assert [line.split()[:2] for line in launches] == [[str(number), "k"] for number in range(3)]
    starts, ends = ([float(line.split()[at]) for line in launches] for at in (2, 3))
    assert starts[0] == 0 and all(later >= start + us for start, us, later in zip(starts, ends, starts[1:]))
    assert total.startswith("  from the first start to the last end: ") and total.endswith(" modelled us")
    assert float(total.split()[-3]) == pytest.approx(starts[2] + ends[2], abs=0.0151), "three figures, each rounded"
    assert "DRAM 0%" in used and "tensor core 0%" in used and "issues" in waits
    assert wrote == f"clock: wrote {file}, for ui.perfetto.dev"
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert sum(event.get("name", "").startswith("launch ") for event in events) == 6


def test_a_program_that_fails_has_its_launches_replayed():
    done = clocked("--chip", "h200", program=PROGRAM + "    raise SystemExit(3)")
    assert done.returncode == 3
    assert "modelled on h200" in done.stderr and "tensor core omitted" in done.stderr


def test_a_program_is_told_what_would_make_it_faster(tmp_path):
    done = clocked("--why", "--timeline", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    text = done.stderr.splitlines()
    start = next(at for at, line in enumerate(text) if line.startswith("clock: why "))
    total = next(line for line in text if line.startswith("  from the first start to the last end: ")).split()[-3]
    assert text[start].startswith(f"clock: why {total} modelled us on b200 for 3 launches: ")
    rows = [line.split()[:2] for line in text[start + 2 :] if "%  " in line]
    gains = [float(gain) for gain, _ in rows]
    assert gains == sorted(gains, reverse=True) and gains[0] > 0.1 * float(total)
    assert any("  launches: " in line for line in text[start:]) and text[-1].startswith("clock: wrote ")


def test_a_program_without_launches_prints_nothing():
    done = clocked("--why", program="print(1)")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'nogpu\[pictures\]'"):
        picture_path("a.png")


PROFILE = "chip profile 'b201': known are b200, h200, or the path of a JSON file"


@pytest.mark.parametrize(
    "options, error",
    [
        ("--chip b201", PROFILE),
        ("--schedule eager", "unrecognized arguments: --schedule"),
        ("--device hopper", "unrecognized arguments: --device"),
        ("--timeline x.txt", "'x.txt' does not end in .json or .json.gz"),
        ("--timeline nowhere/x.json", "there is no folder for 'nowhere/x.json'"),
    ],
)
def test_options_that_are_refused(refusal, options, error):
    assert error in refusal("time", *options.split(), "-c", "")


def test_the_error_is_that_of_the_points(tmp_path):
    file, chip = tmp_path / "errors.json", profile("h200")

    def band(points):
        file.write_text(json.dumps({"h200": errors(points)}))
        return error_band(chip, file)

    points = [{"silicon_us": 10.0, "modelled_us": 10.0 + off} for off in (-2, 0.1, 0.5, 1, 3)]
    points += [{**points[0], "modelled_us": 30.0, "floor": True}, {**points.pop(), "floor": False}]
    text = "error against silicon in ordinary launches: median 10%, 90 % of 5 points within 30%; in others: "
    assert band([*points, {"silicon_us": 1.0}]) == text + "not known"
    others = [{**points[0], "launches": "overlapping"}]
    assert band(points + others) == text + "median 20%, 90 % of 1 points within 20%"
    assert error_band(profile("b200"), file) == "error not known on this chip"


def test_long_programs_are_shortened():
    trace = recorded("add.u32 %r1, %tid, 1;")
    traces = [trace] * 50
    lines = summary(replay(traces, tiny()), traces)
    assert "     ...  10 more" in lines and sum(" k " in line for line in lines) == 40


def same_track(a, b):
    return (a["pid"], a["tid"]) == (b["pid"], b["tid"])


def inside(event, found):
    return same_track(event, found) and found["ts"] <= event["ts"] <= found["ts"] + found["dur"]


def overlaps(a, b):
    return a["ts"] + 1e-9 < b["ts"] + b["dur"] and b["ts"] + 1e-9 < a["ts"] + a["dur"]


def within(a, b):
    return b["ts"] <= a["ts"] + 1e-9 and a["ts"] + a["dur"] <= b["ts"] + b["dur"] + 1e-9


def test_a_timeline_shows_who_waited_for_whom(tmp_path):
    traces = [ring(2, 8), multiplied(3, 64)]
    replayed = replay(traces, tiny(), spans=10_000)
    write_timeline(tmp_path / "t.json", replayed, traces)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    titles = [event["name"] for event in slices]
    assert titles.count("load") == 8 and titles.count("MMA") == 3
    assert any(title.startswith("waits: loads (PTX line ") for title in titles)
    assert any(title.startswith("waits: tensor core (PTX line ") for title in titles)
    names = {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert {"SM 0", "copies", "tensor core", "slot 0 warp 0: loads"} <= names
    begun, ended = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert begun and [event["id"] for event in begun] == [event["id"] for event in ended]
    for event in begun + ended:
        assert any(inside(event, found) for found in slices), "an arrow without a slice at its end"
    for first in slices:
        for second in slices:
            if first is not second and same_track(first, second) and overlaps(first, second):
                assert within(first, second) or within(second, first), "slices of a track lie in each other or apart"
    with pytest.raises(ValueError, match="has kept no spans"):
        write_timeline(tmp_path / "t.json", replay(traces, tiny()), traces)


def test_timelines_and_pictures_begin_with_the_first_launch(tmp_path):
    traces, chip = [ring(2, 8)], tiny(launch_first=5000)
    replayed = replay(traces, chip, spans=10_000)
    ((start, duration),) = _all_sms(replayed, replayed.spans[replayed.spans["kind"] == CTA])[0, _LAUNCHES[0]]
    assert start == pytest.approx(0.11) and start + duration < replayed.us < 5 < chip.us(replayed.ends[0])
    write_timeline(tmp_path / "t.json", replayed, traces)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert min(event["ts"] for event in events if event["ph"] == "X") == pytest.approx(start)


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="pictures need matplotlib")
def test_a_picture(tmp_path):
    traces = [ring(2, 8), multiplied(3, 64)]
    draw(tmp_path / "a.png", replay(traces, tiny(), spans=10_000), traces, "title")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="SM 3 has no CTA"):
        draw(tmp_path / "a.png", replay(traces, tiny(), spans=10_000), traces, "title", sm=3)


def test_l2_keeps_what_launches_have_left():
    """Launches of a clock share their data; those of a loop do not."""
    trace = recorded("ld.global.b32 %r1, [%a0];", lines_of(1))
    assert replay([trace] * 3, tiny(), other_data=False).usage.dram_read == 32
    assert np.isclose(replay([trace] * 3, tiny()).usage.dram_read, 96)
