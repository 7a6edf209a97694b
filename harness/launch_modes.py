"""Names of the ways in which a loop's calls follow each other on the GPU: tables, files and options have these only.

    ordinary launches               without the programmatic attribute: a launch begins when the one ahead has ended.
                                    So every published kernel is timed
    programmatic, nothing promised  with it, as `solve(data)` launches: a launch begins beside the end of the one ahead,
                                    and reads and writes only when that has ended
    overlapping                     with it and both promises of `solve`: a launch loads, computes and stores beside the
                                    one ahead

A mode is of the launches; which plan they have is another fact. Where both are named in one, as "ours, ordinary
launches", the plan is the one that `solve` chooses with the same promises; an ordinary launch has those of
`solve(data)`, none.
"""

from __future__ import annotations

from enum import StrEnum


class LaunchMode(StrEnum):
    """A mode by its name in tables and files."""

    ORDINARY = "ordinary launches"
    PROGRAMMATIC = "programmatic, nothing promised"
    OVERLAPPING = "overlapping"

    @property
    def keyword(self) -> str:
        """Its name in code and on command lines."""
        return self.name.lower()

    @property
    def field(self) -> str:
        """The field of JSON files that has its microseconds per call."""
        return f"{self.keyword}_us"


ORDINARY, PROGRAMMATIC, OVERLAPPING = LaunchMode
PROGRAMMATIC_LAUNCHES = "programmatic launches"
"""With the attribute, of a program of which nobody knows what it promises: either of the two latter modes."""
ALONE = "alone"
"""One launch, behind a flush of L2: no mode of a loop."""
