"""The drivers of programs of others: what nvcc is told, and that a wrong matmul is noticed."""

from pathlib import Path

import pytest

from tests.support.commands import Lazy
from workshop.foreign import nvcc_run

matmul = Lazy("workshop.foreign.matmul")  # imports torch

KERNELS = """import torch
def get_kernel(name):
    return {"right": torch.mm, "wrong": lambda a, b: torch.mm(a, b) + 1}[name]
"""


@pytest.mark.parametrize("named, standard", [([], "-std=c++17"), (["-std=c++20"], "-std=c++20")])
def test_nvcc_takes_one_standard(monkeypatch, named, standard):
    calls = []
    monkeypatch.setattr(nvcc_run.subprocess, "call", lambda words: calls.append(words) or 0)
    assert nvcc_run.main(["eager", *named, "a.cu", "--", "7"]) == 0
    *compiled, run = calls
    assert [[word for word in words if word.startswith("-std")] for words in compiled] == [[standard]] * 2
    *_, schedule, program, argument = run
    assert (schedule, argument) == ("eager", "7") and program == compiled[-1][compiled[-1].index("-o") + 1]


def test_runs_of_one_program_at_once_share_no_file(monkeypatch):
    """While one run links, the other must not read or write what it links."""
    written = []

    def call(words):
        if "-o" in words:
            written.append(words[words.index("-o") + 1])
        if len(written) == 1:
            assert nvcc_run.main(["late", "a.cu"]) == 0
        return 0

    monkeypatch.setattr(nvcc_run.subprocess, "call", call)
    assert nvcc_run.main(["eager", "a.cu"]) == 0
    assert len(written) == len(set(written)) == 4


def test_files_of_kernels_are_compiled_ahead_of_the_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    calls = []

    def call(words):
        calls.append(words)
        if "-fatbin" in words:
            Path(words[words.index("-o") + 1]).write_text("made")
        return 0

    monkeypatch.setattr(nvcc_run.subprocess, "call", call)
    assert nvcc_run.main(["late", "a.cpp", "own.fatbin=kernels.cu", "-DX=b.ptx=c"]) == 0
    assert [words[-1] for words in (calls[0], calls[2])] == [str(tmp_path / "a.cpp"), "kernels.cu"] and len(calls) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["own.fatbin"]


@pytest.mark.slow  # imports torch
def test_a_matmul_is_compared_with_torchs(tmp_path, capsys):
    (tmp_path / "main.py").write_text(KERNELS)
    assert matmul.main([str(tmp_path), "right", "--shape", "8,16,32"]) == 0
    assert capsys.readouterr().out == "right 8 x 16 x 32: right\n"
    with pytest.raises(AssertionError, match="not close"):
        matmul.main([str(tmp_path), "wrong", "--shape", "8,16,32"])
