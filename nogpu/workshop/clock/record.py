"""Records the launches of calls of a published program, for the clock.

    python -m workshop.clock.record DRIVER.py --save FOLDER [--cases NAME,NAME] [--twice]

A driver is a file with a function `calls`, which gives (case, function without arguments) pairs. Each case is called
and recorded in FOLDER/CASE, with a file for each launch (`nogpu.clock.trace.Trace`). With --twice, a first call that is
not recorded lets the program make objects that it keeps. Values are left out, and broken rules of order only give
warnings: times depend on neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import nogpu
from nogpu.clock.trace import Trace
from workshop.console import command_parser
from workshop.modules import load_module

Calls = Iterable[tuple[str, Callable[[], Any]]]


def load(folder: Path) -> list[Trace]:
    """The launches of a recorded call, in their order. Raises FileNotFoundError if there is no such recording."""
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise FileNotFoundError(f"{folder} has no recording")
    return [Trace.load(file) for file in files]


def save(folder: Path, traces: Iterable[Trace]) -> None:
    """Writes a call's launches, all of them or none. A recording that another command has written meanwhile stays."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for number, trace in enumerate(traces):
        dataclasses.replace(trace, params=b"").save(part / f"{number:04}.npz")
    try:
        part.rename(folder)
    except OSError:  # another command was faster
        shutil.rmtree(part)
        if not folder.is_dir():
            raise


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the file, --save, --cases and --twice to a parser."""
    parser.add_argument("path", type=Path)
    parser.add_argument("--save", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--cases", default="", metavar="CASE[,CASE...]", help="default: all")
    parser.add_argument("--twice", action="store_true")


def record(options: argparse.Namespace, calls_of: Callable[[Sequence[str]], Calls]) -> int:
    """Records the chosen cases. Returns 1 if one could not be recorded, else 0.

    calls_of: function of the chosen cases' names (empty: all) that gives their calls, and perhaps others.
    """
    traces: list[Any] = []
    nogpu.activate(schedule="late", workers="1", lenient=True, record=traces.append, record_values=False)
    import torch

    sys.path.append(str(options.path.resolve().parent))  # folder of the program's own modules
    chosen, failed = [name for name in options.cases.split(",") if name], 0
    for name, call in calls_of(chosen):
        if chosen and name not in chosen:
            continue
        try:
            for _ in range(2 if options.twice else 1):
                torch.cuda.synchronize()
                traces.clear()
                call()
                torch.cuda.synchronize()
        except Exception as error:  # the program's or the emulator's, which other cases may not have
            failed += 1
            print(f"{options.path.name} case {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        shutil.rmtree(options.save / name, ignore_errors=True)
        save(options.save / name, traces)
        print(
            options.save / name,
            [(trace.name[:40], trace.grid, trace.cluster, len(trace.words)) for trace in traces],
            flush=True,
        )
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Records a driver's calls. Returns the exit code of `record`."""
    parser = command_parser(__doc__, "workshop.clock.record")
    add_options(parser)
    options = parser.parse_args(arguments)
    return record(options, lambda chosen: load_module("driver", options.path).calls())


if __name__ == "__main__":
    sys.exit(main())
