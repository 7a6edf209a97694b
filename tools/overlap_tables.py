"""The table of `tools.overlaps`: what a launch that does not wait sees, and how many launches overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.overlaps import CONTROL
from workshop.records import load
from workshop.tables import command_text, markdown, missing

LITTLE = 0.5  # share of the control's tries with a stale byte, below which a reader has hardly been early


def overlaps(results: Path, name: str) -> str:
    """name: of the GPU whose file it is. A file NAME-overlaps-first.json is of an earlier run, and gets a sentence."""
    saved = load(results / f"{name}-overlaps.json")
    if saved is None:
        return missing(f"python -m tools.overlaps --save docs/results/{name}-overlaps.json")
    found: dict[str, list[tuple[int, int, int]]] = {}
    for row in saved["rows"]:
        figures = row["tries"], row["stale_tries"], row["stale_bytes"]
        late = f", after {row['delay']:,} cycles" if row.get("delay") else ""
        found.setdefault(f"{row['writer']}; {row['reader']}{late}", []).append(figures)
    rows = [[name, *(f"{sum(column):,}" for column in zip(*of))] for name, of in found.items()]
    figures = saved["summary"]
    least, most = figures["launches started behind one that spins"]
    started = f"{least}" if least == most else f"{least} to {most}"
    order = "in order" if figures["ends in order"] else "**out of order**"
    sizes = ", ".join(f"{size:,}" for size in sorted({row["nbytes"] for row in saved["rows"]}))
    stale, tries = figures["control's stale tries"], figures["control's tries"]
    table = markdown(["written by; read early by", "tries", "with a stale byte", "stale bytes"], rows)
    caption = [
        f"{saved['device']}; {command_text('tools.overlaps', saved['command'])}; {sizes} bytes. With a stale byte: "
        f"{figures['stale tries']:,} of {figures['tries']:,} tries; of the first writer, which is the control, "
        f"{stale:,} of {tries:,}.",
        f"{started} launches started behind one that spins, {len(saved['launches'])} times; all ended {order}.",
    ]
    first = load(results / f"{name}-overlaps-first.json")
    if first is not None:
        caption += [earlier(first), both(first, saved)]
    return f"{table}\n\n{' '.join(caption)}"


def of_tries(row: dict[str, Any]) -> str:
    return f"{row['reader']} of {row['nbytes']:,} bytes: {row['stale_tries']:,} of {row['tries']:,} tries"


def earlier(saved: dict[str, Any]) -> str:
    """Findings of a run, and those of its readers that its control does not speak for."""
    figures, rows = saved["summary"], saved["rows"]
    found = [
        f"behind {row['writer']}, {of_tries(row)}, {row['stale_bytes']:,} bytes"
        for row in rows
        if row["writer"] != CONTROL and row["stale_tries"]
    ]
    weak = [of_tries(row) for row in rows if row["writer"] == CONTROL and row["stale_tries"] < LITTLE * row["tries"]]
    where = f" ({'; '.join(found)})" if found else ""
    stale, tries = figures["control's stale tries"], figures["control's tries"]
    text = (
        f"An earlier run, {command_text('tools.overlaps', saved['command'])}: with a stale byte "
        f"{figures['stale tries']:,} of {figures['tries']:,} tries{where}; of the control {stale:,} of {tries:,}."
    )
    if weak:
        text += (
            f" Its control was hardly stale for {'; '.join(weak)}. These readers were late: their rows prove nothing."
        )
    return text


def both(*runs: dict[str, Any]) -> str:
    stale, tries = (sum(run["summary"][name] for run in runs) for name in ("stale tries", "tries"))
    return f"Both runs: {stale:,} of {tries:,} tries."
