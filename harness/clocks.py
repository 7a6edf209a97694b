"""Modelled times of a case: the request of --clock, and the clock's figures as text.

`clock` is a dict with the items
    chip         name of the chip's profile
    band         the known error of the model on that chip, as text
    calls        number of calls of the timed loop
    ordinary     figures of ordinary launches (harness.launch_modes), a dict: us of a call; utilisation: part of the
                 chip -> share; waits: role -> [largest reason, share]
    programmatic a dict like `ordinary`, with the launches' own attributes; None if none of them is programmatic
    files        lines about the files that were written
    why          lines about what would make the loop faster, if they were asked for
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.launch_modes import ORDINARY, PROGRAMMATIC_LAUNCHES


@dataclass(frozen=True)
class Clocking:
    """A request for modelled times: the values of --clock, --why, --timeline and --picture."""

    chip: str  # name or file of a profile
    why: bool = False
    timeline: Path | None = None
    picture: Path | None = None

    def of_case(self, label: str) -> Clocking:
        """This request with the label in the files' names, before their suffixes."""
        return replace(self, timeline=_labelled(self.timeline, label), picture=_labelled(self.picture, label))

    def make_files(self) -> list[Path]:
        """Create the requested files where they are missing, because a worker creates none. Returns all of them."""
        files = [path for path in (self.timeline, self.picture) if path]
        for path in files:
            with suppress(OSError):  # a failure that the worker reports
                path.open("ab").close()
        return files


def _labelled(path: Path | None, label: str) -> Path | None:
    if path is None or not label:
        return path
    stem = path.name.split(".")[0]
    return path.with_name(f"{stem}-{label}{path.name[len(stem) :]}")


def title(clock: dict[str, Any]) -> str:
    """The heading of a table of modelled times."""
    return f"modelled on {clock['chip']}, {clock['band']}"


def clock_column(clock: dict[str, Any]) -> dict[str, str]:
    """The modelled figures of one case, as text: label -> figure."""
    column = {f"modelled us, {ORDINARY}": f"{clock['ordinary']['us']:.2f}"}
    if clock["programmatic"]:
        column[f"modelled us, {PROGRAMMATIC_LAUNCHES}"] = f"{clock['programmatic']['us']:.2f}"
    column["calls in a row"] = str(clock["calls"])
    for part, share in clock["ordinary"]["utilisation"].items():
        column[f"{part} busy, {ORDINARY}"] = f"{share:.0%}"
    for role, (reason, share) in clock["ordinary"]["waits"].items():
        column[f"largest wait of {role}, {ORDINARY}"] = f"{reason} {share:.0%}"
    return column
