"""Makes tables of the clock's modelled times beside silicon's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, geometric_mean, variance
from typing import Any

from harness.launch_modes import ORDINARY, LaunchMode
from task import PROBLEMS
from tools.clock.validate import summary
from tools.modelled import OURS
from workshop.clock.ladders import errors, without_and_with_floors
from workshop.clock.ladders import modelled as replayed
from workshop.records import MeasurementError, load
from workshop.tables import command_text, markdown, missing

TITLES = {"group_gemm": "group GEMM", "dual_gemm": "dual GEMM", "gemm": "GEMM", "gemv": "GEMV"}
IN_BAND = 0.9  # share of a family's published times that a band holds
FEWEST_OF_BAND, FEWEST_FAMILIES = 10, 3  # fewest times of a problem with a band, and families
CALIBRATING, HELD_OUT = "calibrating", "held out"
LOOP = "in turn"  # workshop.clock.ladders: a loop of ordinary launches
TIMINGS = {LOOP: f"loop, {ORDINARY}", "kernel": "profiler, kernels"}
ERRORS = ["median error", "90th percentile", "bias", "pairs in order"]


def clock(results: Path, name: str) -> str:
    """The table of errors of a chip's modelled times, against measured or published ones.

    name: the profile's name, with "-shapes" behind it for times of random shapes.
    """
    saved = load(results / f"clock-{name}.json")
    if saved is None:
        chip, _, shapes = name.partition("-")
        source = f"--profile {chip}" + (f" --shapes docs/results/{name}.json" if shapes else "")
        return missing(f"python -m tools.clock.validate {source} --save docs/results/clock-{name}.json")
    return _measured(saved) if "points of truth" in saved else _published(saved)


def _measured(saved: dict[str, Any]) -> str:
    """A table against measured times, with a row for each set of points and kind of launches."""
    rows = [
        [f"{name}, {launches}", str(count), f"{median:.1%}", f"{p90:.1%}", f"{mean:+.1%}", _share(alike, pairs)]
        for name, launches, count, median, p90, mean, alike, pairs in summary(saved["points"])
    ]
    header = ["launches", "points", "median error", "90th percentile", "mean", "pairs in order"]
    modelled = sum("modelled_us" in point for point in saved["points"])
    counted = f"{modelled} of {saved['points of truth']} points"
    counted += f" of {saved['shapes']} random shapes" if "shapes" in saved else ""
    command = command_text("tools.clock.validate", saved["command"])
    caption = f"{saved['device']}, profile {saved['profile']}: {counted}; {command}"
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
    """A table of the families that calibrate and one of those that are held out, then one of every point."""
    points = saved["points"]
    parts = []
    for title, held_out in ((CALIBRATING, False), (HELD_OUT, True)):
        chosen = [point for point in points if point["held_out"] == held_out]
        rows = [row for name in _families(chosen) for row in _family_rows(name, chosen)]
        rows += _rows_of(f"**all that are {title}**", ["", ""], replayed(chosen))
        header = ["family", "program", "timing", "points", *ERRORS]
        parts.append(f"Families that are **{title}**:\n\n{markdown(header, rows)}" if rows else f"No point is {title}.")
    both = markdown(["families", "points", *ERRORS], _rows_of(f"all {len(_families(points))}", [], replayed(points)))
    every = [
        [*(point[key] for key in ("family", "configuration", "case")), f"{point['silicon_us']:.2f}", *_outcome(point)]
        for point in sorted(points, key=lambda point: point["held_out"])
    ]
    table = markdown(["family", "version", "case", "published, us", "modelled, us", "error"], every)
    return "\n\n".join([*parts, both, table, command_text("workshop.clock.ladders", saved["command"])])


def _families(points: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(point["family"] for point in points))


def _family_rows(name: str, points: Sequence[dict[str, Any]]) -> list[list[str]]:
    of_family = [point for point in points if point["family"] == name]
    kinds = ", ".join(dict.fromkeys(point["kind"] for point in of_family))
    timing = ", ".join(dict.fromkeys(TIMINGS[point["timing"]] for point in of_family))
    return _rows_of(name, [kinds, timing], replayed(of_family))


def _rows_of(title: str, facts: Sequence[str], points: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row without the points on floors, and one with them if there are any. All points have modelled times."""
    return [[title + end, *facts, *_errors(chosen)] for end, chosen in without_and_with_floors(points)]


def _errors(points: Sequence[dict[str, Any]]) -> list[str]:
    """The cells of a row: the number of points, then ERRORS."""
    figures = errors(points)
    pairs = f"{figures['ordered']:.0%} of {figures['pairs']}" if figures["pairs"] else "-"
    median, p90, bias = figures["median"], figures["p90"], figures["signed"]
    return [str(figures["points"]), f"{median:.1%}", f"{p90:.1%}", f"{bias:+.1%}", pairs]


def _outcome(point: dict[str, Any]) -> list[str]:
    """The cells of a point: modelled time and error."""
    if "error" in point:
        return ["-", f"none: {point['error']}".replace("|", "\\|")]
    return [
        f"{point['modelled_us']:.2f}",
        f"{point['modelled_us'] / point['silicon_us'] - 1:+.1%}" + (" (floor)" if point["floor"] else ""),
    ]


def phases(results: Path, name: str) -> str:
    """The table of kernels' phases, modelled and from traces that the author published. name: the chip's."""
    saved = load(results / f"clock-phases-{name}.json")
    if saved is None:
        return missing(f"python -m workshop.clock.phases FOLDER --save ../docs/results/clock-phases-{name}.json")
    rows = []
    for point in saved["points"]:
        for key, title in (("set_up_us", "set-up"), ("epilogue_us", "epilogue"), ("us", "whole launch")):
            silicon, us = point["published"][key], point["modelled"][key]
            rows.append([f"{point['version']}, {title}", f"{silicon:.2f}", f"{us:.2f}", f"{us / silicon - 1:+.0%}"])
    return f"{markdown(['phase', 'published, us', 'modelled, us', 'error'], rows)}\n\n" + command_text(
        "workshop.clock.phases", saved["command"]
    )


def band(points: Sequence[dict[str, Any]]) -> tuple[float, float] | None:
    """The factors, low and high, that lead from a modelled time to silicon's in IN_BAND of one more family's times.

    They are the prediction interval of a one-way random-effects model of log(silicon / modelled), since families
    differ by more than the times of one of them. None for fewer than FEWEST_FAMILIES, or if none has two times.
    """
    families = [_logarithms(points, name) for name in _families(points)]
    freedom = len(points) - len(families)
    if len(families) < FEWEST_FAMILIES or not freedom:
        return None
    means = [fmean(ratios) for ratios in families]
    within = sum((ratio - mean) ** 2 for ratios, mean in zip(families, means) for ratio in ratios) / freedom
    spread = sqrt(variance(means) * (1 + 1 / len(means)) + within) * _student((1 + IN_BAND) / 2, len(means) - 1)
    return exp(fmean(means) - spread), exp(fmean(means) + spread)


def _logarithms(points: Sequence[dict[str, Any]], family: str) -> list[float]:
    return [log(point["silicon_us"] / point["modelled_us"]) for point in points if point["family"] == family]


def _student(share: float, freedom: int) -> float:
    """The quantile of Student's t (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(share)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def in_ordinary_launches(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points of the contest's problems with a modelled time in ordinary launches and on no floor."""
    return [
        point
        for point in replayed(points)
        if point["timing"] == LOOP and not point["floor"] and problem_of(point) in PROBLEMS
    ]


def problem_of(point: dict[str, Any]) -> str:
    """The text behind the repository in the name of a point's family; for the contest's, the problem."""
    name: str = point["family"].rpartition("/")[2]
    return name


def _inside(points: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """(number of points in the band of the others, number of points); (0, 0) if the others have no band."""
    limits = band(others)
    if not limits:
        return 0, 0
    return sum(limits[0] <= point["silicon_us"] / point["modelled_us"] <= limits[1] for point in points), len(points)


def _each_by_the_others(points: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """(number of points in the band of all families but their own, number of points with such a band)."""
    counts = [
        _inside(
            [point for point in points if point["family"] == name],
            [point for point in points if point["family"] != name],
        )
        for name in _families(points)
    ]
    return sum(inside for inside, _ in counts), sum(whole for _, whole in counts)


def modelled(results: Path, name: str) -> str:
    """The table of modelled times of our kernel and of the best published ones, beside published times.

    name: the chip's name, then "every" for a row of each case, else of the group GEMM's cases. Each problem has a mean.
    """
    chip, _, extent = name.partition(" ")
    saved, known = load(results / f"clock-ours-{chip}.json"), load(results / f"clock-{chip}.json")
    if saved is None or known is None:
        return missing(f"python -m tools.modelled --save docs/results/clock-ours-{chip}.json")
    if extent not in ("", "every"):
        raise MeasurementError(f"table 'modelled {name}': {extent!r} is not 'every'")
    figures = {(point["entry"], point["problem"], point["case"]): point for point in saved["points"]}
    best = {problem: entry for entry, problem, _ in figures if entry != OURS}
    truth = in_ordinary_launches(known["points"])
    counts = Counter(map(problem_of, truth))
    limits = band(truth)

    def cell(entry: str | None, problem: str, cases: Sequence[int], mode: LaunchMode) -> str:
        found = [figures.get((entry, problem, case), {}).get(mode.field) for case in cases]
        if not all(found):
            return "-"
        us = geometric_mean(found)
        between = ""
        if limits and entry == OURS and mode == ORDINARY and counts[problem] >= FEWEST_OF_BAND:
            between = f" ({' to '.join(f'{end * us:.{1 if end * us < 10 else 0}f}' for end in limits)})"
        return f"{us:#.3g}{between}"

    rows = []
    for problem, contest in PROBLEMS.items():
        every = range(len(contest.benchmarks))
        single = [[case] for case in every] if extent or problem == next(iter(PROBLEMS)) else []
        for cases in [*single, list(every)]:
            published = [contest.benchmarks[case] for case in cases]
            label = f"case {cases[0]}" if len(cases) == 1 and len(every) > 1 else "geometric mean"
            limit = geometric_mean(case.speed_of_light_us for case in published)
            least = geometric_mean(case.best_published_us for case in published)
            rows.append([
                f"{TITLES[problem]}, {label}",
                f"{limit:#.3g}",
                f"{least:#.3g}",
                cell(best.get(problem), problem, cases, ORDINARY),
                *(cell(OURS, problem, cases, mode) for mode in LaunchMode),
            ])  # fmt: skip
    header = ["us on a B200", "speed of light", "best published", f"modelled: best published kernel, {ORDINARY}"]
    header += [f"modelled: ours, {mode}" + (" (silicon's range)" if mode == ORDINARY else "") for mode in LaunchMode]
    return f"{markdown(header, rows)}\n\n{_caption(best, truth)}"


def _caption(best: dict[str, str], truth: Sequence[dict[str, Any]]) -> str:
    """The text below a table of modelled times. best: problem -> entry. truth: points with both times."""
    kernels = ", ".join(f"{TITLES[problem]} {entry}" for problem, entry in best.items())
    text = "Speed of light: the task authors' model. Best published: case by case, whoever's kernel it was."
    text += f" Modelled, not measured. Best published kernels: {kernels or 'none was replayed'}."
    if limits := band(truth):
        low, high = (f"{end:.2f}" for end in limits)
        text += (
            f" Silicon's range: {low} to {high} times the modelled time, where {IN_BAND:.0%} of the times of one more "
            f"family are expected, from {len(truth)} published times of {len(_families(truth))} families in ordinary "
            "launches."
        )
        inside, whole = _each_by_the_others(truth)
        if whole:
            text += f" In the range of all families but their own lie {_share(inside, whole)} of them."
        held_out = [point for point in truth if point["held_out"]]
        inside, whole = _inside(held_out, [point for point in truth if not point["held_out"]])
        if whole:
            text += f" In that of the calibrating families lie {_share(inside, whole)} of those held out."
    return text + (
        " A time without a range: error unknown, since nobody has published times of launches of that kind, or fewer "
        f"than {FEWEST_OF_BAND} of the problem."
    )
