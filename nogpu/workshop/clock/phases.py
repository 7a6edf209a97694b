"""Phases of a kernel in modelled time, beside those of its author's trace on a B200.

    python -m workshop.clock.phases FOLDER [--clock b200] [--save ../docs/results/clock-phases-b200.json]

FOLDER has recordings of `workshop.clock.record`. The author of learn-cuda published a trace of one launch of v5 and v6
with ticks of 32 ns. Set-up is the time from a CTA's start to its first wait, other than for its cluster. An epilogue is
the time from the end of a warp's wait for the accumulator to its next such wait, or to the CTA's end. Figures are
medians over CTAs and over epilogues.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from nogpu.clock.chip import Chip, profile
from nogpu.clock.costs import family_of
from nogpu.clock.replay import replay
from nogpu.clock.timeline import CTA, WAIT
from nogpu.clock.trace import Trace
from workshop import records
from workshop.clock import record
from workshop.clock.ladders import PUBLISHED
from workshop.console import command_parser

SPANS = 1 << 22


def phases(trace: Trace, chip: Chip) -> dict[str, float]:
    """Times of a launch alone, in microseconds: set_up_us, epilogue_us, us."""
    result = replay([trace], chip, spans=SPANS)
    lives = {int(span["cta"]): (span["start"], span["end"]) for span in result.spans[result.spans["kind"] == CTA]}
    waits = result.spans[result.spans["kind"] == WAIT]
    kinds = [family_of(instruction.opcode)[0] for instruction in trace.instructions]
    warps = _warps_with(trace, "tmem_load")
    by_warp = [{pc for pc in set(waits["pc"][waits["warp"] == warp]) if kinds[pc] == "wait"} for warp in warps]
    common = set.intersection(*by_warp)  # waits of all, since one of the warps may load and multiply before
    begun: dict[int, float] = {}
    accumulators: dict[tuple[int, int], list[Any]] = {}
    for span in waits[np.argsort(waits["start"], kind="stable")]:
        cta, warp, pc = int(span["cta"]), int(span["warp"]), int(span["pc"])
        if kinds[pc] != "cluster":  # a cluster barrier ends set-up
            begun[cta] = min(begun.get(cta, span["start"]), span["start"])
        if pc in common and warp in warps:
            accumulators.setdefault((cta, warp), []).append(span)
    epilogues = []
    for (cta, _), spans in accumulators.items():
        following = [*(span["start"] for span in spans[1:]), lives[cta][1]]
        epilogues += [until - span["end"] for span, until in zip(spans, following)]
    set_ups = [end - lives[cta][0] for cta, end in begun.items()]
    figures = {"set_up_us": median(set_ups), "epilogue_us": median(epilogues), "us": result.ends[-1]}
    return {name: round(chip.us(float(cycles)), 3) for name, cycles in figures.items()}


def _warps_with(trace: Trace, kind: str) -> set[int]:
    """Warps of a CTA that execute an instruction of a class, in the first CTA."""
    found = set()
    for warp, (begin, end) in enumerate(zip(trace.starts[0], trace.starts[0][1:])):
        at = int(begin)
        while at < end:
            word = int(trace.words[at])
            length = word >> 24
            if length == 255:
                length = 1 + int(trace.words[at + 1])
            if family_of(trace.instructions[word & 0x7FFFFF].opcode)[0] == kind:
                found.add(warp)
                break
            at += 1 + length
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "workshop.clock.phases")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clock", default="b200", metavar="PROFILE", help="default: %(default)s")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    chip, points = profile(options.clock), []
    for point in json.loads(PUBLISHED.read_text())["phases"]:
        shape = "x".join(str(point[name]) for name in "mnk")
        path = options.folder / "learn-cuda/matmul" / point["version"] / shape
        if path.exists():
            (trace,) = record.load(path)
            published = {name: point[name] for name in ("set_up_us", "epilogue_us", "us")}
            points.append({"version": point["version"], "published": published, "modelled": phases(trace, chip)})
            print(points[-1], flush=True)
    records.save(options.save, {"chip": chip.name, **records.versions(arguments), "points": points})


if __name__ == "__main__":
    main()
