"""C++ extensions of torch: one is compiled by load_inline, kept in the user's cache, and called with device tensors."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nogpu.cuda.programs import builds, connection, tensor_headers
from nogpu.cuda.programs.libraries import LINKED, LINKED_NAME, library
from nogpu.errors import EmulatorError
from tests.support.commands import Lazy, clean_environment
from tests.support.nvcc import needs_nvcc

torch = Lazy("torch")
extensions = Lazy("nogpu.cuda.programs.extensions")
# Few headers: torch/extension.h, which load_inline adds by default, takes twice as long.
SOURCE = r"""
#include <ATen/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

__global__ void kernel(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

at::Tensor twice_plus_one(at::Tensor x, int64_t n) {
    TORCH_CHECK(x.is_cuda() && !x.is_cpu() && x.get_device() == 0, "x must be on the device");
    TORCH_CHECK(x.device().is_cuda() && x.options().device().type() == at::kCUDA);
    at::cuda::CUDAGuard guard(x.device());
    at::Tensor y = at::empty_like(x);
    at::Tensor one = at::ones({1}, at::dtype(at::kFloat).device(at::kCUDA));
    at::Tensor zeros = at::zeros({4}, x.options());
    TORCH_CHECK(y.is_cuda() && one.is_cuda() && zeros.is_cuda() && !at::zeros({1}).is_cuda());
    kernel<<<(n + 127) / 128, 128, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y.add(one);
}

std::vector<at::Tensor> to_the_host(at::Tensor x, at::Tensor other) {
    auto dtype = c10::make_optional(x.scalar_type());
    return {x.cpu(), x.to(at::kCPU), x.to(at::kCPU, at::kDouble), x.to(at::kCPU, x.scalar_type()), x.to(other),
            x.to(dtype, at::kStrided, at::Device(at::kCPU), false, false, false, at::MemoryFormat::Preserve),
            x.toBackend(at::Backend::CPU), x.cpu().to(at::kInt)};
}

std::vector<at::Tensor> to_the_device(at::Tensor x, at::Tensor other) {
    return {x.cuda(), x.to(at::kCUDA), x.to(at::kCUDA, at::kDouble), x.to(other), x.to(other.device()),
            x.to(other.options().dtype(at::kInt))};
}

std::vector<at::Tensor> nowhere(at::Tensor x) {
    return {x.to(x.device()), x.to(x.options()), x.to(x.scalar_type()), x.to(x), x.is_cuda() ? x.cuda() : x.cpu()};
}

at::Tensor of_the_library(at::Tensor x) { return twice_plus_one(x, x.numel()); }

TORCH_LIBRARY(emulator_test, library) {
    library.def("anywhere(Tensor x) -> Tensor", &of_the_library);
    library.def("on_cuda(Tensor x) -> Tensor");
    library.def("nowhere(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(emulator_test, CUDA, library) { library.impl("on_cuda", &of_the_library); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("twice_plus_one", &twice_plus_one);
    module.def("to_the_host", &to_the_host);
    module.def("to_the_device", &to_the_device);
    module.def("nowhere", &nowhere);
}
"""


@pytest.fixture(scope="module")
def extension():
    if shutil.which("ninja") is None:
        pytest.importorskip("ninja", reason="ninja is not installed (pip install '.[cuda]')")
    from torch.utils.cpp_extension import load_inline

    return load_inline(
        "emulator_test",
        cpp_sources="",
        cuda_sources=SOURCE,
        no_implicit_headers=True,
        extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a", "-lineinfo"],
    )


@needs_nvcc
def test_a_function(extension):
    x = torch.arange(300.0, device="cuda")
    y = extension.twice_plus_one(x, 300)
    assert y.device == x.device and torch.equal(y, 2 * x + 1)


@needs_nvcc
def test_checks_in_cpp_refuse_host_tensors(extension):
    with pytest.raises(RuntimeError, match="x must be on the device"):
        extension.twice_plus_one(torch.arange(300.0), 300)


def check_moved(source, results, is_cuda):
    """Check that each result has the source's values, is on the named device, and has memory of its own."""
    assert [result.is_cuda for result in results] == [is_cuda] * len(results)
    assert all(torch.equal(result.cpu().float(), source.cpu()) for result in results)
    before = source.clone()
    for result in results:
        result.add_(1)
    assert torch.equal(source, before)


@needs_nvcc
def test_cpp_code_moves_a_tensor_to_the_host(extension):
    x = torch.arange(7.0, device="cuda")
    check_moved(x, extension.to_the_host(x, torch.zeros(1)), is_cuda=False)


@needs_nvcc
def test_cpp_code_moves_a_tensor_to_the_device(extension):
    x = torch.arange(7.0)
    check_moved(x, extension.to_the_device(x, torch.zeros(1, device="cuda")), is_cuda=True)


@needs_nvcc
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cpp_code_moves_a_tensor_nowhere(extension, device):
    """A tensor that is there already is returned itself, as in torch."""
    x = torch.arange(7.0, device=device)
    for result in extension.nowhere(x):
        assert result.device == x.device and result.data_ptr() == x.data_ptr()


@needs_nvcc
def test_a_kernels_error_is_raised_and_the_device_lives_on(extension):
    x = torch.arange(300.0, device="cuda")
    with pytest.raises(EmulatorError, match=r"past the end of tensor float32\[300\]") as error:
        extension.twice_plus_one(x, 301)
    assert error.value.ptx_line and error.value.source and "cuda.cu" in error.value.source
    assert torch.equal(extension.twice_plus_one(x, 300), 2 * x + 1)


@needs_nvcc
@pytest.mark.parametrize("name", ["anywhere", "on_cuda"])
def test_operations_of_a_library(extension, name):
    x = torch.arange(200.0, device="cuda")
    y = getattr(torch.ops.emulator_test, name)(x)
    assert y.is_cuda and torch.equal(y, 2 * x + 1)


@needs_nvcc
def test_an_operation_without_a_kernel_is_refused(extension):
    with pytest.raises(NotImplementedError, match="emulator_test::nowhere has no kernel for CUDA"):
        torch.ops.emulator_test.nowhere(torch.zeros(1, device="cuda"))


@needs_nvcc
def test_a_build_that_was_killed_holds_nobody_up(tmp_path, monkeypatch):
    """A killed process has left torch's lock file, whose end torch awaits. One process at a time is in the folder."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    seen = []

    def load(name, build_directory=None):
        folder = Path(build_directory)
        seen.append((folder / "lock").exists())
        with open(folder / "holder") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "lock").touch()

    apart = builds._apart(load)
    apart("n")
    apart("n")
    assert seen == [False, False]


def test_which_entry_point_an_extension_calls(tmp_path):
    """CuTe DSL's execution engine loads its library for the whole process; extensions call that of their own.

    The entry point of the tensors is defined when an extension is loaded, maybe behind the first call of CUDA.
    """
    (tmp_path / "caller.c").write_text(
        "int emulator_has_storage(void *);\nint call(void) { return emulator_has_storage(0); }"
    )
    command = ["cc", "-shared", "-fPIC", "caller.c", "-o", "caller.so", library(LINKED)]
    subprocess.run(command, cwd=tmp_path, check=True)
    program = f"""
import ctypes, torch
from nogpu.cuda.programs import libraries, connection
ctypes.CDLL(str(libraries.library(libraries.CUTE_DSL)), ctypes.RTLD_GLOBAL)
connection.connect()
import nogpu.cuda.programs.extensions
print(connection.connect().emulator_has_storage(ctypes.c_void_p(1)))
print(ctypes.CDLL("{tmp_path}/caller.so").call())
"""
    done = subprocess.run([sys.executable, "-c", program], env=clean_environment(), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n0\n", "")


def test_calls_behind_the_end_of_python(tmp_path):
    """The destructors of an extension's static objects call the runtime when Python has ended."""
    (tmp_path / "caller.c").write_text(
        "int cudaFree(void *);\nint printf(const char *, ...);\nint call(void) { return cudaFree(0); }\n"
        '__attribute__((destructor)) static void end(void) { printf("%d\\n", call()); }'
    )
    command = ["cc", "-shared", "-fPIC", "caller.c", "-o", "caller.so", library(LINKED)]
    subprocess.run(command, cwd=tmp_path, check=True)
    program = f"""
import ctypes
from nogpu.cuda.programs import connection
connection.connect()
print(ctypes.CDLL("{tmp_path}/caller.so").call(), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], env=clean_environment(), capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n4\n", "", 0)  # cudaErrorCudartUnloading


def test_functions_of_tvm_ffis_modules_see_the_device(tmp_path, monkeypatch):
    """Those of libraries that are linked against the runtime."""
    mode = torch.utils._python_dispatch._get_current_dispatch_mode
    ours, other = tmp_path / "ours.so", tmp_path / "other.so"
    ours.write_text(LINKED_NAME)
    other.write_text("")
    load = extensions._load_module(lambda path: SimpleNamespace(get_function=lambda name: lambda: (name, mode())))
    monkeypatch.setattr(connection, "connect", lambda: None)
    assert load(ours).get_function("run")() == ("run", extensions._mode)
    assert load(str(other)).get_function("run")() == ("run", None)


def test_a_torch_with_other_headers_stops_only_what_includes_them(tmp_path, monkeypatch):
    core = tmp_path / "include" / "ATen" / "core"
    core.mkdir(parents=True)
    for name in ("TensorBase.h", "TensorBody.h"):
        (core / name).write_text("#pragma once\nclass Tensor {};\n")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(tensor_headers.importlib.util, "find_spec", lambda name: spec)
    found = tensor_headers.patched()
    assert set(found) == {"TensorBase.h", "TensorBody.h"}
    for text in found.values():
        assert text.startswith("#error nogpu: torch's TensorB") and text.count("\n") == 1
