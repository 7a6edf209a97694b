"""NVRTC's functions of cuda_headers, called from CUDA C++."""

import ctypes

import pytest

from nogpu.cuda.programs import connection, status
from tests.cuda.test_programs import LIBRARY, compiled
from tests.support.nvcc import needs_nvcc


@needs_nvcc
@pytest.mark.parametrize("name", ["kernels", "failures"])
def test_programs(name, capfd):
    connection.connect()
    checks = ctypes.CDLL(str(compiled("nvrtc.cu", *LIBRARY, "-lnvrtc")))
    try:
        assert getattr(checks, name)() == 0, f"the line of nvrtc.cu that failed; output: {capfd.readouterr()}"
    finally:
        status.reset()
