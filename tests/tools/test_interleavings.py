"""Saved runs of tools.interleavings, which a later run continues."""

import json
import subprocess
import sys
import types

import pytest

from tools import interleavings
from tools.interleavings import CLEAN, FAILS, Explored
from workshop import records


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on programs of these names. Returns (exit code, calls of `explored`, the file's content)."""
    calls, path = tmp_path / "calls", tmp_path / "saved.json"

    def explored(name, runs, seeds, earlier=None):
        with calls.open("a") as file:
            print(name, seeds, *(() if earlier is None else ["behind", earlier.random]), file=file)
        if name == "dies":
            raise ValueError("no verdict")
        return Explored(FAILS if name == "fails" else CLEAN, runs=1, random=seeds)

    def run(names, *arguments):
        programs = [types.SimpleNamespace(name=name, record=name) for name in names.split()]
        monkeypatch.setattr(interleavings, "small_programs", lambda: programs)
        monkeypatch.setattr(interleavings, "explored", explored)
        calls.write_text("")
        code = interleavings.main([*arguments, "--save", str(path)])
        return code, sorted(calls.read_text().splitlines()), json.loads(path.read_text())

    return run


def test_a_saved_run_goes_on_where_it_ended(run, monkeypatch):
    code, calls, saved = run("clean dies fails", "--only", "clean")
    assert (code, calls, saved["tasks"]) == (0, ["clean 0"], 1)
    code, calls, saved = run("clean dies fails")
    assert (code, calls, saved["tasks"]) == (1, ["dies 0", "fails 0"], 3)
    code, calls, saved = run("clean dies fails", "--seeds", "3")
    assert (code, calls) == (1, ["clean 3 behind 0", "dies 3"])
    assert {row["program"]: row["random"] for row in saved["rows"]} == {"clean": 3, "dies": 0, "fails": 0}
    assert run("clean", "--seeds", "2")[1] == []
    assert run("clean", "--runs", "7")[1] == ["clean 0"]
    monkeypatch.setattr(records, "emulator", lambda: "another")
    code, calls, saved = run("clean", "--runs", "7")
    assert (code, calls, saved["tasks"]) == (0, ["clean 0"], 1)


def test_random_schedules_are_added_to_earlier_ones(monkeypatch):
    from workshop.mutants import trial

    schedules = []
    monkeypatch.setattr(trial, "once", lambda tape, ptx, schedule, sanitized: schedules.append(schedule))
    tape = types.SimpleNamespace(expected={"memory": 0}, ptx="")
    found = interleavings.explored(lambda: tape, 1, 4, earlier=Explored(CLEAN, runs=5, random=2))
    assert schedules == ["random:3", "random:4"]
    assert (found.verdict, found.runs, found.random) == (CLEAN, 5, 4)


def test_seconds_include_those_of_children():
    before = interleavings._cpu_seconds()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert interleavings._cpu_seconds() - before > 0.25


def test_tables_of_saved_runs(run, tmp_path):
    assert "Not measured yet" in interleavings.verdicts_table(tmp_path, "counts")
    _, _, saved = run("one two fails", "--seeds", "2")
    for row in saved["rows"]:
        row["program"] += ", gemm"
    for part in ("", "-benchmark"):
        (tmp_path / f"interleavings{part}.json").write_text(json.dumps(saved))
    text = interleavings.verdicts_table(tmp_path, "configurations")
    assert "| two | gemm | clean | nothing | 0 | 1 | 0 | 2 |" in text and "| fails | gemm | fails |" in text
    assert interleavings.verdicts_table(tmp_path, "benchmark") == text
    counts = interleavings.verdicts_table(tmp_path, "counts")
    assert counts.count("| 3 of 3 small cases | 9 | 2 clean, 0 bounded, 1 fails | 0 |") == 2
