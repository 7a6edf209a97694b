"""Kernels with TVM-FFI's calling convention; test_runtime.py runs them on the emulated device if tvm_ffi is there."""

import os
import tempfile

import cutlass.cute as cute
import torch
import tvm_ffi
from cutlass.cute.runtime import from_dlpack, load_module
from kernel_checks import Launches, N, caught, make_scale

import nogpu
from nogpu.cuda import handles


def compiled(factor, x):
    return cute.compile(
        make_scale(factor), from_dlpack(x, enable_tvm_ffi=True).mark_layout_dynamic(), N, options="--enable-tvm-ffi"
    )


def check_kernels_run_and_are_told_apart():
    x = torch.ones(N, device="cuda")
    double, triple = compiled(2.0, x), compiled(3.0, x)
    for scale in (double, triple, double):
        scale(x, N)
    libraries = len(handles.modules)
    double(x, N)
    assert x.tolist() == [24.0] * N and len(handles.modules) == libraries


def check_errors_raise_from_the_call():
    x = torch.ones(N, device="cuda")
    scale = compiled(2.0, x)
    error = caught(scale, x, N + 1)
    assert type(error) is nogpu.EmulatorError and error.cta == (1, 0, 0)

    def launch(*args):
        raise KeyboardInterrupt

    with Launches(launch):
        assert type(caught(scale, x, N)) is KeyboardInterrupt
    assert caught(scale, x, N) is None


def check_code_without_ptx_is_refused():
    x = torch.ones(N, device="cuda")
    scale = compiled(2.0, x)
    scale.artifacts.PTX = None
    error = caught(scale, x, N)
    assert type(error) is nogpu.EmulatorError and "has no PTX" in error.reason


def check_object_files_run():
    x = torch.ones(N, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scale.o")
        compiled(2.0, x).export_to_c(object_file_path=path, function_name="scale")
        scale = load_module(path, enable_tvm_ffi=True)["scale"]
        scale(x, N)
        assert x.tolist() == [2.0] * N
        error = caught(scale, x, N + 1)
        assert type(error) is nogpu.EmulatorError and error.cta == (1, 0, 0)
        with open(path, "r+b") as file:  # file as exported without the emulator
            file.truncate(os.path.getsize(path) - 16)
        error = caught(load_module(path, enable_tvm_ffi=True)["scale"], x, N)
        assert type(error) is nogpu.EmulatorError and "has no PTX" in error.reason


INLINE = """
__global__ void scale_kernel(float *x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] *= n; }
void scale(tvm::ffi::TensorView x, int64_t n) {
    scale_kernel<<<2, 32>>>(static_cast<float *>(x.data_ptr()), n);
    if (cudaGetLastError() != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "the launch failed";
}
"""


def check_modules_of_cuda_run():
    with tempfile.TemporaryDirectory() as folder:
        module = tvm_ffi.cpp.load_inline("scale", cuda_sources=INLINE, functions="scale", build_directory=folder)
    x = torch.ones(64, device="cuda")
    module.scale(x, 3)
    assert x.tolist() == [3.0] * 64
    error = caught(module.scale, torch.ones(32, device="cuda"), 3)
    assert type(error) is nogpu.EmulatorError and error.cta == (1, 0, 0)


def check_host_tensors_are_refused():
    scale = compiled(2.0, torch.ones(N, device="cuda"))
    assert "device_type=cuda" in str(caught(scale, torch.ones(N), N))


def check_tensors_that_require_gradients_are_taken():
    x = torch.ones(3, device="cuda", requires_grad=True)
    echo = tvm_ffi.get_global_func("testing.echo")
    for taken in (tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(x.detach()), echo(x)):
        assert "cuda" in str(taken.device), taken.device
