"""Other kernels that `tools.compare` times: submission files, and NVIDIA's grouped block-scaled GEMM example.

None of them is part of this project: each is imported from a path on the command line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.modules import load_module

if TYPE_CHECKING:
    import torch

Kernel = Callable[[tuple[Any, ...]], Any]  # custom_kernel
Rows = tuple[tuple[int, ...], ...]  # a table that the example reads, with a row per group

SF_VECTOR = 16
SMALLEST = 32  # rows and columns of the tensors that the example is compiled with
MAP_WORDS = 16  # int64 words of a tensor map
EXAMPLE_OPTIONS = "--opt-level 2"  # options that the example itself sets


def load_submission(path: Path) -> Kernel:
    """The custom_kernel of another submission file."""
    kernel: Kernel = _module(path).custom_kernel
    return kernel


def _module(path: Path) -> ModuleType:
    """The file as a new module, with a name that no module of this project has."""
    return load_module(f"peer_{path.stem}", path)


def load_grouped_example(
    path: Path, mma_tiler_mn: tuple[int, int], cluster_shape_mn: tuple[int, int]
) -> GroupedExample:
    """NVIDIA's grouped_blockscaled_gemm.py with NVFP4 operands and fp16 output, called as custom_kernel is.

    path: the file from NVIDIA/cutlass, in examples/python/CuTeDSL/cute/blackwell/kernel/blockscaled_grouped_gemm.
    mma_tiler_mn: rows of a (128, or 256 for MMAs of two SMs) by rows of b (128 or 256). cluster_shape_mn: CTAs; for
    MMAs of two SMs the first is a multiple of 2.
    """
    return GroupedExample(_module(path).Sm100GroupedBlockScaledGemmKernel, mma_tiler_mn, cluster_shape_mn)


class GroupedExample:
    """A configuration of the example's kernel class. A call with the contest's data launches it and returns c.

    The kernel is compiled once per number of groups. Its arguments are made once per input; a repeated call only
    launches.
    """

    def __init__(self, kind: Any, mma_tiler_mn: tuple[int, int], cluster_shape_mn: tuple[int, int]) -> None:
        import torch

        self.kind, self.mma_tiler_mn, self.cluster_shape_mn = kind, mma_tiler_mn, cluster_shape_mn
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        # Caches of the instance: they free compiled kernels and tensors together with it.
        self.compiled = functools.cache(self._compile)
        self.arguments = functools.cache(self._make_arguments)
        self.initial = functools.cache(self._make_initial)

    def __call__(self, data: tuple[Any, ...]) -> list[torch.Tensor]:
        """Returns the list of c. data: the tuple of reference.generate_input with l = 1."""
        import cutlass.torch

        operands, _, scales, problems = data
        # The arguments depend on addresses and sizes only, so these remain a valid key when memory is reused.
        arguments = self.arguments(
            tuple(tuple(tensor.data_ptr() for tensor in group) for group in operands),
            tuple(tuple(tensor.data_ptr() for tensor in group) for group in scales),
            tuple(map(tuple, problems)),
        )
        self.compiled(len(problems))(*arguments, cutlass.torch.current_stream())
        return [c for _, _, c in operands]

    def _compile(self, groups: int) -> Any:
        """The compiled kernel for a number of groups of any sizes."""
        import cutlass.cute as cute
        import cutlass.torch

        abc, scales, problems = ((0,) * 3,) * groups, ((0,) * 2,) * groups, ((0,) * 4,) * groups
        *tensors, maps = self.tables(abc, scales, problems)
        # The grid fills the GPU, as by the example's default. CTAs without a tile end at once.
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

    def _make_arguments(self, abc: Rows, scales: Rows, problems: Rows) -> tuple[Any, ...]:
        """Arguments of a compiled kernel, except for the CUDA stream. See tables."""
        return *self.initial(), *self.tables(abc, scales, problems)

    def tables(self, abc: Rows, scales: Rows, problems: Rows) -> list[Any]:
        """The example's tensors of sizes and addresses, and its workspace.

        abc (groups, 3) and scales (groups, 2): addresses of a, b, c and of the reordered scales of a, b.
        problems: (m, n, k, 1) of each group.
        Returns sizes (groups, 4) int32, strides (groups, 3, 2) int32 in elements, abc and scales int64, and a workspace
        for the tensor maps of every CTA (SMs, maps, 16) int64.
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

    def _make_initial(self) -> tuple[Any, ...]:
        """Tensors a, b, c, sfa, sfb, from which the example takes element types and major modes, but no values."""
        import cutlass
        import torch
        from cutlass.cute.runtime import from_dlpack

        def tensor(element: type, storage: torch.dtype) -> Any:
            values = torch.zeros((1, SMALLEST, SMALLEST), dtype=storage, device="cuda").permute(1, 2, 0)
            result = from_dlpack(values, assumed_align=16)
            result.element_type = element
            return result.mark_layout_dynamic(leading_dim=1)

        values, scales = (cutlass.Float4E2M1FN, torch.uint8), (cutlass.Float8E4M3FN, torch.uint8)
        kinds = (values, values, (cutlass.Float16, torch.float16), scales, scales)
        return tuple(tensor(*kind) for kind in kinds)
