"""Kernels that compare.py times beside ours: other submission files, and NVIDIA's grouped block-scaled GEMM example.

None of them is part of this project: each is imported from the path that it is given by.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

SF_VECTOR = 16
CTA_TILE_M = 128  # of the example, with one SM per MMA or two
SMALLEST = 32  # rows and columns of the example's initial tensors
MAP_WORDS = 16  # int64 of a tensor map
EXAMPLE_OPTIONS = "--opt-level 2"  # as the example compiles itself


def load_module(path: Path) -> ModuleType:
    """The Python file as a new module."""
    spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses and inspect look for the module of a class
    spec.loader.exec_module(module)
    return module


def load_submission(path: Path) -> Callable[[tuple], Any]:
    """custom_kernel of another submission file."""
    return load_module(path).custom_kernel


def load_grouped_example(
    path: Path, mma_tiler_mn: tuple[int, int], cluster_shape_mn: tuple[int, int]
) -> Callable[[tuple], list]:
    """NVIDIA's grouped_blockscaled_gemm.py with NVFP4 operands and fp16 output, as a callable like custom_kernel.

    path: the file as it is in NVIDIA/cutlass, examples/python/CuTeDSL/cute/blackwell/kernel/blockscaled_grouped_gemm.
    mma_tiler_mn: rows of a (128, or 256 for MMAs of two SMs) by rows of b (128 or 256). cluster_shape_mn: CTAs; the
    first a multiple of 2 for MMAs of two SMs.
    """
    return GroupedExample(load_module(path).Sm100GroupedBlockScaledGemmKernel, mma_tiler_mn, cluster_shape_mn)


class GroupedExample:
    """A configuration of the example's kernel class. Called with the contest's data, it launches and returns c.

    It is compiled once per number of groups. What the kernel reads besides the operands is made once per input; a
    repeated call only launches.
    """

    def __init__(self, kind: type, mma_tiler_mn: tuple[int, int], cluster_shape_mn: tuple[int, int]) -> None:
        import torch

        self.kind, self.mma_tiler_mn, self.cluster_shape_mn = kind, mma_tiler_mn, cluster_shape_mn
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        # Of caches of its own: what they hold goes when this goes.
        self.compiled = functools.cache(self.compiled)
        self.arguments = functools.cache(self.arguments)
        self.initial = functools.cache(self.initial)

    def __call__(self, data: tuple) -> list:
        """data: (abc, sfasfb, sfasfb_reordered, problem_sizes) as reference.generate_input makes them; l is 1."""
        import cutlass.torch

        operands, _, scales, problems = data
        # Addresses and sizes are all that the arguments depend on: as a key they stay right when memory is used again.
        arguments = self.arguments(
            tuple(tuple(tensor.data_ptr() for tensor in group) for group in operands),
            tuple(tuple(tensor.data_ptr() for tensor in group) for group in scales),
            tuple(map(tuple, problems)),
        )
        self.compiled(len(problems))(*arguments, cutlass.torch.current_stream())
        return [c for _, _, c in operands]

    def compiled(self, groups: int) -> Callable:
        """The kernel for a number of groups, whatever their sizes."""
        import cutlass.cute as cute
        import cutlass.torch

        abc, scales, problems = ((0,) * 3,) * groups, ((0,) * 2,) * groups, ((0,) * 4,) * groups
        *tensors, maps = self.tables(abc, scales, problems)
        # The grid is as large as the GPU, as in the example's default: CTAs without a tile end at once.
        clusters = self.sms // (self.cluster_shape_mn[0] * self.cluster_shape_mn[1])
        return cute.compile(
            self.kind(SF_VECTOR, self.mma_tiler_mn, self.cluster_shape_mn),
            *self.initial(),
            groups,
            *tensors,
            clusters,
            maps,
            clusters,
            cutlass.torch.current_stream(),
            options=EXAMPLE_OPTIONS,
        )

    def arguments(self, abc: tuple, scales: tuple, problems: tuple) -> tuple:
        """What a compiled kernel takes before the stream. See tables."""
        return *self.initial(), *self.tables(abc, scales, problems)

    def tables(self, abc: tuple, scales: tuple, problems: tuple) -> list:
        """The example's tensors that say what to multiply, and its workspace.

        abc (groups, 3) and scales (groups, 2): addresses of a, b, c and of the reordered scales of a, b.
        problems: (m, n, k, 1) of each group.
        Returns sizes (groups, 4) int32, strides (groups, 3, 2) int32 in elements, abc and scales int64, and room for
        every CTA's tensor maps (SMs, maps, 16) int64.
        """
        import torch
        from cutlass.cute.runtime import from_dlpack

        strides = [[(k, 1), (k, 1), (n, 1)] for _, n, k, _ in problems]
        tensors = [
            torch.tensor(problems, dtype=torch.int32, device="cuda"),
            torch.tensor(strides, dtype=torch.int32, device="cuda"),
            torch.tensor(abc, dtype=torch.int64, device="cuda"),
            torch.tensor(scales, dtype=torch.int64, device="cuda"),
            torch.empty((self.sms, self.kind.num_tensormaps, MAP_WORDS), dtype=torch.int64, device="cuda"),
        ]
        return [from_dlpack(tensor, assumed_align=16) for tensor in tensors]

    def initial(self) -> tuple:
        """The example's initial a, b, c, sfa, sfb: they carry element types and what is contiguous, no data."""
        import cutlass
        import torch
        from cutlass.cute.runtime import from_dlpack

        def tensor(element: type, storage: torch.dtype):
            values = torch.zeros((1, SMALLEST, SMALLEST), dtype=storage, device="cuda").permute(1, 2, 0)
            result = from_dlpack(values, assumed_align=16)
            result.element_type = element
            return result.mark_layout_dynamic(leading_dim=1)

        values, scales = (cutlass.Float4E2M1FN, torch.uint8), (cutlass.Float8E4M3FN, torch.uint8)
        kinds = (values, values, (cutlass.Float16, torch.float16), scales, scales)
        return tuple(tensor(*kind) for kind in kinds)
