"""Profiles one call of a submission by torch's profiler, or marks it for Nsight Compute."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

OUTER_PROFILERS = ("POPCORN_NCU", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def has_outer_profiler() -> bool:
    """True if Nsight Compute or Nsight Systems has started this process."""
    named = any(os.environ.get(name, "0").lower() not in ("", "0", "false") for name in OUTER_PROFILERS)
    return named or "Injection" in os.environ.get("LD_PRELOAD", "")


def profile(kernel: Callable[[Any], Any], data: Any) -> str:
    """Call the kernel on a copy of `data` and return the table of torch's profiler.

    Under ncu (POPCORN_NCU) the call is in the NVTX range custom_kernel, and the text is empty.
    """
    import torch

    from harness.shared_memory import clone

    if os.environ.get("POPCORN_NCU", "0").lower() not in ("", "0", "false"):
        cloned = clone(data)
        torch.cuda.synchronize()
        with torch.cuda.nvtx.range("custom_kernel"):
            kernel(cloned)
            torch.cuda.synchronize()
        return ""

    from torch.profiler import ProfilerActivity, profile, record_function

    kernel(clone(data))  # a call that compiles
    cloned = clone(data)
    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as profiler, record_function("custom_kernel"):
        kernel(cloned)
        torch.cuda.synchronize()
    return profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=20)
