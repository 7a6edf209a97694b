"""torch.cuda._compile_kernel on the device: NVIDIA's nvcc in the place of NVRTC, runtime/ in that of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.cuda._utils

from nogpu.cuda.programs import status
from nogpu.hardware.properties import of_process


def compiled(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
    auto_pch: bool = False,
) -> tuple[bytes, str]:
    """Answers torch.cuda._utils._nvrtc_compile: (PTX of a kernel, its name there), kept in the user's cache.

    Raises RuntimeError with the compiler's messages where it fails.
    """
    from nogpu.cuda.programs import device_compiler  # needed where kernels are compiled

    options = [f"-arch=sm_{compute_capability or f'{of_process().architecture}a'}", "-std=c++17", "-lineinfo"]
    options += [*(f"-I{folder}" for folder in cuda_include_dirs or ()), *(nvcc_options or ())]
    # Headers of the program's own may change under one source.
    keep = not cuda_include_dirs
    try:
        ptx, names = device_compiler.compiled(
            kernel_source, f"{kernel_name}.cu", options, [kernel_name], headers={}, keep=keep
        )
    except device_compiler.Failed as failed:
        raise RuntimeError(f"Kernel compilation failed:\n{failed}") from None
    return ptx.encode() + b"\0", names[0]


def driver() -> Any:
    """Answers torch.cuda._utils._get_gpu_runtime_library by runtime/."""
    from nogpu.cuda.programs.connection import connect  # needed where kernels are compiled

    return connect()


def install() -> None:
    """Replace the functions that compile and load kernels; a call raises the EmulatorError of its kernel."""
    utils: Any = torch.cuda._utils
    utils._nvrtc_compile, utils._get_gpu_runtime_library = compiled, driver
    utils._CudaKernel.__call__ = status.raising(utils._CudaKernel.__call__)
    utils._cuda_load_module = status.raising(utils._cuda_load_module)
