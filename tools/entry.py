"""Calls a contest entry on cases as they are, without a judge between, and compares with the exact reference.

    python -m nogpu tools/entry.py SUBMISSION.py [--problem group_gemm] [--cases 0,3] [--spec FILE]

The cases are the problem's benchmark cases, numbered from 0, or the lines of a spec file. eval.py calls an entry on
small cases of the same structure first, which entries that are written for the benchmark's shapes do not survive; here
each case is called once and nothing else. Exit codes: 0 all right, 1 a result is wrong; an exception is the entry's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from harness.modules import load_module
from harness.options import command_parser
from reference import REFERENCES
from task import PROBLEMS, TestSpec


def main(arguments: Sequence[str] | None = None) -> int:
    """Call the entry on the chosen cases. Returns exit code 1 if a result is wrong, else 0."""
    parser = command_parser(__doc__)
    parser.add_argument("submission", type=Path)
    parser.add_argument("--problem", default="group_gemm", choices=PROBLEMS)
    parser.add_argument("--cases", default="", metavar="N[,N...]", help="default: all")
    parser.add_argument("--spec", type=Path, help="a spec file in place of the benchmark cases")
    options = parser.parse_args(arguments)
    problem = PROBLEMS[options.problem]
    reference = REFERENCES[problem.name]
    lines = options.spec.read_text().splitlines() if options.spec else [each.line for each in problem.benchmarks]
    chosen = [int(number) for number in options.cases.split(",") if number] or range(len(lines))
    entry = load_module("submission", options.submission).custom_kernel
    wrong = 0
    for number in chosen:
        data = reference.generate_input(**TestSpec.parse(lines[number]).args)
        expected = reference.ref_kernel(data)
        output = entry(data)
        torch.cuda.synchronize()
        passed, message = reference.compare(expected, output)
        wrong += not passed
        print(f"case {number} ({lines[number]}): {'right' if passed else 'wrong results'} {message}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
