"""Measures what the sanitizer costs: processor time of calls with it, over that of the same calls without.

    python -m tools.sanitizer_cost [--calls N] [--configurations 64/1/1/1,192/2/2/1] [--schedule late,random:1]

Rows are configurations of the group GEMM (tokens of a tile, CTAs that share an MMA, CTAs on an SM, tiles side by side)
and the GEMV. A time is the best of so many calls in the emulator, alternately without and with the sanitizer after one
of each, all in this process: a share of a launch that a worker ran would be missing. The exit code is 1 where a row
costs more than --most times.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import nogpu
from harness.console import make_console, make_table
from task import GEMV, GROUP_GEMM, TestSpec
from workshop.console import command_parser

CONFIGURATIONS = "64/1/1/1,128/1/1/1,128/1/1/2,192/2/2/1,256/2/1/1"
GROUPS = "m: [200, 130, 64]; n: [384, 256, 256]; k: [1024, 2048, 1280]; g: 3; seed: 5"
VECTOR = "m: 128; k: 2048; l: 2; seed: 5"
MOST = 4.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(__doc__, "tools.sanitizer_cost")
    parser.add_argument("--calls", type=int, default=7, metavar="N", help="of each kind, default: %(default)s")
    parser.add_argument(
        "--configurations",
        default=CONFIGURATIONS,
        metavar="T/G/P/N[,...]",
        help="configurations of the group GEMM; '' for none; default: %(default)s",
    )
    parser.add_argument("--gemm", default=GROUPS, metavar="SPEC", help="the group GEMM's input, default: %(default)s")
    parser.add_argument("--gemv", default=VECTOR, metavar="SPEC", help="the GEMV's, '' for none; default: %(default)s")
    parser.add_argument("--schedule", default="late,random:1", metavar="S[,S...]", help="default: %(default)s")
    parser.add_argument("--sms", type=int, default=2, metavar="N", help="of the chip, default: %(default)s")
    parser.add_argument(
        "--sanitize-allow", default="scope", metavar="RULE[,RULE]", help="rules that are waived, default: %(default)s"
    )
    parser.add_argument("--most", type=float, default=MOST, metavar="X", help="times that a row may cost")
    options = parser.parse_args(arguments)
    if options.calls < 1 or options.sms < 1:
        parser.error("--calls and --sms must be at least 1")
    try:
        nogpu.schedules(options.schedule)
        options.shapes = [tuple(map(int, text.split("/"))) for text in options.configurations.split(",") if text]
    except ValueError as error:
        parser.error(str(error))
    if any(len(shape) != 4 for shape in options.shapes):
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
            submission.solve, data, configurations=(configuration,), sms=cluster
        )
    if options.gemv:
        data = REFERENCES[GEMV.name].generate_input(**TestSpec.parse(options.gemv).args)
        found[f"GEMV ({options.gemv})"] = partial(submission.solve, data)
    return found


def _measure(call: Callable[[], Any], options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of processor time of the best call without the sanitizer, and of the best with it."""
    import torch

    from nogpu import Device
    from nogpu.sanitizer import Sanitizer

    waived = options.sanitize_allow.split(",") if options.sanitize_allow else []
    best: dict[bool, list[float]] = {False: [], True: []}
    for number in range(options.calls + 1):
        for is_followed, times in best.items():
            Device.current().sanitizer = Sanitizer(waived) if is_followed else None
            start = time.process_time()
            call()
            torch.cuda.synchronize()
            if number:  # the first one translates
                times.append(time.process_time() - start)
    return min(best[False]), min(best[True])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a row costs more than it may."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    nogpu.activate()

    from nogpu import Device

    device = Device.current()
    schedules = nogpu.schedules(options.schedule)
    table = make_table(["configuration"], [text for name in schedules for text in (name, "with the sanitizer")])
    highest, properties = 0.0, dataclasses.replace(device.properties, sm_count=options.sms)
    kept: dict[str, Any] = {"schedules": device.schedules, "sanitizer": device.sanitizer}
    with mock.patch.multiple(device, properties=properties, workers=1, **kept):
        for name, call in _calls(options).items():
            cells = []
            for schedule in schedules:
                device.schedules = (schedule,)
                plain, followed = _measure(call, options)
                cells += [f"{plain * 1e3:.1f} ms", f"{followed / plain:.1f} times"]
                highest = max(highest, followed / plain)
            table.add_row(name, *cells)
    console = make_console(highlight=False)
    console.print(table)
    if highest > options.most:
        console.print(f"a row costs {highest:.2f} times a plain run; the limit is {options.most:g}")
    return int(highest > options.most)


if __name__ == "__main__":
    sys.exit(main())
