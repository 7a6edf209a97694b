"""Records the launches of one call of a published program, for the clock.

    python -m tools.ladder_record learn_cuda FOLDER KERNEL --save FILE.xz [--shape M,N,K]
    python -m tools.ladder_record entry SUBMISSION.py --save FOLDER [--problem group_gemm] [--cases 0,3] [--twice]
                                                       [--function custom_kernel]

FOLDER of learn_cuda is gau-nernst/learn-cuda's 02e_matmul_sm100. An entry is a contest submission: each case is called
and a file CASE.xz written. --twice: a first call, not recorded, lets the entry make what it keeps between calls. A file
is an lzma-compressed pickle of the call's launches, a list of `emulator.clock.trace.Trace`, in their order. Values are
left out, and broken rules of order are only warned of: times depend on neither.
"""

from __future__ import annotations

import argparse
import dataclasses
import lzma
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import emulator


def load(path: Path) -> list[Any]:
    """The traces of a recorded call. Read no file that you do not trust: a pickle runs code."""
    found: list[Any] = pickle.loads(lzma.decompress(path.read_bytes()))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 if a case could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("learn_cuda", "entry"))
    parser.add_argument("path", type=Path)
    parser.add_argument("kernel", nargs="?")
    parser.add_argument("--save", type=Path, required=True, metavar="PATH")
    parser.add_argument("--shape", default="4096,4096,4096", metavar="M,N,K")
    parser.add_argument("--problem", default="group_gemm")
    parser.add_argument("--cases", default="", metavar="N[,N...]", help="default: all")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument(
        "--function", default="custom_kernel", metavar="NAME", help="of the entry; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    traces: list[Any] = []
    emulator.activate(schedule="late", workers="1", lenient=True, record=traces.append, record_values=False)
    record = _matmul if options.kind == "learn_cuda" else _entry
    return record(options, traces)


def _matmul(options: argparse.Namespace, traces: list[Any]) -> int:
    import torch

    from harness.modules import load_module

    m, n, k = map(int, options.shape.split(","))
    matmul = load_module("main", options.path / "main.py").get_kernel(options.kernel)
    a, b = (torch.zeros(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    traces.clear()
    matmul(a, b.T)
    torch.cuda.synchronize()
    _save(options.save, traces)
    return 0


def _entry(options: argparse.Namespace, traces: list[Any]) -> int:
    import torch

    from harness.modules import load_module
    from reference import REFERENCES
    from task import PROBLEMS, TestSpec

    problem = PROBLEMS[options.problem]
    reference = REFERENCES[problem.name]
    sys.path.append(str(options.path.resolve().parent))  # of the entry's own modules
    entry = getattr(load_module("submission", options.path), options.function)
    chosen = [int(number) for number in options.cases.split(",") if number] or range(len(problem.benchmarks))
    failed = 0
    options.save.mkdir(parents=True, exist_ok=True)
    for number in chosen:
        data = reference.generate_input(**TestSpec.parse(problem.benchmarks[number].line).args)
        try:
            for _ in range(2 if options.twice else 1):
                torch.cuda.synchronize()
                traces.clear()
                entry(data)
                torch.cuda.synchronize()
        except Exception as error:  # the program's or the emulator's: other cases may go
            failed += 1
            print(f"{options.path.name} case {number}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        _save(options.save / f"{number}.xz", traces)
    return 1 if failed else 0


def _save(path: Path, traces: list[Any]) -> None:
    start = time.time()
    plain = [dataclasses.replace(trace, params=b"") for trace in traces]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(pickle.dumps(plain), preset=1))
    print(path, [(trace.name[:40], trace.grid, trace.cluster, len(trace.words)) for trace in traces],
          f"packed in {time.time() - start:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
