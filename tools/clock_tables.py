"""Tables of the times that the clock models beside silicon's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.ladders import errors
from tools.tables import command_text, load, markdown, missing
from tools.validate import summary


def clock(results: Path, name: str) -> str:
    """The errors of a chip's modelled times, against measured or published ones. name: of the profile."""
    saved = load(results / f"clock-{name}.json")
    if saved is None:
        return missing(f"python -m tools.validate --profile {name} --save docs/results/clock-{name}.json")
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
    for chosen in [*dict.fromkeys(point["set"] for point in points), ""]:
        figures = errors([point for point in points if chosen in ("", point["set"])])
        shares = [f"{100 * figures[key]:.1f} %" for key in ("median", "p90", "signed")]
        pairs = f"{100 * figures['ordered']:.0f} % of {figures['pairs']}"
        rows.append([chosen or "**all**", str(figures["points"]), *shares, pairs])
    header = ["set", "points", "median error", "90th percentile", "mean signed", "pairs in order"]
    every = [
        [
            point["set"],
            point["configuration"],
            point["case"],
            f"{point['silicon_us']:.2f}",
            f"{point['modelled_us']:.2f}",
            f"{100 * (point['modelled_us'] / point['silicon_us'] - 1):+.1f} %",
        ]
        for point in points
    ]
    table = markdown(["set", "version", "case", "published, us", "modelled, us", "error"], every)
    return f"{markdown(header, rows)}\n\n{table}\n\n{command_text('tools.ladders', saved['command'])}"
