"""Modelled B200 times of published programs beside their published times.

    python -m workshop.clock.ladders FOLDER [--clock b200] [--save ../docs/results/clock-b200.json] [--picture FILE.png]
                            [--calibrating | --held-out] [--set NAME=VALUE ...] [--only TEXT] [--jobs N]

docs/results/b200-published.json has the published points by family (`families`): where they stand, how they were timed,
and in which state of L2. FOLDER has their recordings, FAMILY/CONFIGURATION/CASE, by `workshop.clock.record`. Each point
is replayed as its author timed it:

    in turn    a loop of ordinary launches between two events, each call on other data, L2 flushed before the loop
    kernel     one call's launches, each from its start to its end, plus PROFILER_US; L2 cold (flushed right ahead)
               or warm

A family's `registers` are those that ptxas allots its kernels where the PTX does not say: they decide how many CTAs an
SM holds. Nothing of the profile comes from families that are held out.

If FLOOR_SHARE of a family's versions share their time in a case with two others or more, within FLOOR_WIDTH, that time
is a floor: not the kernels set it, but the host's work or the timer's steps of 2.05 us. Every point of such a case is
shown, and figures stand with and without them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from nogpu.clock.chip import Chip, profile
from nogpu.clock.loop import LEAST, WORDS, modelled_loop
from nogpu.clock.replay import replay
from nogpu.errors import EmulatorError
from workshop import CHECKOUT, processes, records
from workshop.clock import record
from workshop.clock.families import held_out
from workshop.clock.picture import scatter
from workshop.console import command_parser

Point = dict[str, Any]

PUBLISHED = CHECKOUT / "docs/results/b200-published.json"
LONG_US, FEW = 50.0, 3  # duration above which calls are alike from the second on, and how many of those are replayed
FLOPS_A_CYCLE = 8192  # rate of an SM for 16-bit products
PROFILER_US = 0.63
"""Microseconds by which a profiler's time of a kernel exceeds the time from its start to its end: within 0.03, the
median over the 13 points of calibrating families that take less than 3 us."""
DIRTY_SHARE = 0.5
"""The share of L2 that the flush right ahead of a profiler's kernel leaves to be written back, as an H200's flush
leaves 26 of 50 MB. Ahead of a loop it is `l2_dirty`, the most that GEMVs' published times allow; why less is left there
has not been measured."""
APART = 0.05  # share by which times of two versions must differ for their order to count
FLOOR_SHARE, FLOOR_WIDTH = 1 / 3, 0.005


def published(path: Path = PUBLISHED) -> list[Point]:
    """Every published point with its family's entries, `held_out`, and `floor`, True if the point is on one."""
    record = json.loads(path.read_text())
    points = [{**record["families"][point["family"]], **point} for point in record["points"]]
    floored = floors(points)
    return [{**point, "held_out": held_out(point["family"]), "floor": ladder_of(point) in floored} for point in points]


def comparable(points: Sequence[Point], folder: Path) -> list[Point]:
    """The points that can be compared and have a recording below a folder, each with its path as `recording`."""
    found = []
    for point in points:
        path = folder / point["family"] / point["configuration"] / point["case"]
        if "not_comparable" not in point and path.exists():
            found.append({**point, "recording": path})
    return found


def ladder_of(point: Point) -> tuple[str, str]:
    """The family and the case, which the points of a ladder have in common."""
    return point["family"], point["case"]


def floors(points: Sequence[Point]) -> set[tuple[str, str]]:
    """Keys (`ladder_of`) of the ladders timed in turn whose times are a floor, as the module's docstring defines it."""
    times = defaultdict(list)
    for point in points:
        if "not_comparable" not in point and point["timing"] == "in turn":
            times[ladder_of(point)].append(point["us"])
    found = set()
    for ladder, all_us in times.items():
        alike = [us for us in all_us if _companions(us, all_us) >= 2]
        if len(alike) >= FLOOR_SHARE * len(all_us):
            found.add(ladder)
    return found


def _companions(us: float, all_us: Sequence[float]) -> int:
    """The largest number of other times in an interval of FLOOR_WIDTH that contains `us`."""
    starts = [low for low in all_us if low <= us <= low * (1 + FLOOR_WIDTH)]
    return max(sum(low <= other <= low * (1 + FLOOR_WIDTH) for other in all_us) for low in starts) - 1


def modelled_us(traces: list[Any], point: Point, clock: str, changed: dict[str, float]) -> float:
    """Microseconds of a call of a point, timed as its author did. changed: values of constants, in cycles."""
    chip = _changed(profile(clock), point, changed)
    if point["timing"] == "kernel":
        return _kernel_us(traces, chip, point["l2"])
    least = FEW if point["us"] > LONG_US else LEAST
    loop = functools.partial(
        modelled_loop, traces, calls=point["calls"], programmatic=False, words=WORDS // 4, least=least
    )
    found = loop(chip)
    limits = profile(clock).sustained
    if limits and point["calls"] * found.us > limits.after_us:
        busy = found.replay.usage.tensor_cycles / found.replay.ends[-1]
        if busy * FLOPS_A_CYCLE * chip.clock_ghz / 1e3 >= limits.tensor_tflops:
            found = loop(_changed(profile(clock, sustained=True), point, changed))
    return found.us


def _changed(chip: Chip, point: Point, changed: dict[str, float]) -> Chip:
    for name, value in changed.items():
        chip = chip.with_constant(name, value)
    return chip.with_sms(point["sms"])


def _kernel_us(traces: list[Any], chip: Chip, l2: str) -> float:
    """Sum of a call's launches in microseconds, each from its start to its end, plus PROFILER_US."""
    calls = 1 if l2 == "cold" else 2
    chip = chip.with_constant("l2_dirty", DIRTY_SHARE * chip.constants["l2_storage"])
    found = replay(calls * traces, chip, programmatic=False, other_data=False, dirty_l2=l2 == "cold")
    last = range((calls - 1) * len(traces), calls * len(traces))
    return PROFILER_US * len(traces) + chip.us(sum(found.ends[number] - found.starts[number] for number in last))


def replayed(point: Point, clock: str, changed: dict[str, float]) -> Point:
    """A point's row of the file: published and modelled time, or the error that the replay ends with."""
    kept = ("family", "held_out", "floor", "kind", "timing", "l2", "program", "configuration", "case")
    row = {**{name: point[name] for name in kept if name in point}, "silicon_us": point["us"]}
    registers = point.get("registers", {})
    traces = [
        dataclasses.replace(trace, registers=trace.registers or registers.get(trace.name, 0))
        for trace in record.load(point["recording"])
    ]
    try:
        return {**row, "modelled_us": round(modelled_us(traces, point, clock, changed), 3)}
    except EmulatorError as error:
        return {**row, "error": str(error)[:150]}


def errors(rows: Sequence[Point]) -> dict[str, float]:
    """Figures of rows: median and 90th percentile of the error, mean signed error, share of pairs in right order."""
    signed = [row["modelled_us"] / row["silicon_us"] - 1 for row in rows]
    sizes = sorted(map(abs, signed))
    ladders = defaultdict(list)
    for row in rows:
        ladders[ladder_of(row)].append(row)
    right = pairs = 0
    for alike in ladders.values():
        for a, b in combinations(alike, 2):
            if abs(a["silicon_us"] - b["silicon_us"]) > APART * min(a["silicon_us"], b["silicon_us"]):
                pairs += 1
                right += (a["silicon_us"] < b["silicon_us"]) == (a["modelled_us"] < b["modelled_us"])
    return {
        "points": len(rows),
        "median": statistics.median(sizes),
        "p90": sizes[max(0, -(-len(sizes) * 9 // 10) - 1)],
        "signed": statistics.fmean(signed),
        "pairs": pairs,
        "ordered": right / pairs if pairs else 1.0,
    }


def modelled(rows: Sequence[Point]) -> list[Point]:
    """The rows that have a modelled time."""
    return [row for row in rows if "modelled_us" in row]


def without_and_with_floors(rows: Sequence[Point]) -> Iterator[tuple[str, Sequence[Point]]]:
    """Pairs (suffix of a title, rows): the rows on no floor, if there are any, and all rows if some are on one."""
    off_floors = [row for row in rows if not row["floor"]]
    if off_floors:
        yield "", off_floors
    if len(rows) > len(off_floors):
        yield ", with floors", rows


def save(path: Path, chip: str, rows: Sequence[Point], command: Sequence[str]) -> list[Point]:
    """Writes points to a file, and returns all that it has then: earlier ones of other programs or cases stay."""
    old = (records.load(path) or {"points": []})["points"]
    places = {(row["family"], row["configuration"], row["case"]): row for row in [*old, *rows]}
    found = [places[key] for key in sorted(places)]
    records.write(path, {"chip": chip, "command": command, "points": found})
    return found


def draw(path: Path, rows: Sequence[Point]) -> None:
    """Draws modelled over published times, as a PNG: a color for each repository, triangles for held-out families."""
    sets = defaultdict(list)
    for row in rows:
        sets[row["family"].rpartition("/")[0], row["held_out"]].append(row)
    names = sorted({name for name, _ in sets})
    labels = {key: f"{key[0]}, held out" if key[1] else key[0] for key in sorted(sets)}
    looks = {label: (names.index(name), "^" if is_held_out else "o") for (name, is_held_out), label in labels.items()}
    scatter(path, {label: sets[key] for key, label in labels.items()}, looks, "published", "published")


def _rows(options: argparse.Namespace, changed: dict[str, float]) -> list[Point]:
    """The rows of the chosen points."""
    chosen = comparable(published(), options.folder)
    if options.calibrating or options.held_out:
        chosen = [point for point in chosen if point["held_out"] == options.held_out]
    chosen = [point for point in chosen if options.only in str(point["recording"])]
    work = functools.partial(replayed, clock=options.clock, changed=changed)
    ended = processes.each(work, ((point,) for point in chosen), options.jobs, "replays")
    rows = {id(point): row for (point,), row in ended}
    return [rows[id(point)] for point in chosen]


def show(rows: Sequence[Point]) -> None:
    """Prints each point, then the errors of families."""
    for row in rows:
        place = f"{row['family']:30} {row['configuration'][:28]:28} {row['case'][:18]:18}"
        if "error" in row:
            print(place, row["error"])
            continue
        apart = 100 * (row["modelled_us"] / row["silicon_us"] - 1)
        on_floor = "  floor" if row["floor"] else ""
        print(f"{place} {row['silicon_us']:8.2f} {row['modelled_us']:8.2f} {apart:+6.1f} %{on_floor}")
    rows = modelled(rows)
    for name in [*dict.fromkeys(row["family"] for row in rows), ""]:
        of_family = [row for row in rows if name in ("", row["family"])]
        for title, chosen in without_and_with_floors(of_family):
            print(f"{name or 'all'}{title}", {key: round(value, 3) for key, value in errors(chosen).items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns exit code 0."""
    parser = command_parser(__doc__, "workshop.clock.ladders")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clock", default="b200", metavar="PROFILE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--calibrating", action="store_true", help="only families that are not held out")
    which.add_argument("--held-out", action="store_true", help="only families that are held out")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="constants, in cycles")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default: %(default)s")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="of the saved file's points")
    parser.add_argument("--only", default="", metavar="TEXT", help="recordings that contain it")
    options = parser.parse_args(arguments)
    changed = {name: float(value) for name, value in (text.split("=") for text in options.set)}
    rows = _rows(options, changed)
    show(rows)
    if options.save:
        rows = save(options.save, profile(options.clock).name, rows, records.command(arguments))
    if options.picture:
        draw(options.picture, modelled(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
