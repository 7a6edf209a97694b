"""Answers to calls of torch's functions, methods and properties that depend on the device.

Every answer takes the function mode, the function that was called, and its arguments. The mode is off in answers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from nogpu.cuda import current_queue, queues, scaled_grouped_mm, scaled_mm, torch_autograd, torch_cuda, torch_pinned
from nogpu.cuda.torch_memory import DEVICE, Tensor, kind, on_device, place

if TYPE_CHECKING:
    from nogpu.cuda.torch_device import VirtualDevice

Function = Callable[..., Any]
CUDA_DEVICE_TYPE = 2  # DLPack's kDLCUDA

_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def non_blocking(args: Iterable[object], kwargs: Mapping[str, object]) -> bool:
    """The argument non_blocking of Tensor.to, Tensor.cuda and Tensor.copy_. args: arguments behind the tensor."""
    return bool(kwargs.get("non_blocking") or next((each for each in args if isinstance(each, bool)), False))


def _to(mode: VirtualDevice, func: Function, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Answers Tensor.to in all its signatures: (device, dtype, ...), (dtype, ...), (other, ...)."""
    target = args[0] if args else kwargs.get("device", kwargs.get("other"))
    if isinstance(target, Tensor):
        kwargs.pop("other", None)
        args = (target.device, target.dtype, *args[1:])
        target = DEVICE if on_device(target) else target.device
    wanted = None if target is None or isinstance(target, torch.dtype) else kind(target)
    explicit = wanted == "cuda"
    if explicit and args:
        args = ("cpu", *args[1:])
    elif explicit:
        kwargs["device"] = "cpu"
    if wanted is None and on_device(tensor):
        wanted = "cuda"
    result = place(func(tensor, *args, **kwargs), wanted, [tensor], explicit)
    is_copy = wanted == "cpu" and on_device(tensor)
    return torch_pinned.pin(result) if is_copy and non_blocking(args, kwargs) else result


def _cuda(
    mode: VirtualDevice,
    func: Function,
    tensor: Tensor,
    device: object = None,
    non_blocking: bool = False,
    **kwargs: Any,
) -> Any:
    return _to(mode, Tensor.to, tensor, DEVICE if device is None else device, **kwargs)


def _repr(mode: VirtualDevice, func: Function, tensor: Tensor, **kwargs: Any) -> str:
    with mode:
        return torch._tensor_str._str(tensor, **kwargs)


def _format(mode: VirtualDevice, func: Function, tensor: Tensor, spec: str) -> str:
    return func(tensor, spec) if tensor.dim() == 0 else format(_repr(mode, func, tensor), spec)


def _type(mode: VirtualDevice, func: Function, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    wanted = args[0] if args else kwargs.get("dtype")
    wanted = torch_cuda.TENSOR_TYPES.get(wanted.removeprefix("torch.cuda.")) if isinstance(wanted, str) else wanted
    if isinstance(wanted, type) and wanted in torch_cuda.TENSOR_TYPES.values():
        return mode._answer(Tensor.to, (tensor, "cuda", wanted.dtype), None)  # type: ignore[attr-defined]  # _TensorType
    if args or kwargs:
        return mode.call(func, (tensor, *args), kwargs)
    name = func(tensor)
    return name.replace("torch.", "torch.cuda.", 1) if on_device(tensor) else name


def _layer_norm(
    mode: VirtualDevice,
    func: Function,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalisation with sums in float32, as on a GPU; torch's CPU kernel sums gradients in the narrow type."""
    narrow = input.dtype
    autocast = torch.is_autocast_enabled("cuda")  # the result is float32 then
    if on_device(input) and not autocast and narrow in (torch.float16, torch.bfloat16):
        weight, bias = (None if one is None else mode.call(Tensor.float, (one,), {}) for one in (weight, bias))
        wide = mode.call(func, (mode.call(Tensor.float, (input,), {}), normalized_shape, weight, bias, eps), {})
        return mode.call(Tensor.to, (wide, narrow), {})
    return mode.call(func, (input, normalized_shape, weight, bias, eps), {})


def _host_only(mode: VirtualDevice, func: Function, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if on_device(tensor):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(tensor, *args, **kwargs)


def _numpy(mode: VirtualDevice, func: Function, tensor: Tensor, *, force: bool = False) -> Any:
    """Answers Tensor.numpy, which copies a tensor of the device to the host only by force."""
    if force and on_device(tensor):
        return func(mode._answer(Tensor.cpu, (tensor.detach(),), None), force=True)
    return _host_only(mode, func, tensor, force=force)


def _dlpack(mode: VirtualDevice, func: Function, tensor: Tensor, **kwargs: Any) -> Any:
    """The CPU's DLPack capsule with the tensor's device in it."""
    if not on_device(tensor):
        return func(tensor, **kwargs)
    queue = kwargs.get("stream", -1)
    if queue != -1:  # whoever takes the tensor, on this queue, is behind torch's current one (DLPack; 1: the default)
        queues.join(queues.LEGACY if queue is None else queue, current_queue.get())
    kwargs["stream"] = None
    if kwargs.get("dl_device") == (CUDA_DEVICE_TYPE, 0):
        kwargs["dl_device"] = None
    capsule = func(tensor, **kwargs)
    name = _capsule_name(capsule)
    # DLTensor starts with `void *data; int32_t device_type, device_id`; the versioned struct has 32 bytes before it.
    offset = 32 if name == b"dltensor_versioned" else 0
    address = _capsule_pointer(capsule, name) + offset + ctypes.sizeof(ctypes.c_void_p)
    ctypes.c_int32.from_address(address).value = CUDA_DEVICE_TYPE
    return capsule


def _packed(mode: VirtualDevice, func: Function, *args: Any, **kwargs: Any) -> Any:
    """Answers operations on packed sequences: lengths stay on the host."""
    data, lengths = mode.call(func, args, kwargs)
    return data, mode._answer(Tensor.cpu, (lengths,), None)


def _by(function: Function) -> Function:
    """The answer that `function` computes, on the CPU."""
    return lambda mode, func, *args, **kwargs: mode.call(function, args, kwargs)


ANSWERS: dict[Function, Function] = {
    # torch.nn.Module.to parses its arguments by _parse_to
    **dict.fromkeys((torch.device, torch._C._nn._parse_to), lambda mode, func, *args, **kwargs: func(*args, **kwargs)),
    Tensor.to: _to,
    Tensor.cuda: _cuda,
    Tensor.cpu: lambda mode, func, tensor, **kwargs: _to(mode, Tensor.to, tensor, "cpu", **kwargs),
    Tensor.device.__get__: lambda mode, func, tensor: DEVICE if on_device(tensor) else func(tensor),
    # descriptors; torch's stub has attributes of type bool
    Tensor.is_cuda.__get__: lambda mode, func, tensor: on_device(tensor),  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda mode, func, tensor: func(tensor) and not on_device(tensor),  # type: ignore[attr-defined]
    Tensor.get_device: lambda mode, func, tensor: 0 if on_device(tensor) else func(tensor),
    Tensor.type: _type,
    Tensor.__repr__: _repr,
    Tensor.__format__: _format,
    Tensor.tolist: lambda mode, func, tensor: func(tensor),
    Tensor.backward: torch_autograd.plain,
    torch.autograd.backward: torch_autograd.plain,
    torch.autograd.grad: torch_autograd.gradients,
    Tensor.grad.__get__: torch_autograd.gradient_of,  # type: ignore[union-attr]  # a descriptor
    Tensor.register_hook: torch_autograd.register_hook,
    torch.nn.functional.layer_norm: _layer_norm,
    torch._pack_padded_sequence: _packed,
    torch._pad_packed_sequence: _packed,
    Tensor.numpy: _numpy,
    Tensor.__array__: _host_only,
    Tensor.pin_memory: lambda mode, func, tensor, *args: torch_pinned.pinned(tensor),
    Tensor.is_pinned: lambda mode, func, tensor, *args: torch_pinned.allocation_of(tensor) is not None,
    Tensor.__dlpack__: _dlpack,
    Tensor.__dlpack_device__: lambda mode, func, t: (CUDA_DEVICE_TYPE, 0) if on_device(t) else func(t),
    torch._scaled_mm: _by(scaled_mm.scaled_mm),
    torch._scaled_mm_v2: _by(scaled_mm.scaled_mm_v2),
    torch._scaled_grouped_mm: _by(scaled_grouped_mm.scaled_grouped_mm),
    torch._scaled_grouped_mm_v2: _by(scaled_grouped_mm.scaled_grouped_mm_v2),
}

# Calls that neither read nor write a tensor's data: launches before and behind them may overlap.
_METHODS_WITHOUT_DATA = (
    *("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "data_ptr"),
    *("is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_neg", "is_conj"),
    *("get_device", "__len__", "__hash__"),
    *("__dlpack__", "__dlpack_device__", "new_empty"),
    *("detach", "view", "view_as", "as_strided", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand"),
    *("narrow", "select", "unbind", "untyped_storage"),
)
WITHOUT_DATA = {
    *(getattr(Tensor, name) for name in _METHODS_WITHOUT_DATA),
    *(torch.device, torch.numel, torch.is_floating_point, torch.is_complex, torch.is_neg, torch.is_conj),
    *(torch.empty, torch.empty_like, torch.empty_strided),
}
# Calls that use the data of a storage, none of which the function mode sees.
STORAGE_USES = (
    *((torch.UntypedStorage, name) for name in ("__getitem__", "__setitem__", "copy_", "fill_")),
    (torch, "save"),
)


def may_use_data(func: Function, kwargs: dict | None) -> bool:
    """True if a call of torch's may read or write what a tensor of the device holds. Getters of properties do not."""
    if func.__name__ == "__get__":
        return False
    return func not in WITHOUT_DATA or bool(kwargs and "out" in kwargs)
