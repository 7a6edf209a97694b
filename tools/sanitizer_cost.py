"""Measures what the sanitizer costs on the kernel: processor time of calls with it, over that of the same without.

    python -m tools.sanitizer_cost [--calls N] [--configurations 64/1/1/1,192/2/2/1] [--schedule late,random:1]

Rows are configurations of the group GEMM (tokens of a tile, CTAs that share an MMA, CTAs on an SM, tiles side by side)
and the GEMV. workshop.sanitizer_cost takes the times. The exit code is 1 where a row costs more than --most times.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import nogpu
from harness.options import command_parser
from task import GEMV, GROUP_GEMM, TestSpec

CONFIGURATIONS = "64/1/1/1,128/1/1/1,128/1/1/2,192/2/2/1,256/2/1/1"
GROUPS = "m: [200, 130, 64]; n: [384, 256, 256]; k: [1024, 2048, 1280]; g: 3; seed: 5"
VECTOR = "m: 128; k: 2048; l: 2; seed: 5"


def shape(text: str) -> tuple[int, ...]:
    """A configuration's numbers. Raises ValueError."""
    tokens, ctas, per_sm, neighbours = map(int, text.split("/"))
    return tokens, ctas, per_sm, neighbours


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    from workshop import sanitizer_cost

    parser = command_parser(__doc__)
    parser.prog = "python -m tools.sanitizer_cost"
    parser.add_argument(
        "--configurations",
        default=CONFIGURATIONS,
        metavar="T/G/P/N[,...]",
        help="configurations of the group GEMM; '' for none; default: %(default)s",
    )
    parser.add_argument("--gemm", default=GROUPS, metavar="SPEC", help="the group GEMM's input, default: %(default)s")
    parser.add_argument("--gemv", default=VECTOR, metavar="SPEC", help="the GEMV's, '' for none; default: %(default)s")
    sanitizer_cost.add_options(parser)
    options = parser.parse_args(arguments)
    try:
        options.shapes = [shape(text) for text in options.configurations.split(",") if text]
    except ValueError:
        names = "tokens/CTAs of an MMA/CTAs on an SM/tiles side by side"
        parser.error(f"{options.configurations}: four numbers expected, {names}")
    return options


def _calls(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Name of a row -> a call."""
    import submission
    from harness.plan_report import configuration_name
    from reference import REFERENCES

    found: dict[str, Callable[[], Any]] = {}
    data = REFERENCES[GROUP_GEMM.name].generate_input(**TestSpec.parse(options.gemm).args)
    for shape in options.shapes:
        configuration = submission.Configuration(*shape)
        cluster = configuration.cta_group * configuration.neighbours
        # A cluster at a time, so that each has all of the chip's tiles.
        found[configuration_name(configuration)] = partial(
            submission.run, data, configurations=(configuration,), sms=cluster
        )
    if options.gemv:
        data = REFERENCES[GEMV.name].generate_input(**TestSpec.parse(options.gemv).args)
        found[f"GEMV ({options.gemv})"] = partial(submission.solve, data)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a row costs more than it may."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    nogpu.activate()
    from workshop import sanitizer_cost

    return sanitizer_cost.show(_calls(options), options)


if __name__ == "__main__":
    sys.exit(main())
