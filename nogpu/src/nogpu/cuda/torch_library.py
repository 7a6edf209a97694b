"""Operations whose kernels Python registers for CUDA (torch.library): tensors of the device reach them.

To torch's dispatcher tensors of the device are on the CPU. So an operation, torch's own ("aten") included, gets a
kernel for the CPU that calls the program's for CUDA if an argument is on the device, else the one before for the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from nogpu.cuda.torch_memory import Tensor, moves, on_device, tensors

Kernel = Callable[..., Any]
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_kernels: dict[str, dict[str, Kernel]] = {}
"""Name of an operation -> its kernels by dispatch key, CPU or CUDA."""


def _plain(name: str) -> Kernel | None:
    """The kernel of an operation for the CPU before the program adds one, None if there is none."""
    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"):
        return None
    if not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(
            f"{name} has a kernel for the CPU already: to add one for CUDA takes torch 2.9 or newer"
        )
    boxed = torch.library.get_kernel(name, "CPU").call_boxed
    schema = torch._C._get_schema(*f"{name}.".split(".")[:2])
    takes_tensor = [isinstance(argument.type, torch.TensorType) for argument in schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        """Call the boxed kernel, which, unlike torch's operators, takes no Python number for a tensor."""
        numbers = [a if isinstance(a, Tensor) or not t else _number(a, args) for a, t in zip(args, takes_tensor)]
        return boxed(_CPU, *numbers, **kwargs)

    return kernel


def _number(value: Any, args: tuple[Any, ...]) -> Any:
    """A Python number as a tensor that promotes the types of other arguments as the number does."""
    if not isinstance(value, (bool, int, float, complex)):
        return value
    others = [each for each in tensors(args) if each.dim() or each.is_floating_point()]
    exact = isinstance(value, float) and any(each.is_floating_point() and each.dim() for each in others)
    dtype = torch.float64 if exact else torch.result_type(others[0], value) if others else None
    return torch.tensor(value, dtype=dtype)


def _chooser(name: str, plain: Kernel | None, mode: Any) -> Kernel:
    """The kernel of an operation for the CPU that chooses the program's for CUDA or another. plain: the one before."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        registered = _kernels[name]
        device = not moves.own and any(map(on_device, tensors((*args, *kwargs.values()))))
        if device and "CUDA" in registered:
            with mode:  # the mode is off while torch executes an operation
                return registered["CUDA"](*args, **kwargs)
        chosen = registered.get("CPU", plain)
        if chosen is None:
            raise NotImplementedError(f"{name} has no kernel for {'CUDA' if device else 'the CPU'}")
        return chosen(*args, **kwargs)

    return kernel


def _implementing(original: Callable[..., Any], mode: Any) -> Callable[..., Any]:
    """torch.library.Library.impl that notes the kernels for the CPU and for CUDA."""

    implementations: set[str] = torch.library._impls

    @functools.wraps(original)
    def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        key = dispatch_key or library.dispatch_key
        if key not in ("CPU", "CUDA"):
            return original(library, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        if not isinstance(op_name, str) and op_name._schema.overload_name:
            name = f"{name}.{op_name._schema.overload_name}"
        name = name if "::" in name else f"{library.ns}::{name}"
        if options.get("with_keyset"):
            raise NotImplementedError(f"{name}: a kernel with_keyset is not modelled by the emulated device")
        # A library that is destroyed takes its kernels with it.
        is_first = f"{library.ns}/{name.partition('::')[2]}/CPU" not in implementations
        if key == "CUDA":
            original(library, op_name, fn, dispatch_key, **options)
        if is_first:
            plain = _plain(name)
            _kernels[name] = {}
            original(library, op_name, _chooser(name, plain, mode), "CPU", **options)
        _kernels[name][key] = fn

    return impl


def install(mode: Any) -> None:
    """Replace torch.library.Library.impl. mode: the device's function mode."""
    library: Any = torch.library.Library
    library.impl = _implementing(library.impl, mode)
