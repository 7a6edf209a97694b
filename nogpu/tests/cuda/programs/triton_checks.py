"""Triton and Gluon kernels of a few lines; test_triton.py runs them on the emulated device."""

import inspect

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.tools.tensor_descriptor import TensorDescriptor

import nogpu

triton.set_allocator(lambda size, alignment, queue: torch.empty(size, dtype=torch.int8, device="cuda"))


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def add(x, y, out, n):
    return add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)


def check_add():
    x, y = torch.rand(1000, device="cuda"), torch.rand(1000, device="cuda")
    out = torch.full((1024,), torch.nan, device="cuda")
    compiled = add(x, y, out, 1000)
    assert torch.equal(out[:1000], x + y) and out[1000:].isnan().all()
    assert 8 <= compiled.n_regs <= 64 and compiled.n_spills == 0 and compiled.n_max_threads == 128
    assert compiled.metadata.target.arch == 100 and ".target sm_100a" in compiled.asm["ptx"]


def check_out_of_bounds_access_names_its_line():
    x, out = torch.rand(1000, device="cuda"), torch.empty(1000, device="cuda")
    try:
        add(x, x, out, 1001)
    except nogpu.EmulatorError as error:
        assert "past the end of tensor float32[1000]" in error.reason, error
        line = inspect.getsourcelines(add_kernel.fn)[1] + 3  # the decorator, the head, one line
        assert error.kernel == "add_kernel" and error.source.endswith(f"triton_checks.py:{line}"), error
        assert error.cta == (3, 0, 0), error
    else:
        raise AssertionError("an access past the end of a tensor was not refused")


@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + i, i < n, other=-float("inf"))
    exponentials = tl.exp(values - tl.max(values))
    tl.store(out + row * stride + i, exponentials / tl.sum(exponentials), i < n)


def check_softmax():
    x = torch.randn(5, 200, device="cuda")
    out = torch.empty_like(x)
    softmax_kernel[(5,)](x, out, 200, 200, BLOCK=256, num_warps=2)
    torch.testing.assert_close(out, x.softmax(1))


@triton.jit
def histogram_kernel(x, counts, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i, i < n, other=0)
    tl.atomic_add(counts + values, 1, i < n)
    tl.atomic_max(total, tl.max(values))


def check_atomics():
    x = torch.randint(0, 7, (700,), dtype=torch.int32, device="cuda")
    counts, most = torch.zeros(7, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    histogram_kernel[(6,)](x, counts, most, 700, BLOCK=128)
    assert torch.equal(counts, torch.bincount(x, minlength=7).int()) and most.item() == x.max()


def operands(m, n, k, dtype=torch.bfloat16):
    """Operands of integers: sums of their products are exact in fp32 in any order."""
    a, b = (torch.randint(-4, 5, (rows, k), device="cuda").to(dtype) for rows in (m, n))
    return a, b, (a.float() @ b.float().T).bfloat16()


@triton.jit
def matmul_kernel(a, b, c, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    map_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TM, TK])
    map_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [TN, TK])
    map_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [TM, TN])
    m, n = tl.program_id(0) * TM, tl.program_id(1) * TN
    accumulator = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        accumulator = tl.dot(map_a.load([m, k]), map_b.load([n, k]).T, accumulator)
    map_c.store([m, n], accumulator.to(tl.bfloat16))


def check_matmul_with_descriptors_of_the_device():
    a, b, expected = operands(200, 96, 192)
    c = torch.empty_like(expected)
    compiled = matmul_kernel[(2, 2)](a, b, c, 200, 96, 192, TM=128, TN=64, TK=64)
    assert torch.equal(c, expected)
    assert "tcgen05.mma" in compiled.asm["ptx"] and compiled.metadata.global_scratch_size > 0


@triton.jit
def described_matmul_kernel(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m, n = tl.program_id(0) * TM, tl.program_id(1) * TN
    accumulator = tl.zeros((TM, TN), tl.float32)
    for k in range(0, K, TK):
        accumulator = tl.dot(a.load([m, k]), b.load([n, k]).T, accumulator)
    c.store([m, n], accumulator.to(tl.bfloat16))


def described(m, n, k, ctas):
    a, b, expected = operands(m, n, k)
    c = torch.empty_like(expected)
    boxes = (a, [128, 64]), (b, [64, 64]), (c, [128, 64])
    maps = [TensorDescriptor.from_tensor(x, box) for x, box in boxes]
    grid = (m // 128, n // 64)
    compiled = described_matmul_kernel[grid](*maps, k, TM=128, TN=64, TK=64, num_ctas=ctas)
    assert torch.equal(c, expected)
    return compiled


def check_matmul_with_descriptors_of_the_host():
    described(256, 64, 192, ctas=1)


def check_matmul_with_clusters():
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        return  # Triton's compiler refuses the kernel
    compiled = described(128, 128, 128, ctas=2)
    assert compiled.metadata.num_ctas == 2
    (launch,) = list(nogpu.counters())[-1:]
    assert launch.ctas == 4, launch


@triton.jit
def persistent_kernel(a, b, c, M, N, K, PROGRAMS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    map_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TM, TK])
    map_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [TN, TK])
    map_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [TM, TN])
    rows, columns = tl.cdiv(M, TM), tl.cdiv(N, TN)
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=True, warp_specialize=True):
        m, n = tile // columns * TM, tile % columns * TN
        accumulator = tl.zeros((TM, TN), tl.float32)
        for k in range(0, K, TK):
            accumulator = tl.dot(map_a.load([m, k]), map_b.load([n, k]).T, accumulator)
        map_c.store([m, n], accumulator.to(tl.bfloat16))


def check_warp_specialised_persistent_matmul():
    a, b, expected = operands(384, 64, 128)
    c = torch.empty_like(expected)
    compiled = persistent_kernel[(2,)](a, b, c, 384, 64, 128, PROGRAMS=2, TM=128, TN=64, TK=64)
    assert torch.equal(c, expected)
    assert compiled.metadata.num_warps > 4, "no warps of their own for copies and MMAs"


@triton.jit
def scaled_kernel(a, b, a_scales, b_scales, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    packed, scales = tl.arange(0, K // 2), tl.arange(0, K // 16)
    a_tile = tl.load(a + m[:, None] * (K // 2) + packed)
    b_tile = tl.load(b + n[None, :] * (K // 2) + packed[:, None])
    a_scale = tl.load(a_scales + m[:, None] * (K // 16) + scales)
    b_scale = tl.load(b_scales + n[:, None] * (K // 16) + scales)
    product = tl.dot_scaled(a_tile, a_scale, "e2m1", b_tile, b_scale, "e2m1")
    tl.store(c + m[:, None] * N + n, product)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def check_dot_scaled_nvfp4():
    m, n, k = 128, 64, 128
    a, b = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8) for rows in (m, n))
    scales = [(2.0 ** torch.randint(-2, 3, (rows, k // 16))).to(torch.float8_e4m3fn) for rows in (m, n)]
    values = []
    for codes, scale in zip((a, b), scales):
        nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1).long()
        signed = E2M1[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)
        values.append(signed * scale.float().repeat_interleave(16, dim=1))
    c = torch.empty(m, n, device="cuda")
    scaled_kernel[(1,)](a.cuda(), b.cuda(), *(scale.cuda() for scale in scales), c, M=m, N=n, K=k)
    assert torch.equal(c.cpu(), values[0] @ values[1].T)


@gluon.jit
def gluon_copy_kernel(x, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    staged = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    staged.store(gl.load(x + i, mask=i < n, other=0.0) * 2)
    gl.store(out + i, staged.load(layout), mask=i < n)


def check_gluon():
    x = torch.rand(300, device="cuda")
    out = torch.empty_like(x)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    gluon_copy_kernel[(3,)](x, out, 300, BLOCK=128, layout=layout)
    assert torch.equal(out, 2 * x)


@triton.jit
def typed_scalars_kernel(out, half: tl.float16, brain: tl.bfloat16, single: tl.float32, double: tl.float64):
    tl.store(out + 0, half.to(tl.float64))
    tl.store(out + 1, brain.to(tl.float64))
    tl.store(out + 2, single.to(tl.float64))
    tl.store(out + 3, double)


def check_scalars_by_type():
    out = torch.empty(4, dtype=torch.float64, device="cuda")
    typed_scalars_kernel[(1,)](out, 0.1, 1.99, 0.1, 0.1)
    half, single = torch.tensor(0.1).half().item(), torch.tensor(0.1).item()
    assert out.tolist() == [half, 1.984375, single, 0.1], out  # bf16 by truncation, which does not round to 2


@triton.jit
def arguments_kernel(out, none, pair, flag, small, wide, unsigned, C: tl.constexpr):
    tl.store(out + 0, pair[0].to(tl.int64))
    tl.store(out + 1, tl.load(pair[1]).to(tl.int64))
    tl.store(out + 2, flag.to(tl.int64))
    tl.store(out + 3, small.to(tl.int64))
    tl.store(out + 4, wide.to(tl.int64))
    tl.store(out + 5, (unsigned >> 1).to(tl.int64))
    if none is None:
        tl.store(out + 6, C)


def check_arguments():
    out = torch.empty(7, dtype=torch.int64, device="cuda")
    pair = (-5, torch.tensor([9], dtype=torch.int32, device="cuda"))
    arguments_kernel[(1,)](out, None, pair, True, -7, 1 << 40, (1 << 64) - 2, C=11)
    assert out.tolist() == [-5, 9, 1, -7, 1 << 40, (1 << 63) - 1, 11], out


def check_tensor_of_the_host_is_refused():
    x = torch.rand(8)
    try:
        add(x.cuda(), x, x.cuda(), 8)
    except ValueError as error:
        assert "cpu tensor?" in str(error)
    else:
        raise AssertionError("a tensor of the host was accepted")


def check_empty_grid_and_empty_tensor():
    nothing = torch.empty(0, device="cuda")
    add(nothing, nothing, nothing, 0)
    add_kernel[(1,)](nothing, nothing, nothing, 0, BLOCK=256)
