"""tools.modelled: a point of ours has a time in each launch mode, another's one in ordinary launches."""

from pathlib import Path

import numpy as np
import pytest

import nogpu
from harness.launch_modes import LaunchMode
from nogpu.clock.chip import profile
from nogpu.clock.loop import modelled_loop
from task import PROBLEMS
from tools import modelled
from workshop.clock import record

PTX = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 p) { .reg .b64 %d; ld.param.u64 %d, [p]; red.global.add.u32 [%d], 1; ret; }
"""


def point(entry, problem="gemm", case=0, **times):
    return {"entry": entry, "problem": problem, "case": case, "calls": 50, **times}


def test_an_entry_takes_the_place_of_another_of_its_problem():
    old = [point("ours"), point("v3", case=0), point("v3", case=1), point("v6b", "group_gemm")]
    new = [point("ours", overlapping_us=3.0), point("v4", case=0), point("v2", "dual_gemm")]
    places = [(x["problem"], x["entry"], x["case"]) for x in modelled.merged(old, new)]
    assert places == [
        ("group_gemm", "v6b", 0),
        ("dual_gemm", "v2", 0),
        ("gemm", "ours", 0),
        ("gemm", "v4", 0),
    ]
    assert modelled.merged(old, new)[2]["overlapping_us"] == 3.0
    assert modelled.merged(old, [])[-1]["entry"] == "v3", "what an earlier run has found stays"


def test_best_entries_name_their_problems(capsys):
    arguments = ["--best", "group_gemm=a/submission_v6b.py", "--best", "gemv=/b/submission_v2h.py"]
    found = modelled.parse_arguments(arguments).best
    assert found == [("group_gemm", Path("a/submission_v6b.py").resolve()), ("gemv", Path("/b/submission_v2h.py"))]
    for wrong in ("v6b.py", "gem=v4.py", "gemm="):
        with pytest.raises(SystemExit):
            modelled.parse_arguments(["--best", wrong])
        assert f"{wrong!r} is no PROBLEM=ENTRY.py" in capsys.readouterr().err


def test_times_in_each_launch_mode(tmp_path, monkeypatch):
    """Overlapping times are of the launches that solve makes with its promises, the others of custom_kernel's."""
    nogpu.load_ptx(PTX)["k"].launch(1, 32, [nogpu.array(np.zeros(32, np.uint32))], record=tmp_path)
    (trace,) = record.load(tmp_path)
    sizes = {(): 3, ("--promised",): 2}
    of = {name: [trace] * count for name, count in sizes.items()}
    asked = []

    def loop(traces, chip, calls, programmatic):
        asked.append((len(traces), calls, programmatic))
        return modelled_loop(traces, chip, 2, programmatic=programmatic)

    count = len(PROBLEMS["gemv"].benchmarks)
    monkeypatch.setattr(modelled, "recorded", lambda entry, more, problem, folder: [more] * count)
    monkeypatch.setattr(record, "load", of.get)
    monkeypatch.setattr(modelled, "modelled_loop", loop)
    ours = modelled.points_of("ours", Path("submission.py"), "gemv", "b200")
    assert asked == [(3, 1, False), (3, 1, None)] * count + [(2, 1, None)] * count
    assert all({name for name in x if name.endswith("_us")} == {m.field for m in LaunchMode} for x in ours)
    expected = modelled_loop(of[()], profile("b200"), 2, programmatic=False).us
    assert ours[0]["ordinary_us"] == pytest.approx(expected, abs=1e-3)
    asked.clear()
    (other, *_) = modelled.points_of("v2h", Path("v2h.py"), "gemv", "b200")
    assert asked == [(3, 1, False)] * count
    assert set(other) == {"entry", "problem", "case", "calls", "ordinary_us"}
