"""cuBLAS's functions of cuda_headers, called from CUDA C++, beside sums by the host."""

import ctypes

import pytest

from nogpu.cuda.programs import connection, status
from tests.cuda.test_programs import LIBRARY, SOURCES, compiled
from tests.support.nvcc import needs_nvcc

CHECKS = (
    *("single_products", "double_products", "half_products", "mixed_products", "integer_products", "complex_products"),
    *("vectors", "descriptors", "a_matrix_on_the_host", "refusals"),
)
pytestmark = needs_nvcc


@pytest.fixture(scope="module")
def checks():
    connection.connect()
    return ctypes.CDLL(str(compiled("blas.cu", *LIBRARY, "-lcublas", "-lcublasLt")))


def test_every_check_is_called():
    assert (SOURCES / "blas.cu").read_text().count('extern "C" int') == len(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_cublas(checks, name, capfd):
    try:
        assert getattr(checks, name)() == 0, f"the line of blas.cu that failed; output: {capfd.readouterr()}"
    finally:
        status.reset()
