"""Plans of the project's own kernel: figures of its launches for given sizes, and calls with a forced plan."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

import harness.dsl  # noqa: F401
import submission

PRODUCTS = {"group_gemm": 1, "gemm": 1, "dual_gemm": 2, "gemv": 0}  # problem -> products, as in submission.Call

Sizes = Sequence[tuple[int, int, int, int]]  # (M, N, K, L) of each group; one entry for the other problems


def requested(schedule: submission.Schedule) -> dict[str, int]:
    """The bytes that the loads of all tiles read, by operand. A box reads nothing past M, N and K."""
    plan, total = schedule.plan, dict.fromkeys(("weights", "tokens", "weight SF", "token SF"), 0)
    first_tiles = schedule.first_tiles
    for (m, n, k), tiles in zip(schedule.sizes, map(operator.sub, first_tiles[1:], first_tiles)):
        # Number of rows in the boxes of all CTAs of a tile, and of one CTA's atoms of scale factors, by token block.
        token_rows, token_atoms = [], []
        for first in range(0, m, plan.token_tile):
            columns = min(plan.token_tile, -(-(m - first) // submission.TOKEN_STEP) * submission.TOKEN_STEP)
            starts = (first + rank * columns // plan.cta_group for rank in range(plan.cta_group))
            token_rows.append(sum(min(plan.token_rows, max(0, m - start)) for start in starts))
            token_atoms.append((min(m, first + plan.token_tile) - 1) // 128 - first // 128 + 1)
        atom_bytes, blocks = k // submission.MMA_K * submission.SF_ATOM, len(token_rows)
        weight_blocks, padding = divmod(tiles, blocks)
        # Neighbours with the same weight rows load them once. A tile past N, which makes a group's number of tiles
        # even, loads the first tokens and the last rows' scale factors.
        loads = -(-blocks // plan.neighbours)
        total["weights"] += plan.products * loads * n * k // 2
        total["weight SF"] += (weight_blocks * loads + padding) * plan.cta_group * plan.products * atom_bytes
        for name, sums, size in (
            ("tokens", token_rows, k // 2),
            ("token SF", token_atoms, plan.cta_group * atom_bytes),
        ):
            total[name] += (weight_blocks * sum(sums) + sum(sums[:padding])) * size
    return total


def describe(schedule: submission.Schedule) -> dict[str, str]:
    """The figures by which schedules are compared, as text."""
    plan = schedule.plan
    return {
        "tile": f"{plan.rows * plan.cta_group}x{plan.token_tile}x{submission.K_TILE}",
        "CTAs per MMA": f"{plan.cta_group}",
        "CTAs per SM": f"{plan.ctas_per_sm}",
        "side by side": f"{plan.neighbours}",
        "stages": f"{plan.stages}",
        "SMEM bytes": f"{plan.at.end:,}",
        "tiles": f"{schedule.tiles}",
        "waves": f"{-(-schedule.wanted // schedule.slots)}",
        "CTAs": f"{schedule.ctas}",
        "MB requested": f"{sum(requested(schedule).values()) / 1e6:.1f}",
    }


def plan_report(sizes: Sizes, problem: str = "group_gemm") -> dict[str, str]:
    """The figures of `custom_kernel`'s launches on the current device, as text; " + " separates several launches'.

    Raises ValueError for sizes that the kernel does not support.
    """
    launches = submission.configure(tuple(map(tuple, sizes)), current_sms(), products=PRODUCTS[problem])
    rows = [describe(launch.schedule) for launch in launches]
    return {name: " + ".join(row[name] for row in rows) for name in (rows[0] if rows else ())}


def configuration_name(configuration: Sequence[int]) -> str:
    """A configuration's name: weight rows x tokens of an MMA, CTAs per SM, and tiles side by side if several."""
    tile, cta_group, per_sm, neighbours = configuration
    together = f", {neighbours} side by side" if neighbours > 1 else ""
    return f"{submission.WEIGHT_TILE * cta_group}x{tile}, {per_sm} per SM{together}"


def configurations(problem: str) -> list[submission.Configuration]:
    """Every configuration that is legal for a problem, whatever its sizes."""
    return submission.legal_configurations(max(1, PRODUCTS[problem]))


def plans(sizes: Sizes, problem: str = "group_gemm") -> tuple[list[str], str]:
    """Names of the configurations that can take every launch of these sizes, and the name of custom_kernel's choice.

    The choice is empty if launches differ in it. Raises ValueError for sizes that the kernel does not support.
    """
    sms = current_sms()
    launches = submission.configure(tuple(map(tuple, sizes)), sms, products=PRODUCTS[problem])
    possible = [
        {_name(each) for each in submission.candidates(x.schedule.sizes, sms, products=x.schedule.plan.products)}
        for x in launches
    ]
    names = map(configuration_name, configurations(problem))
    chosen = {_name(launch.schedule) for launch in launches}
    return [name for name in names if all(name in of for of in possible)], chosen.pop() if len(chosen) == 1 else ""


def configuration_of(schedule: submission.Schedule) -> submission.Configuration:
    return submission.Configuration._make(getattr(schedule.plan, name) for name in submission.Configuration._fields)


def _name(schedule: submission.Schedule) -> str:
    return configuration_name(configuration_of(schedule))


def forced(name: str) -> Callable[[tuple], Any]:
    """`custom_kernel` in the configuration of this name. Raises ValueError if there is none."""
    known = {configuration_name(each): each for each in submission.legal_configurations()}
    if name not in known:
        raise ValueError(f"there is no configuration {name!r}; there are {', '.join(known)}")
    return functools.partial(submission.solve, configurations=(known[name],))


def current_sms() -> int:
    """The number of SMs of the current device."""
    return submission.sm_count(torch.cuda.current_device())
