"""Replays recorded launches on a chip profile, beside times of the same launches on silicon (tools.clock.truth).

    python -m tools.clock.validate [--truth FILE.json | --shapes FILE.json [--drawn FIRST-LAST]] [--profile NAME]
                             [--recordings FOLDER] [--foreign FOLDER] [--only TEXT] [--jobs N] [--save FILE.json]
                             [--picture FILE.png]

--shapes names times of random shapes that `tools.choice --measure` has saved; `shapes` has the rule by which points are
taken from them.

Launches that have no recording in FOLDER, by default one in the user's cache, are recorded first (`recordings`); those
of programs of others need --foreign. A point without a recording is left out and counted, with the reason.

Silicon's figure is the time of `calls` calls divided by `calls`. Each call has other data, but a program's own launch
has the same data each time. L2 is flushed before by writes to other memory, so it begins full of lines to be written
back, in the replay too (nogpu/clock/loop.py). The file has every point: program, configuration, problem, case or sizes,
mode, launches, silicon_us, modelled_us. A pair of a program's configurations of a case or a shape, with launches of one
kind, counts where silicon's times differ by more than 5 %: it is in order where the modelled times differ the same way.
"""

from __future__ import annotations

import itertools
import statistics
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.launch_modes import ALONE, ORDINARY, OVERLAPPING, PROGRAMMATIC
from nogpu import EmulatorError
from nogpu.clock import WORDS, modelled_loop, profile
from tools import circumstances
from tools.clock import recordings
from workshop import processes, records
from workshop.clock.picture import scatter
from workshop.clock.record import load
from workshop.console import command_parser

Point = dict[str, Any]

# Launch mode -> words of records that are replayed.
REPLAYED = {OVERLAPPING: WORDS, PROGRAMMATIC: WORDS // 4, ORDINARY: WORDS // 4, ALONE: WORDS // 4}
ALL = "all"
LONG_US = 10  # silicon's time above which calls also form a set of their own
DIFFERENT = 1.05  # ratio of silicon's times from which a pair counts
FACTS = ("program", "configuration", "problem", "case", "sizes", "promised", "mode", "launches")


def validated(point: Point, folder: Path, profile_name: str) -> Point:
    """The point with its modelled time, or with the error that ends the replay."""
    chip, launches = profile(profile_name), point["launches"]
    facts = {name: point[name] for name in FACTS if point.get(name) is not None}
    try:
        loop = modelled_loop(
            load(folder / recordings.name_of(point)),
            chip,
            point["calls"],
            programmatic=False if launches == ORDINARY else None,
            words=REPLAYED[launches],
            same_data=point.get("problem") is None,
        )
    except (EmulatorError, ValueError) as error:
        return {**facts, "silicon_us": point["us"], "error": str(error)}
    return {**facts, "silicon_us": point["us"], "modelled_us": round(loop.us, 4)}


def set_of(point: Point) -> str:
    """The set that a point is counted with: a problem of our kernel, or another program."""
    if point["program"] != recordings.OURS:
        return str(point["program"])
    return point["problem"] + (", bare conversions" if point.get("mode") == "bare" else "")


def sets_of(point: Point) -> list[str]:
    """The sets that a point is counted with, `set_of` first; one of a random shape also by its kind."""
    kinds = {}
    if "sizes" in point:
        # Saved points may have configurations that the kernel is no longer written for.
        kinds = {"split K": "K in" in point["configuration"], "side by side": "side by side" in point["configuration"]}
        kinds[f"calls over {LONG_US} us"] = point["silicon_us"] > LONG_US
    return [set_of(point), *(kind for kind, holds in kinds.items() if holds), ALL]


def work_of(point: Point) -> str:
    """The work of a point, as text: a random shape, a case, or a program's arguments."""
    return next(f"{name} {point[name]}" for name in ("sizes", "case", "configuration") if name in point)


def error_of(point: Point) -> float:
    """The error of the modelled time, as a share of silicon's."""
    return point["modelled_us"] / point["silicon_us"] - 1


def ordered(points: Iterable[Point]) -> tuple[int, int]:
    """(pairs that are in order, pairs that count)."""
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault((set_of(point), point.get("problem"), work_of(point), point["launches"]), []).append(point)
    alike = count = 0
    for group in groups.values():
        for one, other in itertools.combinations(group, 2):
            low, high = sorted((one, other), key=lambda point: point["silicon_us"])
            if high["silicon_us"] > DIFFERENT * low["silicon_us"]:
                count += 1
                alike += high["modelled_us"] > low["modelled_us"]
    return alike, count


def summary(points: Sequence[Point]) -> list[tuple[str, str, int, float, float, float, int, int]]:
    """Rows (set, launches, points, median absolute error, its 90th percentile, mean error, pairs in order, pairs).

    There is a row for each set of points (`sets_of`) and kind of launches, the set of all last. Errors are shares. All
    kinds together have a row for the set of all points and, with random shapes, for each set.
    """
    points = [point for point in points if "modelled_us" in point]
    names = dict.fromkeys(map(set_of, points)) | dict.fromkeys(name for p in points for name in sets_of(p)[1:-1])
    rows = []
    for name, launches in itertools.product([*names, ALL], [*REPLAYED, ALL]):
        chosen = [p for p in points if name in sets_of(p) and launches in (ALL, p["launches"])]
        if chosen and (launches != ALL or name == ALL or "sizes" in chosen[0]):
            errors = [error_of(point) for point in chosen]
            sizes = sorted(map(abs, errors))
            p90 = sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)]
            figures = (len(chosen), statistics.median(sizes), p90, statistics.fmean(errors))
            rows.append((name, launches, *figures, *ordered(chosen)))
    return rows


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw modelled over silicon's times as a PNG: a color for each set, a mark for each kind of launches."""
    points = [point for point in points if "modelled_us" in point]
    names = list(dict.fromkeys(map(set_of, points)))
    sets, looks = dict[str, list[Point]](), dict[str, tuple[int, str]]()
    for (color, name), (launches, mark) in itertools.product(enumerate(names), zip(REPLAYED, "osx+")):
        label = f"{name}, {launches}"
        sets[label] = [p for p in points if (set_of(p), p["launches"]) == (name, launches)]
        looks[label] = color, mark
    scatter(path, sets, looks, "silicon", "measured")


def _place(point: Point) -> tuple[Any, ...]:
    work = point.get("case", 0), point.get("sizes", [])
    return set_of(point), point.get("problem", ""), *work, point["launches"], point["configuration"]


def replayed(points: Sequence[Point], folder: Path, profile_name: str, jobs: int) -> Iterator[list[Point]]:
    """Yield, after each point, all points that are done so far, with modelled times and in order."""
    # In a random order, so that a run that is cut short has done points of all kinds.
    waiting = sorted(points, key=lambda point: zlib.crc32(recordings.name_of(point).encode()))
    done: list[Point] = []
    for _, point in processes.each(validated, ((each, folder, profile_name) for each in waiting), jobs, "replays"):
        done = sorted([*done, point], key=_place)
        yield done


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.clock.validate")
    recordings.add_options(parser)
    parser.add_argument("--profile", default="h200", metavar="NAME", help="chip profile; default: %(default)s")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw modelled over silicon's times")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    truth, chosen, folder = recordings.chosen(options)
    reasons = recordings.record(chosen, folder, truth["sms"], options.jobs, options.foreign)
    left_out = recordings.by_program(chosen, reasons)
    record = {"device": truth["device"], "profile": options.profile, **circumstances.versions(arguments)}
    record |= {name: truth[name] for name in ("shapes", "times") if name in truth}
    record |= {"points of truth": len(truth["points"]), "left out": left_out}
    points: list[Point] = []
    known = [point for point in chosen if recordings.name_of(point) not in reasons]
    for points in replayed(known, folder, options.profile, options.jobs):
        records.write(options.save, {**record, "points": points}, "points")
    print("points of, launches: points, median error, 90th percentile, mean; pairs in order")
    for name, launches, count, median, p90, mean, alike, pairs in summary(points):
        share = f"{alike} of {pairs} ({alike / pairs:.1%})" if pairs else "none that count"
        print(f"{name}, {launches}: {count}, {median:.1%}, {p90:.1%}, {mean:+.1%}; {share}")
    for point in points:
        if "error" in point:
            print(f"{set_of(point)}, {work_of(point)}, {point['configuration']}: {point['error']}")
    recordings.show_left_out(left_out)
    print(f"{len(points)} of {len(truth['points'])} points have been replayed; recordings are in {folder}")
    if options.picture:
        draw(points, options.picture)


if __name__ == "__main__":
    main()
