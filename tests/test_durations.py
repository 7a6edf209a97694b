"""The order of test files by recorded durations."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.commands import ROOT, clean_environment
from tests.support.durations import FILE, SLOW_S, Recorder, is_slow, longest_first, recorded


def reports(*entries):
    return [SimpleNamespace(nodeid=name, duration=seconds, skipped=skipped) for name, seconds, skipped in entries]


def test_longest_files_come_first_and_unknown_ones_before_them():
    names = ["b.py::two", "a.py::one", "new.py::y", "c.py::one", "b.py::one", "also_new.py::z", "new.py::x"]
    items = [SimpleNamespace(nodeid=name) for name in names]
    longest_first(items, {"a.py": 3.0, "b.py": 1.5, "c.py": 20.0})
    order = ["also_new.py::z", "new.py::y", "new.py::x", "c.py::one", "a.py::one", "b.py::two", "b.py::one"]
    assert [item.nodeid for item in items] == order


def test_a_record_has_all_phases_of_what_ran_and_keeps_other_files(tmp_path):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).touch()
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"a.py": 100.0, "b.py": 7.0, "c.py": 5.0, "deleted.py": 9.0}))
    recorder = Recorder()
    for report in reports(("a.py::x", 0.5, False), ("a.py::x", 2.0, False), ("a.py::y[1::2]", 1.0, False)):
        recorder.add(report)
    for report in reports(("c.py::x", 0.1, True)):
        recorder.add(report)
    recorder.merge_into(file, tmp_path)
    assert recorded(file) == {"a.py": 3.5, "b.py": 7.0, "c.py": 5.0}


@pytest.mark.parametrize(
    ("seconds", "slow"), [({"a.py": 20.5}, True), ({"a.py": 20.0}, False), ({"b.py": 99.0}, False)]
)
def test_tests_of_long_files_are_slow(seconds, slow):
    assert is_slow(SimpleNamespace(nodeid="a.py::one"), seconds) == slow


def collected(*arguments):
    """Files of the tests that a session would run, in order."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    process = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=100)
    return list(dict.fromkeys(line.split("::")[0] for line in process.stdout.splitlines() if "::" in line))


def test_a_session_has_that_order_and_marks_slow_files():
    seconds = recorded()
    slow, *_, fast = sorted(seconds, key=lambda name: -seconds[name])
    assert seconds[fast] < SLOW_S < seconds[slow]
    assert collected(fast, slow) == [slow, fast]
    assert collected(fast, slow, "-m", "slow") == [slow]


def test_no_record_is_an_empty_one(tmp_path):
    assert recorded(tmp_path / "absent.json") == {}


def test_the_projects_record_names_its_files():
    seconds = recorded()
    assert seconds and all((FILE.parents[1] / name).is_file() for name in seconds)
    assert list(seconds) == sorted(seconds)
