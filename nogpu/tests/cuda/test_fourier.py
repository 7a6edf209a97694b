"""cuFFT's functions of cuda_headers, called from CUDA C++."""

import ctypes

import pytest

from nogpu.cuda.programs import connection, status
from tests.cuda.test_programs import LIBRARY, compiled
from tests.support.nvcc import needs_nvcc


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("complex_numbers", "is not of the type"),
        ("real_numbers", ""),
        ("past_the_end", "cuFFT: load of 808 bytes at"),
    ],
)
def test_transforms(name, printed, capfd):
    connection.connect()
    checks = ctypes.CDLL(str(compiled("fourier.cu", *LIBRARY, "-lcufft")))
    try:
        result = getattr(checks, name)()
        output = capfd.readouterr().err
        assert result == 0, f"the line of fourier.cu that failed; output: {output}"
        assert printed in output
    finally:
        status.reset()
