"""Fake tensors of the emulated device, by which compilers trace programs: they have a device and no memory.

torch keeps their device itself, so calls under FakeTensorMode reach it as the program makes them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode, fake_tensor
from torch._subclasses.fake_tensor import FakeTensorConverter
from torch.overrides import TorchFunctionMode

from nogpu.cuda.torch_memory import DEVICE, Tensor, kind, tensors

# Questions about a tensor with memory while FakeTensorMode is active, besides its properties.
_QUESTIONS = {Tensor.get_device, Tensor.__repr__, Tensor.type, Tensor.__dlpack_device__}


def concerns(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """True if the call is FakeTensorMode's, or of a fake tensor that outlives it."""
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        is_question = func.__name__ == "__get__" or func in _QUESTIONS
        return not is_question or isinstance(args[0], FakeTensor)
    # A list of numbers, which may be long, is an argument of torch.tensor alone.
    return func is not torch.tensor and any(isinstance(each, FakeTensor) for each in tensors((args, kwargs)))


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """func(*args, **kwargs). The device "cuda" gets its number, which a torch without CUDA cannot tell."""
    if func is torch.device:
        return func(*args, **kwargs)
    if func is Tensor.cuda:
        func, args, kwargs = Tensor.to, (args[0], DEVICE), {}
    args = tuple(DEVICE if isinstance(each, str | torch.device) and kind(each) == "cuda" else each for each in args)
    if kind(kwargs.get("device")) == "cuda":
        kwargs = kwargs | {"device": DEVICE}
    return func(*args, **kwargs)


@functools.cache
def _guard_is_set() -> bool:
    """Give CUDA torch's guard of meta tensors, which does nothing, unless it has one: indexing asks for it."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    kinds = torch._C._autograd.DeviceType
    guards = (ctypes.c_void_p * (kinds.Meta.value + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[kinds.CUDA.value] = guards[kinds.CUDA.value] or guards[kinds.Meta.value]
    return True


def install(mode: TorchFunctionMode) -> None:
    """Make fake tensors of tensors on the device be on it, too. mode: the one that answers for the device."""
    original = FakeTensorConverter.from_real_tensor

    @functools.wraps(original)
    def from_real_tensor(*args: Any, **kwargs: Any) -> FakeTensor:
        with mode:
            return original(*args, **kwargs)

    converter, fakes = FakeTensorConverter, FakeTensorMode
    converter.from_real_tensor = from_real_tensor  # type: ignore[method-assign]  # a patch is the purpose
    # torch's own support of a torch without CUDA, which torch.cuda.is_available would switch off
    fakes.avoid_device_init = property(lambda mode: _guard_is_set())  # type: ignore[method-assign,assignment]
    # A torch for CUDA would make a tensor on the GPU here.
    fake_tensor.init_gpu_context = lambda device: None  # type: ignore[assignment]
