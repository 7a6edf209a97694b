"""Runs programs of others on the emulator, unmodified, and compares each outcome with the one published for a B200.

    python -m workshop.foreign FOLDER [--only TEXT] [--schedule late,eager,random:1] [--jobs 2] [--save FILE.json]
                               [--outputs FOLDER]
    python -m workshop.foreign FOLDER --results ../docs/results [--only TEXT] [--schedule ...] [--jobs 2]
    python -m workshop.foreign FOLDER --sanitize [--schedule late] [--save ../docs/results/foreign-sanitizer.json]

FOLDER holds checkouts of the repositories that the lists in workshop/foreign/lists name, each as OWNER+NAME. Lists
that need something that is not there are skipped, and the command that brings it is named. A program runs once under
each schedule, in a process of its own. After an error, wrong results or a hang it runs once more with NOGPU_LENIENT=1,
by which rules of order that a GPU does not check are warnings: a published time asks for a pass in one of the two runs.
Verdicts:

    pass          the program ended with exit code 0, and with the text that its list asks for
    wrong         the program says that its results are wrong, even if its exit code is 0
    hang          the emulator reports a hang
    error         the emulator reports any other error
    unsupported   the emulator says that it does not model what the program uses
    failed        the program ended with another exit code
    time limit    the program was stopped after --timeout seconds, with all processes that it had started

Runs are added to --save's file as they end; a later run with the same file continues it. --results does so with a file
for each list, foreign-LIST.json: it runs what is left and prints one table of them all. The table has the checkout's
commit, verdict and seconds. It says where the verdict differs from the published one: a hang asks for a hang or an
error that precedes it, a fault for an error, wrong results for wrong results or an error, a time for a pass. Exit
codes: 0 no verdict differs, 1 one does, 2 usage.

With --sanitize each program runs once, leniently and followed by the sanitizer, which reports every pair and goes on.
workshop/foreign/judged.toml has the verdicts on its reports ("true", "doubt" or "false alarm", and why); outcomes are
compared with nothing. Exit codes: 0 every report has a verdict, 1 one has none, 2 usage.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workshop import records
from workshop.console import command_parser, make_console, make_table
from workshop.foreign import runs, sanitized
from workshop.foreign.runs import LISTS, SCHEDULES, TIME_LIMIT, WORKERS, Program, Run
from workshop.foreign.sanitized import Sanitized

if TYPE_CHECKING:
    from rich.console import Console


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 1 if a verdict differs from a published one or a report is not judged, else 0."""
    parser = command_parser(__doc__, "workshop.foreign")
    parser.add_argument("folder", type=Path, help="folder with the checkouts")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose repository or name contains it")
    parser.add_argument("--schedule", metavar="S[,S...]", help=f"default: {','.join(SCHEDULES)}, of --sanitize: late")
    parser.add_argument("--sanitize", action="store_true", help="what the sanitizer reports, in place of verdicts")
    parser.add_argument("--timeout", type=float, default=TIME_LIMIT, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time, default: %(default)s")
    parser.add_argument("--lists", type=Path, default=LISTS, metavar="PATH", help="one list, or a folder of them")
    records.add_save(parser)
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="a file for each list in place of --save")
    parser.add_argument("--outputs", type=Path, metavar="FOLDER", help="keep what each program prints, a file for each")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; it must be at least 1")
    if options.results and (options.save or options.sanitize):
        parser.error("--results excludes --save and --sanitize")
    if options.outputs:
        options.outputs.mkdir(parents=True, exist_ok=True)
    missing: set[str] = set()
    found = runs.programs(options.folder.resolve(), missing, options.lists)
    chosen = [each for each in found if options.only in f"{each.repository}/{each.name}"]
    console = make_console()
    show = functools.partial(console.print, markup=False, soft_wrap=True)
    for command in sorted(missing):
        show(f"not there: {command}")
    os.environ.setdefault(WORKERS, str(max(1, len(os.sched_getaffinity(0)) // options.jobs)))
    schedules = (options.schedule or (SCHEDULES[0] if options.sanitize else ",".join(SCHEDULES))).split(",")
    # All programs under the first schedule come before the second one.
    wanted = [(program, schedule) for schedule in schedules for program in chosen]
    return (follow if options.sanitize else run)(wanted, options, console, show)


def run(wanted: Sequence[tuple[Program, str]], options: Namespace, console: Console, show: Callable[..., None]) -> int:
    """Runs programs and prints their verdicts. Returns 1 if one differs from a published one, else 0."""
    files = {
        path.stem: options.results / f"foreign-{path.stem}.json" if options.results else options.save
        for path in runs.files_of(options.lists)
    }
    saved = {file: runs.load(file) for file in files.values()}
    of = {(program.repository, program.name): files[program.list] for program, _ in wanted}
    remaining = left(wanted, [each for own in saved.values() for each in own])
    run_one = functools.partial(runs.run, outputs=options.outputs)
    for result in runs.run_all(remaining, options.timeout, options.jobs, console, run_one):
        file = of[result.repository, result.name]
        saved[file].append(result)
        lenient = f", lenient: {result.lenient}" if result.lenient else ""
        show(f"{result.name} under {result.schedule}: {result.verdict}{lenient}, {result.seconds:.1f} s")
        save(file, saved[file])
    if not options.results:
        save(options.save, saved[options.save])
    found = [each for own in saved.values() for each in own]
    table = make_table(["program", "version", "schedule", "verdict", "lenient", "B200, published", "reason"], ["s"])
    for each in found:
        mark = " (differs)" if each.agrees is False else ""
        verdict = (each.schedule, each.verdict, each.lenient, each.silicon + mark, each.note or each.reason)
        table.add_row(each.name, each.version or "-", *verdict, f"{each.seconds:.1f}")
    console.print(table)
    console.print(runs.counts(found), markup=False)
    return 1 if any(each.agrees is False for each in found) else 0


def follow(
    wanted: Sequence[tuple[Program, str]], options: Namespace, console: Console, show: Callable[..., None]
) -> int:
    """Runs programs with the sanitizer and prints its reports. Returns 1 if one is not judged, else 0."""
    entries = sanitized.judgements()
    found = [sanitized.judged(each, entries) for each in sanitized.load(options.save)]
    for result in runs.run_all(left(wanted, found), options.timeout, options.jobs, console, runs.follow):
        found.append(sanitized.judged(result, entries))
        show(f"{result.name} under {result.schedule}: {result.outcome}, {result.seconds:.1f} s")
        for each in found[-1].reports:
            verdict = each.verdict or "not judged"
            show(f"    {each.rule} ({verdict}, {each.pairs} pairs), {each.kernel}: {each.text}")
        save(options.save, found)
    save(options.save, found)
    console.print(sanitized.counts(found), markup=False)
    return 1 if any(not each.verdict for run in found for each in run.reports) else 0


def left(wanted: Sequence[tuple[Program, str]], found: Sequence[Run | Sanitized]) -> list[tuple[Program, str]]:
    """The programs and schedules of `wanted` that no run in `found` has."""
    done = {(each.repository, each.name, each.schedule) for each in found}
    return [each for each in wanted if (each[0].repository, each[0].name, each[1]) not in done]


def save(path: Path | None, found: Sequence[Any]) -> None:
    records.write(path, {**records.versions(), "runs": [asdict(each) for each in found]})


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # programs end with this process, as they do at Ctrl-C
    raise SystemExit(main())
