"""A plain read of some bytes on the GPU, to time beside kernels that must move as many. Needs sm_90 or later."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from nogpu.hardware.properties import LaunchConfig
from nogpu.hopper import gpu, library

if TYPE_CHECKING:
    from cuda.bindings.driver import CUfunction

THREADS, CTAS_PER_SM, VECTOR_BYTES = 512, 4, 16


@cache
def _function() -> CUfunction:
    return gpu.Module(library.ptx(library.HERE / "plain_read.cu", "sm_90")).function("plain_read")


def reader(nbytes: int) -> Callable[[], None]:
    """A function that launches a read of `nbytes`, rounded down to 16, of its own buffer on torch's current queue."""
    import torch

    buffer = torch.zeros(max(nbytes, VECTOR_BYTES), dtype=torch.uint8, device="cuda")
    grid = (CTAS_PER_SM * gpu.device_attribute(gpu.SM_COUNT), 1, 1)
    config = LaunchConfig(grid=grid, block=(THREADS, 1, 1))

    def read() -> None:
        values = (buffer.data_ptr(), nbytes // VECTOR_BYTES, 0)
        parameters = [struct.pack("<Q", value) for value in values]
        gpu.launch(_function(), config, parameters, torch.cuda.current_stream().cuda_stream)

    return read
