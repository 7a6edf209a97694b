"""Names of the ways in which a loop's calls follow each other on the GPU; tables, files and options use only these.

    ordinary launches               launches without the programmatic attribute begin when the previous one has ended;
                                    every published kernel is timed with them
    programmatic, nothing promised  launches with the attribute, by `solve(data)`, begin during the end of the previous
                                    one and read and write only when that has ended
    overlapping                     launches with the attribute and both promises of `solve` load, compute and store
                                    during the previous one

A mode says nothing about the launches' plan. A row's name such as "ours, ordinary launches" stands for the plan that
`solve` chooses with the same promises; an ordinary launch promises nothing, like `solve(data)`.
"""

from __future__ import annotations

from enum import StrEnum


class LaunchMode(StrEnum):
    """A launch mode; its value is its name in tables and files."""

    ORDINARY = "ordinary launches"
    PROGRAMMATIC = "programmatic, nothing promised"
    OVERLAPPING = "overlapping"

    @property
    def keyword(self) -> str:
        """The mode's name in code and on command lines."""
        return self.name.lower()

    @property
    def field(self) -> str:
        """The JSON field of the mode's microseconds per call."""
        return f"{self.keyword}_us"


ORDINARY, PROGRAMMATIC, OVERLAPPING = LaunchMode
PROGRAMMATIC_LAUNCHES = "programmatic launches"
"""Name for launches with the attribute by a program whose promises are unknown: either of the two latter modes."""
ALONE = "alone"
"""Name for one launch, behind a flush of L2: no mode of a loop."""
