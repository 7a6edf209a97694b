"""Tables of the times that the clock models beside silicon's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from task import PROBLEMS
from tools.ladders import counted, errors
from tools.modelled import OURS
from tools.tables import MeasurementError, command_text, load, markdown, missing
from tools.validate import summary

TITLES = {"group_gemm": "group GEMM", "dual_gemm": "dual GEMM", "gemm": "GEMM", "gemv": "GEMV"}
IN_BAND = 0.9  # of the published points


def clock(results: Path, name: str) -> str:
    """The errors of a chip's modelled times, against measured or published ones.

    name: of the profile, with "-shapes" behind it for times of random shapes.
    """
    saved = load(results / f"clock-{name}.json")
    if saved is None:
        chip, _, shapes = name.partition("-")
        source = f"--profile {chip}" + (f" --shapes docs/results/{name}.json" if shapes else "")
        return missing(f"python -m tools.validate {source} --save docs/results/clock-{name}.json")
    return _measured(saved) if "points of truth" in saved else _published(saved)


def _measured(saved: dict[str, Any]) -> str:
    """Rows of sets of points and kinds of launches."""
    rows = [
        [f"{name}, {launches}", str(count), f"{median:.1%}", f"{p90:.1%}", f"{mean:+.1%}", _share(alike, pairs)]
        for name, launches, count, median, p90, mean, alike, pairs in summary(saved["points"])
    ]
    header = ["launches", "points", "median error", "90th percentile", "mean", "pairs in order"]
    modelled = sum("modelled_us" in point for point in saved["points"])
    counted = f"{modelled} of {saved['points of truth']} points"
    counted += f" of {saved['shapes']} random shapes" if "shapes" in saved else ""
    caption = (
        f"{saved['device']}, profile {saved['profile']}: {counted}; {command_text('tools.validate', saved['command'])}"
    )
    left_out = [
        f"{program} {count} ({reason})"
        for program, counts in saved.get("left out", {}).items()
        for reason, count in counts.items()
    ]
    failed = sum("error" in point for point in saved["points"])
    left_out += [f"{failed} that come to no end in the replay"] if failed else []
    return f"{markdown(header, rows)}\n\n{caption}" + (f"; left out: {', '.join(left_out)}" if left_out else "")


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"


def _published(saved: dict[str, Any]) -> str:
    """A row for each set of points, one for all of them, then every point."""
    points = saved["points"]
    rows = []
    sets = list(dict.fromkeys(point["set"] for point in points))
    counts = [(name, counted([point for point in points if point["set"] == name])) for name in sets]
    counts += [
        ("**all**", counted(points)),
        ("on a floor, not counted", [point for point in points if "floor" in point]),
    ]
    for name, chosen in counts:
        if not chosen:
            continue
        figures = errors(chosen)
        shares = [f"{100 * figures[key]:.1f} %" for key in ("median", "p90", "signed")]
        pairs = f"{100 * figures['ordered']:.0f} % of {figures['pairs']}"
        rows.append([name, str(figures["points"]), *shares, pairs])
    header = ["set", "points", "median error", "90th percentile", "mean signed", "pairs in order"]
    every = [
        [
            point["set"],
            point["configuration"],
            point["case"],
            f"{point['silicon_us']:.2f}",
            f"{point['modelled_us']:.2f}",
            f"{100 * (point['modelled_us'] / point['silicon_us'] - 1):+.1f} %"
            + (" (floor)" if "floor" in point else ""),
        ]
        for point in points
    ]
    table = markdown(["set", "version", "case", "published, us", "modelled, us", "error"], every)
    return f"{markdown(header, rows)}\n\n{table}\n\n{command_text('tools.ladders', saved['command'])}"


def phases(results: Path, name: str) -> str:
    """Phases of kernels, from traces that their author published, and modelled. name: of the chip."""
    saved = load(results / f"clock-phases-{name}.json")
    if saved is None:
        return missing(f"python -m tools.phases FOLDER --save docs/results/clock-phases-{name}.json")
    rows = []
    for point in saved["points"]:
        for key, title in (("set_up_us", "set-up"), ("epilogue_us", "epilogue"), ("us", "whole launch")):
            silicon, us = point["published"][key], point["modelled"][key]
            rows.append([f"{point['version']}, {title}", f"{silicon:.2f}", f"{us:.2f}", f"{us / silicon - 1:+.0%}"])
    return f"{markdown(['phase', 'published, us', 'modelled, us', 'error'], rows)}\n\n" + command_text(
        "tools.phases", saved["command"]
    )


# ----------------------------------------------------------------------------------------------------------------------
# Modelled times of a B200
# ----------------------------------------------------------------------------------------------------------------------


def band(points: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """By what a modelled time has to be multiplied for silicon's, in the middle IN_BAND of these points: low, high."""
    ratios = sorted(point["silicon_us"] / point["modelled_us"] for point in points)
    outside = round(len(ratios) * (1 - IN_BAND)) // 2
    return ratios[outside], ratios[-1 - outside]


def modelled(results: Path, name: str) -> str:
    """Modelled times of our kernels and of the best published one, beside published times. name: of the chip, then
    "every" for a row of each case; without it the group GEMM's cases and a mean of each problem.
    """
    chip, _, extent = name.partition(" ")
    saved, known = load(results / f"clock-ours-{chip}.json"), load(results / f"clock-{chip}.json")
    if saved is None or known is None:
        return missing(f"python -m tools.modelled --save docs/results/clock-ours-{chip}.json")
    if extent not in ("", "every"):
        raise MeasurementError(f"table 'modelled {name}': {extent!r} is not 'every'")
    figures = {(point["entry"], point["problem"], point["case"]): point for point in saved["points"]}
    others = list(dict.fromkeys(entry for entry, _, _ in figures if entry != OURS))
    points = counted(known["points"])
    low, high = band(points)

    def cell(entry: str, problem: str, cases: Sequence[int], kind: str) -> str:
        found = [figures[place][kind] for case in cases if (place := (entry, problem, case)) in figures]
        if len(found) < len(cases):
            return "-"
        us = geometric_mean(found)
        return f"{us:#.3g} ({' to '.join(f'{end:.{1 if end < 10 else 0}f}' for end in (low * us, high * us))})"

    rows = []
    for problem, contest in PROBLEMS.items():
        every = range(len(contest.benchmarks))
        single = [[case] for case in every] if extent or problem == next(iter(PROBLEMS)) else []
        for cases in [*single, list(every)]:
            published = [contest.benchmarks[case] for case in cases]
            label = f"case {cases[0]}" if len(cases) == 1 and len(every) > 1 else "geometric mean"
            limit = geometric_mean(case.speed_of_light_us for case in published)
            best = geometric_mean(case.best_published_us for case in published)
            rows.append([
                f"{TITLES[problem]}, {label}",
                f"{limit:#.3g}",
                f"{best:#.3g}",
                *(cell(entry, problem, cases, "in_turn_us") for entry in others),
                cell(OURS, problem, cases, "overlapping_us"),
                cell(OURS, problem, cases, "in_turn_us"),
            ])  # fmt: skip
    header = ["us on a B200", "speed of light", "best published"]
    header += [f"modelled: {entry}" for entry in others] + ["modelled: ours, overlapping", "modelled: ours, in turn"]
    return f"{markdown(header, rows)}\n\n{_band_text(points, low, high)}"


def _band_text(points: Sequence[dict[str, Any]], low: float, high: float) -> str:
    found = errors(points)
    return (
        f"Modelled, not measured. Of {found['points']} published times of others the clock misses the median one "
        f"by {found['median']:.0%}; {IN_BAND:.0%} are {low:.2f} to {high:.2f} times the modelled ones: the bands."
    )
