"""Records the launches of one call of a published program, for the clock.

    python -m tools.ladder_record entry SUBMISSION.py --save FOLDER [--problem group_gemm] [--cases 0,3] [--twice]
                                                       [--promised]
    python -m tools.ladder_record calls DRIVER.py --save FOLDER [--cases NAME,NAME] [--twice]

An entry is a contest submission; its custom_kernel is called. A driver is a file with a function `calls`, which gives
(case, function without arguments) pairs. Each case is called and a file FOLDER/CASE.xz written. --twice: a first call,
not recorded, lets the program make what it keeps between calls. A file is an lzma-compressed pickle of the call's
launches, a list of `nogpu.clock.trace.Trace`, in their order. Values are left out, and broken rules of order are
only warned of: times depend on neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import lzma
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nogpu


def load(path: Path) -> list[Any]:
    """The traces of a recorded call. Read no file that you do not trust: a pickle runs code."""
    found: list[Any] = pickle.loads(lzma.decompress(path.read_bytes()))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 if a case could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("entry", "calls"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--save", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--problem", default="group_gemm")
    parser.add_argument("--cases", default="", metavar="CASE[,CASE...]", help="default: all")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--promised", action="store_true", help="the entry's solve, with both of its promises")
    options = parser.parse_args(arguments)
    traces: list[Any] = []
    nogpu.activate(schedule="late", workers="1", lenient=True, record=traces.append, record_values=False)
    import torch

    chosen, failed = [name for name in options.cases.split(",") if name], 0
    for name, call in (_entry if options.kind == "entry" else _driver)(options, chosen):
        if chosen and name not in chosen:
            continue
        try:
            for _ in range(2 if options.twice else 1):
                torch.cuda.synchronize()
                traces.clear()
                call()
                torch.cuda.synchronize()
        except Exception as error:  # the program's or the emulator's: other cases may go
            failed += 1
            print(f"{options.path.name} case {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        _save(options.save / f"{name}.xz", traces)
    return 1 if failed else 0


def _driver(options: argparse.Namespace, chosen: Sequence[str]) -> Iterable[tuple[str, Callable[[], Any]]]:
    from harness.modules import load_module

    sys.path.append(str(options.path.resolve().parent))
    calls: Iterable[tuple[str, Callable[[], Any]]] = load_module("driver", options.path).calls()
    return calls


def _entry(options: argparse.Namespace, chosen: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    from harness.modules import load_module
    from reference import REFERENCES
    from task import PROBLEMS, TestSpec
    from tools.compare import promised

    problem = PROBLEMS[options.problem]
    reference = REFERENCES[problem.name]
    sys.path.append(str(options.path.resolve().parent))  # of the entry's own modules
    module = load_module("submission", options.path)
    entry = promised(module) if options.promised else module.custom_kernel
    for number, benchmark in enumerate(problem.benchmarks):
        if not chosen or str(number) in chosen:
            data = reference.generate_input(**TestSpec.parse(benchmark.line).args)
            yield str(number), functools.partial(entry, data)


def _save(path: Path, traces: list[Any]) -> None:
    start = time.time()
    plain = [dataclasses.replace(trace, params=b"") for trace in traces]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(pickle.dumps(plain), preset=1))
    print(path, [(trace.name[:40], trace.grid, trace.cluster, len(trace.words)) for trace in traces],
          f"packed in {time.time() - start:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
