"""Replays recorded launches on a chip profile, beside times of the same launches on silicon (tools.truth).

    python -m tools.validate --recordings FOLDER [--truth FILE.json] [--profile NAME] [--only TEXT] [--jobs N]
                             [--save FILE.json] [--picture FILE.png]

FOLDER holds a file for each configuration of a case, PROBLEM-CASE-NAME.xz: an lzma-compressed pickle of a call's traces
(emulator/clock/trace.py) in their order, recorded with as many SMs as the chip has. Read none that you do not trust: a
pickle runs code. A point without a file is left out and counted.

Silicon's figure is the time of `calls` calls over `calls`, with other data in each call, after L2 has been flushed by
writes to other memory: it begins full of lines to be written back, in the replay too (emulator/clock/loop.py). The file
has every point: program, configuration, problem, case, launches, silicon_us, modelled_us. A pair of configurations of
a case, with launches of one kind, counts where silicon's times differ by more than 5 %: it is in order where the
modelled times differ the same way.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import lzma
import pickle
import statistics
import sys
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from emulator.clock.chip import profile
from emulator.clock.loop import WORDS, modelled_loop
from emulator.clock.trace import Trace
from emulator.errors import EmulatorError
from harness import ROOT
from harness.options import command_parser
from tools import records

Point = dict[str, Any]

TRUTH = ROOT / "docs/results/h200-truth.json"
IN_TURN = "in turn"
REPLAYED = {"overlapping": WORDS, IN_TURN: WORDS // 4}  # words of records
DIFFERENT = 1.05  # silicon's times of a pair that counts
NAMES = {"chosen": "ours", "chosen, nothing promised": "nothing"}


def file_of(folder: Path, point: Point) -> Path:
    """The file with the traces of a point."""
    name = point["configuration"]
    short = name.replace(", K in ", "_Kin").replace(" per SM", "perSM").replace(", ", "_")
    return folder / f"{point['problem']}-{point['case']}-{NAMES.get(name, short)}.xz"


def load_traces(path: Path) -> list[Trace]:
    """The traces of a call."""
    found: list[Trace] = pickle.loads(lzma.decompress(path.read_bytes()))
    return found


def validated(point: Point, path: Path, profile_name: str) -> Point:
    """The point with its modelled time, or with the error that the replay ends with."""
    chip, traces = profile(profile_name), load_traces(path)
    launches = point["launches"]
    programmatic = False if launches == IN_TURN else None
    facts = {name: point[name] for name in ("program", "configuration", "problem", "case", "launches")}
    try:
        loop = modelled_loop(traces, chip, point["calls"], programmatic, words=REPLAYED[launches])
    except EmulatorError as error:
        return {**facts, "silicon_us": point["us"], "error": str(error)}
    return {**facts, "silicon_us": point["us"], "modelled_us": round(loop.us, 4)}


def error_of(point: Point) -> float:
    """Of the modelled time, as a share of silicon's."""
    return point["modelled_us"] / point["silicon_us"] - 1


def ordered(points: Iterable[Point]) -> tuple[int, int]:
    """(pairs that are in order, pairs that count)."""
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault((point["problem"], point["case"], point["launches"]), []).append(point)
    alike = count = 0
    for group in groups.values():
        for one, other in itertools.combinations(group, 2):
            low, high = sorted((one, other), key=lambda point: point["silicon_us"])
            if high["silicon_us"] > DIFFERENT * low["silicon_us"]:
                count += 1
                alike += high["modelled_us"] > low["modelled_us"]
    return alike, count


def summary(points: Sequence[Point]) -> list[tuple[str, str, int, float, float, float, int, int]]:
    """Rows of (problem, launches, points, median error in size, 90th percentile, mean error, pairs in order, pairs)
    for each problem and kind of launches, for each kind, then for all. Errors are shares.
    """
    points = [point for point in points if "modelled_us" in point]
    problems = list(dict.fromkeys(point["problem"] for point in points))
    rows = []
    for problem, launches in [*itertools.product([*problems, ""], REPLAYED), ("", "")]:
        chosen = [p for p in points if problem in ("", p["problem"]) and launches in ("", p["launches"])]
        if chosen:
            errors = [error_of(point) for point in chosen]
            sizes = sorted(map(abs, errors))
            p90 = sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)]
            figures = (len(chosen), statistics.median(sizes), p90, statistics.fmean(errors))
            rows.append((problem or "all", launches or "all", *figures, *ordered(chosen)))
    return rows


def draw(points: Sequence[Point], path: Path) -> None:
    """Modelled over silicon's times, as a PNG. Needs matplotlib (extra `pictures`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError("a picture needs matplotlib: pip install '.[pictures]'") from error
    figure = Figure(figsize=(7, 7), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    marks = dict(zip(REPLAYED, "ox"))
    points = [point for point in points if "modelled_us" in point]
    for color, problem in enumerate(dict.fromkeys(point["problem"] for point in points)):
        for launches, mark in marks.items():
            chosen = [p for p in points if (p["problem"], p["launches"]) == (problem, launches)]
            x, y = ([point[name] for point in chosen] for name in ("silicon_us", "modelled_us"))
            axes.scatter(x, y, s=14, marker=mark, color=f"C{color}", label=f"{problem}, {launches}", linewidths=0.8)
    ends = [f(point[name] for point in points for name in ("silicon_us", "modelled_us")) for f in (min, max)]
    for share, style in ((1, "-"), (0.8, ":"), (1.2, ":")):
        axes.plot(ends, [share * end for end in ends], style, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="silicon, us a call", ylabel="modelled, us a call")
    axes.set_title("Modelled and measured times; dotted: 20 % off")
    axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Software": None})


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(__doc__ or "")
    parser.prog = "python -m tools.validate"
    parser.add_argument("--recordings", type=Path, required=True, metavar="FOLDER", help="with PROBLEM-CASE-NAME.xz")
    parser.add_argument(
        "--truth",
        type=Path,
        default=TRUTH,
        metavar="FILE",
        help="of tools.truth; default: docs/results/h200-truth.json",
    )
    parser.add_argument("--profile", default="h200", metavar="NAME", help="chip profile; default: %(default)s")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help='recordings with this in their names, such as "gemm-2"'
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default: %(default)s")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw modelled over silicon's times")
    records.add_save(parser)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_arguments(arguments)
    truth = json.loads(options.truth.read_text(encoding="utf-8"))
    timed = [p for p in truth["points"] if p.get("problem") and p["mode"] != "bare" and p["launches"] in REPLAYED]
    files = {id(point): file_of(options.recordings, point) for point in timed}
    known = [point for point in timed if options.only in files[id(point)].name and files[id(point)].is_file()]
    known.sort(key=lambda point: zlib.crc32(files[id(point)].name.encode()))  # all cases, should the run be cut short
    points: list[Point] = []
    record = {"device": truth["device"], "profile": options.profile, **records.versions(arguments)}
    record |= {"points of truth": len(truth["points"])}
    with ProcessPoolExecutor(options.jobs) as pool:
        of = functools.partial(validated, profile_name=options.profile)
        for done in as_completed([pool.submit(of, point, files[id(point)]) for point in known]):
            points.append(done.result())
            if options.save:
                points.sort(key=lambda p: (p["problem"], p["case"], p["launches"], p["configuration"]))
                text = json.dumps({**record, "points": points}, separators=(",", ":")).replace("},{", "},\n{")
                options.save.write_text(text + "\n", encoding="utf-8")
    print("problem, launches: points, median error, 90th percentile, mean; pairs in order")
    for problem, launches, count, median, p90, mean, alike, pairs in summary(points):
        share = f"{alike} of {pairs} ({alike / pairs:.1%})" if pairs else "none that count"
        print(f"{problem}, {launches}: {count}, {median:.1%}, {p90:.1%}, {mean:+.1%}; {share}")
    for point in points:
        if "error" in point:
            print(f"{point['problem']}, case {point['case']}, {point['configuration']}: {point['error']}")
    print(f"{len(points)} of {len(truth['points'])} points have recordings in {options.recordings.name}")
    if options.picture:
        draw(points, options.picture)


if __name__ == "__main__":
    main()
