"""Gradients, profiles and DLPack on the emulated device; test_torch_device.py runs them."""

import contextlib
import io
import threading

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

seen = []


class Doubled(torch.autograd.Function):
    """The function 2 x, and a record of the gradient that backward gets."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        made = torch.zeros(3, device=gradient.device)
        seen.append((gradient.is_cuda, str(gradient.device), x.is_cuda, made.is_cuda, torch.empty(1).is_cuda))
        return gradient * 2 + made.sum()


class Pair(torch.autograd.Function):
    """A result on the device and one on the host, and the tensors with their gradients."""

    @staticmethod
    def forward(ctx, x):
        return x + 1, x.cpu() + 1

    @staticmethod
    def backward(ctx, first, second):
        seen.append((first.is_cuda, second.is_cuda))
        return first + second.cuda()


ON_DEVICE, ON_HOST = (True, "cuda:0", True, True, False), (False, "cpu", False, False, False)


def leaf(device="cuda"):
    seen.clear()
    return torch.ones(3, device=device, requires_grad=True)


def check_backward_sees_the_device():
    for start in (
        lambda x: Doubled.apply(x).sum().backward(),
        lambda x: torch.autograd.backward(Doubled.apply(x).sum()),
        lambda x: Doubled.apply(x).backward(torch.ones(3, device="cuda")),
    ):
        x = leaf()
        start(x)
        assert seen == [ON_DEVICE], seen
        assert x.grad.is_cuda and x.grad.tolist() == [2.0] * 3


def check_backward_on_the_host_stays_there():
    x = leaf("cpu")
    Doubled.apply(x).sum().backward()
    assert seen == [ON_HOST] and not x.grad.is_cuda


def check_gradients_of_both_devices():
    x, host = leaf(), torch.ones(3, requires_grad=True)
    (Doubled.apply(x).cpu() * host).sum().backward()
    assert seen == [ON_DEVICE], seen
    assert x.grad.is_cuda and not host.grad.is_cuda and host.grad.tolist() == x.grad.tolist() == [2.0] * 3
    host = torch.ones(3, requires_grad=True)
    (2 * host.cuda()).sum().backward()
    assert not host.grad.is_cuda and host.grad.tolist() == [2.0] * 3
    (2 * host.cuda()).sum().backward()
    assert not host.grad.is_cuda and host.grad.tolist() == [4.0] * 3
    x = leaf()
    first, second = Pair.apply(x)
    (first.sum() + second.sum().cuda()).backward()
    assert seen == [(True, False)] and x.grad.tolist() == [2.0] * 3, (seen, x.grad)


def check_autograd_grad():
    x, host = leaf(), torch.ones(3, requires_grad=True)
    gradients = torch.autograd.grad((Doubled.apply(x).cpu() * host).sum(), [x, host])
    assert [g.is_cuda for g in gradients] == [True, False] and seen == [ON_DEVICE], (gradients, seen)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.is_cuda and second.tolist() == [6.0] * 3


def check_hooks_see_the_device():
    x, places = leaf(), []
    y = x * 2
    y.register_hook(lambda gradient: places.append(gradient.is_cuda))
    x.register_hook(lambda gradient: 10 * gradient)
    x.register_post_accumulate_grad_hook(lambda tensor: places.append(tensor.grad.is_cuda))
    y.sum().backward()
    assert places == [True, True] and x.grad.tolist() == [20.0] * 3


def check_checkpoints():
    for reentrant in (False, True):
        x = leaf()
        checkpoint(Doubled.apply, x, use_reentrant=reentrant).sum().backward()
        assert seen == [ON_DEVICE] and x.grad.tolist() == [2.0] * 3, seen
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).cuda()
    x, gradients = torch.randn(4, 8, device="cuda", requires_grad=True), []
    for result in (
        *(lambda: layers(x), lambda: checkpoint(layers, x, use_reentrant=False)),
        lambda: checkpoint(layers, x, use_reentrant=True),
    ):
        layers.zero_grad()
        x.grad = None
        result().exp().sum().backward()
        gradients.append([x.grad.clone(), *(each.grad.clone() for each in layers.parameters())])
        assert all(each.is_cuda for each in gradients[-1])
    for other in gradients[1:]:
        assert all(map(torch.equal, other, gradients[0]))


def check_backward_in_a_thread():
    x = leaf()
    thread = threading.Thread(target=lambda: Doubled.apply(x).sum().backward())
    thread.start()
    thread.join()
    assert seen == [ON_DEVICE] and x.grad.is_cuda


def check_training_step():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    model.cuda()
    x, y = torch.randn(16, 4, device="cuda"), torch.randint(0, 2, (16,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and all(p.grad.is_cuda for p in model.parameters())


def check_layer_norm_sums_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        torch.manual_seed(0)
        x, dy = (torch.randn(600, 64, device="cuda").to(dtype) for _ in range(2))
        norm = torch.nn.LayerNorm(64, device="cuda", dtype=dtype)
        x.requires_grad_()
        norm(x).backward(dy)
        exact = [t.detach().double().requires_grad_() for t in (x, norm.weight, norm.bias)]
        torch.nn.functional.layer_norm(exact[0], (64,), *exact[1:]).backward(dy.double())
        assert x.grad.dtype == norm.bias.grad.dtype == dtype
        for ours, right in zip((norm.weight, norm.bias), exact[1:]):
            error = (ours.grad.double() - right.grad).abs().max() / right.grad.abs().max()
            assert error <= 0.51 * torch.finfo(dtype).eps, (dtype, error)


def check_profiles():
    x = torch.ones(8, 8, device="cuda")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for activities in ([ProfilerActivity.CPU, ProfilerActivity.CUDA], [ProfilerActivity.CUDA], None):
            with profile(activities=activities, record_shapes=True) as result, record_function("mine"):
                x @ x
            names = {event.key for event in result.key_averages()}
            assert {"mine", "aten::mm"} <= names, names
            assert "aten::mm" in result.key_averages().table(sort_by="cuda_time_total", row_limit=10)
        with torch.autograd.profiler.profile(use_device="cuda") as result:
            x @ x
    assert any(event.name == "aten::mm" for event in result.function_events)


def check_dlpack_of_tensors_that_require_gradients():
    x = leaf()
    assert "dltensor" in str(torch.utils.dlpack.to_dlpack(x)) and torch.to_dlpack is torch.utils.dlpack.to_dlpack
    shared = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert shared.data_ptr() == x.data_ptr()
    for refused in (torch.Tensor.__dlpack__, torch.from_dlpack):
        try:
            refused(x)
        except BufferError as error:
            assert "require gradient" in str(error)
        else:
            raise AssertionError("torch refuses to export a tensor that requires gradients")
    assert torch.from_dlpack(x.detach()).is_cuda
