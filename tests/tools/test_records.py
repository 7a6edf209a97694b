"""The circumstances of a run, in files that may be published."""

import hashlib
import importlib
import json

import pytest

import submission
from harness import devices
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


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("compare", []), ("clock.truth", []), ("choice.__main__", ["--measure", "--save", "x.json"])],
)
def test_a_command_that_needs_a_gpu_says_so(monkeypatch, name, arguments):
    for gpu in ("has_hopper", "has_b200"):
        monkeypatch.setattr(devices, gpu, lambda: False)
    with pytest.raises(SystemExit, match="a B200 or a Hopper GPU is needed"):
        importlib.import_module(f"tools.{name}").main(arguments)
