"""Writes the tables of figures in README.md, docs and nogpu/docs from the committed files in docs/results.

    python -m tools.measurements            rewrite every table
    python -m tools.measurements --check    change nothing; print a diff and exit with 1 where a table is out of date

A table stands between two comments, `<!-- table: KIND NAME -->` and `<!-- end -->`; the text between them is replaced.
A table whose file is missing says which command writes the file.

    kind            name              figures from
    b200            PROBLEM           task.py: speed of light, best published; b200-PROBLEM.json: ours in each launch
                                      mode (harness.launch_modes), with the 10th to 90th percentile
    comparison      DEVICE-PROBLEM    DEVICE-PROBLEM.json: every row but the configurations; DEVICE-PROBLEM.WHAT: of
                                      another run
    configurations  DEVICE-PROBLEM    the same file: every configuration of the kernel
    model                             model.json: rooflines
    modelled        CHIP [every]      clock-ours-CHIP.json: ours and others, with bands of clock-CHIP.json
    phases          CHIP              clock-phases-CHIP.json
    emulator                          emulator.json
    soak                              every soak-NAME.json, a column each
    fuzz                              fuzz.json
    clock           PROFILE[-shapes]  clock-PROFILE.json: modelled times beside measured or published ones; -shapes: of
                                      random shapes
    sensitivity     PROFILE           sensitivity-PROFILE.json: constants that modelled times depend on
    foreign         LIST              foreign-LIST.json: programs of others, and what a B200 made of them
    foreign-lists                     every other foreign-LIST.json: how many pass, and why the rest do not
    foreign-runs                      every foreign-LIST.json: commit, verdict and seconds of each program
    foreign-sanitizer                 foreign-sanitizer.json: what the sanitizer reports of the programs of others

Cases are numbered from 0, as `--case` numbers them. Times are microseconds, medians over the repeats.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from nogpu.clock import summary
from task import PROBLEMS, Benchmark, Problem, TestSpec
from tools.clock import sensitivity
from tools.clock.tables import clock, modelled, phases
from tools.compare import OURS_ORDINARY, OURS_OVERLAPPING, OURS_PROGRAMMATIC
from tools.interleavings import verdicts_table
from tools.mutants.tables import mutants_table, silence_table
from tools.rows import percentiles, range_text
from tools.sanitizer_cost import cost_table
from workshop.console import command_parser
from workshop.foreign.tables import foreign_lists, foreign_programs, foreign_runs, foreign_sanitizer
from workshop.records import MeasurementError, load
from workshop.tables import command_text, emulator, markdown, missing

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "docs" / "measurements.md",
    ROOT / "docs" / "mutations.md",
    ROOT / "docs" / "interleavings.md",
    *(
        ROOT / "nogpu" / "docs" / f"{name}.md"
        for name in ("clock_errors", "foreign", "foreign_runs", "internals", "sanitizer")
    ),
    summary.ERRORS,
)

TABLE = re.compile(r"<!-- table: (?P<name>[^\n]*?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
BEGIN, END = "<!-- table:", "<!-- end -->"
CONFIGURATION = re.compile(r"ours, \d+x\d+, .*")  # rows of `tools.compare --shapes`
OURS = (OURS_ORDINARY, OURS_PROGRAMMATIC, OURS_OVERLAPPING)
OMITTED = "omitted"  # tools.compare's value of "tensor core" on a Hopper
NOT_MEASURED = "not measured"
DSL = "nvidia-cutlass-dsl"
MOST_VALUES = 8  # rows of a category in a soak's table


def load_comparison(results: Path, name: str) -> dict[str, Any] | None:
    """The content of a file of `tools.compare`; None if it is missing. name: DEVICE-PROBLEM or DEVICE-PROBLEM.WHAT.

    Raises MeasurementError if the content is of another device or problem, or a B200's file lacks the tensor core.
    """
    saved = load(results / f"{name}.json")
    if saved is None:
        return None
    device, problem = device_and_problem(name)
    if problem not in PROBLEMS:
        raise MeasurementError(f"{name}.json: {problem!r} is none of {', '.join(PROBLEMS)}")
    if device.lower() not in saved["device"].lower():
        raise MeasurementError(f"{name}.json was measured on {saved['device']}")
    if saved.get("problem", problem) != problem:
        raise MeasurementError(f"{name}.json is of {saved['problem']}")
    if device.lower() == "b200" and saved["tensor core"] == OMITTED:
        raise MeasurementError(f"{name}.json: the tensor core was omitted; these are no times of a B200")
    return saved


def device_and_problem(name: str) -> tuple[str, str]:
    """Device and problem of a comparison's name, DEVICE-PROBLEM or DEVICE-PROBLEM.WHAT."""
    device, _, rest = name.partition("-")
    return device, rest.partition(".")[0]


def compare_command(name: str) -> str:
    _, problem = device_and_problem(name)
    return f"python -m tools.compare --problem {problem} --shapes --save docs/results/{name}.json"


def shapes(benchmark: Benchmark) -> str:
    """A case's sizes in words: "8 groups, N 4096, K 7168, M 64..248"."""
    args = TestSpec.parse(benchmark.line).args
    words = [f"{args['g']} groups"] if "g" in args else []
    for key in "nkm":
        if key in args:
            value = args[key]
            different = sorted(set(value)) if isinstance(value, tuple) else [value]
            text = f"{different[0]}..{different[-1]}" if len(different) > 2 else ", ".join(map(str, different))
            words.append(f"{key.upper()} {text}")
    return ", ".join(words + ([f"batch of {args['l']}"] if args.get("l", 1) != 1 else []))


def medians(saved: dict[str, Any], row: str) -> dict[int, float]:
    """Case -> median microseconds per call of a row; empty for a row that was not measured."""
    return {int(case): median(times) for case, times in saved["us"].get(row, {}).items() if times}


def spread(saved: dict[str, Any], rows: Iterable[str]) -> float:
    """The widest distance of the 10th to the 90th percentile in these rows, as a share of the median."""
    widths = [0.0]
    for row in rows:
        for middle, low, high in map(percentiles, filter(None, saved["us"][row].values())):
            widths.append((high - low) / middle)
    return max(widths)


def circumstances(saved: dict[str, Any], rows: Iterable[str]) -> str:
    omitted = saved["tensor core"] == OMITTED
    versions = [f"{name} {saved[name]}" for name in ("nvidia-cutlass-dsl", "torch") if name in saved]
    return "; ".join(
        [
            f"{saved['device']}, {saved['sms']} SMs"
            + (", **tensor core omitted: no times of a B200**" if omitted else ""),
            command_text("tools.compare", saved["command"]),
            ", ".join([*versions, f"submission.py {saved['submission.py sha256'][:12]}"]),
            f"median us per call, 10th to 90th percentile within {spread(saved, rows):.1%} of it",
        ]
    )


def comparison_table(saved: dict[str, Any], rows: list[str]) -> str:
    cases = sorted({int(case) for row in rows for case in saved["us"][row]})
    lines = []
    for row in rows:
        found = medians(saved, row)
        cells = [f"{found[case]:.2f}" if case in found else "-" for case in cases]
        lines.append([f"**{text}**" if row in OURS else text for text in (row, *cells)])
    return f"{markdown(['us', *(f'case {case}' for case in cases)], lines)}\n\n{circumstances(saved, rows)}"


def comparison(results: Path, name: str) -> str:
    saved = load_comparison(results, name)
    if saved is None:
        return missing(compare_command(name))
    return comparison_table(saved, [row for row in saved["us"] if not CONFIGURATION.fullmatch(row)])


def configurations(results: Path, name: str) -> str:
    saved = load_comparison(results, name)
    rows = [row for row in saved["us"] if CONFIGURATION.fullmatch(row)] if saved is not None else []
    return comparison_table(saved, rows) if saved is not None and rows else missing(compare_command(name))


def b200(results: Path, name: str) -> str:
    problem: Problem = PROBLEMS[name]
    saved, cases = load_comparison(results, f"b200-{name}"), range(len(problem.benchmarks))

    def times_of(row: str, case: int) -> str:
        return range_text(saved["us"].get(row, {}).get(str(case), []) if saved else []) or NOT_MEASURED

    rows = [
        [
            f"{case}: {shapes(benchmark)}",
            f"{benchmark.speed_of_light_us:#.3g}",
            f"{benchmark.best_published_us:#.3g}",
            *(times_of(row, case) for row in OURS),
        ]
        for case, benchmark in enumerate(problem.benchmarks)
    ]
    limits = geometric_mean(benchmark.speed_of_light_us for benchmark in problem.benchmarks)
    best = geometric_mean(benchmark.best_published_us for benchmark in problem.benchmarks)
    ours = [medians(saved, row) if saved else {} for row in OURS]
    means = [f"{geometric_mean(x.values()):.2f}" if len(x) == len(cases) else NOT_MEASURED for x in ours]
    rows.append(["geometric mean of the column", f"{limits:.2f}", f"{best:.2f}", *means])
    rows.append(["best published geometric mean of one submission", "", f"{problem.best_geomean_us:.2f}", "", "", ""])
    header = ["case (us on a B200)", "speed of light", "best published of the case", *OURS]
    there = [row for row in OURS if saved and row in saved["us"]]
    return markdown(header, rows) + (f"\n\nOurs: {circumstances(saved, there)}" if saved else "")


def model(results: Path, name: str) -> str:
    saved = load(results / "model.json")
    if saved is None:
        return missing("python -m tools.model --save docs/results/model.json")
    rows = [
        [f"{case['problem']}, case {case['case']}", f"{case['bytes'] / 1e6:.1f}"]
        + [f"{case[term]:.2f}" for term in ("dram_us", "tensor_us")]
        for case in saved["cases"]
    ]
    return markdown(["modelled, not measured", "MB that must move", "DRAM, us", "tensor core, us"], rows) + (
        f"\n\nProfile {saved['chip']}; {command_text('tools.model', saved.get('command', ()))}"
    )


def soak(results: Path, name: str) -> str:
    """The table of the problems that tests/soak.py ran, by category; one with many values has their number only."""
    files = [load(path) or {} for path in sorted(results.glob("soak-*.json"))]
    if not files:
        return missing("python -m nogpu tests/soak.py --problems 10000 --save docs/results/soak-emulator.json")
    rows = [["problems", *(f"**{saved['problems']:,}**" for saved in files)]]
    rows += [["wrong", *(f"**{len(saved['wrong'])}**" for saved in files)]]
    rows += [["calls", *(f"{saved['calls']:,}" for saved in files)]]
    for category in dict.fromkeys(category for saved in files for category in saved["counts"]):
        counts = [saved["counts"].get(category, {}) for saved in files]
        values = list(dict.fromkeys(value for of_file in counts for value in of_file))
        if len(values) > MOST_VALUES:
            rows.append([f"{category}: different ones", *(str(len(of_file)) for of_file in counts)])
        else:
            rows += [[f"{category}: {x}", *(f"{of_file.get(x, 0):,}" for of_file in counts)] for x in values]
    captions = []
    for saved in files:
        command, spent = (
            shlex.join(["python", *saved["command"]]),
            f"{saved['seconds']:.0f} s in {saved['jobs']} processes",
        )
        versions = ", ".join(f"{name} {saved[name]}" for name in ("nvidia-cutlass-dsl", "torch"))
        kernel = f"submission.py {saved['submission.py sha256'][:12]}"
        captions.append(f"{saved['device']}: `{command}`; {spent}; {versions}, {kernel}")
    return "\n\n".join([markdown(["", *(saved["device"] for saved in files)], rows), *captions])


def fuzz(results: Path, name: str) -> str:
    """The table of the inputs of `tools.fuzz`, by the level of their last mutation."""
    saved = load(results / "fuzz.json")
    if saved is None:
        return missing("python -m tools.fuzz --save docs/results/fuzz.json")
    outcomes = list(next(iter(saved["counts"].values())))
    everything = {kind: sum(counts[kind] for counts in saved["counts"].values()) for kind in outcomes}
    rows = [
        [level, *(f"{count:,}" for count in (sum(counts.values()), *counts.values()))]
        for level, counts in {**saved["counts"], "**all**": everything}.items()
    ]
    command = shlex.join(["python", "-m", "tools.fuzz", *saved["command"]])
    caption = f"`{command}`; {saved['seconds']:.0f} s, {saved['modules']} modules; {DSL} {saved[DSL]}"
    return f"{markdown(['last mutation', 'inputs', *outcomes], rows)}\n\n{caption}"


KINDS: dict[str, Callable[[Path, str], str]] = {
    "b200": b200,
    "comparison": comparison,
    "configurations": configurations,
    "model": model,
    "modelled": modelled,
    "phases": phases,
    "emulator": emulator,
    "soak": soak,
    "fuzz": fuzz,
    "clock": clock,
    "sensitivity": sensitivity.table,
    "mutants": mutants_table,
    "silence": silence_table,
    "interleavings": verdicts_table,
    "sanitizer-cost": cost_table,
    "foreign": foreign_programs,
    "foreign-lists": foreign_lists,
    "foreign-runs": foreign_runs,
    "foreign-sanitizer": foreign_sanitizer,
}


def render(text: str, results: Path = RESULTS) -> str:
    """A document with all its tables rewritten. Raises MeasurementError for a table that is unknown or has no end."""

    def table(match: re.Match[str]) -> str:
        kind, _, name = match["name"].partition(" ")
        if kind not in KINDS:
            raise MeasurementError(f"table {match['name']!r}: {kind!r} is none of {', '.join(KINDS)}")
        if BEGIN in match["body"]:
            raise MeasurementError(f"table {match['name']!r} has no {END}")
        try:
            return f"{BEGIN} {match['name']} -->\n{KINDS[kind](results, name)}\n{END}"
        except KeyError as error:
            raise MeasurementError(f"table {match['name']!r}: there is no {error}") from None

    written, count = TABLE.subn(table, text)
    if count != text.count(BEGIN):
        raise MeasurementError(f"{text.count(BEGIN)} tables begin and {count} of them end")
    return written


def clock_errors(results: Path) -> str:
    """The JSON text of the clock's errors on each chip, from the points of clock-CHIP.json."""
    files = {chip: load(results / f"clock-{chip}.json") for chip in ("b200", "h200")}
    found = {chip: summary.errors(saved["points"]) for chip, saved in files.items() if saved}
    return json.dumps(found, indent=1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = command_parser(__doc__, "tools.measurements")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a table is out of date")
    options = parser.parse_args(arguments)
    outdated = 0
    for path in DOCUMENTS:
        old = path.read_text(encoding="utf-8")
        try:
            new = clock_errors(RESULTS) if path == summary.ERRORS else render(old, RESULTS)
        except MeasurementError as error:
            sys.exit(f"measurements: {path.name}: {error}")
        if old == new:
            continue
        outdated += 1
        if options.check:
            before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(before, after, path.name, f"{path.name}, rewritten"))
        else:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: rewritten")
    return int(options.check and outdated > 0)


if __name__ == "__main__":
    sys.exit(main())
