"""The products of triton._C.libtriton.nvidia.cublas.CublasLt, with which Triton's programs compare, by torch.

Operands are row-major, (M, K) and (N, K); results are (M, N).
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def _check(a: Tensor, b: Tensor, *results: Tensor) -> None:
    """Raises RuntimeError for sizes that do not fit."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise RuntimeError(f"CublasLt: (M, K) and (N, K) are expected, not {tuple(a.shape)} and {tuple(b.shape)}")
    for result in results:
        if tuple(result.shape) != (a.shape[0], b.shape[0]):
            raise RuntimeError(
                f"CublasLt: a result of {(a.shape[0], b.shape[0])} is expected, not {tuple(result.shape)}"
            )


class CublasLt:
    """Triton's CublasLt. The workspace is not used."""

    def __init__(self, workspace: Tensor):
        self.workspace = workspace

    def matmul(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        """Sets c = a b^T, summed in float32."""
        _check(a, b, c)
        c.copy_(a.float() @ b.float().t())

    def gemm(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor, alpha: float, beta: float) -> None:
        """Sets d = alpha a b^T + beta c, summed in float32."""
        _check(a, b, c, d)
        d.copy_(alpha * (a.float() @ b.float().t()) + beta * c.float())

    def block_scaled_matmul_mxfp8(self, a: Tensor, b: Tensor, out: Tensor, scale_a: Tensor, scale_b: Tensor) -> None:
        """Sets out = a b^T with an e8m0 scale per 32 values, in atoms (scaled_mm.unblock)."""
        self._scaled(a, b, out, scale_a.view(torch.float8_e8m0fnu), scale_b.view(torch.float8_e8m0fnu))

    def block_scaled_matmul_nvfp4(self, a: Tensor, b: Tensor, out: Tensor, scale_a: Tensor, scale_b: Tensor) -> None:
        """Sets out = a b^T of packed e2m1 with an e4m3 scale per 16 values, in atoms."""
        packed = torch.float4_e2m1fn_x2
        self._scaled(
            a.view(packed), b.view(packed), out, scale_a.view(torch.float8_e4m3fn), scale_b.view(torch.float8_e4m3fn)
        )

    @staticmethod
    def _scaled(a: Tensor, b: Tensor, out: Tensor, scale_a: Tensor, scale_b: Tensor) -> None:
        _check(a, b, out)
        out.copy_(torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=out.dtype))
