"""Calls of Triton's driver around launches; test_triton.py runs them on the emulated device."""

import contextlib
import io
import os

import torch
import triton
import triton.language as tl
from triton.backends.nvidia import compiler, driver
from triton.runtime import autotuner
from triton.testing import do_bench

import nogpu
from nogpu.cuda import benchmarks, triton_driver, triton_hooks
from nogpu.hardware.tma.im2col import Im2col
from nogpu.hardware.tma.tensor_map import TensorMap

runs = []


@triton.jit
def scale_kernel(x, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * factor, i < n)


@triton.jit
def dependent_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    tl.store(y + i, tl.load(x + i) + 1)
    tl.extra.cuda.gdc_launch_dependents()


def launches():
    return len(list(nogpu.counters()))


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as raised:
        return str(raised)
    raise AssertionError(f"no {error.__name__}")


def check_driver_is_tritons_own():
    active = triton.runtime.driver.active
    assert type(active) is driver.CudaDriver and isinstance(active.utils, driver.CudaUtils)
    assert active.get_current_target() == triton.backends.compiler.GPUTarget("cuda", 100, 32)
    properties = active.utils.get_device_properties(0)
    assert properties["multiprocessor_count"] == 148 and properties["max_shared_mem"] == 227 << 10
    assert properties["sm_clock_rate"] == torch.cuda.get_device_properties(0).clock_rate == 1_965_000  # kHz
    assert active.utils.cuOccupancyMaxActiveClusters(0, 100 << 10, 2) == 148


def check_tested_versions():
    assert triton.__version__ in triton_driver.TESTED


def check_a_launch_on_no_queue_is_refused():
    x = torch.ones(4, device="cuda")
    scale_kernel[(1,)](x, 2.0, 4, BLOCK=32)
    active = triton.runtime.driver.active
    original = active.get_current_stream
    active.get_current_stream = lambda device: 0x1234
    try:
        message = refused(nogpu.EmulatorError, lambda: scale_kernel[(1,)](x, 2.0, 4, BLOCK=32))
    finally:
        active.get_current_stream = original
    with torch.cuda.stream(torch.cuda.Stream()):
        assert active.get_current_stream(0) == torch.cuda.current_stream().cuda_stream != 0
        scale_kernel[(1,)](x, 1.0, 4, BLOCK=32)
    assert "queue 0x1234" in message and torch.equal(x.cpu(), torch.full((4,), 2.0))


def tuned_launches(sizes=(64, 128, 256), n=256):
    """(number of launches, the chosen candidate, the notes) of a first call of an autotuned kernel."""
    configurations = [triton.Config({"BLOCK": size}) for size in sizes]
    tuned = triton.autotune(configurations, key=["n"], restore_value=["x"])(scale_kernel)
    x, before, said = torch.ones(n, device="cuda"), launches(), io.StringIO()
    benchmarks.note.cache_clear()
    with contextlib.redirect_stderr(said):
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, 3.0, n)
    assert torch.equal(x, torch.full_like(x, 3))
    return launches() - before, tuned.best_config.kwargs["BLOCK"], said.getvalue()


def check_autotuning_runs_the_first_candidate():
    count, size, said = tuned_launches()
    assert (count, size) == (2, 64) and "--autotune N or all for more" in said and "says nothing of a B200" in said
    assert os.environ["HELION_AUTOTUNE_EFFORT"] == "none"


def check_autotuning_runs_as_many_candidates_as_asked_for():
    tuner = autotuner.Autotuner
    before = tuner.prune_configs, tuner._bench
    plain = [each.__wrapped__ for each in before]
    for text, runs in (("2", 2), ("9", 3), ("all", 3)):
        os.environ["NOGPU_AUTOTUNE"] = text
        tuner.prune_configs, tuner._bench = plain
        triton_hooks.install_autotuning()
        count, _, said = tuned_launches()
        assert count == runs + 1 and ("for more" in said) == (runs < 3)
    os.environ["NOGPU_CLOCK"] = "b200"
    count, size, said = tuned_launches((2, 256), n=8192)  # 4096 CTAs, or 32
    assert (count, size) == (3, 256) and "modelled on b200" in said, (count, size, said)
    del os.environ["NOGPU_CLOCK"], os.environ["NOGPU_AUTOTUNE"]
    tuner.prune_configs, tuner._bench = before


def check_benchmark_is_one_run():
    calls = []
    for arguments, expected in (({}, float), ({"quantiles": [0.5, 0.2]}, list), ({"return_mode": "all"}, list)):
        calls.clear()
        assert isinstance(do_bench(lambda: calls.append(1), **arguments), expected) and calls == [1]


def check_programmatic_and_cooperative_launches():
    x, y = torch.arange(64.0, device="cuda"), torch.zeros(64, device="cuda")
    z = torch.zeros(64, device="cuda")
    dependent_kernel[(1,)](x, y, BLOCK=64, launch_pdl=True)
    dependent_kernel[(1,)](y, z, BLOCK=64, launch_pdl=True)
    assert torch.equal(z, x + 2)
    scale_kernel[(2,)](z, 2.0, 64, BLOCK=32, launch_cooperative_grid=True)
    assert torch.equal(z, 2 * x + 4)


def check_launches_are_captured():
    x = torch.ones(64, device="cuda")
    scale_kernel[(1,)](x, 2.0, 64, BLOCK=64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale_kernel[(1,)](x, 2.0, 64, BLOCK=64)
    assert torch.equal(x, torch.full_like(x, 2))
    graph.replay()
    assert torch.equal(x, torch.full_like(x, 4))


def check_hooks_see_launches():
    seen = []
    runtime = triton.knobs.runtime
    for hook, name in ((runtime.launch_enter_hook, "enter"), (runtime.launch_exit_hook, "exit")):
        hook.add(lambda metadata, name=name: seen.append((name, metadata.get()["name"])))
    x = torch.ones(64, device="cuda")
    scale_kernel[(1,)](x, 2.0, 64, BLOCK=64)
    runtime.launch_enter_hook.calls.clear()
    runtime.launch_exit_hook.calls.clear()
    assert seen == [("enter", "scale_kernel"), ("exit", "scale_kernel")], seen


def check_kernel_runs_without_ptxas():
    ours, version = triton_hooks._starts, compiler.get_ptxas_version

    def absent(arch):
        raise RuntimeError("Cannot find ptxas")

    compiler.get_ptxas_version = absent
    try:
        assert not ours()
        x = torch.ones(64, device="cuda")
        compiled = triton.jit(scale_kernel.fn)[(1,)](x, 5.0, 64, BLOCK=16)
    finally:
        compiler.get_ptxas_version = version
    assert torch.equal(x[:16], torch.full((16,), 5.0, device="cuda"))
    assert compiled.asm["cubin"] == b"" and compiled.n_regs == 255


def check_cache_entries_are_apart():
    backend = triton.compiler.make_backend(triton.runtime.driver.active.get_current_target())
    assert backend.hash().startswith("nogpu-")


def check_unknown_interfaces():
    utils = triton_driver.CudaUtils()
    assert "asks for launch_faster" in refused(nogpu.EmulatorError, getattr, utils, "launch_faster")
    assert "passes 3 arguments" in refused(nogpu.EmulatorError, utils.launch, 1, 1, 1)
    assert "Unknown data type: 'fp8'" in refused(RuntimeError, utils.build_signature_metadata, ["*i8", "fp8"])
    corners = (-1, -2), (0, 1)
    im2col = 0x1000, 3, 2, 6, (16, 64), (2, 9, 8, 64), (4608, 512, 64, 1), 0, *corners, 64, 16, (1, 1, 2, 1)
    found = TensorMap.decode(bytes(utils.fill_tma_descriptor_im2col(*im2col).raw))
    assert found.im2col == Im2col((-2, -1), (1, 0), 16) and found.dims == (64, 8, 9, 2) and found.swizzle == 128
    assert found.strides == (128, 1024, 9216) and found.element_strides == (1, 2, 1, 1)
    reason = refused(nogpu.EmulatorError, utils.fill_tma_descriptor_im2col, *im2col[:-2], 2000, (1, 1, 1, 1))
    assert "cuTensorMapEncodeIm2col: tensor map pixels per column 2000; limit 1 to 1024" in reason

    class Driver:
        pass

    Driver.__module__ = "a"
    module = type("Module", (), {"__name__": "a"})()
    module.Driver, module.__name__ = Driver, "a"
    triton_hooks._refuse(module, "its driver has no CudaUtils")
    text = refused(nogpu.EmulatorError, Driver)
    assert f"Triton {triton.__version__}: its driver has no CudaUtils" in text and "3.9.0" in text


def check_launcher_of_triton_3_6():
    """A launcher of one signature, whose module Triton 3.6 compiles."""
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    compiled = scale_kernel[(1,)](x, 2.0, 4, BLOCK=32)
    signature = {(0,): "*fp32", (1,): "fp32", (2,): ("i32", "constexpr"), (3,): "constexpr"}
    launch = triton_driver.Launcher({}, signature).launch
    heard = []
    for grid in (0, 1):
        sizes, hooks = (compiled.metadata.num_warps, 1, 0), ("of the launch", heard.append, heard.append)
        launch(grid, 1, 1, 0, compiled.function, False, False, None, None, sizes, *hooks, y, 3.0, (4, None), 32)
        y += 1
    assert torch.equal(y, torch.full((4,), 4.0, device="cuda")) and heard == ["of the launch"] * 4
    expanded = triton_driver._expanded
    kinds = ["i1", "tensordesc<fp16[16,32]>"]
    assert expanded(kinds, [{}]) == ["i1", "nvTmaDesc", "i32", "i32", "i64", "i64"]
    assert expanded(kinds, None) == ["i1", "*fp16", *["i64"] * 4, "i1", "i32", "i32", "i64", "i64"]


def check_parameters():
    packed = triton_driver.packed
    assert packed("i8", -1) == b"\xff" and packed("i1", True) == b"\1" and packed("u64", 1) == b"\1" + bytes(7)
    assert packed("i32", 1 << 31) == b"\0\0\0\x80" and packed("*fp32", None) == bytes(8)
    assert packed("fp32", 1e300) == b"\0\0\x80\x7f" and packed("bf16", 1.0) == b"\x80\x3f"
    refused(OverflowError, packed, "i64", 1 << 64)
    refused(OverflowError, packed, "u32", -1)
    refused(OverflowError, packed, "*i8", -1)
    refused(OverflowError, packed, "fp16", 1e6)
    refused(TypeError, packed, "i32", 1.5)
    refused(TypeError, packed, "*fp32", 1.5)
    refused(TypeError, packed, "nvTmaDesc", b"")


def check_cublas():
    from triton._C.libtriton import nvidia

    cublas = nvidia.cublas.CublasLt(torch.empty(1, dtype=torch.uint8, device="cuda"))
    a, b = (torch.randint(-4, 5, (rows, 32), device="cuda").half() for rows in (8, 16))
    c, d = torch.empty(8, 16, dtype=torch.float16, device="cuda"), torch.ones(8, 16, device="cuda")
    cublas.matmul(a, b, c)
    assert torch.equal(c, a @ b.T)
    cublas.gemm(a, b, c, d, 2.0, -1.0)
    assert torch.equal(d, (a @ b.T).float())
    ones = torch.full((512,), 127, dtype=torch.uint8, device="cuda")
    cublas.block_scaled_matmul_mxfp8(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), c, ones, ones)
    assert torch.equal(c, a @ b.T)
    packed = torch.full((8, 16), 0x22, dtype=torch.uint8, device="cuda")
    result, scales = torch.empty(8, 8, dtype=torch.bfloat16, device="cuda"), torch.full((512,), 0x40, device="cuda")
    scales = scales.to(torch.uint8)
    cublas.block_scaled_matmul_nvfp4(packed, packed, result, scales, scales)
    assert torch.equal(result, torch.full_like(result, 32 * 4))
    assert "(M, K) and (N, K)" in refused(RuntimeError, cublas.matmul, a, b[:, :16], c)
    assert "a result of (8, 16)" in refused(RuntimeError, cublas.matmul, a, b, c[:4])


def check_tensor_map_that_the_driver_refuses():
    fill = triton_driver.CudaUtils.fill_tma_descriptor_tiled
    assert "stride 6 " in refused(nogpu.EmulatorError, fill, 0, 0, 2, 9, [8, 8], [8, 3], [3, 1], 0)
    assert "Rank" in refused(RuntimeError, fill, 0, 0, 2, 9, [8, 8], [8], [3, 1], 0)


def check_program_on_the_device_inherits():
    assert os.environ["NOGPU"] == "1"
