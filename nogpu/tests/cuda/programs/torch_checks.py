"""Torch programs of a few lines for device "cuda"; test_torch_device.py runs them on the emulated device."""

import copy
import ctypes
import gc
import io
import re
import threading
import time
import warnings

import numpy as np
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import nogpu
from nogpu.cuda import torch_autocast, torch_products
from nogpu.execution.device import Device

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def raises(error, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except error as raised:
        assert re.search(text, str(raised)), f"{text!r} is not in {raised}"
        return
    raise AssertionError(f"{error.__name__} was not raised")


def allocation_of(tensor):
    return Device.current().memory.allocation(tensor.data_ptr())


def check_products_of_half_precision():
    """They are rounded once, whatever the processor has; their gradients are those of torch."""
    linear, einsum = torch.nn.functional.linear, torch.einsum
    for dtype in (torch.bfloat16, torch.float16):
        a, b, c = (torch.randn(40, 40, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3))
        wide = [x.detach().cpu().float().requires_grad_() for x in (a, b, c)]
        for function in (
            *(lambda a, b, c: a @ b, lambda a, b, c: linear(a, b, c[0]), lambda a, b, c: einsum("ij,kj->ik", [a, b])),
            *(lambda a, b, c: torch.addmm(c, a, b, beta=2), lambda a, b, c: a[None].bmm(b[None])),
            lambda a, b, c: torch.nn.functional.conv_transpose2d(a[None, None], b[None, None], stride=2),
        ):
            got, expected = function(a, b, c), function(*wide)
            assert got.is_cuda and got.dtype == dtype
            torch.testing.assert_close(got.detach().cpu(), expected.detach().to(dtype))
            torch.autograd.backward(got, torch.ones_like(got))
            torch.autograd.backward(expected, torch.ones_like(expected))
            for ours, theirs in zip((a, b, c), wide):
                assert (ours.grad is None) == (theirs.grad is None)
                if ours.grad is not None:
                    torch.testing.assert_close(ours.grad.cpu(), theirs.grad.to(dtype))
                ours.grad = theirs.grad = None
        assert torch.equal((a @ b).cpu(), (wide[0] @ wide[1]).to(dtype)) or not torch_products.slow_types()
        for kind in "conv", "conv_transpose":
            for rank in 1, 2, 3:
                convolve = getattr(torch.nn.functional, f"{kind}{rank}d")
                x, weight = (torch.randn(1, 1, *[size] * rank, dtype=dtype, device="cuda") for size in (9, 7))
                expected = convolve(x.cpu().float(), weight.cpu().float()).to(dtype)
                assert torch.equal(convolve(x, weight).cpu(), expected) or not torch_products.slow_types()
        for layer in torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN:
            recurrent = layer(8, 16, num_layers=2, bidirectional=True).to("cuda", dtype)
            wide_layer = copy.deepcopy(recurrent).float().cpu()
            x = torch.randn(64, 3, 8, dtype=dtype, device="cuda")
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([64, 20, 7]))
            assert packed.data.is_cuda and packed.batch_sizes.device.type == "cpu"
            padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
            assert padded.is_cuda and lengths.device.type == "cpu" and torch.equal(padded[:7], x[:7])
            raises(RuntimeError, "should be on the CPU", torch._pack_padded_sequence, x, lengths.cuda(), False)
            for given in x, packed:
                (got, state), (expected, last) = recurrent(given), wide_layer(given.cpu().float())
                got, expected = (each.data if given is packed else each for each in (got, expected))
                assert got.is_cuda and got.dtype == dtype
                states, lasts = (each if isinstance(each, tuple) else (each,) for each in (state, last))
                for ours, theirs in zip((got, *states), (expected, *lasts)):
                    assert torch.equal(ours.cpu(), theirs.to(dtype)) or not torch_products.slow_types()


def check_what_programs_ask_of_the_allocator_and_the_runtime():
    before = torch.cuda.memory_stats()
    x = torch.zeros(1 << 20, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] >= before["allocated_bytes.all.current"] + (1 << 22)
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated() > x.nbytes - 1
    assert "Allocated memory" in torch.cuda.memory_summary()
    torch.cuda.memory.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info()
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaProfilerStart())
    torch.cuda.check_error(runtime.cudaProfilerStop())
    raises(RuntimeError, "CUDA error 1", torch.cuda.check_error, 1)
    torch.cuda._sleep(1000)
    torch.cuda.set_sync_debug_mode(torch.cuda.get_sync_debug_mode())


def check_a_default_device_and_a_copy_by_force():
    torch.set_default_device("cuda")
    try:
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([parameter], lr=1.0)
        parameter.sum().backward()
        optimizer.step()
        assert parameter.is_cuda and parameter.numpy(force=True).max() < 1e-3
        assert torch.cuda.get_rng_state().device.type == "cpu"
    finally:
        torch.set_default_device(None)
    assert not torch.cuda.current_stream().is_capturing()
    raises(TypeError, "can't convert cuda:0", torch.ones(3, device="cuda").numpy)
    assert torch.ones(3, requires_grad=True).numpy(force=True).tolist() == [1, 1, 1]


def check_tensors_by_their_older_types():
    for name, dtype in (("Float", torch.float32), ("Half", torch.float16), ("Long", torch.int64), ("Bool", torch.bool)):
        kind = getattr(torch.cuda, f"{name}Tensor")
        for tensor in (
            *(kind([1, 0, 1]), torch.tensor([1, 0, 1]).type(kind), torch.tensor([1, 0, 1], device="cuda").type(kind)),
            torch.tensor([1, 0, 1]).type(f"torch.cuda.{name}Tensor"),
        ):
            assert tensor.is_cuda and tensor.dtype is dtype and isinstance(tensor, kind)
            assert tensor.tolist() == [1, 0, 1] and tensor.type() == f"torch.cuda.{name}Tensor"
        assert kind(2, 3).shape == (2, 3) and not isinstance(torch.zeros(3, dtype=dtype), kind)
    assert torch.zeros(2, device="cuda").type(torch.float64).dtype is torch.float64


def check_the_accelerator_is_the_device():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.device_count() == 1 and accelerator.current_device_index() == 0
    assert accelerator.current_accelerator(check_available=True) == torch.device("cuda")
    assert torch.get_device_module() is torch.cuda is torch.get_device_module("cuda")
    accelerator.set_device_index(0)
    accelerator.synchronize()
    accelerator.synchronize("cuda:0")
    side = torch.cuda.Stream()
    with side:
        assert accelerator.current_stream() == side
    assert accelerator.current_stream() == torch.cuda.default_stream()
    accelerator.set_stream(torch.cuda.default_stream())
    assert torch.zeros(3, device=accelerator.current_accelerator()).is_cuda
    try:
        accelerator.set_device_index(1)
    except RuntimeError as error:
        assert "invalid device ordinal" in str(error)
    else:
        raise AssertionError("a second device")
    if hasattr(accelerator, "device_index"):
        with accelerator.device_index(0):
            assert accelerator.current_device_index() == 0
    if hasattr(accelerator, "memory_allocated"):
        accelerator.reset_peak_memory_stats()
        x = torch.zeros(1 << 20, device="cuda")
        assert accelerator.memory_allocated() == torch.cuda.memory_allocated() >= 1 << 22
        del x
        accelerator.empty_cache()
        assert accelerator.max_memory_allocated() >= accelerator.memory_allocated() + (1 << 22)
    if hasattr(accelerator, "get_memory_info"):
        assert accelerator.get_memory_info() == torch.cuda.mem_get_info()


def check_factories_make_device_tensors():
    for tensor in (
        *(torch.empty(3, device="cuda"), torch.zeros(3, device="cuda:0"), torch.ones(3, device=torch.device("cuda"))),
        *(torch.full((3,), 2.0, device=0), torch.arange(3, device="cuda"), torch.randint(5, (3,), device="cuda")),
        *(torch.tensor([1, 2, 3], device="cuda"), torch.empty_strided((3,), (2,), device="cuda")),
        *(torch.zeros_like(torch.ones(3), device="cuda"), torch.ones(3).new_zeros(3, device="cuda")),
    ):
        assert tensor.device == torch.device("cuda", 0) and tensor.device.index == 0
        assert tensor.is_cuda and not tensor.is_cpu and tensor.get_device() == 0
        assert allocation_of(tensor).start == tensor.untyped_storage().data_ptr()
    host = torch.ones(3)
    assert host.device.type == "cpu" and not host.is_cuda and host.is_cpu and host.get_device() == -1
    assert allocation_of(host) is None


def check_a_storage_that_is_resized_moves_its_allocation():
    for size in (0, 64, 1 << 20):
        x = torch.zeros(32, dtype=torch.int32, device="cuda")
        before = x.data_ptr()
        x.untyped_storage().resize_(size)
        found = allocation_of(x) if size else None
        assert (found.end - found.start if found else 0) == size and x.is_cuda
        assert Device.current().memory.allocation(before) in (None, found)
        others = [torch.zeros(32, dtype=torch.int32, device="cuda") for _ in range(4)]  # one may get the old memory
        assert all(allocation_of(other).start == other.data_ptr() for other in others)
    host = torch.zeros(32)
    host.untyped_storage().resize_(1 << 10)
    assert allocation_of(host) is None


def check_results_are_where_their_inputs_are():
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    results = [x + 1, 2 * x, x.t(), x[0], x.sum(), x.half(), x.view(torch.int32), x @ x.t(), torch.cat([x, x])]
    results += [
        torch.empty_like(x),
        x.new_ones(2),
        *x.unbind(),
        *torch.sort(x),
        torch.stack([x, x]),
        x.clone().detach(),
    ]
    results += [torch.nn.functional.relu(x), torch.nn.Parameter(x), copy.deepcopy(x), x.T, x.data, x[x > 2]]
    assert all(result.is_cuda for result in results)
    assert all(allocation_of(result) is not None for result in results)
    assert not (torch.arange(6.0) + 1).is_cuda


def check_views_share_and_moves_copy():
    x = torch.zeros(4, device="cuda")
    x[1:3] += 1
    assert x.tolist() == [0, 1, 1, 0]
    assert x.to("cuda").data_ptr() == x.data_ptr() == x.cuda().data_ptr()
    host = torch.ones(4)
    assert host.to("cpu") is host and host.cpu() is host
    for moved in (
        host.cuda(),
        host.to("cuda"),
        host.to(device="cuda:0"),
        host.to(x),
        torch.as_tensor(host, device="cuda"),
    ):
        assert moved.is_cuda
        moved.zero_()
    for moved in (x.cpu(), x.to("cpu"), x.to(host), torch.as_tensor(x, device="cpu"), x.to("cpu", torch.float64)):
        assert not moved.is_cuda
        moved.fill_(9)
    assert host.tolist() == [1, 1, 1, 1] and x.tolist() == [0, 1, 1, 0]
    array = np.zeros(3)
    torch.as_tensor(array, device="cuda").fill_(1)
    assert array.tolist() == [0, 0, 0]
    converted = host.to("cuda", torch.float16)
    assert converted.is_cuda and converted.dtype == torch.float16 and converted.double().dtype == torch.float64
    host.copy_(x)
    assert not host.is_cuda and host.tolist() == x.tolist()
    x[0] = host[1]
    assert x.tolist() == [1, 1, 1, 0]


def check_modules_move():
    for arguments, named in (("cuda",), {}), ((), {"device": "cuda"}), ((), {"device": "cuda", "dtype": torch.float16}):
        module = torch.nn.Linear(2, 3).to(*arguments, **named)
        assert module.weight.is_cuda and module.bias.is_cuda
        assert module.weight.dtype == named.get("dtype", torch.float32)
        assert not module.to(device="cpu").weight.is_cuda


def check_devices_do_not_mix():
    x, host = torch.ones(2, device="cuda"), torch.ones(2)
    expected = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu"
    for function in (
        *(lambda: x + host, lambda: torch.cat([host, x]), lambda: host + x.sum(), lambda: torch.equal(x, host)),
        *(lambda: torch.add(x, 1, out=host), lambda: x.add_(host)),
    ):
        raises(RuntimeError, expected, function)
    raises(
        RuntimeError, "indices should be either on cpu", lambda: host[torch.zeros(1, dtype=torch.long, device="cuda")]
    )
    raises(RuntimeError, "invalid device ordinal", torch.ones, 2, device="cuda:1")
    raises(NotImplementedError, "no tensors of layout torch.sparse_coo", x.to_sparse)
    raises(TypeError, "can't convert cuda:0 device type tensor to numpy", x.numpy)
    raises(TypeError, "can't convert cuda:0 device type tensor to numpy", np.asarray, x)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3]
    assert x[torch.tensor([1, 0])].is_cuda


def check_printing():
    x = torch.ones(2, dtype=torch.float16, device="cuda")
    assert repr(x) == str(x) == f"{x}" == "tensor([1., 1.], device='cuda:0', dtype=torch.float16)"
    assert f"{x[0]:.2f}" == "1.00" and repr(torch.ones(2)) == "tensor([1., 1.])"
    assert x.type() == "torch.cuda.HalfTensor"


def check_memory_is_aligned_and_released():
    memory, in_use = Device.current().memory, torch.cuda.memory_allocated()
    tensors = [
        make(size, dtype=torch.uint8, device="cuda") for make in (torch.empty, torch.zeros) for size in (1, 9, 10**6)
    ]
    tensors += [tensors[-1].float(), torch.randperm(5, device="cuda")]
    assert all(tensor.data_ptr() % 512 == 0 for tensor in tensors)
    assert torch.cuda.memory_allocated() == in_use + 2 * (1 + 9 + 10**6) + 4 * 10**6 + 5 * 8
    addresses = [tensor.data_ptr() for tensor in tensors]
    view = tensors[2][5:]
    del tensors
    gc.collect()
    assert [memory.allocation(address) is not None for address in addresses] == [i == 2 for i in range(8)]
    assert memory.allocation(view.data_ptr()).end == addresses[2] + 10**6
    del view
    assert memory.allocation(addresses[2]) is None and torch.cuda.memory_allocated() == in_use
    grown = torch.zeros(1, device="cuda").resize_(100_000)
    assert allocation_of(grown).end == grown.data_ptr() + 400_000
    named = torch.zeros(3, 4, device="cuda")
    assert allocation_of(named).name == "tensor float32[3, 4]"
    assert torch.cuda.max_memory_allocated() >= in_use + 2 * 10**6


def check_random_numbers_repeat():
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append((torch.randn(4, device="cuda"), torch.randint(100, (4,), device="cuda")))
    assert torch.equal(draws[0][0], draws[1][0]) and torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[2][0])
    for seed in (torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        seed(5)
        first = torch.rand(4, device="cuda")
        seed(5)
        assert torch.equal(first, torch.rand(4, device="cuda"))
    generator = torch.Generator(device="cuda")
    assert generator.device.type == "cuda"
    first = torch.randn(3, device="cuda", generator=generator.manual_seed(7))
    assert torch.equal(first, torch.randn(3, device="cuda", generator=generator.manual_seed(7)))


def check_the_default_generator():
    """Its state is a seed and an offset, as FlagGems reads and moves it; a state taken brings the draws back."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    torch.manual_seed(11)
    state = generator.get_state()
    assert state.view(torch.int64).tolist() == [11, 0] and torch.equal(state, torch.cuda.get_rng_state())
    first = torch.rand(4, device="cuda", generator=generator)
    assert generator.get_state().view(torch.int64).tolist() == [11, 4] and generator.initial_seed() == 11
    generator.set_state(state)
    assert torch.equal(first, torch.rand(4, device="cuda")) and not torch.equal(first, torch.rand(4, device="cuda"))
    moved = state.clone()
    moved.view(torch.int64)[1] += 100
    drawn = []
    for _ in range(2):
        torch.cuda.set_rng_state(moved)
        assert torch.equal(generator.get_state(), moved) and generator.initial_seed() == 11
        drawn.append(torch.rand(4, device="cuda"))
    assert torch.equal(*drawn) and not torch.equal(drawn[0], first)
    generator.manual_seed(-1)
    assert generator.get_state().view(torch.int64).tolist() == [-1, 0]
    host = torch.get_rng_state()
    raises(RuntimeError, "16 bytes, a seed and an offset; got 5056", torch.cuda.set_rng_state, host)


def check_default_device():
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda and torch.tensor(1).is_cuda and not torch.zeros(2, device="cpu").is_cuda
    torch.set_default_device("cuda")
    assert torch.zeros(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
    torch.set_default_device(None)
    assert not torch.zeros(2).is_cuda


def check_threads_see_the_device():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(2, device="cuda").device))
    thread.start()
    thread.join()
    assert found == [torch.device("cuda", 0)]


def check_modules_and_gradients():
    model = torch.nn.Linear(3, 2).cuda()
    x = torch.ones(4, 3, device="cuda")
    model(x).sum().backward()
    assert model.weight.is_cuda and model.weight.grad.is_cuda and model.weight.grad.tolist() == [[4.0] * 3] * 2
    assert not model.cpu().weight.is_cuda


def check_dlpack():
    x = torch.arange(3, device="cuda")
    assert x.__dlpack_device__() == (2, 0) and torch.ones(1).__dlpack_device__() == (1, 0)
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    for tensor, device in ((x, 2), (torch.ones(1), 1)):
        capsule = tensor.__dlpack__(stream=-1)
        address = pointer(capsule, b"dltensor")
        assert ctypes.c_uint64.from_address(address).value == tensor.data_ptr()
        assert list((ctypes.c_int32 * 2).from_address(address + 8)) == [device, 0]
    same = torch.from_dlpack(x)
    assert same.is_cuda and same.data_ptr() == x.data_ptr()


def check_cuda_module():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == (10, 0) and "B200" in torch.cuda.get_device_name()
    assert torch.version.cuda == "13.0"
    properties = torch.cuda.get_device_properties("cuda")
    assert properties.multi_processor_count == 148 and properties.shared_memory_per_block_optin == 232448
    assert torch.cuda.current_stream().cuda_stream == torch.cuda.default_stream().cuda_stream == 0
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0), torch.cuda.nvtx.range("range"):
        torch.cuda.synchronize()
    held = torch.ones(100, device="cuda")
    free, total = torch.cuda.mem_get_info()
    assert total - free == torch.cuda.memory_allocated() >= held.nbytes
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    raises(ValueError, "recorded", start.elapsed_time, end)
    start.record()
    time.sleep(0.002)
    end.record()
    end.synchronize()
    assert end.query() and 2 <= start.elapsed_time(end) < 1000
    raises(RuntimeError, "invalid device ordinal", torch.cuda.set_device, 1)
    raises(RuntimeError, "invalid device ordinal", torch.cuda.synchronize, 1)
    torch.cuda.synchronize(torch.cuda.current_stream())
    raises(NotImplementedError, "CUDA graphs of torch operations are not modelled", torch.cuda.make_graphed_callables)


def check_narrow_formats():
    codes = torch.randint(0, 256, (136, 16), dtype=torch.uint8, device="cuda")
    fp4 = codes.view(torch.float4_e2m1fn_x2)
    assert fp4.is_cuda and fp4.t().contiguous().view(torch.uint8).tolist() == codes.t().tolist()
    assert torch.cat([fp4.t(), fp4.t()])[16:].view(torch.uint8).tolist() == codes.t().tolist()
    copied = torch.empty(16, 136, dtype=torch.uint8, device="cuda").view(torch.float4_e2m1fn_x2)
    assert copied.copy_(fp4.t()) is copied and copied.view(torch.uint8).tolist() == codes.t().tolist()
    assert fp4.t()[:, ::2].cpu().view(torch.uint8).tolist() == codes.t()[:, ::2].tolist()
    fp8 = torch.randint(1, 3, (4, 8), device="cuda").to(torch.float8_e4m3fn)
    blocked = torch.empty(2, 4, 8, dtype=torch.float8_e4m3fn, device="cuda")
    blocked[torch.tensor([0, 1]), :, 0] = fp8[:, :2].t()
    assert blocked[1, :, 0].float().tolist() == fp8[:, 1].float().tolist() and (fp8 == fp8).all()


def blocked_scales(scales):
    """Arrange row-major (rows, columns) scales as atoms of 128 x 4, padded with 7."""
    rows, columns = scales.shape
    padded = np.full((-(-rows // 128) * 128, -(-columns // 4) * 4), 7.0)
    padded[:rows, :columns] = scales
    flat = np.empty(padded.size)
    for r in range(padded.shape[0]):
        for s in range(padded.shape[1]):
            atom = (r // 128) * (padded.shape[1] // 4) + s // 4
            flat[atom * 512 + (r % 32) * 16 + (r % 128 // 32) * 4 + s % 4] = padded[r, s]
    return torch.tensor(flat)


def check_sums_are_rounded_once():
    """Threads of a GPU add in float32. Gradients of what is broadcast are sums, too."""
    generator, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    torch.set_num_threads(2)
    for dtype in (torch.bfloat16, torch.float16):
        for _ in range(8):
            host = torch.randn(64, 1024, generator=generator).to(dtype)
            expected, x = host.double().sum().to(dtype), host.cuda()
            bias = torch.zeros((), dtype=dtype, device="cuda", requires_grad=True)
            (x + bias).backward(x)
            assert x.sum().item() == x.sum((0, 1)).item() == bias.grad.item() == expected.item()
    assert x.sum(dtype=torch.float64).dtype == torch.float64 and (x > 0).sum().dtype == torch.int64
    assert x.sum(0, keepdim=True).shape == (1, 1024) and x.int().sum(-1).dtype == torch.int64
    torch.set_num_threads(threads)


def check_scaled_mm():
    generator = np.random.default_rng(1)
    for scale_type, block, (m, n, k) in (
        (torch.float8_e4m3fn, 16, (130, 24, 96)),
        (torch.float8_e8m0fnu, 32, (8, 136, 160)),
    ):
        operands, values = [], []
        for rows in (m, n):
            codes = generator.integers(0, 256, (rows, k // 2), dtype=np.uint8)
            nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(rows, k)
            scales = 2.0 ** generator.integers(-2, 3, (rows, k // block))
            values.append(np.where(nibbles & 8, -1, 1) * np.take(E2M1, nibbles & 7) * scales.repeat(block, axis=1))
            operands.append(
                (torch.tensor(codes).cuda().view(torch.float4_e2m1fn_x2), blocked_scales(scales).to(scale_type).cuda())
            )
        (a, scale_a), (b, scale_b) = operands
        result = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float16)
        assert result.is_cuda and result.dtype == torch.float16
        assert np.array_equal(result.cpu().numpy(), (values[0] @ values[1].T).astype(np.float16))
        recipe = getattr(torch.nn.functional.ScalingType, f"BlockWise1x{block}")
        whole, swizzle = torch.nn.functional.ScalingType.TensorWise, torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
        bias = torch.arange(n, dtype=torch.float16, device="cuda")
        arguments = (a, b.t(), scale_a, recipe, [scale_b, torch.tensor([4.0], device="cuda")], [recipe, whole])
        result = torch.nn.functional.scaled_mm(*arguments, swizzle, [swizzle], bias, torch.float32)
        assert np.array_equal(result.cpu().numpy(), values[0] @ values[1].T * 4 + np.arange(n))
    raises(RuntimeError, "block scales", torch.nn.functional.scaled_mm, a, b.t(), scale_a[:-1], *arguments[3:], swizzle)
    raises(RuntimeError, "block scales", torch._scaled_mm, a, b.t(), scale_a[:-1], scale_b)
    raises(RuntimeError, "column-major", torch._scaled_mm, a, b.t().contiguous(), scale_a, scale_b)
    a, b = (torch.zeros(128, 64, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    scales = torch.ones(512, device="cuda").to(torch.float8_e4m3fn)
    recipe, refusal = torch.nn.functional.ScalingType.BlockWise1x16, "e4m3fn block scales beside .*e4m3fn"
    arguments = (a, b.t(), scales, recipe, scales, recipe, swizzle, swizzle)
    raises(RuntimeError, refusal, torch.nn.functional.scaled_mm, *arguments)
    raises(RuntimeError, refusal, torch._scaled_mm, a, b.t(), scales, scales)


def quantized(shape, kind, generator):
    """Random rows along K as (values, operand, scales (rows, columns)). kind: "nvfp4", "mxfp8" or "rows"."""
    rows, k = shape
    if kind == "nvfp4":
        codes = generator.integers(0, 256, (rows, k // 2), dtype=np.uint8)
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(rows, k)
        values = np.where(nibbles & 8, -1, 1) * np.take(E2M1, nibbles & 7)
        operand = torch.tensor(codes).cuda().view(torch.float4_e2m1fn_x2)
    else:
        values = generator.integers(-4, 5, (rows, k)).astype(float)
        operand = torch.tensor(values).to(torch.float8_e4m3fn).cuda()
    scales = 2.0 ** generator.integers(-2, 3, (rows, {"nvfp4": k // 16, "mxfp8": -(-k // 32), "rows": 1}[kind]))
    width = {"nvfp4": 16, "mxfp8": 32, "rows": k}[kind]
    return values * scales.repeat(width, axis=1)[:, :k], operand, scales


def stored_scales(groups, kind):
    """Scales of all groups, each behind the previous one's, in torch's form."""
    if kind == "rows":
        return torch.tensor(np.concatenate(groups)[:, 0]).float().cuda()
    dtype = torch.float8_e4m3fn if kind == "nvfp4" else torch.float8_e8m0fnu
    return torch.cat([blocked_scales(group) for group in groups]).to(dtype).cuda()


def check_scaled_grouped_mm():
    generator = np.random.default_rng(2)
    sizes, n, k = (32, 0, 130), 24, 96
    offs = torch.tensor(np.cumsum(sizes), dtype=torch.int32, device="cuda")
    for kind in ("rows", "mxfp8", "nvfp4"):
        a = [quantized((m, k), kind, generator) for m in sizes]
        b = [quantized((n, k), kind, generator) for _ in sizes]
        flat = torch.cat([operand for _, operand, _ in a])
        stacked = torch.stack([operand for _, operand, _ in b]).transpose(-2, -1)
        scale_a, scale_b = (stored_scales([scales for *_, scales in group], kind) for group in (a, b))
        scale_b = scale_b.view(len(sizes), -1)
        expected = np.concatenate([x @ y.T for (x, *_), (y, *_) in zip(a, b)])
        result = torch._scaled_grouped_mm(flat, stacked, scale_a, scale_b, offs=offs, out_dtype=torch.float32)
        assert result.is_cuda and np.array_equal(result.cpu().numpy(), expected), kind
        halves = torch.tensor([0.5, 2.0, 4.0], device="cuda")
        lists = ([scale_a, halves], [0], [0], [scale_b, halves], [0], [0])
        result = torch._scaled_grouped_mm_v2(flat, stacked, *lists, offs, None, torch.float32)
        factors = np.repeat([0.25, 4, 16], sizes)[:, None]
        assert np.array_equal(result.cpu().numpy(), expected * factors), kind
    raises(RuntimeError, "offs", torch._scaled_grouped_mm, flat, stacked, scale_a, scale_b)
    raises(RuntimeError, "Bias", torch._scaled_grouped_mm, flat, stacked, scale_a, scale_b, offs, halves)
    raises(RuntimeError, "block scales", torch._scaled_grouped_mm, flat, stacked, scale_a[:-1], scale_b, offs)


def check_scaled_grouped_mm_along_k_and_in_batches():
    generator = np.random.default_rng(3)
    sizes, m, n = (64, 160), 40, 24
    for kind in ("mxfp8", "nvfp4"):
        a, b = ([quantized((rows, k), kind, generator) for k in sizes] for rows in (m, n))
        flat_a, flat_b = (torch.cat([operand for _, operand, _ in group], dim=1) for group in (a, b))
        scale_a, scale_b = (stored_scales([scales for *_, scales in group], kind) for group in (a, b))
        offs = torch.tensor(np.cumsum(sizes), dtype=torch.int32, device="cuda")
        result = torch._scaled_grouped_mm(flat_a, flat_b.t(), scale_a, scale_b, offs, out_dtype=torch.float32)
        expected = np.stack([x @ y.T for (x, *_), (y, *_) in zip(a, b)])
        assert np.array_equal(result.cpu().numpy(), expected), kind
        a, b = ([quantized((rows, 64), kind, generator) for _ in sizes] for rows in (m, n))
        stacked_a, stacked_b = (torch.stack([operand for _, operand, _ in group]) for group in (a, b))
        scale_a, scale_b = (stored_scales([scales for *_, scales in group], kind).view(2, -1) for group in (a, b))
        result = torch._scaled_grouped_mm(stacked_a, stacked_b.mT, scale_a, scale_b, out_dtype=torch.float32)
        expected = np.stack([x @ y.T for (x, *_), (y, *_) in zip(a, b)])
        assert np.array_equal(result.cpu().numpy(), expected), kind


def check_results_are_rounded_once():
    from nogpu.cuda.scaled_mm import round_once

    generator = np.random.default_rng(2)
    halves = (generator.integers(1024, 2048, 500) + 0.5) * 2.0 ** generator.integers(-12, 4, 500)
    values = np.concatenate([halves, halves + 2.0**-40, halves - 2.0**-40, generator.normal(size=500)])
    values = np.concatenate([values, -values, [0.0, -0.0, np.inf, 65519.999999999, 65520, 2.0**-25, 3 * 2.0**-26]])
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16)
    assert np.array_equal(round_once(torch.tensor(values), torch.float16).numpy(), rounded)
    assert torch.tensor(values).half().numpy().tolist() != rounded.tolist()


def check_autocast_follows_cudas_lists():
    cuda, cpu = (
        set(torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{name}")) for name in ("CUDA", "CPU")
    )
    ours = (*torch_autocast.NARROW, *torch_autocast.WIDE, *torch_autocast.WIDEST, *torch_autocast.CUDNN)
    assert cuda - cpu <= {f"aten::{name}" for name in ours}  # older versions have fewer
    x, half = torch.rand(4, 4, device="cuda"), torch.rand(4, 4, device="cuda", dtype=torch.bfloat16)
    functional, weight = torch.nn.functional, torch.rand(4, 4, device="cuda", requires_grad=True)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype=dtype):
            narrow = [
                *(x @ x, torch.mm(x, half), functional.linear(x, weight), torch.mv(x, x[0])),
                torch.einsum("ij,jk", x, x),
            ]
            assert [result.dtype for result in narrow] == [dtype] * len(narrow) and all(r.is_cuda for r in narrow)
            assert torch.equal(narrow[0], x.to(dtype) @ x.to(dtype))
            wide = [half.softmax(-1), functional.log_softmax(half, -1), half.sum(), half.exp(), half**2, half.norm()]
            wide += [functional.layer_norm(half, (4,)), functional.mse_loss(half, half), torch.prod(half, 1)]
            wide += [functional.cross_entropy(half, half), torch.addcmul(x, half, half), half.cumsum(0)]
            assert [result.dtype for result in wide] == [torch.float32] * len(wide) and all(r.is_cuda for r in wide)
            assert (half + half).dtype == half.dtype and half.sum(dtype=torch.float64).dtype == torch.float64
            assert (x.double() @ x.double()).dtype == torch.float64
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype == torch.float32 and half.softmax(-1).dtype == half.dtype
            assert (x.cpu() @ x.cpu()).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32 and (x.cpu() @ x.cpu()).dtype == torch.bfloat16
        assert half.cpu().softmax(-1).dtype == half.dtype
    with torch.autocast("cuda"):
        functional.linear(x, weight).sum().backward()
    assert weight.grad.is_cuda and weight.grad.dtype == torch.float32
    assert (x @ x).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def check_what_autocast_would_run_in_another_type_is_refused():
    x = torch.rand(1, 1, 4, 4, 4, device="cuda", dtype=torch.bfloat16)
    with torch.autocast("cuda"):
        raises(NotImplementedError, "avg_pool3d is not modelled", torch.nn.functional.avg_pool3d, x, 2)
    assert torch.nn.functional.avg_pool3d(x.float(), 2).is_cuda


def check_compiled_functions_run_uncompiled():
    x = torch.ones(4, device="cuda")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        module = torch.compile(torch.nn.Linear(4, 4, device="cuda"))
        doubled = torch.compile(mode="max-autotune")(lambda x: 2 * x)
    assert "runs Linear uncompiled" in str(warned[0].message) and len(warned) == 1
    assert module(x).is_cuda and doubled(x).tolist() == [2] * 4


def check_fake_tensors_have_the_device_that_the_program_names():
    real = torch.ones(4, 4, device="cuda")
    in_use = torch.cuda.memory_allocated()
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        made = [
            torch.zeros(4, 4, device=torch.device("cuda", 0)),
            torch.zeros(4, 4, device="cuda"),
            torch.tensor([1.0], device="cuda"),
            torch.ones(4).cuda(0),
            torch.ones(4).to("cuda", torch.float16),
            mode.from_tensor(real),
        ]
        results = [*made, made[0] + 1, made[0] @ real, real * 2, made[0].new_empty(3), made[0][-1, 1:]]
        made[0][0] = 1.0
        host = [torch.zeros(4), made[0].cpu(), mode.from_tensor(torch.ones(4))]
        assert real.is_cuda and real.device.type == "cuda"
    results += [made[0] * 2]
    assert all(isinstance(each, torch._subclasses.FakeTensor) for each in [*results, *host])
    assert all(each.device == torch.device("cuda", 0) and each.is_cuda for each in results)
    assert all(each.device.type == "cpu" for each in host)
    assert torch.cuda.memory_allocated() == in_use


def check_transformed_functions_see_the_device():
    x = torch.arange(12.0, device="cuda").reshape(3, 4)

    def row(r):
        assert r.is_cuda and r.device.type == "cuda"
        return r * torch.ones(4, device="cuda")

    func = torch.func
    results = {
        "vmap": torch.vmap(row)(x),
        "vmap of two": torch.vmap(torch.dot, in_dims=(0, None))(x, torch.ones(4, device="cuda")),
        "nested": torch.vmap(func.grad(lambda r: (row(r) ** 2).sum()))(x) / 2,
        "jacrev": func.jacrev(row)(x[0]),
        "jvp": func.jvp(row, (x[0],), (x[1],))[1],
        "vjp": func.vjp(row, x[0])[1](x[2])[0],
    }
    assert all(result.is_cuda for result in results.values())
    expected = [x, x.sum(1), x, torch.eye(4), x[1], x[2]]
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(results.values(), expected))
    assert not torch.vmap(lambda r: r + 1)(x.cpu()).is_cuda


def check_flex_attention():
    q, k, v = (torch.randn(1, 2, 128, 16, device="cuda") for _ in range(3))
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cuda")
    assert mask.kv_indices.is_cuda
    result = flex_attention(q, k, v, block_mask=mask)
    reference = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert result.is_cuda and torch.allclose(result, reference, atol=1e-5)


def check_saved_tensors_are_loaded_where_they_were():
    x = torch.arange(6.0, device="cuda")
    file = io.BytesIO()
    torch.save({"x": x, "row": x[3:], "host": torch.ones(2)}, file)
    for place, expected in ((None, (True, False)), ("cpu", (False, False)), ("cuda", (True, True))):
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert (loaded["x"].is_cuda, loaded["host"].is_cuda) == expected
        assert loaded["row"].is_cuda == loaded["x"].is_cuda and loaded["row"].tolist() == [3, 4, 5]
        assert loaded["x"].untyped_storage().data_ptr() == loaded["row"].untyped_storage().data_ptr()


INCREMENT = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry increment(.param .u64 x) {
    .reg .u64 %rd<2>; .reg .u32 %r<2>;
    ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; ret;
}
"""


def check_launches_of_loaded_ptx_are_captured():
    x, graph = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.cuda.CUDAGraph()
    kernel = nogpu.load_ptx(INCREMENT)["increment"]
    with torch.cuda.graph(graph):
        kernel.launch(1, 1, [x])
    assert x.item() == 0
    for expected in (1, 2):
        graph.replay()
        assert x.item() == expected


def check_operations_of_torch_are_captured():
    x, total, graph = torch.ones(2, 4, device="cuda"), torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
    spread, windows = torch.empty(2, 3, device="cuda"), torch.zeros(3, 2, device="cuda")
    functional = torch.nn.functional
    with torch.cuda.graph(graph):
        spread.copy_(x[:, :1].expand(2, 3))
        windows.copy_(x[1].unfold(0, 2, 1))
        row = x.reshape(8)[:4]
        total.add_(row)
        total[0] = 0.5
        made = [
            row.to(torch.float16),
            torch.zeros(4, device="cuda") + row,
            functional.relu(row),
            functional.layer_norm(x, (4,))[0],
            torch.mul(row, 1, out=torch.empty(4, device="cuda")),
        ]
        functional.relu(total.neg_(), inplace=True)
    assert total.tolist() == [0] * 4 and x.tolist() == [[1] * 4] * 2
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert total.tolist() == [0] * 4
        assert [each.tolist() for each in made] == [[value] * 4] * 3 + [[0] * 4, [value] * 4]
        assert spread.tolist() == [[value] * 3] * 2 and windows.tolist() == [[value] * 2] * 3
    weight = torch.ones(4, device="cuda", requires_grad=True)
    for name, operation in {
        "item": lambda: x.sum().item(),
        "cpu": x.cpu,
        "tolist": x.tolist,
        "__bool__": lambda: bool(x.any()),
        "nonzero": x.nonzero,
        "backward": lambda: weight.sum().backward(),
    }.items():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            raises(NotImplementedError, f"torch.{name} while a CUDA graph", operation)
    assert weight.grad is None


def check_torch_cuda_device_is_a_class():
    x = torch.zeros(1, device="cuda")
    assert isinstance(torch.cuda.device(0), torch.cuda.device) and isinstance(
        torch.cuda.device_of(x), torch.cuda.device
    )
    assert torch.cuda.get_device_properties(torch.cuda.device_of(x)).major == 10
    with torch.cuda.device(torch.cuda.device_of(x)):
        torch.cuda.synchronize()
    with torch.cuda.device(x.device), torch.cuda.device(None), torch.cuda.stream(torch.cuda.Stream()) as nothing:
        assert nothing is None and torch.cuda.current_stream() != torch.cuda.default_stream()
    raises(RuntimeError, "invalid device ordinal", torch.cuda.device(1).__enter__)


def check_operations_of_torch_registered_for_cuda():
    x, host, called = torch.ones(3, 4, device="cuda"), torch.arange(3), []

    def noted(name, function):
        return lambda *args, **kwargs: called.append(name) or function(*args, **kwargs)

    kernels = {
        "mm": lambda a, b: torch.full((a.shape[0], b.shape[1]), 7.0, device=a.device),
        "add.Tensor": lambda a, b, alpha=1: torch.sub(a, -alpha * b),
        "clone": lambda a, memory_format=None: torch.zeros_like(a),
    }
    with torch.library._scoped_library("aten", "IMPL") as library:
        for name, function in kernels.items():
            library.impl(name, noted(name, function), "CUDA")
        assert (x @ x.T)[0, 0] == 7 and (x + x)[0, 0] == 2 and x.clone()[0, 0] == 0 and called == list(kernels)
        results = [host + 1.5, host + 1, host.half() + 1e-3, host.float() @ torch.ones(3, 1)]
        assert x.cpu()[0, 0] == 1 and called == list(kernels)
        raises(NotImplementedError, "with_keyset", library.impl, "relu", torch.relu, "CUDA", with_keyset=True)
    expected = [host + 1.5, host + 1, host.half() + 1e-3, host.float() @ torch.ones(3, 1)]
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(results, expected))
    assert (x @ x.T)[0, 0] == 4 and (x + x).is_cuda


@torch.library.custom_op("emulator_checks::on_cuda", mutates_args=(), device_types="cuda")
def on_cuda(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda and x.device.type == "cuda" and torch.empty_like(x).is_cuda
    return x * 2


@torch.library.custom_op("emulator_checks::anywhere", mutates_args=())
def anywhere(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@torch.library.custom_op("emulator_checks::into", mutates_args=("out",), device_types=("cpu", "cuda"))
def into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x * (5 if out.is_cuda else 7))


def check_operations_registered_for_cuda():
    on_cuda.register_autograd(lambda context, gradient: gradient * 2)
    anywhere.register_kernel("cuda", lambda x: x * 4 + torch.zeros_like(x, device=x.device))
    x = torch.arange(3.0, device="cuda", requires_grad=True)
    y = torch.ops.emulator_checks.on_cuda(x)
    y.sum().backward()
    assert y.is_cuda and y.tolist() == [0, 2, 4] and x.grad.is_cuda and x.grad.tolist() == [2, 2, 2]
    assert on_cuda(x.detach()).tolist() == [0, 2, 4]
    raises(NotImplementedError, "on_cuda has no kernel for the CPU", on_cuda, torch.zeros(1))
    host = torch.arange(3.0)
    for operation in (anywhere, torch.ops.emulator_checks.anywhere, torch.ops.emulator_checks.anywhere.default):
        assert operation(host).tolist() == [0, 3, 6] and not operation(host).is_cuda
        result = operation(x.detach())
        assert result.tolist() == [0, 4, 8] and result.is_cuda
    for device, factor in (("cuda", 5), ("cpu", 7)):
        out = torch.empty(3, device=device)
        into(host.to(device), out)
        assert out.tolist() == [0, factor, 2 * factor]
    for factor in (2, 3):
        with torch.library._scoped_library("emulator_checks_2", "DEF") as library:
            library.define("scaled(Tensor x) -> Tensor")
            library.impl("scaled", lambda x, by=factor: x * by if x.is_cuda else None, "CUDA")
            library.impl("scaled", lambda x, by=factor: x * by + 1, "CPU")
            assert torch.ops.emulator_checks_2.scaled(host.cuda()).tolist() == [0, factor, 2 * factor]
            assert torch.ops.emulator_checks_2.scaled(host).tolist() == [1, factor + 1, 2 * factor + 1]


def check_products_of_a_wider_type():
    a, b = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in ((8, 16), (16, 4)))
    c, product = torch.randn(8, 4, device="cuda"), a.float() @ b.float()
    sum_ = 0.5 * c + 2 * product
    wide = {"out_dtype": torch.float32}
    factors = {"beta": 0.5, "alpha": 2, **wide}
    found = [
        (torch.mm(a, b, **wide), product),
        (torch.mm(a, b, **wide, out=torch.empty_like(c)), product),
        (torch.ops.aten.mm.dtype(a, b, torch.float32), product),
        (torch.bmm(a[None], b[None], **wide), product[None]),
        (torch.addmm(c, a, b, **factors), sum_),
        (torch.baddbmm(c[None], a[None], b[None], **factors), sum_[None]),
    ]
    for result, expected in found:
        assert result.is_cuda and result.dtype == torch.float32
        torch.testing.assert_close(result, expected)
    raises(NotImplementedError, "for CUDA only", torch.mm, a.cpu(), b.cpu(), **wide)
    raises(RuntimeError, "out_dtype must be", torch.mm, a, b, out_dtype=torch.float16)


def check_operations_without_a_kernel_for_the_cpu_are_named():
    raises(NotImplementedError, "aten::_fused_dropout is not modelled", torch._fused_dropout, torch.ones(4).cuda(), 0.5)
