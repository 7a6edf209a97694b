"""Tables of how far modelled times move with a profile's constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workshop.records import load
from workshop.tables import command_text, markdown, missing

MATTERS = 0.01  # change of a modelled time, as a share


def sensitivity(results: Path, name: str) -> str:
    """Constants and families of a profile that matter, those that move times most first. name: of the profile."""
    saved = load(results / f"sensitivity-{name}.json")
    if saved is None:
        return missing(
            f"python -m tools.clock.sensitivity --profile {name} --save docs/results/sensitivity-{name}.json"
        )
    every = [(key, ways) for key, ways in saved["constants"].items()]
    every += [(f"instructions: {key}", ways) for key, ways in saved["instructions"].items()]
    shown = sorted((row for row in every if _size(row[1]) >= MATTERS), key=lambda row: -_size(row[1]))
    with_errors = any("silicon_us" in work for work in saved["sample"])
    rows = [[key, *(_cell(ways[way], with_errors) for way in ("lower", "higher"))] for key, ways in shown]
    share = f"{saved['share']:.0%}"
    header = ["constant", f"{share} lower: median, largest", f"{share} higher: median, largest"]
    if with_errors:
        header[1:] = [f"{text}; median error" for text in header[1:]]
    counted = (
        f"{len(every) - len(shown)} of {len(every)} constants and families move no modelled time of the sample by "
        f"{MATTERS:.0%}"
    )
    sample = f"{len(saved['sample'])} loops of calls on profile {saved['profile']}"
    return (
        f"{markdown(header, rows)}\n\n{sample}; {counted}; {command_text('tools.clock.sensitivity', saved['command'])}"
    )


def _size(ways: dict[str, dict[str, Any]]) -> float:
    """The largest change, and infinity where launches come to no end."""
    return max(float("inf") if "no end" in way else abs(way.get("largest", 0.0)) for way in ways.values())


def _cell(way: dict[str, Any], with_errors: bool) -> str:
    parts = [f"{way[key]:+.1%}" for key in ("median", "largest") if key in way]
    text = ", ".join(parts)
    if with_errors and "median error" in way:
        text += f"; {100 * way['median error']:+.1f} points"
    return f"{text} ({way['no end']} come to no end)".strip() if "no end" in way else text
