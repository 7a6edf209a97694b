"""Prints the launches of `submission.solve` for given sizes, and why every other configuration lost; needs no GPU.

    python -m tools.plans "m: [96, 128]; n: [128, 256]; k: [256, 512]; g: 2"    a spec line of eval.py, without seed
    python -m tools.plans "m: 256; n: 4096; k: 7168; l: 1" --problem dual_gemm  another problem than group_gemm
    python -m tools.plans ... --sms 132                                         SMs to plan for; a B200 has 148
    python -m tools.plans ... --mode overlapping                                calls of solve with both promises

From Python: `plans.explain(data[3])` for the input tuple of a group GEMM. A row of the table is a configuration; the
chosen one comes first. The last column has the modelled microseconds that the row takes longer than the
chosen one, and the rates (submission.Rates) that cost it most of them. "MB requested" counts the loads of all
tiles.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import submission
from harness.console import make_console, make_table
from harness.launch_modes import ORDINARY, OVERLAPPING, LaunchMode
from harness.options import add_problem, add_sms
from harness.plan_report import PRODUCTS, Sizes, current_sms, describe
from task import GROUP_GEMM, SpecError, TestSpec
from tools import circumstances
from workshop import records
from workshop.console import command_parser

LOST_BY = "lost by"


def costs(schedule: submission.Schedule, overlapping: bool) -> dict[str, float]:
    """Rate -> modelled microseconds that a chip would save which is endlessly fast in this rate alone."""
    name = "BLACKWELL" if schedule.sm_count > submission.HOPPER_SMS else "HOPPER"
    total, found = schedule.cost(overlapping), {}
    for field in submission.Rates._fields:
        free = submission.ENDLESS if field in ("sm", "l2", "dram", "tensor") else 0
        rates = tuple(each._replace(**{field: free}) for each in getattr(submission, name))
        with mock.patch.object(submission, name, rates):
            found[field] = total - schedule.cost(overlapping)
    return found


def compare(schedule: submission.Schedule, overlapping: bool = True) -> list[dict[str, str]]:
    """A row for every candidate for a launch's sizes: its figures, and the time by which it lost to `schedule`."""
    ours, rows = costs(schedule, overlapping), list[dict[str, str]]()
    for other in submission.candidates(schedule.sizes, schedule.sm_count, overlapping, schedule.plan.products):
        more = {name: theirs - ours[name] for name, theirs in costs(other, overlapping).items()}
        worst = sorted((name for name, us in more.items() if us > 0), key=lambda name: -more[name])[:2]
        total = other.cost(overlapping) - schedule.cost(overlapping)
        lost = f"{total:.2f} us" + (f": {', '.join(worst)}" if worst else "")
        if total < 0:  # a candidate that loses by too much where calls do not overlap
            lost = f"{other.cost() - schedule.cost():.2f} us where calls do not overlap"
        rows.append({**describe(other), LOST_BY: lost if rows else "chosen"})
    return rows


def tables(
    sizes: Sizes, problem: str = GROUP_GEMM.name, sms: int | None = None, mode: LaunchMode = ORDINARY
) -> dict[str, list[dict[str, str]]]:
    """Title -> rows of a table, for each launch; see explain."""
    sms = current_sms() if sms is None else sms
    found, overlapping = {}, mode == OVERLAPPING
    for launch in submission.configure(tuple(map(tuple, sizes)), sms, overlapping, PRODUCTS[problem]):
        count = f"{len(launch.groups)} group{'s' if len(launch.groups) > 1 else ''}"
        found[f"{count} on {sms} SMs, {mode}"] = compare(launch.schedule, overlapping)
    return found


def explain(sizes: Sizes, problem: str = GROUP_GEMM.name, sms: int | None = None, mode: LaunchMode = ORDINARY) -> None:
    """Print the launches for these sizes, and why the other configurations lost.

    sms: SMs to plan for, by default those of the current device. mode: launch mode of the calls; calls that do not
    overlap have one plan, that of `solve(data)`. Raises ValueError for sizes that the kernel does not support.
    """
    show(tables(sizes, problem, sms, mode))


def show(found: dict[str, list[dict[str, str]]]) -> None:
    """Print tables by title; the rows of a table have the same columns."""
    if not found:
        print("nothing to launch: no group has tokens")
    console = make_console(180, highlight=False)
    for title, rows in found.items():
        names = list(rows[0])
        table = make_table([], names)
        for column in table.columns:
            column.vertical = "bottom"
            column.justify = "left" if column.header == LOST_BY else "right"
        for row in rows:
            table.add_row(*row.values())
        console.print(f"{title}:", table, sep="\n")


def sizes_of(line: str, problem: str) -> list[tuple[int, int, int, int]]:
    """(M, N, K, L) of each group of a spec line; N of a GEMV is 1. Raises SpecError for sizes of another problem."""
    args: dict[str, Any] = {"l": 1, **({"n": 1} if problem == "gemv" else {}), **TestSpec.parse(line).args}
    try:
        values = [args[name] for name in "mnkl"]
        if problem == GROUP_GEMM.name:
            return list(zip(*values[:3], [1] * len(values[0]), strict=True))
        m, n, k, batch = map(int, values)
    except (KeyError, TypeError, ValueError) as error:
        takes = "lists m, n and k of one length" if problem == GROUP_GEMM.name else "numbers m, n (but gemv), k and l"
        raise SpecError(f"'{line}': {problem} takes {takes} ({type(error).__name__}: {error})") from None
    return [(m, n, k, batch)]


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.plans")
    parser.add_argument("sizes", help="a spec line")
    add_problem(parser)
    add_sms(parser)
    keywords, text = [mode.keyword for mode in LaunchMode], "of the calls to plan for; default: %(default)s"
    parser.add_argument("--mode", choices=keywords, default=ORDINARY.keyword, help=text)
    records.add_save(parser)
    options = parser.parse_args(arguments)
    try:
        sizes = sizes_of(options.sizes, options.problem)
        found = tables(sizes, options.problem, options.sms, LaunchMode[options.mode.upper()])
    except ValueError as error:
        sys.exit(f"tools.plans: {error}")
    show(found)
    if options.save:
        record = {"problem": options.problem, "sms": options.sms, **circumstances.versions(arguments)}
        records.save(options.save, {**record, "launches": [{"title": t, "rows": rows} for t, rows in found.items()]})


if __name__ == "__main__":
    main()
