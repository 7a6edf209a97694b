"""A file of the kind that TorchInductor writes: its kernels, allocations and views run on the device.

The program is by hand, with the names and arguments that Inductor's files have. See tests/support/emulated.py.
"""

import torch
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels

assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()

KERNEL = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    filename=__file__,
    triton_meta={
        'signature': {
            'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'
        },
        'device': DeviceProperties(
            type='cuda', index=0, multi_processor_count=148, cc=100, major=10, regs_per_multiprocessor=65536,
            max_threads_per_multi_processor=2048, warp_size=32
        ),
        'constants': {},
        'configs': [{(position,): [['tt.divisibility', 16]] for position in range(4)}],
    },
    inductor_meta={
        'grid_type': 'Grid1D', 'autotune_hints': set(), 'kernel_name': 'triton_poi_fused_add_0',
        'mutated_arg_names': [], 'no_x_dim': False, 'num_load': 2, 'num_reduction': 0, 'backend_hash': '',
    },
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = tl.load(in_ptr1 + (xindex), xmask)
    tl.store(out_ptr0 + (xindex), libdevice.exp(tmp0) + triton_helpers.maximum(tmp1, tmp0), xmask)
"""
triton_poi_fused_add_0 = async_compile.triton("triton_poi_fused_add_0", KERNEL, device_str="cuda")
async_compile.wait(globals())


def call(args):
    a, b = args
    args.clear()
    assert_size_stride(a, (1024,), (1,))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((1024,), (1,), torch.float32)
        triton_poi_fused_add_0.run(a, b, buf0, 1024, stream=get_raw_stream(0))
        buf1 = empty_strided_cuda((32, 32), (32, 1), torch.float32)
        matrix = reinterpret_tensor(buf0, (32, 32), (32, 1), 0)
        extern_kernels.mm(matrix, reinterpret_tensor(b, (32, 32), (1, 32), 0), out=buf1)
    return buf0, reinterpret_tensor(buf1, (16, 32), (32, 1), 512)


def check_kernels_allocations_and_views():
    a, b = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    results = call([a, b])
    expected = a.exp() + torch.maximum(a, b)
    assert all(result.is_cuda for result in results)
    torch.testing.assert_close(results[0], expected)
    torch.testing.assert_close(results[1], (expected.view(32, 32) @ b.view(32, 32).t())[16:], atol=1e-4, rtol=1e-5)
