"""CuTe DSL programs of a few lines; test_runtime.py runs them on the emulated device."""

import ctypes
import importlib
import os
import re
import struct
import tempfile
from pathlib import Path

import cuda.bindings.driver as cuda_driver
import cuda.bindings.runtime as cuda_runtime
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack, load_module
from cutlass.utils import HardwareInfo

import nogpu
from nogpu.cuda import events, handles, modules
from nogpu.cuda.dsl import hooks, runtime
from nogpu.cuda.programs import status
from nogpu.cuda.programs.status import LAUNCH_FAILURE, SUCCESS
from nogpu.execution.device import Device, LaunchConfig
from nogpu.hardware.tma.im2col import Im2col
from nogpu.hardware.tma.tensor_map import TensorMap

N = 70  # elements: two CTAs of 64 threads, the second not full


def make_scale(factor):
    """Make a host function for x *= factor. Its name and its kernel's name do not depend on the factor."""

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
def queued(queue: cuda_driver.CUstream):
    empty_kernel().launch(grid=[1, 1, 1], block=[32, 1, 1], stream=queue)


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
    """A replacement of the device's `launch` within a with statement."""

    def __init__(self, launch):
        self.launch = launch

    def __enter__(self):
        Device.current().launch = self.launch

    def __exit__(self, *exception):
        del Device.current().launch


def check_a_kernel_runs():
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    nogpu.reset_counters()
    scale(view, N)
    scale(view, N)
    assert x.tolist() == [4.0 * i for i in range(N)]
    counters = nogpu.counters()
    assert [c.grid for c in counters] == [(2, 1, 1)] * 2 and "scale_kernel" in counters[0].kernel
    assert counters[0].stored_bytes == 4 * N


def check_kernels_of_one_name_are_told_apart():
    x, view = vector()
    before = len(hooks.captured)
    double, triple = cute.compile(make_scale(2.0), view, N), cute.compile(make_scale(3.0), view, N)
    names, texts = zip(*hooks.captured[before:])
    assert names[0] == names[1] and texts[0] != texts[1]
    assert re.findall(r"\.entry (\w+)", texts[0]) == re.findall(r"\.entry (\w+)", texts[1])
    for scale, factor in ((double, 2), (triple, 3), (double, 2)):
        before = x.tolist()
        scale(view, N)
        assert x.tolist() == [factor * value for value in before]


def check_direct_calls_compile_once():
    x, view = vector()
    scale = make_scale(5.0)
    before = len(hooks.captured)
    for _ in range(2):  # nvidia-cutlass-dsl 4.5.2 compiles for every calling line, so one line calls twice
        scale(view, N)
    assert x.tolist() == [25.0 * i for i in range(N)] and len(hooks.captured) == before + 1


def check_a_broken_rule_raises_from_the_call():
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    error = caught(scale, view, N + 1)
    assert type(error) is nogpu.EmulatorError, error
    assert "scale_kernel" in error.kernel and error.cta == (1, 0, 0) and "ld.global" in error.ptx_text
    assert f"0 byte(s) past the end of tensor float32[{N}]" in error.reason
    x.fill_(1)
    scale(view, N)
    assert x.tolist() == [2.0] * N


def check_any_exception_crosses_the_host_code():
    _, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    for raised in (KeyboardInterrupt(), ZeroDivisionError("in the callback")):

        def launch(*args, raised=raised, **options):
            raise raised

        with Launches(launch):
            assert caught(scale, view, N) is raised
    status._state.failure = ZeroDivisionError("of a call that nobody waited for")
    assert caught(scale, view, N) is None


def check_launch_attributes_arrive():
    seen = []
    with Launches(lambda entry, config, params, **options: seen.append((config, params))):
        configured()
        cooperative()
    (config, params), (other, _) = seen
    assert (config.grid, config.block, config.cluster) == ((4, 3, 2), (32, 2, 1), (2, 1, 1)) and params == []
    assert (config.dynamic_shared_bytes, config.programmatic, config.cooperative) == (1000, True, False)
    assert (other.grid, other.cluster, other.programmatic, other.cooperative) == ((4, 1, 1), (1, 1, 1), False, True)
    assert isinstance(config, LaunchConfig)


def check_a_launch_on_no_queue_is_refused():
    _, queue = cuda_driver.cuStreamCreate(0)
    for known in (queue, cuda_driver.CUstream(0), cuda_driver.CUstream(torch.cuda.current_stream().cuda_stream)):
        queued(known)
    seen = []
    with Launches(lambda entry, config, params, queue: seen.append(queue)):
        queued(queue)
        configured()
    assert seen == [int(queue), 0]
    cuda_driver.cuStreamDestroy(queue)
    for unknown in (queue, cuda_driver.CUstream(0x1234)):
        error = caught(queued, unknown)
        assert isinstance(error, nogpu.EmulatorError) and "no such queue" in str(error), error


def check_parameters_are_copied_by_size():
    seen = []
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    with Launches(lambda entry, config, params, **options: seen.append((entry, params))):
        scale(view, N)
    entry, params = seen[0]
    assert [len(value) for value in params] == [parameter.size for parameter in entry.params]
    assert int.from_bytes(params[0][:8], "little") == x.data_ptr() and params[1] == N.to_bytes(4, "little")


def check_code_without_ptx_is_refused():
    _, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    scale.artifacts.PTX = None
    error = caught(scale, view, N)
    assert type(error) is nogpu.EmulatorError and "has no PTX" in error.reason


def check_object_files_run():
    x, view = vector()
    with tempfile.TemporaryDirectory() as folder:
        cute.compile(make_scale(3.0), view, N).export_to_c(folder, "scale", function_prefix="scale")
        scale = load_module(str(Path(folder) / "scale.o")).scale
        scale(view, N)
    assert x.tolist() == [3.0 * i for i in range(N)]


def check_ptx_that_the_program_keeps_stays_its_own():
    _, view = vector()
    with tempfile.TemporaryDirectory() as folder:
        scale = cute.compile(make_scale(2.0), view, N, options=f"--keep-ptx --dump-dir={folder}")
        (kept,) = Path(folder).glob("*.ptx")
        assert kept.read_text() == scale.artifacts.PTX == hooks.captured[-1][1]
        cute.compile(make_scale(3.0), view, N)
        assert len(list(Path(folder).iterdir())) == 1


EMPTY = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry kernel()\n{\n    ret;\n}\n"


def launched(*attributes):
    """Status of a launch of 4 CTAs with attributes (id, 16 words), by the call that compiled host code makes."""
    library, handle = runtime.connect(), 1 << 40
    handles.kernels[handle] = modules.Module(EMPTY)["kernel"]
    # cudaLaunchAttribute: id, padding, 64 bytes; cudaLaunchConfig_t: grid, block, shared bytes, queue, attributes
    packed = ctypes.create_string_buffer(b"".join(struct.pack("<i4x16I", *attribute) for attribute in attributes))
    config = struct.pack("<6IQQQI4x", 4, *[1] * 5, 0, 0, ctypes.addressof(packed), len(attributes))
    return library._cudaLaunchKernelEx(config, ctypes.c_void_p(handle), None)


def words(*first):
    return *first, *[0] * (16 - len(first))


def check_unknown_attributes_are_refused():
    library, handle = runtime.connect(), 1 << 40
    assert launched((13, *words(1))) == LAUNCH_FAILURE
    assert "launch attribute 13 is not modelled" in str(caught(status.raise_failure))
    assert library._cudaFuncSetAttribute(ctypes.c_void_p(handle), 77, 1) == LAUNCH_FAILURE
    assert "kernel attribute 77 is not modelled" in str(caught(status.raise_failure))
    assert library._cudaFuncSetAttribute(ctypes.c_void_p(handle), 8, 232449) == LAUNCH_FAILURE
    assert "the limit is 232448" in str(caught(status.raise_failure))


def check_refused_launches_have_the_codes_of_hardware():
    assert launched((4, *words(3, 1, 1))) == 912
    assert "cluster (3, 1, 1)" in str(caught(status.raise_failure))


def check_attributes_of_launches():
    """A launch has its regular and its preferred cluster shape, and records the events among its attributes."""
    configs = []
    with Launches(lambda entry, config, values, **options: configs.append(config)):
        assert launched((4, *words(2, 1, 1)), (11, *words(4, 1, 1)), (5, *words(1))) == SUCCESS
        assert launched((11, *words(4, 1, 1))) == SUCCESS  # without effect where no regular shape is given
    assert configs[0].cluster == (2, 1, 1) and configs[0].grid == (4, 1, 1)
    assert [config.preferred_cluster for config in configs] == [(4, 1, 1), None]
    for attribute in (7, 12):
        event = torch.cuda.Event()
        event.record()
        before = events._recorded[event.cuda_event]
        assert launched((attribute, *words(event.cuda_event))) == SUCCESS
        assert events._recorded[event.cuda_event] > before
        event.synchronize()


def check_tensor_maps_are_encoded():
    storage = ctypes.create_string_buffer(256)
    place = ctypes.addressof(storage) + -ctypes.addressof(storage) % 64
    dims, strides = (ctypes.c_uint64 * 2)(64, 32), (ctypes.c_uint64 * 1)(128)
    box, steps = (ctypes.c_uint32 * 2)(32, 8), (ctypes.c_uint32 * 2)(1, 2)
    encode = runtime.connect()._cuTensorMapEncodeTiled

    def encoded_at(at, address):
        pointers = (ctypes.c_void_p(address), dims, strides, box, steps)
        return encode(ctypes.c_void_p(at), 6, 2, *pointers, 0, 2, 2, 1)

    assert encoded_at(place, 0x7F0000001000) == SUCCESS
    decoded = TensorMap.decode(ctypes.string_at(place, 128))
    encoded = ctypes.string_at(place, 128)
    assert (decoded.address, decoded.dims, decoded.strides) == (0x7F0000001000, (64, 32), (128,))
    assert (decoded.box, decoded.element_strides, decoded.swizzle, decoded.fill_nan) == ((32, 8), (1, 2), 64, True)
    assert decoded.element.name == "f16"
    assert encoded_at(place, 0x7F0000001008) == LAUNCH_FAILURE
    # Later calls fail too: the host code need not check the status of the first.
    assert encoded_at(place, 0x7F0000001000) == LAUNCH_FAILURE
    assert "cuTensorMapEncodeTiled: tensor map address 0x7f0000001008" in str(caught(status.raise_failure))
    # The driver writes to any address.
    assert encoded_at(place + 32, 0x7F0000001000) == SUCCESS
    assert ctypes.string_at(place + 32, 128) == encoded


def check_tensor_maps_for_im2col_are_encoded():
    storage = ctypes.create_string_buffer(256)
    place = ctypes.addressof(storage) + -ctypes.addressof(storage) % 64
    dims, strides = (ctypes.c_uint64 * 4)(64, 9, 8, 2), (ctypes.c_uint64 * 3)(128, 1152, 9216)
    corners, steps = ((ctypes.c_int * 2)(-1, -2), (ctypes.c_int * 2)(1, -3)), (ctypes.c_uint32 * 4)(1, 2, 1, 1)
    encode = runtime.connect()._cuTensorMapEncodeIm2col

    def encoded(rank, pixels):
        pointers = (ctypes.c_void_p(place), 6, rank, ctypes.c_void_p(0x7F0000001000), dims, strides, *corners)
        return encode(*pointers, 32, pixels, steps, 0, 2, 2, 1)

    assert encoded(4, 1000) == SUCCESS
    decoded = TensorMap.decode(ctypes.string_at(place, 128))
    assert (decoded.address, decoded.dims, decoded.strides) == (0x7F0000001000, tuple(dims), tuple(strides))
    assert decoded.im2col == Im2col((-1, -2), (1, -3), 1000) and decoded.box == (32, 1, 1, 1)
    assert (decoded.element_strides, decoded.swizzle, decoded.fill_nan) == ((1, 2, 1, 1), 64, True)
    assert encoded(2, 1000) == LAUNCH_FAILURE
    assert "cuTensorMapEncodeIm2col: tensor map rank 2 for im2col copies" in str(caught(status.raise_failure))


def vector_of_no_value():
    x = torch.empty(N, device="cuda")
    return x, from_dlpack(x).mark_layout_dynamic()


def check_graphs_run_their_launches_with_every_replay():
    x, view = vector()
    scale = cute.compile(make_scale(2.0), view, N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        scale(view, N)
        scale(view, N)
        y = x + 1
        assert "captured already" in str(caught(torch.cuda.CUDAGraph().capture_begin))
    assert x.tolist() == [float(i) for i in range(N)]
    for replays in (1, 2):
        graph.replay()
        assert x.tolist() == [4.0**replays * i for i in range(N)]
        assert y.tolist() == [4.0**replays * i + 1 for i in range(N)]
    graph.reset()
    assert "without a preceding" in str(caught(graph.replay))
    assert "no CUDA graph" in str(caught(graph.capture_end))


def check_graphs_keep_the_memory_that_they_use():
    graph, scale = torch.cuda.CUDAGraph(), cute.compile(make_scale(2.0), vector()[1], N)
    with torch.cuda.graph(graph):
        x, view = vector_of_no_value()
        scale(view, N)
    del x, view
    graph.replay()
    torch.cuda.synchronize()


def check_benchmarks_are_one_run():
    testing = importlib.import_module("cutlass.cute.testing")
    scale, views = cute.compile(make_scale(2.0), vector()[1], N), []
    for options in ({"warmup_iterations": 3, "iterations": 20}, {"workspace_count": 2}):
        views.clear()

        def workspace():
            views.append(vector())
            return testing.JitArguments(views[-1][1], N)

        assert testing.benchmark(scale, workspace_generator=workspace, **options) > 0
        assert [x.tolist() for x, _ in views] == [[2.0 * i for i in range(N)]]
    os.environ["NOGPU_CLOCK"] = "b200"
    assert 1 < testing.benchmark(scale, kernel_arguments=workspace(), iterations=1000) < 20  # modelled microseconds
    del os.environ["NOGPU_CLOCK"]


def check_benchmarks_on_a_queue_and_by_graphs():
    """The DSL captures a launch to see if it is on the queue; with graphs it captures those that it times."""
    testing = importlib.import_module("cutlass.cute.testing")
    _, queue = cuda_driver.cuStreamCreate(0)
    _, other = cuda_driver.cuStreamCreate(0)
    compiled = cute.compile(queued, queue)
    for options in ({}, {"use_cuda_graphs": True}):
        nogpu.reset_counters()
        arguments = testing.JitArguments(queue)
        assert testing.benchmark(compiled, kernel_arguments=arguments, stream=queue, **options) > 0
        assert len(nogpu.counters()) == 1  # nothing runs while it is captured
    arguments = testing.JitArguments(other)
    error = caught(lambda: testing.benchmark(compiled, kernel_arguments=arguments, stream=queue))
    assert "does not match the stream" in str(error), error


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
    unknown = cuda_driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER
    assert "CAN_TEX2D_GATHER" in str(caught(cuda_driver.cuDeviceGetAttribute, unknown, device))
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
