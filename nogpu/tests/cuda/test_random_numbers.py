"""cuRAND's host functions of cuda_headers, called from CUDA C++."""

import ctypes

from nogpu.cuda.programs import connection, status
from tests.cuda.test_programs import LIBRARY, compiled
from tests.support.nvcc import needs_nvcc


@needs_nvcc
def test_distributions(capfd):
    connection.connect()
    checks = ctypes.CDLL(str(compiled("random.cu", *LIBRARY, "-lcurand")))
    try:
        assert checks.distributions() == 0, f"the line of random.cu that failed; output: {capfd.readouterr()}"
    finally:
        status.reset()
