"""Modelled times of kernels on a chip that nobody here has: ours, and others' that run in the emulator.

    python -m tools.modelled [--clock b200] [--problem NAME] [--best ENTRY.py] [--save FILE.json]

Every benchmark case of the problems is called once in the emulator, and its launches are replayed as the contest times
them (emulator/clock/loop.py), overlapping as they were launched and in turn. --best: a contest's entry for the group
GEMM, CUDA C++ included, through the same clock; without it those of an earlier run stay in the file. None of these
times is a measurement; docs/results/clock-CHIP.json says how far others' modelled times are from published ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emulator.clock.chip import profile
from emulator.clock.loop import modelled_loop
from harness import ROOT
from harness.options import command_parser
from task import GROUP_GEMM, PROBLEMS
from tools import ladder_record, records

OURS = "ours"


def recorded(entry: Path, problem: str, folder: Path) -> list[Path]:
    """Files with the traces of an entry's calls, one a case of a problem, in their order.

    Raises RuntimeError for an entry that cannot be recorded.
    """
    command = [sys.executable, "-m", "tools.ladder_record", "entry", str(entry), "--problem", problem]
    ran = subprocess.run([*command, "--save", str(folder)], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{entry.name}, {problem}: {(ran.stdout + ran.stderr)[-600:]}")
    return [folder / f"{number}.xz" for number in range(len(PROBLEMS[problem].benchmarks))]


def points_of(name: str, entry: Path, problem: str, clock: str) -> list[dict[str, Any]]:
    """The modelled times of an entry in the cases of a problem. name: of the entry in the file."""
    chip, calls = profile(clock), PROBLEMS[problem].inputs_per_timing
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for case, path in enumerate(recorded(entry, problem, Path(folder))):
            traces = ladder_record.load(path)
            overlapping, in_turn = (modelled_loop(traces, chip, calls, kind).us for kind in (None, False))
            figures = {"overlapping_us": round(overlapping, 3), "in_turn_us": round(in_turn, 3)}
            found.append({"entry": name, "problem": problem, "case": case, "calls": calls, **figures})
            print(f"{name}, {problem}, case {case}: {overlapping:.2f} overlapping, {in_turn:.2f} in turn", flush=True)
    return found


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """New points, and those of other entries, problems and cases, in the order of problems, cases and entries."""
    places = {(point["problem"], point["case"], point["entry"]): point for point in [*old, *new]}
    order = list(PROBLEMS)
    return [
        places[key] for key in sorted(places, key=lambda key: (order.index(key[0]), key[2] != OURS, key[2], key[1]))
    ]


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(__doc__ or "")
    parser.prog = "python -m tools.modelled"
    parser.add_argument("--clock", default="b200", metavar="PROFILE", help="default: %(default)s")
    parser.add_argument("--problem", choices=list(PROBLEMS), help="default: all")
    parser.add_argument("--best", type=Path, metavar="ENTRY.py", help="another entry for the group GEMM")
    records.add_save(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_arguments(arguments)
    entries = [(OURS, ROOT / "submission.py", problem) for problem in PROBLEMS]
    if options.best:
        entries.append((options.best.stem.removeprefix("submission_"), options.best.resolve(), GROUP_GEMM.name))
    points: list[dict[str, Any]] = []
    for name, entry, problem in entries:
        if options.problem in (None, problem):
            points += points_of(name, entry, problem, options.clock)
    if options.save:
        old = json.loads(options.save.read_text())["points"] if options.save.exists() else []
        record = {"chip": profile(options.clock).name, **records.versions(arguments), "points": merged(old, points)}
        records.save(options.save, record)


if __name__ == "__main__":
    main()
