"""NVIDIA's libraries that are not modelled: nvcc names them, whichever step misses them."""

import subprocess

import pytest

from nogpu.cuda.programs import missing_libraries, toolkit
from tests.support.nvcc import needs_nvcc

PROGRAM = (
    'extern "C" int cublasXtCreate(void **handle);\nint main() { void *handle; return cublasXtCreate(&handle); }\n'
)


@pytest.mark.parametrize(
    "messages, name",
    [
        ("a.cpp:3:10: fatal error: cusparse.h: No such file or directory\n", "cuSPARSE (cusparse.h)"),
        ("a.cu:3:10: fatal error: nppi.h: No such file or directory\n", "NPP (nppi.h)"),
        ("a.o: undefined reference to `cusolverDnCreate'\n", "cuSOLVER (cusolverDnCreate)"),
        ("a.cpp:3:10: fatal error: mine.h: No such file or directory\n", None),
        ("a.cpp:3: error: cusparseHandle_t was not declared\n", None),
        ("a.o: undefined reference to `mine'\n", None),
    ],
)
def test_messages(messages, name):
    found = missing_libraries.of_messages(messages)
    assert found is None if name is None else found.startswith(f"{name} is not modelled: ")


@pytest.mark.parametrize("option", ["-lcublas", "-lcurand", "-lcufft", "-lnvrtc", "-lm", "cusparse.cu", "-lnpp"])
def test_libraries_that_are_there(option):
    assert missing_libraries.of_options([option]) is None


@needs_nvcc
@pytest.mark.parametrize(
    "source, options, expected",
    [
        ("#include <nccl.h>\n", ["-c"], "nvcc: NCCL (nccl.h) is not modelled"),
        ("int main() {}\n", ["-lcusparse"], "nvcc: cuSPARSE (-lcusparse) is not modelled"),
        (PROGRAM, [], "nvcc: cuBLASXt (cublasXtCreate) is not modelled"),
    ],
)
def test_nvcc_names_the_library(tmp_path, source, options, expected):
    program = tmp_path / "program.cpp"
    program.write_text(source)
    command = [toolkit.home() / "bin" / "nvcc", *options, "-o", tmp_path / "made", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode and expected in done.stderr
