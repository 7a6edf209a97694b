"""CuTe DSL programs of a few lines; run on the emulated device by test_runtime.py."""

import ctypes
import re
import struct
import tempfile
from pathlib import Path

import cuda.bindings.driver as cuda_driver
import cuda.bindings.runtime as cuda_runtime
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import HardwareInfo

import emulator
from emulator import native, runtime
from emulator.device import Device, LaunchConfig

N = 70  # more than one CTA of 64 threads, and the last one is not full


def make_scale(factor):
    """x *= factor, as a host function whose name and kernel's name do not depend on the factor."""

    @cute.kernel
    def scale_kernel(x: cute.Tensor, n: cutlass.Int32):
        i = cute.arch.block_idx()[0] * cute.arch.block_dim()[0] + cute.arch.thread_idx()[0]
        if i < n:
            x[i] = x[i] * factor

    @cute.jit
    def scale(x: cute.Tensor, n: cutlass.Int32):
        scale_kernel(x, n).launch(grid=[cute.ceil_div(n, 64), 1, 1], block=[64, 1, 1])

    return scale


@cute.kernel
def empty_kernel():
    return


@cute.jit
def configured():
    empty_kernel().launch(grid=[4, 3, 2], block=[32, 2, 1], cluster=[2, 1, 1], smem=1000, use_pdl=True)


@cute.jit
def cooperative():
    empty_kernel().launch(grid=[4, 1, 1], block=[32, 1, 1], cooperative=True)


def vector():
    x = torch.arange(N, dtype=torch.float32, device="cuda")
    return x, from_dlpack(x).mark_layout_dynamic()


def caught(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    return None


class Launches:
    """Takes the place of the device's `launch` inside a with statement."""

    def __init__(self, launch):
        self.launch = launch

    def __enter__(self):
        Device.current().launch = self.launch

    def __exit__(self, *exception):
        del Device.current().launch


def check_a_kernel_runs():
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    emulator.reset_counters()
    scale(view, N)
    scale(view, N)
    assert x.tolist() == [4.0 * i for i in range(N)]
    counters = emulator.counters()
    assert [c.grid for c in counters] == [(2, 1, 1)] * 2 and "scale_kernel" in counters[0].kernel
    assert counters[0].stored_bytes == 4 * N


def check_kernels_of_one_name_are_told_apart():
    x, view = vector()
    before = len(runtime.captured)
    double, triple = cute.compile(make_scale(2.0), view, N), cute.compile(make_scale(3.0), view, N)
    names, texts = zip(*runtime.captured[before:])
    assert names[0] == names[1] and texts[0] != texts[1]
    assert re.findall(r"\.entry (\w+)", texts[0]) == re.findall(r"\.entry (\w+)", texts[1])
    for scale, factor in ((double, 2), (triple, 3), (double, 2)):
        before = x.tolist()
        scale(view, N)
        assert x.tolist() == [factor * value for value in before]


def check_direct_calls_compile_once():
    x, view = vector()
    scale = make_scale(5.0)
    before = len(runtime.captured)
    for _ in range(2):  # one line: nvidia-cutlass-dsl 4.5.2 compiles for every calling line
        scale(view, N)
    assert x.tolist() == [25.0 * i for i in range(N)] and len(runtime.captured) == before + 1


def check_a_broken_rule_raises_from_the_call():
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    error = caught(scale, view, N + 1)
    assert type(error) is emulator.EmulatorError, error
    assert "scale_kernel" in error.kernel and error.cta == (1, 0, 0) and "ld.global" in error.ptx_text
    assert f"0 byte(s) past the end of tensor float32[{N}]" in error.reason
    x.fill_(1)
    scale(view, N)
    assert x.tolist() == [2.0] * N


def check_any_exception_crosses_the_host_code():
    _, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    for raised in (KeyboardInterrupt(), ZeroDivisionError("in the callback")):

        def launch(*args, raised=raised):
            raise raised

        with Launches(launch):
            assert caught(scale, view, N) is raised
    runtime._state.failure = ZeroDivisionError("of a call that nobody waited for")
    assert caught(scale, view, N) is None


def check_launch_attributes_arrive():
    seen = []
    with Launches(lambda entry, config, params: seen.append((config, params))):
        configured()
        cooperative()
    (config, params), (other, _) = seen
    assert (config.grid, config.block, config.cluster) == ((4, 3, 2), (32, 2, 1), (2, 1, 1)) and params == []
    assert (config.dynamic_shared_bytes, config.programmatic, config.cooperative) == (1000, True, False)
    assert (other.grid, other.cluster, other.programmatic, other.cooperative) == ((4, 1, 1), (1, 1, 1), False, True)
    assert isinstance(config, LaunchConfig)


def check_parameters_are_copied_by_size():
    seen = []
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    with Launches(lambda entry, config, params: seen.append((entry, params))):
        scale(view, N)
    entry, params = seen[0]
    assert [len(value) for value in params] == [parameter.size for parameter in entry.params]
    assert int.from_bytes(params[0][:8], "little") == x.data_ptr() and params[1] == N.to_bytes(4, "little")


def check_code_without_ptx_is_refused():
    _, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    scale.artifacts.PTX = None
    error = caught(scale, view, N)
    assert type(error) is emulator.EmulatorError and "has no PTX" in error.reason


def check_ptx_that_the_program_keeps_stays_its_own():
    _, view = vector()
    with tempfile.TemporaryDirectory() as folder:
        scale = cute.compile(make_scale(2.0), view, N, options=f"--keep-ptx --dump-dir={folder}")
        (kept,) = Path(folder).glob("*.ptx")
        assert kept.read_text() == scale.artifacts.PTX == runtime.captured[-1][1]
        cute.compile(make_scale(3.0), view, N)
        assert len(list(Path(folder).iterdir())) == 1


def check_unknown_attributes_are_refused():
    shim, handle = native.load("shim.c"), 1 << 40
    runtime._kernels[handle] = runtime.Kernel("kernel", "")
    # cudaLaunchAttribute: id, padding, 64 bytes; cudaLaunchConfig_t: grid, block, shared bytes, queue, attributes
    attribute = ctypes.create_string_buffer(struct.pack("<i4x16I", 11, *[1] * 16))
    config = struct.pack("<6IQQQI4x", *[1] * 6, 0, 0, ctypes.addressof(attribute), 1)
    assert shim._cudaLaunchKernelEx(config, ctypes.c_void_p(handle), None) == runtime.LAUNCH_FAILURE
    assert "launch attribute 11 is not modelled" in str(caught(runtime._raise_failure))
    assert shim._cudaFuncSetAttribute(ctypes.c_void_p(handle), 77, 1) == runtime.LAUNCH_FAILURE
    assert "kernel attribute 77 is not modelled" in str(caught(runtime._raise_failure))
    assert shim._cudaFuncSetAttribute(ctypes.c_void_p(handle), 8, 232449) == runtime.LAUNCH_FAILURE
    assert "the limit is 232448" in str(caught(runtime._raise_failure))


def check_hardware_info():
    info = HardwareInfo()
    assert info.get_max_active_clusters(1) == 148 and info.get_max_active_clusters(2) == 74
    assert info.get_device_multiprocessor_count() == 148
    assert info.get_l2_cache_size_in_bytes() == Device.current().properties.l2_bytes


def check_cuda_bindings():
    def succeeded(result):
        assert int(result[0]) == 0
        return result[1] if len(result) == 2 else None

    assert succeeded(cuda_driver.cuInit(0)) is None
    assert succeeded(cuda_driver.cuDeviceGetCount()) == succeeded(cuda_runtime.cudaGetDeviceCount()) == 1
    device = succeeded(cuda_driver.cuDeviceGet(0))
    major = cuda_driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert succeeded(cuda_driver.cuDeviceGetAttribute(major, device)) == 10
    unknown = cuda_driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
    assert "TEXTURE_ALIGNMENT" in str(caught(cuda_driver.cuDeviceGetAttribute, unknown, device))
    pointer = succeeded(cuda_driver.cuMemAlloc(256))
    allocation = Device.current().memory.allocation(int(pointer))
    assert (allocation.start, allocation.end) == (int(pointer), int(pointer) + 256) and int(pointer) % 512 == 0
    succeeded(cuda_driver.cuMemsetD32Async(pointer, 0x01020304, 64, cuda_driver.CUstream(0)))
    assert bytes(allocation.data) == bytes([4, 3, 2, 1]) * 64
    succeeded(cuda_driver.cuMemFree(pointer))
    assert Device.current().memory.allocation(int(pointer)) is None
    start, end = (succeeded(cuda_driver.cuEventCreate(0)) for _ in range(2))
    for event in (start, end):
        succeeded(cuda_driver.cuEventRecord(event, cuda_driver.CUstream(0)))
    assert 0 <= succeeded(cuda_driver.cuEventElapsedTime(start, end)) < 1000
