"""NVRTC's functions of cuda_headers, called from CUDA C++."""

import ctypes

import pytest

from nogpu.cuda.programs import connection, status
from tests.cuda.test_programs import LIBRARY, compiled
from tests.support.nvcc import needs_nvcc


@pytest.fixture
def checks():
    connection.connect()
    yield ctypes.CDLL(str(compiled("nvrtc.cu", *LIBRARY, "-lnvrtc")))
    status.reset()


@needs_nvcc
@pytest.mark.parametrize("name", ["kernels", "failures"])
def test_programs(checks, name, capfd):
    assert getattr(checks, name)() == 0, f"the line of nvrtc.cu that failed; output: {capfd.readouterr()}"


@needs_nvcc
def test_headers_beside_the_source_may_change(checks, tmp_path):
    for text in ("#define BESIDE 1\n", "#define BESIDE 2\n"):
        (tmp_path / "beside.h").write_text(text)
        assert checks.beside(str(tmp_path / "own.cu").encode()) == 0
    (tmp_path / "beside.h").write_text("no C++\n")
    assert checks.beside(str(tmp_path / "own.cu").encode()) != 0
