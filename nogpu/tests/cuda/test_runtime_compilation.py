"""torch.cuda._compile_kernel: compiled by nvcc, kept, launched by torch's own code."""

import pytest

from nogpu import store
from tests.support.emulated import run
from tests.support.nvcc import needs_nvcc

PROGRAM = """
import torch
source = r'''
template <typename T> __global__ void add(const T *a, const T *b, T *c, int n) {
    extern __shared__ T row[];
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    row[threadIdx.x] = a[i];
    if (i < n) c[i] = row[threadIdx.x] + b[i];
}
extern "C" __global__ void outside(float *a, int n) { a[n] = 1; }
'''
add = torch.cuda._compile_kernel(source, "add<float>")
a, b = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
c = torch.empty_like(a)
try:
    add(grid=(4, 1, 1), block=(256, 1, 1), args=[a, b, c, 1024], shared_mem=1 << 16)
except RuntimeError as error:
    print("not configured" in str(error))
add.set_shared_memory_config(1 << 16)
add(grid=(4, 1, 1), block=(256, 1, 1), args=[a, b, c, 1024], shared_mem=1 << 16)
print(torch.equal(c, a + b))
try:
    torch.cuda._compile_kernel("__global__ void f() { undeclared; }", "f")
except RuntimeError as error:
    print("undeclared" in str(error))
torch.cuda._compile_kernel(source, "outside")(args=[a, 1 << 20])
"""


@needs_nvcc
def test_kernels_that_torch_compiles():
    pytest.importorskip("torch")
    done = run("-c", PROGRAM)
    assert done.stdout == "True\nTrue\nTrue\n" and done.returncode == 100, done.stderr
    assert "outside.cu:8\n" in done.stderr
    assert len(list((store.root() / "kernels").glob("*.sealed"))) >= 2
