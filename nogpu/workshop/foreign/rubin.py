"""Calls a GEMM for Rubin of FlashInfer, ported from CUTLASS's examples for sm_107, and compares it with float64.

    python -m nogpu --device rubin -m workshop.foreign.rubin KERNEL [--mnkl 256,256,256,1] [--tiler M,N,K]
        [--instruction M,N,K] [--cluster M,N] [--types A,B,SCALE,C] [--block 16] [--alone]

KERNEL is a module of flashinfer/gemm/kernels: bmm_fp8_rubin, dense_blockscaled_gemm_sm107 (with --cluster M,N,M,N its
kernel of mixed clusters: the preferred one and the fallback) or grouped_gemm_masked_rubin. --tiler is the tile of a
CTA or of a pair, --instruction that of one MMA; with a tiler of twice the rows the kernel keeps B for a second MMA.
Types are named as FlashInfer names them, and ue5m3. --block: elements a scale factor. A wrong result: a traceback and
exit code 1.
"""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from workshop.console import command_parser

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
TORCH = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}


def operand(batch: int, rows: int, k: int, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(bytes uint8[batch, rows, width] of random elements, K contiguous, their values float64[batch, rows, k])."""
    if name == "float4_e2m1fn":
        codes = torch.randint(0, 16, (batch, rows, k), dtype=torch.uint8)
        return codes[..., ::2] | codes[..., 1::2] << 4, FP4[codes.long()]
    elements = torch.randn(batch, rows, k).to(TORCH[name])
    return elements.view(torch.uint8), elements.double()


def scales(batch: int, rows: int, k: int, name: str, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(bytes uint8[n] in tiles of 128 rows by 4 factors, values float64[batch, rows, k]) of random scale factors.

    The tiles are those of PTX ISA's tcgen05.cp .32x128b: row r's four bytes at 16 * (r % 32) + 4 * (r // 32).
    """
    count = k // block
    exponents, eighths = torch.randint(-2, 3, (batch, rows, count)), torch.randint(0, 8, (batch, rows, count))
    if name == "float8_e8m0fnu":
        eighths *= 0
    chosen = exponents.double().exp2() * (1 + eighths / 8)
    factors = (exponents + 15 << 3 | eighths).to(torch.uint8) if name == "ue5m3" else chosen.to(TORCH[name])
    tiles = torch.zeros(batch, -(-rows // 128) * 128, -(-count // 4) * 4, dtype=torch.uint8)
    tiles[:, :rows, :count] = factors.view(torch.uint8)
    tiled = tiles.view(batch, -1, 4, 32, tiles.shape[2] // 4, 4).permute(0, 1, 4, 3, 2, 5)
    return tiled.contiguous(), chosen.repeat_interleave(block, -1)


def close(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Compares [batch, m, n] with A times B transposed: sums in float32, rounded to the type of what was found."""
    expected = a @ b.transpose(1, 2)
    bound = 2e-6 * (a.abs() @ b.abs().transpose(1, 2)) + torch.finfo(found.dtype).eps * expected.abs()
    worst = ((found.double() - expected).abs() / bound.clamp(min=1e-30)).max()
    assert worst <= 1, f"the error is {worst:.3g} times the bound; largest result {expected.abs().max():.3g}"


def dense(module: Any, o: Namespace) -> None:
    """FP8 with one scale, by the kernel of CUTLASS's dense_gemm_persistent."""
    import cutlass

    wrapper = importlib.import_module("flashinfer.gemm.kernels.bmm_fp8_wrapper")
    types = importlib.import_module("flashinfer.cute_dsl.utils").get_cutlass_dtype
    m, n, k, batch = o.mnkl
    (a, a_values), (b, b_values) = operand(batch, m, k, o.types[0]), operand(batch, n, k, o.types[1])
    out = torch.empty(batch, m, n, dtype=TORCH[o.types[3]], device="cuda")
    scale = torch.tensor([0.5], device="cuda")
    wrapper._compile_and_run_bmm_sm107(
        *(a.view(TORCH[o.types[0]]).cuda(), b.view(TORCH[o.types[1]]).cuda().transpose(1, 2), out),
        *(types(o.types[0]), types(o.types[3]), cutlass.Float32, "k", "k", "n"),
        *(o.tiler, o.instruction, o.cluster, o.instruction[0] == 256, not o.alone, 1, "m", scale),
    )
    close(out.cpu(), 0.5 * a_values, b_values)


def block_scaled(module: Any, o: Namespace) -> None:
    """Types with scale factors, by the kernel of CUTLASS's dense_blockscaled_gemm_persistent, or of mixed clusters."""
    import cutlass
    from cutlass import cute, utils
    from cutlass.cute.nvgpu import OperandMajorMode
    from cutlass.cute.runtime import from_dlpack, make_ptr

    types = importlib.import_module("flashinfer.cute_dsl.utils").get_cutlass_dtype
    m, n, k, batch = o.mnkl
    (a, a_values), (b, b_values) = operand(batch, m, k, o.types[0]), operand(batch, n, k, o.types[1])
    sfa, sfa_values = scales(batch, m, k, o.types[2], o.block)
    sfb, sfb_values = scales(batch, n, k, o.types[2], o.block)
    out = torch.empty(batch, m, n, dtype=TORCH[o.types[3]], device="cuda")
    given = [each.cuda() for each in (a, b, sfa, sfb)] + [out]
    names = (o.types[0], o.types[1], o.types[2], o.types[2], o.types[3])
    pointers = [
        make_ptr(
            cutlass.FloatNV8E5M3FNU if name == "ue5m3" else types(name),
            each.data_ptr(),
            cute.AddressSpace.gmem,
            assumed_align=32,
        )
        for name, each in zip(names, given, strict=True)
    ]
    alpha = from_dlpack(torch.tensor([0.5], device="cuda"))
    layouts = (OperandMajorMode.K, OperandMajorMode.K, utils.LayoutEnum.ROW_MAJOR)
    queue = cutlass.cuda.default_stream()
    if len(o.cluster) == 4:
        preferred, fallback = o.cluster[:2], o.cluster[2:]
        kernel = module.Sm107BlockScaledPersistentDenseGemmMixedClustersKernel(
            o.block, o.instruction, o.tiler, preferred, fallback
        )
        most = [utils.HardwareInfo().get_max_active_clusters(x * y) for x, y in (preferred, fallback)]
        compiled = cute.compile(kernel, *pointers, layouts, o.mnkl, *most, queue, alpha)
        compiled(*pointers, o.mnkl, queue, alpha)
    else:
        kernel = module.Sm107BlockScaledPersistentDenseGemmKernel(o.block, o.instruction, o.tiler, o.cluster)
        most = [utils.HardwareInfo().get_max_active_clusters(o.cluster[0] * o.cluster[1])]
        compiled = cute.compile(kernel, *pointers, alpha, layouts, o.mnkl, *most, queue)
        compiled(*pointers, alpha, o.mnkl, queue)
    torch.cuda.synchronize()
    close(out.cpu(), 0.5 * a_values * sfa_values, b_values * sfb_values)


def masked(module: Any, o: Namespace) -> None:
    """Groups of which the first rows count, by grouped_gemm_masked_rubin."""
    m, n, k, batch = o.mnkl
    (a, a_values), (b, b_values) = operand(batch, m, k, o.types[0]), operand(batch, n, k, o.types[1])
    sfa, sfa_values = scales(batch, m, k, o.types[2], o.block)
    sfb, sfb_values = scales(batch, n, k, o.types[2], o.block)
    out = torch.full((batch, m, n), 13.0, dtype=TORCH[o.types[3]], device="cuda")
    rows = torch.tensor([m - 28 * (group + 1) for group in range(batch)], dtype=torch.int32)
    a_type = torch.uint8 if o.types[0] == "float4_e2m1fn" else TORCH[o.types[0]]
    module._grouped_gemm_nt_masked_sm107(
        *(
            (
                each.view(a_type).permute(1, 2, 0).cuda(),
                factors.view(TORCH[o.types[2]]).permute(3, 4, 1, 5, 2, 0).cuda(),
            )
            for each, factors in ((a, sfa), (b, sfb))
        ),
        out.permute(1, 2, 0),
        rows.cuda(),
        ab_dtype=o.types[0],
        sf_dtype=o.types[2],
        c_dtype=o.types[3],
        sf_vec_size=o.block,
        mma_tiler=o.tiler,
        mma_inst_shape=o.instruction,
        cluster_shape_mn=o.cluster,
    )
    torch.cuda.synchronize()
    for group, count in enumerate(rows.tolist()):
        one = slice(group, group + 1)
        close(out[one, :count].cpu(), (a_values * sfa_values)[one, :count], (b_values * sfb_values)[one])


KERNELS: dict[str, Callable[[Any, Namespace], None]] = {
    "bmm_fp8_rubin": dense,
    "dense_blockscaled_gemm_sm107": block_scaled,
    "grouped_gemm_masked_rubin": masked,
}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns exit code 0. Raises AssertionError for a wrong result."""
    parser = command_parser(__doc__, "workshop.foreign.rubin")
    parser.add_argument("kernel", type=Path)
    parser.add_argument("--mnkl", type=numbers, default=(256, 256, 256, 1), help="default: %(default)s")
    parser.add_argument("--tiler", type=numbers, default=(128, 128, 256), help="default: %(default)s")
    parser.add_argument("--instruction", type=numbers, default=(128, 128, 128), help="default: %(default)s")
    parser.add_argument("--cluster", type=numbers, default=(1, 1), help="default: %(default)s")
    parser.add_argument(
        "--types",
        type=lambda text: text.split(","),
        default="float4_e2m1fn,float4_e2m1fn,float8_e4m3fn,float32".split(","),
    )
    parser.add_argument("--block", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--alone", action="store_true", help="results are stored by threads, not by TMA")
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    name = options.kernel.stem
    KERNELS[name](importlib.import_module(f"flashinfer.gemm.kernels.{name}"), options)
    print(f"{name}, {options.mnkl} by {options.instruction}: right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
