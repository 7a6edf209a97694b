"""Breaks the synchronisation of kernels, one instruction at a time, and counts what the emulator notices.

    python -m tools.mutants [--foreign FOLDER] [--jobs N] [--save FILE.json]
    python -m tools.mutants --sample 100 --seed 1          a random sample of the mutants
    python -m tools.mutants --silence 50                   the kernels as they are, sanitized: nothing may be reported

The mutants are of our kernels in five configurations, of the GEMV, and with --foreign of two of NVIDIA's, whose
repository is in the folder as NVIDIA+cutlass. Each runs under the schedules until one notices it, by an error, by other
results or by a hang, and then under those of --sanitized with the sanitizer. tools/mutants/survivors.toml says of each
survivor why it changes nothing, or which check is missing. --save continues an earlier run of the same kernels; with
--silence a run of another emulator does not count. The exit code is 1 where a survivor is not in that list, or a mutant
in it is noticed; with --silence, where anything is reported or a run is left.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nogpu
from harness.console import make_console, make_table
from tools import circumstances
from tools.mutants import SURVIVORS
from workshop import processes, records
from workshop.console import command_parser

LIMIT = 120.0  # seconds for a mutant


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_parser(__doc__, "tools.mutants")
    parser.add_argument("--foreign", type=Path, metavar="FOLDER", help="folder with the checkout of NVIDIA/cutlass")
    parser.add_argument("--programs", metavar="P[,P...]", help="default: all")
    parser.add_argument("--kinds", metavar="K[,K...]", help="default: all")
    parser.add_argument("--schedule", default="late,random:1,random:2", metavar="S[,S...]", help="default: %(default)s")
    parser.add_argument(
        "--sanitized", default="late,random:1,last:1,eager", metavar="S[,S...]", help="default: %(default)s"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample, default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time, default: %(default)s")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="S", help="seconds, default: %(default)g")
    parser.add_argument("--seconds", type=float, metavar="S", help="no run starts when so many are over")
    parser.add_argument("--silence", type=int, metavar="SEEDS", help="run the kernels as they are under so many seeds")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    if options.jobs < 1 or (options.sample or 1) < 1 or (options.silence or 1) < 1:
        parser.error("--jobs, --sample and --silence must be at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    nogpu.activate(schedule="late", workers=1)
    from tools.mutants import programs

    found = programs.every() if options.silence else programs.ours()
    found += programs.foreign(options.foreign.resolve()) if options.foreign else []
    if options.programs:
        names = options.programs.split(",")
        unknown = set(names) - {program.name for program in found}
        if unknown:
            sys.exit(f"no such program: {', '.join(unknown)}; there are {', '.join(x.name for x in found)}")
        found = [program for program in found if program.name in names]
    if options.silence:
        from workshop.mutants import silence

        return silence.main(options, found, circumstances.versions(arguments))
    return break_them(found, options, circumstances.versions(arguments))


def break_them(found: Sequence[Any], options: argparse.Namespace, versions: dict[str, Any]) -> int:
    from workshop.mutants import kinds, results, survivors, tape, trial

    console = make_console(highlight=False)
    saved = results.load(options.save) or results.File({}, {}, [], versions)
    schedules = options.schedule.split(","), [name for name in options.sanitized.split(",") if name]
    tapes = tape.settled(found)
    sanitized = silent(tapes, schedules, options, console)
    tasks, of = [], []
    for program in found:
        recorded = tapes[program.name]
        source = recorded.digest, program.source
        if (saved.texts.get(program.name), saved.sources.get(program.name)) != source:
            saved.results = [result for result in saved.results if result.program != program.name]
        saved.texts[program.name], saved.sources[program.name] = source
        done = {result.key for result in saved.results}
        made = kinds.mutants(recorded.ptx, options.kinds.split(",") if options.kinds else None)
        for mutant in made:
            if (program.name, *mutant.key) not in done:
                of.append((program.name, mutant))
                ptx = mutant.apply(recorded.ptx)
                tasks.append(partial(trial.examine, recorded, ptx, schedules[0], sanitized[program.name]))
        console.print(f"{program.name}: {len(made)} mutants, {recorded.instructions:,} warp instructions")
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(range(len(tasks)), min(options.sample, len(tasks)))
        tasks, of = [tasks[i] for i in chosen], [of[i] for i in chosen]
    new, order = [], {program.name: place for place, program in enumerate(found)}

    def save() -> None:
        saved.results.sort(key=lambda result: (order.get(result.program, -1), result.line, result.kind, result.change))
        saved.save(options.save)

    for ended in processes.shown(tasks, options, console, save):
        outcome = ended.result or trial.Outcome(trial.LATE, reason=ended.failure)
        new.append(results.of(*of[ended.number], outcome, ended.seconds))
        saved.results.append(new[-1])
    show(saved.results, console)
    complete = options.sample is None and not (options.kinds or options.programs) and options.foreign is not None
    wrong = list(survivors.complaints(saved.results if complete else new, survivors.load(SURVIVORS), complete))
    for text in wrong:
        console.print(text, markup=False, soft_wrap=True)
    return 1 if wrong else 0


def silent(
    tapes: dict[str, Any], schedules: Sequence[Sequence[str]], options: argparse.Namespace, console: Any
) -> dict[str, Sequence[str]]:
    """Program -> schedules of its sanitized runs; none if the sanitizer reports the unchanged kernel, which is printed.

    Exits with 1 if an unchanged kernel fails without the sanitizer.
    """
    from workshop.mutants import trial

    tasks = [partial(trial.examine, recorded, recorded.ptx, *schedules) for recorded in tapes.values()]
    names, found = list(tapes), {}
    for ended in processes.forked(tasks, options.jobs, 3 * options.limit):
        outcome = ended.result or trial.Outcome(trial.LATE, reason=ended.failure)
        found[names[ended.number]] = schedules[1] if outcome.verdict == trial.SURVIVED else ()
        if outcome.verdict != trial.SURVIVED:
            text = f"{names[ended.number]} as it is: {outcome.verdict}, {outcome.schedule}, {outcome.reason}"
            console.print(text, markup=False, soft_wrap=True)
            if outcome.noticed and not outcome.sanitized:
                sys.exit(1)
    return found


def show(found: Sequence[Any], console: Any) -> None:
    from workshop.mutants import score, survivors

    entries = survivors.load(SURVIVORS)
    for by in ("kinds", "programs"):
        table = make_table([by[:-1]], score.HEADER)
        for row in score.rows(found, entries, by):
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes end with this one, as they do at Ctrl-C
    raise SystemExit(main())
