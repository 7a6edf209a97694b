"""torch._scaled_grouped_mm, with block or row scales, and torch._scaled_mm_v2, which torch offers on CUDA devices only.

The groups of a 2-D operand lie behind each other along one dimension, and `offs` says where each ends: rows of `a`
beside a 3-D `b`, columns of `b` beside a 3-D `a`, the K dimension of both if both are 2-D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from nogpu.cuda import scaled_mm
from nogpu.cuda.scaled_mm import ATOM_ROWS, ATOM_SCALES

BLOCKS = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}
"""dtype of block scales -> values along K that share one."""


def _slices(operand: torch.Tensor, ends: Sequence[int], dimension: int, packing: int = 1) -> list[torch.Tensor]:
    """The groups of an operand: its matrices if it is 3-D, else its parts along a dimension (of packed values)."""
    if operand.dim() == 3:
        return list(operand)
    starts = [0, *ends[:-1]]
    return [operand.narrow(dimension, s // packing, (e - s) // packing) for s, e in zip(starts, ends)]


def _block_scales(scales: torch.Tensor, shapes: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
    """(rows, columns) float64 of each group. The groups' blocks, each of whole atoms, are adjacent in memory."""
    flat, position, found = scales.contiguous().flatten(), 0, []
    for rows, columns in shapes:
        count = -(-rows // ATOM_ROWS) * ATOM_ROWS * -(-columns // ATOM_SCALES) * ATOM_SCALES
        found.append(scaled_mm.unblock(flat[position : position + count], rows, columns))
        position += count
    return found


def _row_scales(scales: torch.Tensor, shapes: Sequence[tuple[int, int]], own: bool) -> list[torch.Tensor]:
    """(rows, 1) float64 of each group. own: True if each group has scales of its own, as 2-D operands split along K."""
    if scales.dim() == 2:
        return [one.double()[:, None] for one in scales]
    total = sum(rows for rows, _ in shapes)
    if scales.numel() != total:
        raise RuntimeError(f"scale must have {total} elements{' (of all groups)' if own else ''}, got {scales.numel()}")
    return [one.double()[:, None] for one in scales.split([rows for rows, _ in shapes])]


def _values(groups: Sequence[torch.Tensor], scales: Sequence[torch.Tensor], own: bool) -> list[torch.Tensor]:
    """(rows, K) float64 of each group, scaled. scales: those of rows or blocks, then others with one for each group."""
    values = [scaled_mm.values_of(group) for group in groups]
    first = scales[0]
    block = BLOCKS.get(first.dtype)
    if block is None and first.dtype != torch.float32:
        raise RuntimeError(f"scales of dtype {first.dtype}: float32, float8_e4m3fn or float8_e8m0fnu are expected")
    if block is None:
        factors = _row_scales(first, [(len(one), 1) for one in values], own)
    else:
        tables = _block_scales(first, [(len(one), -(-one.shape[1] // block)) for one in values])
        factors = [t.repeat_interleave(block, dim=1)[:, : one.shape[1]] for t, one in zip(tables, values)]
    for more in scales[1:]:
        factors = [factor * one.double() for factor, one in zip(factors, more.flatten().expand(len(values)))]
    return [one * factor for one, factor in zip(values, factors)]


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
    pairs = zip(_values(left, scale_a, split_k), _values(right, scale_b, split_k))
    products = [x @ y.t() for x, y in pairs]
    dtype = out_dtype or torch.bfloat16
    if a.dim() == b.dim():
        return scaled_mm.round_once(torch.stack(products), dtype)
    whole = a.shape[0] if a.dim() == 2 else b.shape[1]
    shape = (whole, b.shape[2]) if a.dim() == 2 else (a.shape[1], whole)
    result = torch.zeros(shape, dtype=dtype, device="cpu")
    joined = scaled_mm.round_once(torch.cat(products, dim=0 if a.dim() == 2 else 1), dtype)
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


def scaled_mm_v2(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[torch.Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    *rest: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """The function behind torch.nn.functional.scaled_mm: (M, K) by (K, N), rounded once.

    Block scales are atoms (scaled_mm.unblock), alone or ahead of a float32 scale of the whole operand. Other scales
    go to torch. Raises RuntimeError for operands that do not fit.
    """
    if {scale_a[0].dtype, scale_b[0].dtype}.isdisjoint(BLOCKS):
        lists, original = (scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b), cast("Any", torch._scaled_mm_v2)
        return original(a, b, *lists, bias, out_dtype, *rest, **kwargs)
    scaled_mm.check_operands(a, b, scale_a[0], scale_b[0])
    [left], [right] = _values([a], scale_a, False), _values([b.t()], scale_b, False)
    return scaled_mm.product(left, right, bias, out_dtype)
