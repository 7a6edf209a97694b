"""torch._scaled_mm with block scales in the tensor cores' layout, which torch offers on CUDA devices only."""

from __future__ import annotations

from typing import Any

import torch

from nogpu.arithmetic import numerics

ATOM_ROWS, ATOM_SCALES = 128, 4  # rows and scales per row of an atom, 512 bytes


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


def values_of(operand: torch.Tensor) -> torch.Tensor:
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


def check_operands(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> None:
    """Raises RuntimeError, as torch does, unless (M, K) and (K, N) with block scales fit each other."""
    if scale_b.dtype != scale_a.dtype or (b.dtype == torch.float4_e2m1fn_x2) != (a.dtype == torch.float4_e2m1fn_x2):
        raise RuntimeError(f"Invalid scaling configuration: {a.dtype} by {scale_a.dtype}, {b.dtype} by {scale_b.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({tuple(a.shape)} and {tuple(b.shape)})")
    if a.stride(1) != 1 or b.stride(0) != 1:
        raise RuntimeError("mat1 must be row-major and mat2 column-major")


def product(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype | None
) -> torch.Tensor:
    """(M, N) of float64 (M, K) and (N, K), with a bias (N,), rounded once to `dtype`, bfloat16 by default."""
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
    """(M, K) @ (K, N) with a scale per 16 values along K (e4m3 scales, fp4 operands) or per 32 (e8m0 scales).

    Other combinations go to torch. Raises RuntimeError as torch does for operands that do not fit.
    """
    if scale_a.dtype == torch.float8_e4m3fn and a.dtype == torch.float4_e2m1fn_x2:
        block = 16
    elif scale_a.dtype == torch.float8_e8m0fnu:
        block = 32
    else:
        return torch._scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, **kwargs)
    check_operands(a, b, scale_a, scale_b)
    products = []
    for operand, scales in ((a, scale_a), (b.t(), scale_b)):
        values = values_of(operand)
        factors = unblock(scales, values.shape[0], -(-values.shape[1] // block))
        products.append(values * factors.repeat_interleave(block, dim=1)[:, : values.shape[1]])
    return product(products[0], products[1], bias, out_dtype)
