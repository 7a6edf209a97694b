"""Judges the choice among the kernel's configurations: times each of them on random shapes, or reads such times.

    python -m tools.choice --measure --save FILE.json [--count N] [--seed N] [--seconds N]    a B200 or a Hopper GPU
    python -m tools.choice FILE.json [--half 0|1]                                             judges it, without a GPU

The first form draws shapes of the three GEMM problems and adds the benchmark's cases; it times every configuration that
is legal for them: overlapping; programmatic, nothing promised; and on a Hopper GPU in ordinary launches. Rows near
the best are timed again. The file is saved after each shape.

The second form asks `submission.candidates` for its choice on each shape of the file and prints by how much it misses
the best configuration: the share of the drawn shapes within 3 %, the worst shapes, and the benchmark's cases.
Overlapping launches are judged by the choice for operands that are ready, the others by the choice for those that are
not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from harness.launch_modes import ORDINARY, OVERLAPPING, PROGRAMMATIC
from harness.plan_report import configuration_name
from tools import circumstances
from tools.choice.times import PROMISED, Drawn, benchmarks, choice, draw, measure
from workshop import records
from workshop.console import command_parser

COUNT, SEED = 50, 17
WITHIN = 1.03
WORST = 8


class Miss(NamedTuple):
    """The choice for a shape beside the best configuration."""

    drawn: Drawn
    chosen: str
    best: str
    us: float  # microseconds per call of the chosen configuration
    least: float

    @property
    def ratio(self) -> float:
        return self.us / self.least


def misses(record: dict[str, Any], launches: str) -> list[Miss]:
    """The choice on every shape of the record that has times in this launch mode."""
    found = []
    for entry in record["shapes"]:
        drawn = Drawn(entry["problem"], tuple(map(tuple, entry["sizes"])), entry["case"])
        times = {name: figures[launches][0] for name, figures in entry["us"].items() if launches in figures}
        if times:
            chosen, best = choice(drawn, record["sms"], launches == OVERLAPPING), min(times, key=times.__getitem__)
            found.append(Miss(drawn, chosen, best, times[chosen], times[best]))
    return found


def describe(drawn: Drawn) -> str:
    tokens = ",".join(str(size[0]) for size in drawn.sizes)
    _, n, k, _ = drawn.sizes[0]
    case = "" if drawn.case is None else f" case {drawn.case}"
    return f"{drawn.problem}{case} M {tokens} N {n} K {k}"


def report(record: dict[str, Any], half: int | None) -> None:
    """Print by how much the choice misses the best. half: 0 or 1 for the even or odd drawn shapes, None for all."""
    for launches in (ORDINARY, PROGRAMMATIC, OVERLAPPING):
        found = misses(record, launches)
        drawn = [miss for miss in found if miss.drawn.case is None]
        if half is not None:
            drawn = drawn[half::2]
        if not drawn:
            continue
        within = sum(miss.ratio <= WITHIN for miss in drawn)
        mean = statistics.geometric_mean([miss.ratio for miss in drawn])
        print(f"{launches}: {within} of {len(drawn)} drawn shapes within 3 % of the best, geometric mean {mean:.4f}")
        worst = sorted(drawn, key=lambda miss: -miss.ratio)[:WORST]
        for miss in [x for x in worst if x.ratio > WITHIN] + [x for x in found if x.drawn.case is not None]:
            times = f"{miss.us:7.2f} us, {miss.ratio:.3f} of {miss.best}"
            print(f"    {describe(miss.drawn)}: {miss.chosen} {times}")


def take_times(options: argparse.Namespace, hopper: bool, arguments: list[str] | None) -> None:
    record: dict[str, Any] = {**circumstances.gpu(), **circumstances.versions(arguments)}
    record |= {"promised": PROMISED, "shapes": []}
    sms = record["sms"]
    launches = [OVERLAPPING, PROGRAMMATIC, *([ORDINARY] if hopper else [])]
    began = time.monotonic()

    def show(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    for drawn, times in measure([*benchmarks(), *draw(options.count, options.seed)], sms, launches, show):
        by_name = {
            configuration_name(shape): {way: [round(value, 3) for value in found] for way, found in ways.items()}
            for shape, ways in times.items()
        }
        record["shapes"].append({"problem": drawn.problem, "sizes": drawn.sizes, "case": drawn.case, "us": by_name})
        records.write(options.save, record, "shapes")
        if time.monotonic() - began > options.seconds:
            show(f"{options.seconds} seconds are over")
            break
    print(f"{len(record['shapes'])} shapes are in {options.save}")


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.choice")
    parser.add_argument("file", type=Path, nargs="?", help="times that --measure has saved")
    parser.add_argument("--half", type=int, choices=(0, 1), help="judge every other of the drawn shapes")
    parser.add_argument("--measure", action="store_true", help="take times, into the file of --save")
    parser.add_argument("--count", type=int, default=COUNT, metavar="N", help="shapes to draw; default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help="of the draws; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=540, metavar="N", help="to end after; default: %(default)s")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    if options.measure == bool(options.file) or options.measure != bool(options.save):
        parser.error("a file of times, or --measure with --save")
    if options.file:
        report(json.loads(options.file.read_text()), options.half)
    else:
        take_times(options, circumstances.on_hopper("tools.choice", arguments), arguments)


if __name__ == "__main__":
    main()
