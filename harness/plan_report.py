"""The plans of the project's own kernel: figures of its launches for given sizes, and how one of them is forced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import harness.dsl  # noqa: F401
import submission

PRODUCTS = {"group_gemm": 1, "gemm": 1, "dual_gemm": 2, "gemv": 0}  # problem -> products with one A; a GEMV has no MMA

Sizes = Sequence[tuple[int, int, int, int]]  # (M, N, K, L) of each group; the other problems have one entry


def requested(schedule: submission.Schedule) -> dict[str, int]:
    """Bytes by operand that the loads of all tiles read from memory; boxes read nothing past M, N and K."""
    plan, total = schedule.plan, dict.fromkeys(("weights", "tokens", "weight SF", "token SF"), 0)
    for m, n, k in schedule.sizes:
        weight_tiles, first_tokens = -(-n // (128 * plan.cta_group)), range(0, m, plan.token_tile)
        token_rows = token_atoms = 0
        for first in first_tokens:
            end = min(m, first + plan.token_tile)
            token_atoms += (end - 1) // 128 - first // 128 + 1
            for part in range(first, end, plan.part_tokens):
                columns = min(plan.part_tokens, -(-(m - part) // submission.TOKEN_STEP) * submission.TOKEN_STEP)
                starts = (part + rank * columns // plan.cta_group for rank in range(plan.cta_group))
                token_rows += sum(min(plan.token_rows, max(0, m - start)) for start in starts)
        atom_bytes = k // submission.MMA_K * submission.SF_ATOM
        total["weights"] += plan.products * len(first_tokens) * n * k // 2
        total["tokens"] += weight_tiles * token_rows * k // 2
        total["weight SF"] += len(first_tokens) * plan.products * weight_tiles * plan.cta_group * atom_bytes
        total["token SF"] += weight_tiles * plan.cta_group * token_atoms * atom_bytes
    return total


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
        "waves": f"{-(-schedule.tiles // schedule.slots)}",
        "CTAs": f"{schedule.ctas}",
        "MB requested": f"{sum(requested(schedule).values()) / 1e6:.1f}",
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


def configuration_name(shape: Sequence[int]) -> str:
    """A configuration in words: MMA's weight rows and tokens, CTAs of an SM, shares of K."""
    tile, cta_group, per_sm, k_split = shape
    split = f", K in {k_split}" if k_split > 1 else ""
    return f"{submission.WEIGHT_TILE * cta_group}x{tile}, {per_sm} per SM{split}"


def plans(sizes: Sizes, problem: str = "group_gemm") -> tuple[list[str], str]:
    """(names of the configurations that can take every launch of these sizes, the one that custom_kernel chooses).

    Where launches choose differently, there is no one choice, and its name is empty. A GEMV has no configurations.
    Raises ValueError for sizes that the kernel does not support.
    """
    if problem == "gemv":
        return [], ""
    products, sms = PRODUCTS[problem], current_sms()
    launches = submission.configure(tuple(map(tuple, sizes)), sms, products=products)
    possible = [
        {_name(each) for each in submission.candidates(x.schedule.sizes, sms, products=products)} for x in launches
    ]
    names = [configuration_name(shape) for shape in submission.shapes(products)]
    chosen = {_name(launch.schedule) for launch in launches}
    return [name for name in names if all(name in of for of in possible)], chosen.pop() if len(chosen) == 1 else ""


def configuration_of(schedule: submission.Schedule) -> submission.Configuration:
    plan = schedule.plan
    return submission.Configuration(plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.k_split)


def _name(schedule: submission.Schedule) -> str:
    return configuration_name(configuration_of(schedule))


def forced(name: str) -> Callable[[tuple], Any]:
    """custom_kernel in this configuration. Raises ValueError for a name that no configuration has."""
    shapes = {configuration_name(shape): shape for shape in submission.shapes()}
    if name not in shapes:
        raise ValueError(f"there is no configuration {name!r}; there are {', '.join(shapes)}")
    return functools.partial(submission.run, configurations=(shapes[name],))


def current_sms() -> int:
    """SMs of the current device."""
    return submission.sm_count(torch.cuda.current_device())
