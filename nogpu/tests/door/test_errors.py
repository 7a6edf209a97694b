"""Errors that end with the program's own line, and say what a reader needs to act."""

import sys
from types import ModuleType

import numpy as np
import pytest

import nogpu
from nogpu.bootstrap.sitecustomize import own_frames
from nogpu.errors import EmulatorError, Fault
from nogpu.execution.device import Device
from nogpu.hardware.memory import GlobalMemory
from nogpu.ptx import module as ptx
from nogpu.sanitizer.observer import Sanitizer
from tests.support.small_kernels import module

FILES = """
.file 1 "/home/me/kernel.cu"
.file 2 "/venv/site-packages/nvidia/cu13/bin/../include/sm_30_intrinsics.hpp"
.file 3 "/usr/local/cuda-13.0/targets/x86_64-linux/include/crt/other.hpp"
.file 4 "/home/me/include/mine.h"
"""


@pytest.mark.parametrize(
    "locations, source",
    [
        ([".loc 1 4 3"], "/home/me/kernel.cu:4"),
        ([".loc 2 373 9, function_name $L, inlined_at 1 4 3"], "/home/me/kernel.cu:4"),
        (  # in a function of the program that is inlined, too
            [".loc 1 2 29, function_name $L, inlined_at 1 4 3", ".loc 2 373 9, function_name $L, inlined_at 1 2 29"],
            "/home/me/kernel.cu:2",
        ),
        (  # two headers of CUDA deep
            [".loc 3 7 1, function_name $L, inlined_at 1 5 3", ".loc 2 373 9, function_name $L, inlined_at 3 7 1"],
            "/home/me/kernel.cu:5",
        ),
        ([".loc 4 8 1, function_name $L, inlined_at 1 4 3"], "/home/me/include/mine.h:8"),
        ([".loc 2 373 9"], "/venv/site-packages/nvidia/cu13/bin/../include/sm_30_intrinsics.hpp:373"),
    ],
)
def test_the_line_of_what_is_inlined_from_a_header_of_cuda(locations, source):
    body = "\n".join(locations) + "\nbar.warp.sync -1;"
    entry = ptx.parse(module(body) + FILES).entries["k"]
    (found,) = [each.source for each in entry.instructions if each.opcode.startswith("bar")]
    assert found == source


def reason(memory, address):
    with pytest.raises(Fault) as raised:
        memory.at(address, 4, "load")
    return raised.value.reason


def test_freed_memory_names_who_has_freed_it():
    """The line is this file's: no frame of a package that frees."""
    memory, data = GlobalMemory(), np.zeros(1 << 12, np.uint8)
    memory.register(data.ctypes.data, 1 << 12, "cudaMalloc(4096)")
    memory.release(data.ctypes.data)
    found = reason(memory, data.ctypes.data + 16)
    assert f"cudaMalloc(4096) at {data.ctypes.data:#x} (4096 bytes) was there, freed at {__file__}:" in found
    memory.register(data.ctypes.data, 16)  # the memory is given out again
    assert "was there" in reason(memory, data.ctypes.data + 16)
    memory.at(data.ctypes.data, 16, "store")


def test_a_host_pointer_is_called_one():
    host, memory, device = np.zeros(1 << 22, np.uint8), GlobalMemory(), np.zeros(1 << 22, np.uint8)
    memory.register(device.ctypes.data, 64)
    assert "there is no live allocation; the host has memory there" in reason(GlobalMemory(), host.ctypes.data)
    found = reason(memory, host.ctypes.data + (1 << 20))
    assert "it lies" in found and found.endswith("; the host has memory there: a host pointer, or one that is far off")
    assert "it lies 0 byte(s) past the end" in reason(memory, device.ctypes.data + 64)
    assert "a host pointer" not in reason(memory, 0x10000), "nothing is there"


def test_a_report_has_the_shape_of_its_launch():
    kernel = nogpu.load_ptx(module("mov.b64 %rd5, 64; st.global.b32 [%rd5], 5;"))["k"]
    with pytest.raises(EmulatorError, match=r"warp 0; launch of grid \(4, 2, 1\), block \(64, 1, 1\), clusters of"):
        kernel.launch((4, 2), 64, [nogpu.array(np.zeros(4, np.uint32))], cluster=2)


SHARED = "mov.u32 %r1, smem; mad.lo.u32 %r2, %tid, 4, %r1; xor.b32 %r3, %r2, 4; st.shared.b32 [%r2], %tid; "


@pytest.mark.parametrize(
    "threads, says", [(32, "usual way: bar.warp.sync (__syncwarp) between"), (64, "__syncthreads")]
)
def test_the_barrier_that_is_missing(threads, says):
    """Lanes of one warp exchange words; in a CTA of several warps, __syncthreads is the usual way."""
    device = Device()
    device.sanitizer = Sanitizer()
    data = np.zeros(64, np.uint32)
    device.memory.register(data.ctypes.data, data.nbytes)
    entry = ptx.parse(module(SHARED + "ld.shared.b32 %r4, [%r3]; st.global.b32 [%a0], %r4;")).entries["k"]
    config = nogpu.LaunchConfig((1, 1, 1), (threads, 1, 1), dynamic_shared_bytes=512)
    with pytest.raises(EmulatorError, match="rule lanes") as raised:
        device.launch(entry, config, [data.ctypes.data.to_bytes(8, "little")])
    assert says in raised.value.reason and "__syncwarp" in raised.value.reason


def test_lenient_is_named_where_it_helps():
    body = (
        "mov.u32 %r0, smem; st.shared.v4.b32 [%r0], {7, 7, 7, 7};\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r0], 16; cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group 0;"
    )
    kernel, out = nogpu.load_ptx(module(body))["k"], nogpu.array(np.zeros(64, np.uint32))
    with pytest.raises(EmulatorError, match=r"fence.proxy.async is missing .*\(--lenient, or lenient=True"):
        kernel.launch(1, 1, [out], shared=1024, schedule="late")
    with pytest.warns(nogpu.errors.OrderingWarning) as warned:
        kernel.launch(1, 1, [out], shared=1024, lenient=True)
    assert "--lenient" not in str(warned[0].message)


@pytest.mark.parametrize("library", ["nogpu.cuda", "triton.runtime.jit", "cutlass.base_dsl", "torch.ops"])
def test_frames_of_libraries_behind_the_programs_own_are_left_out(library):
    """Frames in front stay: who has called is the program's affair."""
    inner = ModuleType(library)
    exec("def run(): 1 / 0\ndef call(function): function()", inner.__dict__)

    def names(function):
        try:
            function()
        except ZeroDivisionError:
            trace, found = own_frames(sys.exc_info()[2]), []
        while trace is not None:
            found.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        return found

    def own():
        inner.run()

    assert names(own) == ["names", "own"]
    assert names(lambda: inner.call(own)) == ["names", "<lambda>", "call", "own"]
