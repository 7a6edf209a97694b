"""Tables of the times that the clock models beside silicon's."""

from __future__ import annotations

from pathlib import Path

from tools.tables import command_text, load, markdown, missing
from tools.validate import summary


def clock(results: Path, name: str) -> str:
    """The errors of a chip's modelled times: rows of problems and kinds of launches. name: of the profile."""
    saved = load(results / f"clock-{name}.json")
    if saved is None:
        return missing(f"python -m tools.validate --recordings FOLDER --save docs/results/clock-{name}.json")
    rows = [
        [f"{problem}, {launches}", str(count), f"{median:.1%}", f"{p90:.1%}", f"{mean:+.1%}", _share(alike, pairs)]
        for problem, launches, count, median, p90, mean, alike, pairs in summary(saved["points"])
    ]
    header = ["launches", "points", "median error", "90th percentile", "mean", "pairs in order"]
    modelled = sum("modelled_us" in point for point in saved["points"])
    counted = f"{modelled} of {saved['points of truth']} points"
    caption = (
        f"{saved['device']}, profile {saved['profile']}: {counted}; {command_text('tools.validate', saved['command'])}"
    )
    return f"{markdown(header, rows)}\n\n{caption}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"
