"""Tables of modelled times beside those of silicon."""

from __future__ import annotations

from pathlib import Path

from tools.ladders import errors
from tools.tables import command_text, load, markdown, missing


def clock_errors(results: Path, name: str) -> str:
    """Of clock-NAME.json: a row for each set of points, one for all of them, then every point."""
    saved = load(results / f"clock-{name}.json")
    if saved is None:
        return missing(f"python -m tools.ladders FOLDER --save docs/results/clock-{name}.json")
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
