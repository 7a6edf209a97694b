"""Modelled B200 times of published programs beside their published times.

    python -m tools.ladders FOLDER [--clock b200] [--save docs/results/clock-b200.json] [--picture FILE.png]
                            [--set NAME=VALUE ...] [--only TEXT]

FOLDER has recordings of `tools.ladder_record`: LADDER-VERSION.xz, or LADDER-VERSION/CASE.xz for a contest's entry. Each
is replayed as its authors timed it: a loop of calls in turn with other data each (emulator/clock/loop.py). Nothing of the
profile comes from these times.

What is compared is decided by what was published. A ladder is one author's versions in one case; a time that a FLOOR_SHARE
of a ladder's versions share with two others or more, within FLOOR_WIDTH, is set by something else than the kernels, the
host's work or the grid of 2.05 us: every point of such a case is shown and counted apart.
"""

from __future__ import annotations

import argparse
import functools
import json
import lzma
import math
import pickle
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

from emulator.clock.chip import profile
from emulator.clock.loop import WORDS, modelled_loop
from emulator.errors import EmulatorError

PUBLISHED = Path(__file__).resolve().parent.parent / "docs/results/b200-published.json"
LADDERS = {"gpu-mode-kernels": "gn", "NVFP4_Kernels": "nv", "learn-cuda": "lc"}
"""Prefixes of recordings."""
CONTEST_CALLS = 15
MATMUL_SECONDS, MATMUL_FLOPS = 10e-3, 2000e12  # learn-cuda's main.py: as many inputs as this rate reads in this time
APART = 0.05  # pairs of versions that differ by more are compared in order
FLOOR_SHARE, FLOOR_WIDTH = 1 / 3, 0.005


def points(folder: Path) -> list[dict[str, Any]]:
    """The comparable published points that have a recording: of `b200-published.json`, with `recording`."""
    found = []
    published = json.loads(PUBLISHED.read_text())["points"]
    floored = floors(published)
    for point in published:
        if "not_comparable" in point or "phases" in point["problem"] or point["source"] not in LADDERS:
            continue
        prefix = LADDERS[point["source"]]
        if prefix == "lc":
            shape = point["m"], point["n"], point["k"]
            size = "" if shape == (4096, 4096, 4096) else "-" + "x".join(map(str, shape))
            path, case = folder / f"lc-{point['version']}{size}.xz", "x".join(map(str, shape))
        else:
            if point["problem"] != "group_gemm":
                continue
            name = point["program"].removesuffix(".py")
            name = name.removeprefix("submission_") if prefix == "gn" else name
            path, case = folder / f"{prefix}-{name}" / f"{point['case']}.xz", str(point["case"])
        if path.exists():
            version = point["version"] if prefix == "lc" else point["program"].removesuffix(".py")
            on_floor = {"floor": True} if ladder_of(point) in floored else {}
            found.append({**point, **on_floor, "recording": path, "case": case, "name": version})
    return found


def ladder_of(point: dict[str, Any]) -> tuple[Any, ...]:
    """What the points of a ladder have in common: author, problem, case."""
    return tuple(point.get(key) for key in ("source", "problem", "case", "m", "n", "k"))


def floors(published: Sequence[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Ladders whose times are those of something else than their kernels; see above."""
    times = defaultdict(list)
    for point in published:
        if "not_comparable" not in point and "phases" not in point["problem"]:
            times[ladder_of(point)].append(point["us"])
    found = set()
    for ladder, all_us in times.items():
        alike = [us for us in all_us if _companions(us, all_us) >= 2]
        if len(alike) >= FLOOR_SHARE * len(all_us):
            found.add(ladder)
    return found


def _companions(us: float, all_us: Sequence[float]) -> int:
    """The most others that lie with a time in one interval of FLOOR_WIDTH."""
    starts = [low for low in all_us if low <= us <= low * (1 + FLOOR_WIDTH)]
    return max(sum(low <= other <= low * (1 + FLOOR_WIDTH) for other in all_us) for low in starts) - 1


def calls_of(point: dict[str, Any]) -> int:
    """Calls of the loop that a published time is of."""
    if point["source"] != "learn-cuda":
        return CONTEST_CALLS
    flops = 2 * point["m"] * point["n"] * point["k"]
    return math.ceil(MATMUL_SECONDS * MATMUL_FLOPS / flops)


def modelled_us(traces: list[Any], point: dict[str, Any], clock: str, changed: dict[str, float]) -> float:
    """Microseconds of a call in a loop of calls in turn, with other data each.

    A loop that lasts longer than the chip holds its clock, with at least the tensor throughput that power was measured to
    limit, runs at the sustained clock. clock, changed: the profile, and constants of it with other values, in cycles.
    """

    def of_loop(sustained: bool) -> float:
        chip = profile(clock, sustained)
        for name, value in changed.items():
            chip = chip.with_constant(name, value)
        return modelled_loop(traces, chip, calls, programmatic=False, words=WORDS // 4).us

    calls, limits = calls_of(point), profile(clock).sustained
    us = of_loop(sustained=False)
    if limits and point["source"] == "learn-cuda" and calls * us > limits.after_us:
        if 2 * point["m"] * point["n"] * point["k"] / us / 1e6 >= limits.tensor_tflops:
            return of_loop(sustained=True)
    return us


def replayed(point: dict[str, Any], clock: str, changed: dict[str, float]) -> dict[str, Any]:
    """A point's row of the file: published and modelled time, or the error that the replay ends with."""
    row = {
        "set": f"B200, {point['source']}",
        "program": point["program"],
        "configuration": point["name"],
        "problem": point["problem"],
        "case": point["case"],
        "launches": "in turn",
        "silicon_us": point["us"],
        **{key: point[key] for key in ("floor",) if key in point},
    }
    traces = pickle.loads(lzma.decompress(point["recording"].read_bytes()))
    try:
        us = modelled_us(traces, point, clock, changed)
    except EmulatorError as error:
        return {**row, "error": str(error)[:150]}
    return {**row, "modelled_us": round(us, 3)}


def errors(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of a ladder's rows: median and 90th percentile of the error, mean signed error, share of pairs in order."""
    sizes = sorted(abs(row["modelled_us"] / row["silicon_us"] - 1) for row in rows)
    signed = [row["modelled_us"] / row["silicon_us"] - 1 for row in rows]
    by_case = defaultdict(list)
    for row in rows:
        by_case[row["set"], row["case"]].append(row)
    right = pairs = 0
    for alike in by_case.values():
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


def save(path: Path, chip: str, rows: Sequence[dict[str, Any]]) -> None:
    """Writes points into a file; those that it has of other programs or cases stay."""
    old = json.loads(path.read_text())["points"] if path.exists() else []
    places = {(row["set"], row["configuration"], row["case"]): row for row in [*old, *rows]}
    found = [places[key] for key in sorted(places)]
    path.write_text(json.dumps({"chip": chip, "command": ["ladders", "FOLDER"], "points": found}, indent=1) + "\n")


def draw(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Modelled over published times, as a PNG. Needs matplotlib (extra `pictures`)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name in dict.fromkeys(row["set"] for row in rows):
        x, y = ([row[key] for row in rows if row["set"] == name] for key in ("silicon_us", "modelled_us"))
        axes.scatter(x, y, s=16, label=name)
    ends = [choose(row[key] for row in rows for key in ("silicon_us", "modelled_us")) for choose in (min, max)]
    for share, style in ((1, "-"), (0.75, ":"), (1.25, ":")):
        axes.plot(ends, [share * end for end in ends], style, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="published, us a call", ylabel="modelled, us a call")
    axes.set_title("Modelled and published times of a B200; dotted: 25 % off")
    axes.legend(fontsize="small")
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clock", default="b200", metavar="PROFILE")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="constants, in cycles")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes; default: %(default)s")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="of the saved file's points")
    parser.add_argument("--only", default="", metavar="TEXT", help="recordings that contain it")
    options = parser.parse_args(arguments)
    changed = {name: float(value) for name, value in (text.split("=") for text in options.set)}
    chosen = [point for point in points(options.folder) if options.only in str(point["recording"])]
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(functools.partial(replayed, clock=options.clock, changed=changed), chosen):
            if "error" in row:
                print(row["configuration"], row["case"], row["error"], flush=True)
                continue
            rows.append(row)
            apart = 100 * (row["modelled_us"] / row["silicon_us"] - 1)
            print(f"{row['set'][6:16]:10} {row['configuration']:32} {row['case']:16} {row['silicon_us']:8.2f} "
                  f"{row['modelled_us']:8.2f} {apart:+6.1f} %{'  floor' if 'floor' in row else ''}", flush=True)  # fmt: skip
    for name in [*dict.fromkeys(row["set"] for row in rows), ""]:
        of_set = [row for row in rows if name in ("", row["set"])]
        if of_set:
            print(name or "all", {key: round(value, 3) for key, value in errors(of_set).items()})
    if options.save:
        save(options.save, profile(options.clock).name, rows)
        rows = json.loads(options.save.read_text())["points"]
    if options.picture:
        draw(options.picture, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
