"""Records the launches of one call of a contest's entry, as workshop.clock.record does for other programs.

    python -m tools.clock.entry SUBMISSION.py --save FOLDER [--problem group_gemm] [--cases 0,3] [--twice] [--promised]

The entry's custom_kernel is called on the problem's benchmark cases; with --promised, its solve with both promises.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.modules import load_module
from harness.options import add_problem
from task import PROBLEMS, TestSpec
from workshop.clock.record import add_options, record
from workshop.console import command_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the cases. Returns exit code 0, or 1 if a case could not be recorded."""
    parser = command_parser(__doc__, "tools.clock.entry")
    add_options(parser)
    add_problem(parser)
    parser.add_argument("--promised", action="store_true", help="the entry's solve, with both of its promises")
    options = parser.parse_args(arguments)

    def calls(chosen: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
        from reference import REFERENCES
        from tools.compare import promised

        problem = PROBLEMS[options.problem]
        reference = REFERENCES[problem.name]
        module = load_module("submission", options.path)
        entry = promised(module) if options.promised else module.custom_kernel
        for number, benchmark in enumerate(problem.benchmarks):
            if not chosen or str(number) in chosen:
                data = reference.generate_input(**TestSpec.parse(benchmark.line).args)
                yield str(number), functools.partial(entry, data)

    return record(options, calls)


if __name__ == "__main__":
    sys.exit(main())
