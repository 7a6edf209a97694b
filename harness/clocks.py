"""Modelled times of a case: text and figures of the emulator's clock.

`clock` is a dict with the items
    chip         name of the chip's profile
    band         what is known of the model's error there
    calls        of the timed loop
    overlapping  a dict: us of a call; utilisation: part of the chip -> share; waits: role -> [largest reason, share]
    in_turn      the same where no launch starts before the one ahead has ended
"""

from __future__ import annotations

from typing import Any

FIGURES = {"overlapping": "overlapping", "in_turn": "in turn"}


def title(clock: dict[str, Any]) -> str:
    """The heading of a table of modelled times."""
    return f"modelled on {clock['chip']}, {clock['band']}"


def clock_column(clock: dict[str, Any]) -> dict[str, str]:
    """One case's modelled figures by label."""
    column = {f"modelled us, {title}": f"{clock[name]['us']:.2f}" for name, title in FIGURES.items()}
    column["calls in a row"] = str(clock["calls"])
    for part, share in clock["overlapping"]["utilisation"].items():
        column[f"{part} busy, overlapping"] = f"{share:.0%}"
    for role, (reason, share) in clock["overlapping"]["waits"].items():
        column[f"largest wait of {role}"] = f"{reason} {share:.0%}"
    return column
