"""Files in which commands save their figures."""

import hashlib
import json

import submission
from tools import records


def test_a_record_says_on_what_and_names_no_folder(tmp_path):
    record = records.versions(["--problem", "gemm", "--save", str(tmp_path / "figures.json")])
    records.save(tmp_path / "figures.json", record)
    saved = json.loads((tmp_path / "figures.json").read_text())
    assert saved["command"] == ["--problem", "gemm", "--save", "figures.json"]
    with open(submission.__file__, "rb") as file:
        assert saved["submission.py sha256"] == hashlib.sha256(file.read()).hexdigest()
    assert str(tmp_path) not in json.dumps(saved)


def test_a_named_file_is_shortened_too(tmp_path):
    command = records.versions(["--best", f"gemm={tmp_path / 'v4.py'}", "--set", "l2_rate=3"])["command"]
    assert command == ["--best", "gemm=v4.py", "--set", "l2_rate=3"]


def test_without_nvidia_smi_the_driver_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert records.driver_and_clocks() == "unknown"
