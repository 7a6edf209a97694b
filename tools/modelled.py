"""Models times of kernels on a chip that nobody here has: ours, and others' that run in the emulator.

    python -m tools.modelled [--clock b200] [--problem NAME] [--best PROBLEM=ENTRY.py ...] [--save FILE.json]

Every benchmark case of the problems is called in the emulator, and its launches are replayed as the contest times them
(nogpu/clock/loop.py). A point of our kernel has a field for each launch mode (harness.launch_modes): the launches
of custom_kernel as ordinary ones, as it makes them, and those of `solve` with both promises, which overlap. --best,
which may be repeated, names a contest's entry for a problem, CUDA C++ included, which the same clock times in ordinary
launches. It replaces the problem's entry in the file; without --best, the entries of an earlier run stay there. None
of these times is a measurement; docs/results/clock-CHIP.json says how far others' modelled times are from published
ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import ROOT
from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC, LaunchMode
from nogpu.clock import modelled_loop, profile
from task import PROBLEMS
from tools import circumstances
from workshop import records
from workshop.clock import record
from workshop.console import command_parser

# Options of tools.clock.entry -> launch modes in which the launches that it records are replayed.
Recordings = dict[tuple[str, ...], tuple[LaunchMode, ...]]

OURS = "ours"
OF_OURS: Recordings = {(): (ORDINARY, PROGRAMMATIC), ("--promised",): (OVERLAPPING,)}
OF_OTHERS: Recordings = {(): (ORDINARY,)}


def recorded(entry: Path, more: Sequence[str], problem: str, folder: Path) -> list[Path]:
    """Record calls of an entry, and return a path for each case of the problem, in their order. more: further options.

    Raises RuntimeError for an entry that cannot be recorded.
    """
    command = [sys.executable, "-m", "tools.clock.entry", str(entry), "--problem", problem]
    ran = subprocess.run([*command, *more, "--save", str(folder)], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{entry.name}, {problem}: {(ran.stdout + ran.stderr)[-600:]}")
    return [folder / str(number) for number in range(len(PROBLEMS[problem].benchmarks))]


def points_of(name: str, entry: Path, problem: str, clock: str) -> list[dict[str, Any]]:
    """The modelled times of an entry in the cases of a problem. name: the entry's in the file."""
    chip, calls = profile(clock), PROBLEMS[problem].inputs_per_timing
    found = [
        {"entry": name, "problem": problem, "case": case, "calls": calls}
        for case in range(len(PROBLEMS[problem].benchmarks))
    ]
    for more, modes in (OF_OURS if name == OURS else OF_OTHERS).items():
        with tempfile.TemporaryDirectory() as folder:
            for point, path in zip(found, recorded(entry, more, problem, Path(folder))):
                traces = record.load(path)
                for mode in modes:
                    us = modelled_loop(traces, chip, calls, programmatic=False if mode == ORDINARY else None).us
                    print(f"{name}, {problem}, case {point['case']}, {mode}: {us:.2f}", flush=True)
                    point[mode.field] = round(us, 3)
    return found


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The new points, and the old ones that they do not replace, in the order of problems, ours first, then cases.

    A problem has one entry beside ours: the newest.
    """
    entries = {point["problem"]: point["entry"] for point in [*old, *new] if point["entry"] != OURS}
    kept = [point for point in [*old, *new] if point["entry"] in (OURS, entries.get(point["problem"]))]
    places = {(point["problem"], point["case"], point["entry"]): point for point in kept}
    order = list(PROBLEMS)
    return [
        places[key] for key in sorted(places, key=lambda key: (order.index(key[0]), key[2] != OURS, key[2], key[1]))
    ]


def best(text: str) -> tuple[str, Path]:
    """(problem, file) of --best. Raises argparse.ArgumentTypeError for other text."""
    problem, _, path = text.partition("=")
    if problem not in PROBLEMS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is no PROBLEM=ENTRY.py, with a problem of {', '.join(PROBLEMS)}")
    return problem, Path(path).resolve()


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = command_parser(__doc__, "tools.modelled")
    parser.add_argument("--clock", default="b200", metavar="PROFILE", help="default: %(default)s")
    parser.add_argument("--problem", choices=list(PROBLEMS), help="default: all")
    text = "a published entry for a problem; may be repeated"
    parser.add_argument("--best", type=best, action="append", default=[], metavar="PROBLEM=ENTRY.py", help=text)
    records.add_save(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    entries = [(OURS, ROOT / "submission.py", problem) for problem in PROBLEMS]
    entries += [(path.stem.removeprefix("submission_"), path, problem) for problem, path in options.best]
    points: list[dict[str, Any]] = []
    for name, entry, problem in entries:
        if options.problem in (None, problem):
            points += points_of(name, entry, problem, options.clock)
    if options.save:
        old = (records.load(options.save) or {"points": []})["points"]
        found = {"chip": profile(options.clock).name, **circumstances.versions(arguments)}
        records.save(options.save, {**found, "points": merged(old, points)})


if __name__ == "__main__":
    main()
