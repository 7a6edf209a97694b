"""What `submission.solve` launches for given sizes, and what every other configuration lost by; no GPU needed.

    python plans.py "m: [96, 128]; n: [128, 256]; k: [256, 512]; g: 2"    a spec line as eval.py reads it, without seed
    python plans.py "m: 256; n: 4096; k: 7168; l: 1" --problem dual_gemm  group_gemm (default), gemm, dual_gemm or gemv
    python plans.py ... --sms 132                                         SMs to plan for; a B200 has 148
    python plans.py ... --in-turn                                         calls that do not overlap: nothing promised

From Python `plans.explain(data[3])` for the sizes of a group GEMM's tuple. A row of the table is a configuration, the
chosen one first; the last column has the first figure in which it lost, and the chosen one's. MB requested are those of
all tiles' loads. A GEMV has one plan for each K, so its table is one row.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")  # read when the DSL is imported; its default is the GPU that is there

from rich import box  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import submission  # noqa: E402
from harness.plan_report import PRODUCTS, Sizes, current_sms, describe, describe_gemv  # noqa: E402
from task import SpecError, TestSpec  # noqa: E402

SMS = 148


def compare(schedule: submission.Schedule, overlapping: bool = True) -> list[dict[str, str]]:
    """A row for every candidate for a launch's sizes: its figures, and by which it lost to `schedule`, the first."""
    best, rows = schedule.merits(overlapping), []
    for other in submission.candidates(schedule.sizes, schedule.sm_count, overlapping, schedule.plan.products):
        values = other.merits(overlapping)
        lost = [f"{name}: {value:,} > {best[name]:,}" for name, value in values.items() if value > best[name]]
        rows.append({**describe(other), "lost by": lost[0] if rows else "chosen"})
    return rows


def explain(sizes: Sizes, problem: str = "group_gemm", sms: int | None = None, overlapping: bool = True) -> None:
    """Print what `solve` launches for these sizes, and what the other configurations lost by.

    sms: SMs to plan for, by default those of the current device. overlapping: whether operands are promised to be ready.
    Raises ValueError for sizes that the kernel cannot take.
    """
    sms = current_sms() if sms is None else sms
    if problem == "gemv":
        show(f"A GEMV on {sms} SMs", [describe_gemv(sizes[0], sms)])
        return
    launches = submission.configure(tuple(map(tuple, sizes)), sms, overlapping, PRODUCTS[problem])
    if not launches:
        print("nothing to launch: no group has tokens")
    for launch in launches:
        order = ", then ".join(launch.schedule.merits(overlapping))
        count = f"{len(launch.groups)} group{'s' if len(launch.groups) > 1 else ''}"
        show(f"{count} on {sms} SMs; compared by {order}", compare(launch.schedule, overlapping))


def show(title: str, rows: list[dict[str, str]]) -> None:
    """Print a table of rows with the same columns."""
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "lost by" else "right", vertical="bottom")
    for row in rows:
        table.add_row(*row.values())
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 180, highlight=False)
    console.print(f"{title}:", table, sep="\n")


def sizes_of(line: str, problem: str) -> list[tuple[int, int, int, int]]:
    """(M, N, K, L) of a spec line's groups; a GEMV's N, the rows of b, is 1. Raises SpecError."""
    args = {"g": None, "l": 1, **({"n": 1} if problem == "gemv" else {}), **TestSpec.parse(line).args}
    try:
        values = [args[name] for name in "mnkl"]
        if problem == "group_gemm":
            return list(zip(*values[:3], [1] * len(values[0]), strict=True))
        m, n, k, batch = map(int, values)
    except (KeyError, TypeError, ValueError) as error:
        keys = "lists m, n and k of one length" if problem == "group_gemm" else "numbers m, n (but gemv), k and l"
        raise SpecError(f"'{line}': {problem} takes {keys} ({type(error).__name__}: {error})") from None
    return [(m, n, k, batch)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", help="a spec line")
    parser.add_argument("--problem", choices=PRODUCTS, default="group_gemm")
    parser.add_argument("--sms", type=int, default=SMS, help="SMs to plan for (148)")
    parser.add_argument("--in-turn", action="store_true", help="calls that do not overlap")
    options = parser.parse_args(arguments)
    try:
        explain(sizes_of(options.sizes, options.problem), options.problem, options.sms, not options.in_turn)
    except ValueError as error:
        sys.exit(f"plans: {error}")


if __name__ == "__main__":
    main()
