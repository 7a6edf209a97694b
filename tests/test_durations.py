"""The order of test files by recorded durations."""

import json
from types import SimpleNamespace

from tests.support.durations import FILE, Recorder, longest_first, recorded


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


def test_no_record_is_an_empty_one(tmp_path):
    assert recorded(tmp_path / "absent.json") == {}


def test_the_projects_record_names_its_files():
    seconds = recorded()
    assert seconds and all((FILE.parents[1] / name).is_file() for name in seconds)
    assert list(seconds) == sorted(seconds)
