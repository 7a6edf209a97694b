"""Records, once each, the launches that the clock (nogpu/docs/clock.md) is checked on, in a folder that replays read.

    python -m tools.clock.recordings [--truth FILE | --shapes FILE [--drawn FIRST-LAST]] [--recordings FOLDER]
                                     [--foreign FOLDER] [--only TEXT] [--jobs N]

The points of FILE (`truth`, `shapes`) name the launches and the number of SMs. One recording serves a point's launches
in every mode; random shapes have one with promises and one without. FOLDER is by default in the user's cache, a new one
for each version of the sources that decide a recording. --foreign names a folder that has the programs of others
anywhere below it: the contest's starter kernel, and NVIDIA/cutlass's
examples/python/CuTeDSL. A recording is a folder, with a file for each launch of a call
(`nogpu.clock.trace.Trace`), or for the last launch of a program.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import nogpu
from harness import ROOT
from nogpu import environment, store
from tools.clock import recorder, shapes
from workshop import processes
from workshop.console import command_parser

Point = dict[str, Any]

TRUTH = ROOT / "docs/results/h200-truth.json"
OURS = "submission.py"
PACKAGED = {OURS, "ring.cu", "plain_read.cu"}
# The clock's sources that make a recording; those of a replay decide nothing of it.
_RECORDING = {"trace.py", "record.py", "recipes.py", "operands.py", "dataflow.py"}
_TOOLS = ("clock/recorder.py", "choice/times.py", "rings.py", "ring.cu")
_OTHERS = ("submission.py", "reference.py", "task.py", *(f"tools/{name}" for name in _TOOLS))


def name_of(point: Point) -> str:
    """The name of a point's recording, which all of the point's launch modes share.

    A point has program and configuration, a problem unless it is of a program of CuTe DSL, and with a problem either a
    case or, for a random shape, sizes and `promised`.
    """
    if point.get("problem") is None:
        parts = [Path(point["program"]).stem, point["configuration"]]
    elif "sizes" in point:
        sizes = "_".join("x".join(map(str, size)) for size in point["sizes"])
        promises = "promised" if point["promised"] else "nothing promised"
        parts = [point["problem"], sizes, point["configuration"], promises]
    else:
        parts = [point["problem"], point["case"]]
        parts += (
            [point["configuration"]] if point["program"] in PACKAGED else [point["program"], point["configuration"]]
        )
    return "-".join(re.sub(r"\W+", "_", str(part)).strip("_") for part in parts)


def cache_folder(sms: int) -> Path:
    """The folder of recordings with `sms` SMs, for these sources and this version of CuTe DSL."""
    digest = hashlib.sha256(importlib.metadata.version("nvidia-cutlass-dsl").encode())
    for path in [*sorted(Path(nogpu.__file__).parent.rglob("*")), *(ROOT / name for name in _OTHERS)]:
        if path.suffix not in (".py", ".c", ".h", ".cu", ".cuh"):
            continue
        parts = path.relative_to(ROOT).parts
        if parts[:4] == ("nogpu", "src", "nogpu", "clock") and (len(parts) > 5 or parts[-1] not in _RECORDING):
            continue
        digest.update(str(parts).encode() + path.read_bytes())
    return store.root() / "recordings" / f"{sms}-{digest.hexdigest()[:12]}"


def files_of(points: Iterable[Point], foreign: Path | None) -> tuple[dict[str, Path], dict[str, str]]:
    """(program -> its file, program -> reason why there is no file), for the programs of others."""
    files, reasons = {}, {}
    for program in sorted({point["program"] for point in points} - PACKAGED):
        found = sorted(foreign.rglob(program)) if foreign is not None else []
        if len(found) == 1:
            files[program] = found[0].resolve()
        elif found:
            reasons[program] = f"{len(found)} files below {foreign} have this name"
        else:
            reasons[program] = (
                f"not below {foreign}" if foreign is not None else "of others: --foreign names its folder"
            )
    return files, reasons


def record(points: Sequence[Point], folder: Path, sms: int, jobs: int, foreign: Path | None = None) -> dict[str, str]:
    """Records the points that the folder lacks, in `jobs` processes. Returns name -> reason for a missing recording."""
    files, without = files_of(points, foreign)
    wanted = {name_of(point): point for point in points}
    reasons = {name: without[p["program"]] for name, p in wanted.items() if p["program"] in without}
    missing = {name: p for name, p in wanted.items() if name not in reasons and not (folder / name).is_dir()}
    # A kernel is compiled once by the process that has all cases of a configuration.
    units: dict[tuple[str, ...], dict[str, Point]] = {}
    for name, point in missing.items():
        path = files.get(point["program"])
        key = (point["program"], str(point.get("problem")), point["configuration"])
        units.setdefault(key, {})[name] = point if path is None else {**point, "path": str(path)}
    folder.mkdir(parents=True, exist_ok=True)
    programs_first = sorted(units, key=lambda key: key[1] != str(None))  # they take longest
    work = [(units[key], folder) for key in programs_first]
    how = {"mp_context": multiprocessing.get_context("spawn"), "initializer": recorder.start, "initargs": (sms,)}
    emulated = {**environment(schedule="late", workers="1", lenient=True), "OMP_NUM_THREADS": "1"}
    with mock.patch.dict(os.environ, emulated):  # environment of the processes, each on one core
        for _, found in processes.each(recorder.record, work, jobs, "recordings", how):
            reasons |= {name: reason for name, reason in found.items() if reason}
    return reasons


def by_program(points: Iterable[Point], reasons: dict[str, str]) -> dict[str, dict[str, int]]:
    """Program -> reason -> number of its points that have no recording."""
    found: dict[str, dict[str, int]] = {}
    for point in points:
        reason = reasons.get(name_of(point))
        if reason is not None:
            counts = found.setdefault(point["program"], {})
            counts[reason] = counts.get(reason, 0) + 1
    return found


def show_left_out(left_out: dict[str, dict[str, int]]) -> None:
    """Prints the counts of `by_program`."""
    for program, counts in left_out.items():
        for reason, count in counts.items():
            print(f"{program}: {count} points without a recording: {reason}")


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Adds --recordings, --only and --jobs."""
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="default: one in the user's cache")
    parser.add_argument("--only", default="", metavar="TEXT", help='recordings with this in their names, as "gemm-2"')
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default: %(default)s")


def numbers(text: str) -> range:
    """The numbers of --drawn. Raises argparse.ArgumentTypeError for text that is not FIRST-LAST."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, two numbers from 1 on, as 17-32")
    return range(int(first), int(last) + 1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds --truth, --shapes, --drawn, --foreign and the options of `add_recording_options`."""
    parser.add_argument(
        "--truth", type=Path, default=TRUTH, metavar="FILE", help="default: docs/results/h200-truth.json"
    )
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="times of tools.choice, instead of a truth")
    text = "of --shapes only the drawn shapes with these numbers, from 1 on"
    parser.add_argument("--drawn", type=numbers, metavar="FIRST-LAST", help=text)
    parser.add_argument("--foreign", type=Path, metavar="FOLDER", help="that has the programs of others")
    add_recording_options(parser)


def chosen(options: argparse.Namespace) -> tuple[dict[str, Any], list[Point], Path]:
    """(the truth, its points that match --only, folder of recordings) of a command's options."""
    truth: dict[str, Any] = json.loads((options.shapes or options.truth).read_text(encoding="utf-8"))
    if options.shapes:
        truth = shapes.truth(truth, options.drawn)
    points = [point for point in truth["points"] if options.only in name_of(point)]
    return truth, points, options.recordings or cache_folder(truth["sms"])


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.clock.recordings")
    add_options(parser)
    options = parser.parse_args(arguments)
    truth, points, folder = chosen(options)
    reasons = record(points, folder, truth["sms"], options.jobs, options.foreign)
    show_left_out(by_program(points, reasons))
    files = [file for name in {name_of(point) for point in points} - set(reasons) for file in (folder / name).iterdir()]
    print(f"{len(files)} launches, {sum(file.stat().st_size for file in files) / 1e6:.0f} MB, are in {folder}")


if __name__ == "__main__":
    main()
