"""Operations whose kernels Python registers for CUDA (torch.library): tensors of the device reach them.

To torch's dispatcher tensors of the device are on the CPU. So an operation of torch.library gets a kernel for the CPU
that calls the program's for CUDA if an argument is on the device, and otherwise what the program has for the CPU.
Operations of torch itself ("aten") stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from nogpu.cuda.torch_memory import on_device, tensors

Kernel = Callable[..., Any]
_kernels: dict[str, dict[str, Kernel]] = {}
"""Name of an operation -> its kernels by dispatch key, CPU or CUDA."""


def _chooser(name: str, mode: Any) -> Kernel:
    """The kernel of an operation for the CPU."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        registered = _kernels[name]
        device = any(map(on_device, tensors((*args, *kwargs.values()))))
        if device and "CUDA" in registered:
            with mode:  # it is off while torch executes an operation
                return registered["CUDA"](*args, **kwargs)
        if "CPU" in registered:
            return registered["CPU"](*args, **kwargs)
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operation = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        for key in ("CompositeExplicitAutograd", "CompositeImplicitAutograd"):
            if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                return operation._op_dk(getattr(torch._C.DispatchKey, key), *args, **kwargs)
        raise NotImplementedError(f"{name} has no kernel for {'CUDA' if device else 'the CPU'}")

    return kernel


def _implementing(original: Callable[..., Any], mode: Any) -> Callable[..., Any]:
    """torch.library.Library.impl that notes the kernels for the CPU and for CUDA."""

    implementations: set[str] = torch.library._impls

    @functools.wraps(original)
    def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        key = dispatch_key or library.dispatch_key
        if library.ns == "aten" or key not in ("CPU", "CUDA") or options.get("with_keyset"):
            return original(library, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        if not isinstance(op_name, str) and op_name._schema.overload_name:
            name = f"{name}.{op_name._schema.overload_name}"
        name = name if "::" in name else f"{library.ns}::{name}"
        # A library that is destroyed takes its kernels with it.
        is_first = f"{library.ns}/{name.partition('::')[2]}/CPU" not in implementations
        if is_first and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):  # of C++, for any tensor
            return original(library, op_name, fn, dispatch_key, **options)
        if key == "CUDA":
            original(library, op_name, fn, dispatch_key, **options)
        if is_first:
            _kernels[name] = {}
            original(library, op_name, _chooser(name, mode), "CPU", **options)
        _kernels[name][key] = fn

    return impl


def install(mode: Any) -> None:
    """Replace torch.library.Library.impl. mode: the device's function mode."""
    library: Any = torch.library.Library
    library.impl = _implementing(library.impl, mode)
