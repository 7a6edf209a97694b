"""Modelled B200 times of published programs beside their published times.

    python -m tools.ladders FOLDER [--clock b200] [--save docs/results/clock-b200.json] [--picture FILE.png]
                            [--set NAME=VALUE ...] [--only TEXT]

FOLDER has recordings of `tools.ladder_record`: LADDER-VERSION.xz, or LADDER-VERSION/CASE.xz for a contest's entry. Each
is replayed as its authors timed it: calls with other data each, in turn, one queue. The time of a call is the time from
the first start to the last end by the number of calls, CALLS; REPLAYED of them are replayed, and the others take as
long as the last of those. Nothing of the profile comes from these times.
"""

from __future__ import annotations

import argparse
import json
import lzma
import pickle
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from emulator.clock.chip import Chip, profile
from emulator.clock.replay import replay

PUBLISHED = Path(__file__).resolve().parent.parent / "docs/results/b200-published.json"
LADDERS = {"gpu-mode-kernels": "gn", "NVFP4_Kernels": "nv", "learn-cuda": "lc"}
"""Prefixes of recordings."""
CALLS = {"gpu-mode-kernels": 15, "NVFP4_Kernels": 15, "learn-cuda": 146}
REPLAYED = 3
APART = 0.05  # pairs of versions that differ by more are compared in order


def points(folder: Path) -> list[dict[str, Any]]:
    """The comparable published points that have a recording: of `b200-published.json`, with `recording`."""
    found = []
    for point in json.loads(PUBLISHED.read_text())["points"]:
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
            found.append({**point, "recording": path, "case": case, "name": version})
    return found


def modelled_us(traces: list[Any], calls: int, chip: Chip) -> float:
    """Microseconds of a call in a loop of calls in turn, with other data each."""
    replayed = min(calls, REPLAYED)
    result = replay(traces * replayed, chip, programmatic=False)
    ends = [chip.us(end - result.starts[0]) for end in result.ends][len(traces) - 1 :: len(traces)]
    middle = (ends[-1] - ends[1]) / (replayed - 2)
    return (ends[-1] + (calls - replayed) * middle) / calls


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
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="of the saved file's points")
    parser.add_argument("--only", default="", metavar="TEXT", help="recordings that contain it")
    options = parser.parse_args(arguments)
    chip = profile(options.clock)
    for text in options.set:
        name, value = text.split("=")
        chip = chip.with_constant(name, float(value))
    rows = []
    for point in points(options.folder):
        if options.only not in str(point["recording"]):
            continue
        traces = pickle.loads(lzma.decompress(point["recording"].read_bytes()))
        try:
            us = modelled_us(traces, CALLS[point["source"]], chip)
        except Exception as error:
            print(point["recording"], str(error)[:150], flush=True)
            continue
        row = {
            "set": f"B200, {point['source']}",
            "program": point["program"],
            "configuration": point["name"],
            "problem": point["problem"],
            "case": point["case"],
            "launches": "in turn",
            "silicon_us": point["us"],
            "modelled_us": round(us, 3),
        }
        rows.append(row)
        print(f"{point['source'][:10]:10} {point['name']:32} {point['case']:16} {point['us']:8.2f} {us:8.2f} "
              f"{100 * (us / point['us'] - 1):+6.1f} %", flush=True)  # fmt: skip
    for name in [*dict.fromkeys(row["set"] for row in rows), ""]:
        of_set = [row for row in rows if name in ("", row["set"])]
        if of_set:
            print(name or "all", {key: round(value, 3) for key, value in errors(of_set).items()})
    if options.save:
        save(options.save, chip.name, rows)
        rows = json.loads(options.save.read_text())["points"]
    if options.picture:
        draw(options.picture, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
