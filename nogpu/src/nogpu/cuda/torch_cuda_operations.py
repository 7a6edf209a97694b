"""Operations of torch that have kernels for CUDA only, products whose result has a wider type than the operands, and
sums of half precision, which are rounded once there.

They are registered with torch's dispatcher for the CPU, where it takes tensors of the device to be, so that calls by
torch.mm, by torch.ops and by C++ code reach them. Host tensors are refused, as torch refuses them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from nogpu.cuda.torch_memory import Tensor, on_device

Number = int | float
_NARROW = (torch.float16, torch.bfloat16)


def _wide(name: str, out_dtype: torch.dtype, *operands: Tensor) -> list[Tensor]:
    """The operands in float32. Raises torch's errors for a type of result that the operation does not have."""
    if not on_device(operands[0]):
        raise NotImplementedError(f"aten::{name}.dtype has a kernel for CUDA only")
    dtype = operands[-1].dtype
    if out_dtype != dtype and not (out_dtype == torch.float32 and dtype in _NARROW):
        raise RuntimeError(
            "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs; "
            f"got {out_dtype} for inputs of {dtype}"
        )
    return [operand.to(torch.float32) if operand.dtype in _NARROW else operand for operand in operands]


def mm(self: Tensor, mat2: Tensor, out_dtype: torch.dtype) -> Tensor:
    """(M, N) of (M, K) and (K, N), rounded once from float32 to `out_dtype`."""
    return torch.mm(*_wide("mm", out_dtype, self, mat2)).to(out_dtype)


def bmm(self: Tensor, mat2: Tensor, out_dtype: torch.dtype) -> Tensor:
    """(B, M, N) of (B, M, K) and (B, K, N), rounded once from float32 to `out_dtype`."""
    return torch.bmm(*_wide("bmm", out_dtype, self, mat2)).to(out_dtype)


def addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: torch.dtype, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """(M, N): beta * self + alpha * mat1 @ mat2 in float32, rounded once."""
    return torch.addmm(*_wide("addmm", out_dtype, self, mat1, mat2), beta=beta, alpha=alpha).to(out_dtype)


def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: torch.dtype, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """(B, M, N): beta * self + alpha * batch1 @ batch2 in float32, rounded once."""
    return torch.baddbmm(*_wide("baddbmm", out_dtype, self, batch1, batch2), beta=beta, alpha=alpha).to(out_dtype)


def sum_once(
    self: Tensor, dim: list[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """torch.sum over `dim`. Half precision is rounded once: torch's CPU kernel rounds the sums of its threads, too."""
    exact = self.dtype if self.is_floating_point() or self.is_complex() else torch.int64
    result = dtype or exact
    wide = torch.float32 if result in _NARROW else result
    sums = torch.empty(0, dtype=wide, device=self.device)
    return torch.ops.aten.sum.IntList_out(self, dim, keepdim, dtype=wide, out=sums).to(result)


def _into(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The operation with its result in the argument `out`."""

    def call(*args: object, out: Tensor, **kwargs: object) -> Tensor:
        result = operation(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return call


_libraries: list[torch.library.Library] = []  # a registration ends with its library


def install() -> None:
    """Register the operations that this torch has, and has no kernel of for the CPU, and the sum."""
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    has_schema, has_kernel = torch._C._dispatch_has_kernel, torch._C._dispatch_has_computed_kernel_for_dispatch_key
    for operation in (mm, bmm, addmm, baddbmm):
        for overload, function in (("dtype", operation), ("dtype_out", _into(operation))):
            name = f"aten::{operation.__name__}.{overload}"
            if has_schema(name) and not has_kernel(name, "CPU"):
                library.impl(name, function, "CPU")
    with warnings.catch_warnings():  # torch has a kernel, which this one calls by another name
        warnings.simplefilter("ignore")
        library.impl("aten::sum.dim_IntList", sum_once, "CPU")
