"""Explores the orders of every configuration's launches, and gives a verdict for each.

    python -m tools.interleavings                              small cases, overlapping launches among them
    python -m tools.interleavings --benchmark --runs 4         the benchmark's shapes, planned for a B200's SMs
    python -m tools.interleavings --seeds 200                  the small cases also under random:1 to random:200
    python -m tools.interleavings --faults --jobs 2            mutants of tools.mutants' programs: none may be clean

A small case fills each ring of a configuration more than twice, over several tiles, in two launches that overlap, once
with both promises and once without. Neighbours have a further case, whose tiles have different weight rows: there, a
cluster's CTAs can overtake each other, and each of these orders is run. The sanitizer follows each order once.

A fault is a mutant that tools/mutants/survivors.toml does not prove to be equivalent; it is accepted by mistake if no
order shows it. --seconds ends a run early, which is said. --save continues an earlier run of the same kind, kernel,
emulator and --runs: it does what has no result yet, and further random schedules of what has fewer. The exit code is 1
where a launch fails, a verdict of a small case is not clean, or a fault is accepted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nogpu
from harness.console import make_console, make_table
from harness.options import B200_SMS
from task import PROBLEMS, TestSpec
from tools import circumstances
from tools.mutants import SURVIVORS
from workshop import processes, records
from workshop.console import command_parser

SMALL, BENCHMARK, FAULTS = "small cases", "benchmark", "faults"
CLEAN, BOUNDED, FAILS = "clean", "bounded", "fails"
NO_END = "no end"
SAME = "kind", "nvidia-cutlass-dsl", "submission.py sha256", "emulator sha256", "runs"
"""Facts that a file and a run that continues it have in common."""
LEFT = ["configuration", "case", "verdict", "left, or the error"]
RIGHT = ["orders", "runs", "turns", "random", "CPU s"]


class Explored(NamedTuple):
    """Findings on the launches of a program."""

    verdict: str
    left: str = ""  # orders left by a bounded verdict, or the error
    orders: int = 0
    runs: int = 0
    turns: int = 0  # turns of the longest run
    random: int = 0  # runs under random schedules
    seconds: float = 0.0  # CPU time of all runs


def small(shape: Sequence[int], products: int, rows: int = 3, rounds: int = 2) -> Any:
    """The input of a small case: `rows` tiles along the weights, and k-tiles for `rounds` of the ring and one more."""
    import reference
    import submission

    plan = submission.Plan(1, *shape, products)
    rows = 1 if plan.one_tile else rows
    m = plan.token_tile + 1 if plan.neighbours == 2 and rows > 2 else min(plan.token_tile, submission.TOKEN_STEP)
    per_cta = rows if rows > 2 else 1
    sizes = {"n": plan.rows * plan.cta_group * rows}
    sizes["k"] = submission.K_TILE * submission.ceil_div(rounds * plan.stages + 1, per_cta)
    if products == 2:
        return reference.generate_dual_gemm_input(m=m, **sizes, l=1, seed=5)
    return reference.generate_input(m=(m,), n=(sizes["n"],), k=(sizes["k"],), g=1, seed=5)


def _small_calls(shape: Sequence[int], products: int) -> Iterator[list[Any]]:
    from tools.mutants import programs

    for promises in (programs.ALL, {}):
        yield [(small(shape, products), promises) for _ in range(2)]


def _apart_calls(shape: Sequence[int], products: int) -> Iterator[list[Any]]:
    yield [(small(shape, products, rows=2, rounds=1), {})]


def small_programs() -> list[Any]:
    """A `workshop.mutants.tape.Program` for each small case of every configuration, the longest first."""
    import submission
    from tools.mutants import programs
    from workshop.mutants.tape import Program

    found = []
    for products in submission.PRODUCTS:
        for shape in submission.legal_configurations(products):
            name = ("dual " if products == 2 else "") + "-".join(map(str, shape))
            ctas = shape.cta_group * shape.neighbours
            for case, calls in (("overlapping", _small_calls), ("other rows", _apart_calls)):
                if case == "overlapping" or shape.neighbours == 2:
                    recorded = partial(programs.recorded, partial(calls, shape, products), shape, ctas, 2 * ctas)
                    found.append((ctas, products, Program(f"{name}, {case}", recorded)))
    found.sort(key=lambda each: each[:2], reverse=True)
    return [program for _, _, program in found]


def benchmark_programs() -> list[Any]:
    """A program for each problem and configuration: the first benchmark case that the configuration takes."""
    from harness.plan_report import configurations
    from tools.mutants import programs
    from tools.variants import takes
    from workshop.mutants.tape import Program

    found = []
    for name, problem in PROBLEMS.items():
        for shape in configurations(name):
            line = next((case.line for case in problem.benchmarks if takes(shape, case.line, name)), None)
            if line is not None:
                calls = partial(_benchmark_calls, name, line)
                recorded = partial(programs.recorded, calls, shape, B200_SMS, B200_SMS)
                found.append(Program(f"{'-'.join(map(str, shape))}, {name}", recorded))
    return found


def _benchmark_calls(problem: str, line: str) -> Iterator[list[Any]]:
    import reference

    yield [(reference.REFERENCES[problem].generate_input(**TestSpec.parse(line).args), {})]


def explored(
    record: Callable[[], Any], runs: int, seeds: int, ptx: str | None = None, earlier: Explored | None = None
) -> Explored:
    """Explores the launches of a program, under the sanitizer, and repeats them under random schedules.

    ptx: the kernel's text in place of the recorded one. earlier: findings to which those under further seeds are added.
    """
    from workshop.mutants import tape, trial

    recorded = record()
    began = _cpu_seconds()
    text = ptx or recorded.ptx
    # The recorded text alone is run under "late" behind the search, as `settle` would run it.
    if not recorded.expected and (seeds or text != recorded.ptx):
        tape.settle(recorded)
    found = earlier or _searched(recorded, runs, text)
    for seed in range(found.random + 1, seeds + 1):
        if found.verdict == FAILS:
            break
        outcome = trial.once(recorded, recorded.ptx, f"random:{seed}", False)
        found = _failed(found._replace(random=seed), outcome)
    return found._replace(seconds=round(found.seconds + _cpu_seconds() - began, 2))


def _cpu_seconds() -> float:
    """CPU time of this process and of its children, in which a launch's runs may be, that have ended."""
    return sum(os.times()[:4])


def _searched(recorded: Any, runs: int, ptx: str) -> Explored:
    from nogpu.sanitizer import Explorer
    from workshop.mutants import trial

    explorer = Explorer(runs, recorded.allowed)
    outcome = trial.once(recorded, ptx, "late", True, explorer)
    left = [text for verdict in explorer.verdicts for text in verdict.left]
    found = Explored(
        BOUNDED if left else CLEAN,
        "; ".join(dict.fromkeys(left)),
        sum(verdict.traces for verdict in explorer.verdicts),
        explorer.runs,
        max((verdict.turns for verdict in explorer.verdicts), default=0),
    )
    return _failed(found, outcome)


def _failed(found: Explored, outcome: Any) -> Explored:
    if outcome is None:
        return found
    return found._replace(verdict=FAILS, left=f"{outcome.verdict} {outcome.reason}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command_parser(__doc__, "tools.interleavings")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--benchmark", action="store_true", help="the benchmark's shapes")
    what.add_argument("--faults", action="store_true", help="mutants, in place of the kernels as they are")
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="of a launch at most; default: %(default)s")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="random schedules; default: %(default)s")
    parser.add_argument("--only", metavar="TEXT", help="programs whose name has the text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one fault in N; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time, default: %(default)s")
    parser.add_argument("--limit", type=float, default=1800, metavar="S", help="seconds, default: %(default)g")
    parser.add_argument("--seconds", type=float, metavar="S", help="no program starts when so many are over")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.runs < 1 or options.every < 1 or options.seeds < 0:
        parser.error("--jobs, --runs and --every must be at least 1, --seeds at least 0")
    return options


class Task(NamedTuple):
    """A program to be explored, or a mutant of one."""

    program: str
    run: Callable[..., Explored]  # may be called with `explored`'s earlier findings
    mutant: Any = None

    @property
    def row(self) -> dict[str, Any]:
        """The items of a file's row that name the task."""
        named = {} if self.mutant is None else {"line": self.mutant.line, "mutant": list(self.mutant.key)}
        return {"program": self.program, **named}

    def behind(self, row: dict[str, Any] | None, seeds: int) -> Task | None:
        """The task that is left when a file has a row of it; None if nothing is left."""
        if row is None or row["left"].startswith(NO_END):
            return self
        earlier = Explored(**{name: row[name] for name in Explored._fields})
        if self.mutant is not None or earlier.verdict == FAILS or earlier.random >= seeds:
            return None
        return self._replace(run=partial(self.run, earlier=earlier))


def _tasks(options: argparse.Namespace) -> list[Task]:
    if not options.faults:
        found = benchmark_programs() if options.benchmark else small_programs()
        return [
            Task(program.name, partial(explored, program.record, options.runs, options.seeds))
            for program in found
            if not options.only or options.only in program.name
        ]
    from tools.mutants import programs
    from workshop.mutants import kinds, tape

    tapes = tape.settled([each for each in programs.ours() if not options.only or options.only in each.name])
    mutants = [(name, mutant) for name, recorded in tapes.items() for mutant in kinds.mutants(recorded.ptx)]
    return [
        Task(name, partial(explored, partial(tapes.get, name), options.runs, 0, mutant.apply(tapes[name].ptx)), mutant)
        for name, mutant in mutants[:: options.every]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    nogpu.activate(schedule="late", workers=1)
    console = make_console(highlight=False)
    tasks = _tasks(options)
    kind = FAULTS if options.faults else BENCHMARK if options.benchmark else SMALL
    record = {**circumstances.versions(arguments), "emulator sha256": records.emulator()}
    record |= {"processor": records.processor(), "kind": kind, "runs": options.runs}
    done = {_key(row): row for row in records.earlier(options.save, record, SAME).get("rows", [])}
    record |= {"tasks": len(done.keys() | {_key(task.row) for task in tasks}), "rows": []}
    tasks = [further for task in tasks if (further := task.behind(done.get(_key(task.row)), options.seeds))]

    def save() -> None:
        record["rows"] = list(done.values())
        records.write(options.save, record, "rows")

    for ended in processes.shown([task.run for task in tasks], options, console, save):
        outcome = ended.result or Explored(BOUNDED, f"{NO_END}: {ended.failure}", seconds=ended.seconds)
        row = _judged(tasks[ended.number], outcome)
        done[_key(row)] = row
    rows = record["rows"]
    if not options.faults:
        _show(rows, console)
    wrong = [row for row in rows if row["verdict"] != CLEAN] if kind == SMALL else []
    wrong += [row for row in rows if row["verdict"] == FAILS] if kind == BENCHMARK else []
    wrong += [row for row in rows if row["accepted"]] if kind == FAULTS else []
    for row in wrong:
        console.print(f"WRONG: {row}", markup=False, soft_wrap=True)
    console.print(counts(record), markup=False)
    return 1 if wrong else 0


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["program"], *row.get("mutant", ()))


def _judged(task: Task, outcome: Explored) -> dict[str, Any]:
    """A file's row for an outcome."""
    from workshop.mutants import results, survivors, trial

    row = {**task.row, **outcome._asdict()}
    if task.mutant is not None:
        noticed = trial.Outcome(trial.ERROR if outcome.verdict == FAILS else trial.SURVIVED)
        result = results.of(row["program"], task.mutant, noticed, outcome.seconds)
        entry = survivors.entry_of(result, survivors.load(SURVIVORS))
        equivalent = entry is not None and entry.classified == survivors.EQUIVALENT
        row["equivalent"] = equivalent
        row["accepted"] = outcome.verdict == CLEAN and not equivalent
        row["unproven"] = outcome.verdict == BOUNDED and not equivalent
    return row


def counts(record: dict[str, Any]) -> str:
    """A line with the totals of a run."""
    done, runs, verdicts = _counted(record)
    return f"{done}, {runs} schedules run: {verdicts}"


def _counted(record: dict[str, Any]) -> list[str]:
    """Work done, number of schedules, and verdicts."""
    rows = record["rows"]
    found = [
        f"{len(rows)} of {record['tasks']} {record['kind']}",
        f"{sum(row['runs'] + row['random'] for row in rows):,}",
    ]
    if record["kind"] != FAULTS:
        verdicts = [row["verdict"] for row in rows]
        return [*found, ", ".join(f"{verdicts.count(word)} {word}" for word in (CLEAN, BOUNDED, FAILS))]
    faults = [row for row in rows if not row["equivalent"]]
    noticed = sum(row["verdict"] == FAILS for row in faults)
    accepted, unproven = (sum(row[key] for row in faults) for key in ("accepted", "unproven"))
    alarms = sum(row["verdict"] == FAILS for row in rows) - noticed
    text = f"{len(faults)} faults, {noticed} found, {accepted} accepted, {unproven} bounded"
    return [*found, f"{text}; {len(rows) - len(faults)} equivalent mutants, {alarms} of them fail"]


def verdicts_table(results: Path, name: str) -> str:
    """The table of saved runs. name: "configurations" for the rows of interleavings.json, "benchmark" for those of
    interleavings-benchmark.json, "counts" for all files.
    """
    from workshop.tables import command_text, markdown, missing

    parts = {"configurations": ("",), "benchmark": ("-benchmark",)}.get(name, ("", "-benchmark", "-faults"))
    files = [results / f"interleavings{part}.json" for part in parts]
    saved = [record for file in files if (record := records.load(file)) is not None]
    if not saved:
        return missing(f"python -m tools.interleavings --save docs/results/{files[0].name}")
    commands = [command_text("tools.interleavings", record["command"]) for record in saved]
    if name == "counts":
        rows = [[command, *_counted(record), _seconds(record["rows"])] for command, record in zip(commands, saved)]
        return markdown(["command", "done", "schedules run", "verdicts", "CPU s"], rows)
    (record,) = saved
    table = markdown([*LEFT[:3], "left", *RIGHT], sorted(map(_cells, record["rows"])))
    return f"{table}\n\n{commands[0]}: {counts(record)}"


def _cells(row: dict[str, Any]) -> list[str]:
    name, _, case = row["program"].partition(", ")
    figures = [f"{row[key]:,}" for key in ("orders", "runs", "turns", "random", "seconds")]
    return [name, case, row["verdict"], row["left"] or "nothing", *figures]


def _seconds(rows: Sequence[dict[str, Any]]) -> str:
    return f"{sum(row['seconds'] for row in rows):,.0f}"


def _show(rows: Sequence[dict[str, Any]], console: Any) -> None:
    table = make_table(LEFT, RIGHT)
    for row in sorted(rows, key=lambda row: row["program"]):
        table.add_row(*_cells(row))
    console.print(table)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes end with this one, as they do at Ctrl-C
    raise SystemExit(main())
