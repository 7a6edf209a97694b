"""Families of published programs: some calibrate the clock's model, the others validate it.

A family has the points that one repository publishes of one problem, and is named REPOSITORY/problem, for example
"prime-kernels/rmsnorm". Families of which a point had been replayed before this rule was made (IN_VIEW) calibrate. Of
the others the SHA-256 of the name decides whether they calibrate or validate. A family that validates is replayed for
the error that is printed, and decides no constant and no mechanism.
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
    """True if a family validates: its name's SHA-256 begins with an odd byte, and it is not IN_VIEW."""
    return family not in IN_VIEW and hashlib.sha256(family.encode()).digest()[0] % 2 == 1
