"""cuRAND's host functions of cuda_headers, called from CUDA C++."""

import ctypes
import subprocess

from nogpu.cuda.programs import connection, status, toolkit
from tests.cuda.test_programs import LIBRARY, compiled
from tests.support.nvcc import needs_nvcc

OWN = """#ifndef CURAND_H_
#define CURAND_H_
#include <cuda_runtime.h>
#define CURANDAPI
TYPES
extern "C" curandStatus_t CURANDAPI curandCreateGenerator(curandGenerator_t *generator, curandRngType_t rng_type);
extern "C" curandStatus_t CURANDAPI curandGenerateUniform(curandGenerator_t generator, float *outputPtr, size_t num);
#endif
"""


@needs_nvcc
def test_beside_the_header_of_a_toolkit(tmp_path):
    """curand_kernel.h includes the toolkit's own curand.h, before the program or after it."""
    types = (toolkit.HEADERS / "curand.h").read_text().partition("#else\n")[2].partition("#endif")[0]
    (tmp_path / "curand.h").write_text(OWN.replace("TYPES", types.replace("#define CURANDAPI", "")))
    (tmp_path / "curand_kernel.h").write_text('#include "curand.h"\n')
    for order in (("<curand.h>", "<curand_kernel.h>"), ("<curand_kernel.h>", "<curand.h>")):
        program = tmp_path / "program.cu"
        program.write_text(
            "".join(f"#include {name}\n" for name in order) + "int main() { curandGenerator_t g; "
            "return curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT); }\n"
        )
        command = [toolkit.home() / "bin" / "nvcc", f"-I{tmp_path}", "-lcurand", "-o", tmp_path / "program", program]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@needs_nvcc
def test_distributions(capfd):
    connection.connect()
    checks = ctypes.CDLL(str(compiled("random.cu", *LIBRARY, "-lcurand")))
    try:
        assert checks.distributions() == 0, f"the line of random.cu that failed; output: {capfd.readouterr()}"
    finally:
        status.reset()
