"""The circumstances of a run, in files that may be published."""

import hashlib
import json

import submission
from tools import circumstances
from workshop import records


def test_a_record_says_on_what_and_names_no_folder(tmp_path):
    record = circumstances.versions(["--problem", "gemm", "--save", str(tmp_path / "figures.json")])
    records.save(tmp_path / "figures.json", record)
    saved = json.loads((tmp_path / "figures.json").read_text())
    assert saved["command"] == ["--problem", "gemm", "--save", "figures.json"]
    with open(submission.__file__, "rb") as file:
        assert saved["submission.py sha256"] == hashlib.sha256(file.read()).hexdigest()
    assert str(tmp_path) not in json.dumps(saved) and saved["torch"] and saved["nvidia-cutlass-dsl"]
