"""Runs a GEMM example unmodified and compares its results with products in float64.

    python -m nogpu example_runner.py C_TYPE EXAMPLE ARGUMENTS...

The example computes a reference with torch.einsum or torch._scaled_mm and compares by torch.testing.assert_close. The
runner takes the operands from the first two and the kernel's result from the last. A float32 sum of K products, in any
order, is within K 2**-24 sum |a b| of the exact sum (to first order), and rounding to C's type is monotonic. So every
element of the result must lie between the rounded ends of that interval. The last line printed is JSON: the numbers of
elements compared, of those outside their interval, and of those that differ from the exact product rounded once.
"""

import json
import os
import runpy
import sys

import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
UNIT_ROUNDOFF = 2.0**-24
SCALE_BLOCK = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}

pending = []  # (exact, bound) of the products since the last comparison
totals = {"elements": 0, "outside": 0, "not bit-exact": 0}
einsum, scaled_mm, assert_close = torch.einsum, torch._scaled_mm, torch.testing.assert_close


def product(a, b, equation="mk,nk->mn"):
    """The exact product in float64, and the bound of a float32 sum's error."""
    exact = einsum(equation, a.double(), b.double())
    k = a.shape[equation.partition(",")[0].index("k")]
    return exact, k * UNIT_ROUNDOFF * einsum(equation, a.double().abs(), b.double().abs())


def recorded_einsum(equation, *operands):
    if "k" in equation.partition("->")[0] and "k" not in equation.partition("->")[2]:
        pending.append(product(*(operand.cpu() for operand in operands), equation))
    return einsum(equation, *operands)


def values(packed):
    """Values (rows, K) float64 of float4_e2m1fn_x2 (rows, K / 2), the even element in the low nibble."""
    codes = packed.cpu().view(torch.uint8)
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()
    return E2M1[nibbles & 7] * (1 - 2 * (nibbles >> 3))


def scales(blocked, rows, block, k):
    """Scale factors (rows, K) float64 from the tensor cores' layout: atoms of 128 rows by 4 scales, 512 bytes each."""
    atoms = blocked.cpu().double().flatten()
    row, column = torch.arange(rows)[:, None], torch.arange(k // block)[None, :]
    columns = -(-k // block // 4)
    place = (row // 128 * columns + column // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    return atoms[place].repeat_interleave(block, dim=1)


def recorded_scaled_mm(a, b, scale_a, scale_b, *args, **kwargs):
    if a.dtype == torch.float4_e2m1fn_x2:
        factors = []
        for packed, blocked in ((a, scale_a), (b.transpose(0, 1), scale_b)):
            wide = values(packed)
            factors.append(wide * scales(blocked, wide.shape[0], SCALE_BLOCK[blocked.dtype], wide.shape[1]))
        pending.append(product(*factors))
    return scaled_mm(a, b, scale_a, scale_b, *args, **kwargs)


def rounded(wide, dtype):
    """Round float64 to `dtype` once, to nearest even.

    torch converts by float32 and rounds twice; a last bit of 1 in an inexact float32 prevents false ties.
    """
    single = wide.float()
    if dtype == torch.float32:
        return wide.float()
    bits = single.view(torch.int32)
    low = bits - (single.double().abs() > wide.abs()).int()
    return torch.where(single.double() != wide, low | 1, bits).view(torch.float32).to(dtype)


def recorded_assert_close(actual, expected, *args, **kwargs):
    exact, bound = (torch.stack(parts, -1) for parts in zip(*pending, strict=True))
    pending.clear()
    result = actual.detach().cpu().reshape(exact.shape).to(DTYPE)
    low, high = rounded(exact - bound, DTYPE), rounded(exact + bound, DTYPE)
    totals["elements"] += result.numel()
    totals["outside"] += int((~((low <= result) & (result <= high))).sum())
    totals["not bit-exact"] += int((result != rounded(exact, DTYPE)).sum())
    return assert_close(actual, expected, *args, **kwargs)


if __name__ == "__main__":
    DTYPE = getattr(torch, sys.argv[1])
    torch.einsum, torch._scaled_mm, torch.testing.assert_close = (
        recorded_einsum,
        recorded_scaled_mm,
        recorded_assert_close,
    )
    example = sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(example))
    runpy.run_path(example, run_name="__main__")
    print(json.dumps(totals))
