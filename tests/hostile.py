"""Hostile submissions against eval.py: what each tries, and whether the harness holds.

    python tests/hostile.py                  all of them, and legal twins that must pass
    python tests/hostile.py judge flood      families and kinds by name; --list names them
    python tests/hostile.py flood --verbose  with the lines and the output of eval.py

A wrong result that passes, a harness that crashes or hangs, a process that survives it, a line that it did not write, a
right result that is refused: each is a failure, and the exit code is 1 if there is one.
"""

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.console import make_console, make_table  # noqa: E402
from tests.submissions.hostile.kit import PASSES  # noqa: E402
from tests.submissions.hostile.register import KINDS  # noqa: E402
from tests.support import hostile_runs  # noqa: E402

COUNTED = {
    "wrong results passed": "a wrong result passed",
    "crashes of the harness": "the harness crashed",
    "hangs of the harness": "the harness hung",
    "survivors": "survivors",
    "right results refused": "a right result was refused",
}


def run_all(runs, jobs, console):
    """Every run's outcome, with a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(jobs) as pool,
    ):
        bar = progress.add_task("runs of eval.py", total=len(runs))
        waiting = {pool.submit(hostile_runs.execute, run): run for run in runs}
        outcomes = {}
        for future in as_completed(waiting):
            outcomes[waiting[future]] = future.result()
            progress.update(bar, advance=1, description=waiting[future].name)
    return [outcomes[run] for run in runs]


def print_table(outcomes, console):
    """A row per kind by family, then the sums. Returns whether all is as it should be."""
    from rich.markup import escape

    table = make_table(["", "kind", "what it tries", "verdict"], ["s"])
    rows = {}
    for outcome in outcomes:
        share = outcome.seconds / len(outcome.run.kinds)
        for kind in outcome.run.kinds[: 1 if outcome.run.kinds[0].then else None]:
            rows[kind.name] = kind, share, outcome.problems.get(kind.name, []), outcome.notes
    names = [name for name in KINDS if name in rows]
    family = None
    for name in names:
        kind, seconds, problems, notes = rows[name]
        if kind.family != family:
            table.add_section()
        verdict = f"[red]{escape('; '.join(problems))}[/]" if problems else "[green]held[/]"
        if not problems and kind.verdict == PASSES:
            verdict = "[green]passed[/]"
        verdict = "; ".join([verdict, *notes])
        table.add_row(kind.family if kind.family != family else "", name, escape(kind.tries), verdict, f"{seconds:.1f}")
        family = kind.family
    console.print(table)
    found = [problem for _, _, problems, _ in rows.values() for problem in problems]
    counts = Counter(next((name for name, text in COUNTED.items() if text in one), "others") for one in found)
    twins = sum(rows[name][0].verdict == PASSES for name in names)
    summary = ", ".join(f"{counts[name]} {name}" for name in (*COUNTED, "others"))
    style = "bold red" if found else "bold green"
    console.print(f"{len(names) - twins} hostile submissions, {twins} twins: {summary}", style=style, highlight=False)
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a kind or a family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time; default: one per core")
    parser.add_argument("--list", action="store_true", help="print families, kinds and what they try; run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each run's protocol lines and output")
    options = parser.parse_args()
    known = {kind.family for kind in KINDS.values()} | set(KINDS)
    if unknown := set(options.names) - known:
        parser.error(f"{', '.join(sorted(unknown))}: no such kind or family")
    console = make_console()
    runs = hostile_runs.plan(options.names)
    if options.list:
        for kind in KINDS.values():
            print(f"{kind.family:14}{kind.name:28}{kind.tries}")
        return 0
    outcomes = run_all(runs, options.jobs, console)
    if options.verbose:
        for outcome in outcomes:
            console.rule(outcome.run.name)
            print("\n".join(line[:300] for line in outcome.lines), outcome.output[-5000:], sep="\n\n")
    return 0 if print_table(outcomes, console) else 1


if __name__ == "__main__":
    sys.exit(main())
