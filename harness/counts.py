"""Writes the emulator's counts of a case as text.

`counts` is a dict with the items
    launches              a dict per launch: the fields of the emulator's counters
    plan                  the submission's own account of its launches: label -> figure, both text
    minimum_load_bytes    bytes that the case must read at least once
    minimum_store_bytes   bytes that it must write at least once
"""

from __future__ import annotations

from typing import Any

TITLE = "counts from emulation, no times"
COUNTED = {  # field of the emulator's counters -> (label, name of the minimum to compare with, label of the ratio)
    "ctas": ("CTAs", None, ""),
    "mma": ("MMAs", None, ""),
    "tma_load_requested_bytes": ("TMA bytes requested", "minimum_load_bytes", "requested / minimum"),
    "tma_load_unique_bytes": ("TMA bytes, unique", "minimum_load_bytes", "unique / minimum"),
    "stored_bytes": ("bytes stored", "minimum_store_bytes", "stored / minimum"),
}
PER_ALLOCATION = "TMA bytes per allocation (requested, unique)"


def counts_column(counts: dict[str, Any]) -> dict[str, str]:
    """Text by label for one case: the figures of its plan, then the emulator's counts, summed over the launches."""
    column = {f"plan: {name}": str(value) for name, value in counts["plan"].items()}
    column["launches"] = str(len(counts["launches"]))
    for field, (label, minimum, ratio) in COUNTED.items():
        total = sum(launch[field] for launch in counts["launches"])
        column[label] = f"{total:,}"
        if minimum and counts[minimum]:
            column[ratio] = f"{total / counts[minimum]:.3f}"
    return column


def counts_text(counts: dict[str, Any]) -> str:
    """One line of text with the items of counts_column."""
    return f"{TITLE}: " + ", ".join(f"{label} {value}" for label, value in counts_column(counts).items())


def launches_text(counts: dict[str, Any]) -> str:
    """Lines of text with the items of counts_column, then every count of every launch."""
    lines = [f"{TITLE}:", *(f"{label}: {value}" for label, value in counts_column(counts).items())]
    for number, launch in enumerate(counts["launches"]):
        lines.append(f"launch {number}: {launch['kernel']}")
        for name, value in launch.items():
            if name == "per_allocation":
                lines.append(f"    {PER_ALLOCATION}:")
                lines += [f"        {key}: {requested:,}, {unique:,}" for key, (requested, unique) in value.items()]
            elif name != "kernel":
                lines.append(f"    {name}: {value}")
    return "\n".join(lines)
