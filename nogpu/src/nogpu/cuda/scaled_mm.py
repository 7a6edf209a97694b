"""torch._scaled_mm and _scaled_mm_v2 with block scales in the tensor cores' layout, which torch offers on CUDA only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from nogpu.arithmetic import numerics

ATOM_ROWS, ATOM_SCALES = 128, 4  # rows and scales per row of an atom, 512 bytes
BLOCKS = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}
"""dtype of block scales -> values along K that share one."""


def unblock(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """(rows, columns) float64 of scale factors that are stored as atoms of 128 rows x 4 scales.

    Row r, scale s of an atom is at byte (r % 32) * 16 + (r // 32) * 4 + s; the atoms of a row block are adjacent
    (cuBLAS, "1D Block Scaling Factors Layout"). Raises RuntimeError for another number of scales.
    """
    row_atoms, column_atoms = -(-rows // ATOM_ROWS), -(-columns // ATOM_SCALES)
    if scales.numel() != row_atoms * column_atoms * ATOM_ROWS * ATOM_SCALES:
        raise RuntimeError(
            f"Invalid scaling configuration: {scales.numel()} block scales for {rows} rows of {columns}; "
            f"{row_atoms} x {column_atoms} atoms of {ATOM_ROWS * ATOM_SCALES} expected"
        )
    atoms = scales.contiguous().double().view(row_atoms, column_atoms, 32, 4, ATOM_SCALES)
    atoms = atoms.permute(0, 3, 2, 1, 4).reshape(row_atoms * ATOM_ROWS, column_atoms * ATOM_SCALES)
    return atoms[:rows, :columns]


def _values_of(operand: torch.Tensor) -> torch.Tensor:
    """(rows, K) float64 of a (rows, K // 2) float4_e2m1fn_x2 operand or a (rows, K) float8 operand."""
    if operand.dtype != torch.float4_e2m1fn_x2:
        return operand.double()
    codes = operand.view(torch.uint8)
    table = torch.from_numpy(numerics.E2M1.astype("float64"))
    return table[torch.stack([codes & 15, codes >> 4], dim=-1).long()].flatten(-2)


def round_once(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 to `dtype`, rounded once to nearest even; torch converts by float32 and rounds twice."""
    if dtype in (torch.float32, torch.float64):
        return values.to(dtype)
    single = values.float()
    # Round to odd: an inexact float32 gets its last bit set, so that the second rounding sees no false tie.
    bits = single.view(torch.int32)
    toward_zero = bits - (single.double().abs() > values.abs()).int()
    inexact = (single.double() != values) & values.isfinite()
    return torch.where(inexact, toward_zero | 1, bits).view(torch.float32).to(dtype)


def _check_operands(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
    """Raises RuntimeError, as torch does, unless (M, K) and (K, N) with block scales fit each other."""
    if scale_b.dtype != scale_a.dtype or (b.dtype == torch.float4_e2m1fn_x2) != (a.dtype == torch.float4_e2m1fn_x2):
        raise RuntimeError(f"Invalid scaling configuration: {a.dtype} by {scale_a.dtype}, {b.dtype} by {scale_b.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(a.shape)} and {tuple(b.shape)})")
    if a.stride(1) != 1 or b.stride(0) != 1:
        raise RuntimeError("mat1 must be row-major and mat2 column-major")


def _row_scales(scales: torch.Tensor, rows: Sequence[int], own: bool) -> list[torch.Tensor]:
    """(rows, 1) float64 of each group. own: True if each group has scales of its own, as 2-D operands split along K."""
    if scales.dim() == 2:
        return [one.double()[:, None] for one in scales]
    if scales.numel() != sum(rows):
        groups = " (of all groups)" if own else ""
        raise RuntimeError(f"scale must have {sum(rows)} elements{groups}, got {scales.numel()}")
    return [one.double()[:, None] for one in scales.split(list(rows))]


def _block_scales(scales: torch.Tensor, values: Sequence[torch.Tensor], block: int) -> list[torch.Tensor]:
    """(rows, K) float64 of each group. The groups' blocks, each of whole atoms, are adjacent in memory."""
    flat, position, found = scales.contiguous().flatten(), 0, []
    for rows, k in (one.shape for one in values):
        columns = -(-k // block)
        count = -(-rows // ATOM_ROWS) * ATOM_ROWS * -(-columns // ATOM_SCALES) * ATOM_SCALES
        factors = unblock(flat[position : position + count], rows, columns)
        found.append(factors.repeat_interleave(block, dim=1)[:, :k])
        position += count
    return found


def scaled(groups: Sequence[torch.Tensor], scales: Sequence[torch.Tensor], own: bool = False) -> list[torch.Tensor]:
    """(rows, K) float64 of each group of an operand. scales: those of rows or blocks, then others with one for each
    group. own: as for `_row_scales`. Raises RuntimeError for scales that do not fit.
    """
    values = [_values_of(group) for group in groups]
    first = scales[0]
    if first.dtype == torch.float32:
        factors = _row_scales(first, [len(one) for one in values], own)
    elif first.dtype not in BLOCKS:
        raise RuntimeError(f"scales of dtype {first.dtype}: float32, float8_e4m3fn or float8_e8m0fnu are expected")
    else:
        block = BLOCKS[first.dtype]
        if block == 16 and any(group.dtype != torch.float4_e2m1fn_x2 for group in groups):
            raise RuntimeError(
                f"Invalid scaling configuration: {first.dtype} block scales beside {groups[0].dtype}; "
                "they go with torch.float4_e2m1fn_x2, those of float8 are torch.float8_e8m0fnu for blocks of 32"
            )
        factors = _block_scales(first, values, block)
    for more in scales[1:]:
        factors = [factor * one.double() for factor, one in zip(factors, more.flatten().expand(len(values)))]
    return [one * factor for one, factor in zip(values, factors)]


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    dtype: torch.dtype | None,
) -> torch.Tensor:
    """(M, N) of (M, K) and (K, N) with block scales, with a bias (N,), rounded once to `dtype`, bfloat16 by default."""
    _check_operands(a, b, scale_a[0], scale_b[0])
    [left], [right] = scaled([a], scale_a), scaled([b.t()], scale_b)
    result = left @ right.t()
    return round_once(result if bias is None else result + bias.double(), dtype or torch.bfloat16)


def scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """torch._scaled_mm: (M, K) @ (K, N) with a scale per 16 values along K (e4m3) or per 32 (e8m0), in atoms.

    Other scales go to torch. Raises RuntimeError as torch does for operands that do not fit.
    """
    if scale_a.dtype not in BLOCKS:
        return torch._scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, **kwargs)
    return _product(a, b, [scale_a], [scale_b], bias, out_dtype)


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
    """The function behind torch.nn.functional.scaled_mm: `scaled_mm`, with block scales alone or ahead of a float32
    scale of the whole operand.
    """
    if {scale_a[0].dtype, scale_b[0].dtype}.isdisjoint(BLOCKS):
        lists, original = (scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b), cast("Any", torch._scaled_mm_v2)
        return original(a, b, *lists, bias, out_dtype, *rest, **kwargs)
    return _product(a, b, scale_a, scale_b, bias, out_dtype)
