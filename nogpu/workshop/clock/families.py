"""Families of published programs, and which of them may decide what the clock models.

A family is what one repository publishes of one problem, named REPOSITORY/problem, as "prime-kernels/rmsnorm". Whether
it calibrates or validates was decided before any of its points had been replayed: families of which a point had been
replayed already (IN_VIEW) calibrate, and of the others the name decides, by its SHA-256. What validates is replayed for
the error that is printed and decides no constant and no mechanism.
"""

from __future__ import annotations

import hashlib

IN_VIEW = frozenset({
    "gpu-mode-kernels/group_gemm",
    "gpu-mode-kernels/dual_gemm",
    "gpu-mode-kernels/gemm",
    "gpu-mode-kernels/gemv",
    "NVFP4_Kernels/group_gemm",
    "learn-cuda/matmul",
    "reference-kernels/gemm",
    "nvfp4_gpumode/dual_gemm",
    "reference-kernels/dual_gemm",
})  # fmt: skip
"""Families of which points had been replayed before the rule was made: the program of reference-kernels/dual_gemm is
nvfp4_gpumode's baseline.
"""


def held_out(family: str) -> bool:
    """Tells whether a family validates: its name's SHA-256 begins with an odd byte, and it had not been replayed."""
    return family not in IN_VIEW and hashlib.sha256(family.encode()).digest()[0] % 2 == 1
