"""The figures of the project's own kernel: its launches for given sizes, as text, without running them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import harness.dsl  # noqa: F401
import submission

PRODUCTS = {"group_gemm": 1, "gemm": 1, "dual_gemm": 2, "gemv": 0}  # problem -> products with one A; a GEMV has no MMA

Sizes = Sequence[tuple[int, int, int, int]]  # (M, N, K, L) of each group; the other problems have one entry


def describe(schedule: submission.Schedule) -> dict[str, str]:
    """The figures by which schedules are compared, as text."""
    plan = schedule.plan
    return {
        "tile": f"{submission.WEIGHT_TILE * plan.cta_group}x{plan.token_tile}x{submission.K_TILE}",
        "CTAs per MMA": f"{plan.cta_group}",
        "split K": f"{plan.k_split}",
        "CTAs per SM": f"{plan.ctas_per_sm}",
        "stages": f"{plan.stages}",
        "SMEM bytes": f"{plan.at.end:,}",
        "tiles": f"{schedule.tiles}",
        "waves": f"{schedule.waves}",
        "CTAs": f"{schedule.ctas}",
        "MB requested": f"{schedule.requested_bytes / 1e6:.1f}",
    }


def describe_gemv(size: tuple[int, int, int, int], sms: int) -> dict[str, str]:
    """The figures of a GEMV's plan, as text. size: (M, rows of b, K, L). Raises ValueError for sizes without a plan."""
    submission.tensor_layouts((tuple(size),), 0)
    plan, words = submission.configure_gemv(*size, sms)
    return {"warps along K": f"{plan.k_warps}", "teams": f"{plan.teams}", "CTAs per batch": f"{words[4]}"}


def plan_report(sizes: Sizes, problem: str = "group_gemm") -> dict[str, str]:
    """The figures of the launches of `custom_kernel` on the current device; " + " separates those of several launches.

    Raises ValueError for sizes that the kernel does not support.
    """
    if problem == "gemv":
        return describe_gemv(sizes[0], current_sms())
    launches = submission.configure(tuple(map(tuple, sizes)), current_sms(), products=PRODUCTS[problem])
    rows = [describe(launch.schedule) for launch in launches]
    return {name: " + ".join(row[name] for row in rows) for name in (rows[0] if rows else ())}


def current_sms() -> int:
    """SMs of the current device."""
    return submission.sm_count(torch.cuda.current_device())
