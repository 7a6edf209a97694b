"""Products of matrices of half precision, and recurrent layers, on a processor that has no instructions for them.

There torch's CPU kernels multiply such numbers one by one, some fifty times slower than numbers of float32. The
products are computed in float32 and rounded once, gradients too, as a GPU's tensor core does; of a recurrent layer the
results are rounded, not the states between its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch

from nogpu.cuda.torch_memory import RECURRENT

_NAMES = ("mm", "bmm", "matmul", "addmm", "baddbmm", "addbmm")
_FUNCTIONS: set[Callable[..., Any]] = {
    *(getattr(owner, name) for owner in (torch, torch.Tensor) for name in _NAMES),
    *(torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.einsum, torch.nn.functional.linear),
    *(getattr(torch.nn.functional, f"conv{kind}{rank}d") for kind in ("", "_transpose") for rank in (1, 2, 3)),
    torch.nn.functional.scaled_dot_product_attention,
    *RECURRENT,
}


@cache
def slow_types() -> set[torch.dtype]:
    """The types that the processor multiplies in software."""
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return {dtype for dtype, name in supported.items() if not getattr(torch.ops.mkldnn, name)()}


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        found += _tensors(value) if isinstance(value, list | tuple) else [value] * isinstance(value, torch.Tensor)
    return found


def _wide(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_wide(each) for each in value)
    is_narrow = isinstance(value, torch.Tensor) and value.dtype in slow_types()
    return value.float() if is_narrow else value


def narrow_type(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.dtype | None:
    """The type of the operands and the result of a product that `product` computes faster; None for any other call."""
    if func not in _FUNCTIONS or "out" in kwargs or "out_dtype" in kwargs:
        return None
    if any(isinstance(each, torch.dtype) for each in args):
        return None
    types = {tensor.dtype for tensor in _tensors((*args, *kwargs.values())) if tensor.is_floating_point()}
    return types.pop() if len(types) == 1 and types <= slow_types() else None


def product(func: Callable[..., Any], dtype: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """func(*args, **kwargs), computed in float32 and rounded to `dtype`."""
    result = func(*_wide(args), **{name: _wide(value) for name, value in kwargs.items()})
    return type(result)(each.to(dtype) for each in result) if isinstance(result, tuple) else result.to(dtype)
