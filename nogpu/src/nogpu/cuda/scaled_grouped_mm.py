"""torch._scaled_grouped_mm, with block or row scales, which torch offers on CUDA devices only.

The groups of a 2-D operand lie behind each other along one dimension, and `offs` says where each ends: rows of `a`
beside a 3-D `b`, columns of `b` beside a 3-D `a`, the K dimension of both if both are 2-D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nogpu.cuda.scaled_mm import round_once, scaled


def _slices(operand: torch.Tensor, ends: Sequence[int], dimension: int, packing: int = 1) -> list[torch.Tensor]:
    """The groups of an operand: its matrices if it is 3-D, else its parts along a dimension (of packed values)."""
    if operand.dim() == 3:
        return list(operand)
    starts = [0, *ends[:-1]]
    return [operand.narrow(dimension, s // packing, (e - s) // packing) for s, e in zip(starts, ends)]


def _grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
    offs: torch.Tensor | None,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    flat = a.dim() == 2 or b.dim() == 2
    if {a.dim(), b.dim()} - {2, 3} or (offs is not None) != flat:
        raise RuntimeError("operands must be 2-D or 3-D, and offs is needed exactly if one of them is 2-D")
    ends = [] if offs is None else offs.tolist()
    split_k = a.dim() == b.dim() == 2
    packing = 2 if split_k and a.dtype == torch.float4_e2m1fn_x2 else 1
    left = _slices(a, ends, 1 if split_k else 0, packing)
    right = [one.t() for one in _slices(b, ends, 0 if split_k else 1, packing)]
    if len(left) != len(right) or any(x.shape[1] != y.shape[1] for x, y in zip(left, right)):
        raise RuntimeError(
            f"contraction dimension or groups of mat_a {tuple(a.shape)} and mat_b {tuple(b.shape)} differ"
        )
    pairs = zip(scaled(left, scale_a, split_k), scaled(right, scale_b, split_k))
    products = [x @ y.t() for x, y in pairs]
    dtype = out_dtype or torch.bfloat16
    if a.dim() == b.dim():
        return round_once(torch.stack(products), dtype)
    whole = a.shape[0] if a.dim() == 2 else b.shape[1]
    shape = (whole, b.shape[2]) if a.dim() == 2 else (a.shape[1], whole)
    result = torch.zeros(shape, dtype=dtype, device="cpu")
    joined = round_once(torch.cat(products, dim=0 if a.dim() == 2 else 1), dtype)
    result[: joined.shape[0], : joined.shape[1]] = joined
    return result


def scaled_grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """torch._scaled_grouped_mm: (M, K) or (G, M, K) by (K, N) or (G, K, N), rounded once.

    scale_a, scale_b: float32 for each row or column, or atoms of scales (scaled_mm.unblock). Rows and columns behind
    the last group are 0. Raises RuntimeError for operands that do not fit.
    """
    return _grouped(a, b, [scale_a], [scale_b], offs, bias, out_dtype)


def scaled_grouped_mm_v2(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[torch.Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    *rest: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """The function behind torch.nn.functional.scaled_grouped_mm: `scaled_grouped_mm` with a float32 scale per group.

    The recipes are not read: the scales' dtypes say the same.
    """
    return _grouped(a, b, scale_a, scale_b, offs, bias, out_dtype)
