"""Files in which commands save their figures."""

import json

import pytest

from workshop import records


def test_paths_are_shortened(tmp_path):
    command = records.versions(["--best", f"gemm={tmp_path / 'v4.py'}", "--set", "l2_rate=3"])["command"]
    assert command == ["--best", "gemm=v4.py", "--set", "l2_rate=3"]


def test_without_nvidia_smi_the_driver_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert records.driver_and_clocks() == "unknown"


@pytest.mark.parametrize("rows", [{"a": [1], "b": [2, 3]}, [{"a": 1}, {"b": 2}], {}, []])
def test_rows_have_a_line_each(tmp_path, rows):
    record = {"torch": "2", "rows": rows, "more": rows}
    records.write(tmp_path / "file.json", record, "rows", "more")
    assert json.loads((tmp_path / "file.json").read_text()) == record == records.load(tmp_path / "file.json")
    assert len((tmp_path / "file.json").read_text().splitlines()) == 2 + 2 * (2 + max(len(rows), 1))


def test_files_that_are_none(tmp_path):
    records.write(None, {})
    assert records.load(None) is None is records.load(tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(records.MeasurementError, match="broken.json"):
        records.load(tmp_path / "broken.json")


def test_a_file_is_complete_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    records.write(path, {"a": 1})
    monkeypatch.setattr(type(path), "write_text", lambda self, text, encoding: self.write_bytes(text[:3].encode()))
    monkeypatch.setattr(records.os, "replace", lambda *_: pytest.fail("interrupted"))
    with pytest.raises(pytest.fail.Exception):
        records.write(path, {"a": 2})
    assert records.load(path) == {"a": 1}


def test_a_file_of_other_facts_is_not_continued(tmp_path):
    path = tmp_path / "file.json"
    records.write(path, {"kernel": "x", "rows": [1]})
    assert records.earlier(path, {"kernel": "x"}, ["kernel", "emulator"])["rows"] == [1]
    assert records.earlier(path, {"kernel": "y"}, ["kernel"]) == {} == records.earlier(None, {}, [])
