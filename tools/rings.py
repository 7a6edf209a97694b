"""Rows of `tools.compare` that only move bytes: a plain read, and rings of bulk copies (ring.cu)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.launch_modes import ORDINARY
from tools.rows import Row

if TYPE_CHECKING:
    import torch
    from cuda.bindings.driver import CUfunction

    import submission

SOURCE = Path(__file__).resolve().parent / "ring.cu"
MAX_GROUPS = 16  # ring.cu's kMaxGroups
STORE_BYTES = 256  # ring.cu's kStoreBytes
RING_STAGE, RING_STAGES, RING_THREADS = 16384, 12, 96
LINE = 128  # bytes of an L2 line, and of a k-tile of one token
ATOM_BYTES = 2048  # bytes of the scale factors of 128 rows of a k-tile
SMEM_BYTES = 227 * 1024
WORK_FIELDS = (  # int32 fields of ring.cu's Work, in its order
    *("group_count", "tiles", "ctas_per_tile", "neighbours", "products", "token_tile", "token_rows", "token_step"),
    *("stages", "weight_bytes", "scale_bytes", "early"),
)


class Group(ctypes.Structure):
    """The struct Group of ring.cu."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("weights", "scales", "tokens", "token_scales", "output")),
        *((name, ctypes.c_int32) for name in ("first_tile", "token_blocks", "k_tiles", "m", "n")),
    ]


class Work(ctypes.Structure):
    """The struct Work of ring.cu."""

    _fields_ = [("groups", Group * MAX_GROUPS), *((name, ctypes.c_int32) for name in WORK_FIELDS)]


@functools.cache
def ring_kernel() -> CUfunction:
    """The kernel of ring.cu, loaded on the current GPU."""
    from nogpu.hopper import gpu, library

    function = gpu.Module(library.ptx(SOURCE, "sm_90")).function("ring")
    gpu.set_attribute(function, gpu.MAX_DYNAMIC_SHARED_BYTES, SMEM_BYTES)
    return function


def ring_shared_bytes(work: Work) -> int:
    """Bytes of the ring's dynamic shared memory: stages, store buffer, mbarriers."""
    token_bytes = work.token_rows * LINE + -(-work.token_tile // 128) * ATOM_BYTES
    stage_bytes = work.weight_bytes + work.scale_bytes + token_bytes
    return int(work.stages * stage_bytes + STORE_BYTES + 8 * (2 * work.stages + 2))


def run_ring(ctas: int, programmatic: bool, work: Work) -> None:
    """Launch the ring on torch's current queue."""
    import torch

    from nogpu import LaunchConfig
    from nogpu.hopper import gpu

    # Neighbours load for each other; the CTAs of a pair do not.
    cluster = work.ctas_per_tile * work.neighbours if work.neighbours > 1 else 1
    config = LaunchConfig(
        (ctas, 1, 1), (RING_THREADS, 1, 1), (cluster, 1, 1), ring_shared_bytes(work), programmatic=programmatic
    )
    gpu.launch(ring_kernel(), config, [bytes(work)], torch.cuda.current_stream().cuda_stream)


def plain_ring(address: int, nbytes: int, sms: int, early: bool) -> Work:
    """A ring over `nbytes` at an address, an equal and contiguous share per SM, rounded down to whole lines.

    early: loads come before the wait for the previous launch.
    """
    k_tiles = -(-nbytes // (sms * RING_STAGE))
    work = Work(group_count=1, tiles=sms, ctas_per_tile=1, neighbours=1, products=1, token_step=1, early=early)
    work.stages, work.weight_bytes = RING_STAGES, nbytes // (sms * k_tiles * LINE) * LINE
    work.groups[0] = Group(weights=address, token_blocks=1, k_tiles=k_tiles, n=sms * 128)
    return work


def schedule_ring(schedule: submission.Schedule, buffer: torch.Tensor | None) -> tuple[Work, int]:
    """(ring with the schedule's loads and stores, bytes of its operands and outputs).

    A group moves as much as one with N and K rounded up to multiples of 128 and 256. buffer: memory for operands and
    outputs, one after the other; None to learn its size.
    """
    import submission

    plan = schedule.plan
    work = Work(group_count=len(schedule.sizes), tiles=schedule.tiles, ctas_per_tile=plan.cta_group, early=1)
    work.neighbours, work.products, work.token_tile = plan.neighbours, plan.products, plan.token_tile
    work.token_rows, work.token_step, work.stages = plan.token_rows, submission.TOKEN_STEP, plan.stages
    work.weight_bytes, work.scale_bytes = plan.weight_bytes, plan.products * ATOM_BYTES
    at = start = buffer.data_ptr() if buffer is not None else 0
    for index, ((m, n, k), first) in enumerate(zip(schedule.sizes, schedule.first_tiles)):
        k_tiles, rows = -(-k // submission.K_TILE), -(-n // submission.WEIGHT_TILE)
        padded_rows = -(-rows // plan.cta_group) * plan.cta_group
        group = Group(first_tile=first, token_blocks=-(-m // plan.token_tile), k_tiles=k_tiles, m=m, n=128 * rows)
        group.weights, at = at, at + plan.products * padded_rows * k_tiles * work.weight_bytes
        group.scales, at = at, at + rows * k_tiles * work.scale_bytes
        group.tokens, at = at, at + m * k_tiles * LINE
        group.token_scales, at = at, at + -(-m // 128) * k_tiles * ATOM_BYTES
        group.output, at = at, at + m * group.n * 2
        work.groups[index] = group
    return work, at - start


def memory_rows(nbytes: int, schedule: submission.Schedule, sms: int, calls: int) -> Iterator[Row]:
    """The rows of a plain read and of rings, with a buffer per call.

    nbytes: bytes of the plain read and the plain rings. schedule: plan of the ring with the kernel's traffic.
    """
    import torch

    from nogpu.hopper import plain_read

    def buffers(size: int) -> list[torch.Tensor]:
        return [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(calls)]

    yield Row("plain read", lambda read: read(), [plain_read.reader(nbytes) for _ in range(calls)])
    memory = buffers(nbytes)
    for name, programmatic in ((f"ring, {ORDINARY}", False), ("ring, loads before the wait", True)):
        works = [plain_ring(buffer.data_ptr(), nbytes, sms, programmatic) for buffer in memory]
        yield Row(name, functools.partial(run_ring, sms, programmatic), works)
    del memory
    memory = buffers(schedule_ring(schedule, None)[1])
    works = [schedule_ring(schedule, buffer)[0] for buffer in memory]
    yield Row("ring, our traffic", functools.partial(run_ring, schedule.ctas, True), works)
