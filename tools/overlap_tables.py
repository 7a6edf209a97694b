"""The table of `tools.overlaps`: what a launch that does not wait sees, and how many launches overlap."""

from __future__ import annotations

from pathlib import Path

from tools.tables import command_text, load, markdown, missing


def overlaps(results: Path, name: str) -> str:
    """name: of the GPU whose file it is."""
    saved = load(results / f"{name}-overlaps.json")
    if saved is None:
        return missing(f"python -m tools.overlaps --save docs/results/{name}-overlaps.json")
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for row in saved["rows"]:
        figures = row["tries"], row["stale_tries"], row["stale_bytes"]
        late = f", after {row['delay']:,} cycles" if row.get("delay") else ""
        found.setdefault((row["writer"], row["reader"] + late), []).append(figures)
    rows = [
        [f"{writer}; {reader}", *(f"{sum(column):,}" for column in zip(*of))] for (writer, reader), of in found.items()
    ]
    figures = saved["summary"]
    least, most = figures["launches started behind one that spins"]
    started = f"{least}" if least == most else f"{least} to {most}"
    order = "in order" if figures["ends in order"] else "**out of order**"
    sizes = ", ".join(f"{size:,}" for size in sorted({row["nbytes"] for row in saved["rows"]}))
    stale, tries = figures["control's stale tries"], figures["control's tries"]
    runs = len(saved["launches"])
    table = markdown(["written by; read early by", "tries", "with a stale byte", "stale bytes"], rows)
    caption = [
        f"{saved['device']}; {command_text('tools.overlaps', saved['command'])}; {sizes} bytes. With a stale byte: "
        f"{figures['stale tries']:,} of {figures['tries']:,} tries; of the first writer, which is the control, "
        f"{stale:,} of {tries:,}.",
        f"{started} launches started behind one that spins, {runs} times; all ended {order}.",
    ]
    return f"{table}\n\n{' '.join(caption)}"
