"""Counts of mutants by kind and by program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from workshop.mutants import survivors
from workshop.mutants.kinds import KINDS, ROWS
from workshop.mutants.results import Result


@dataclass
class Score:
    """Counts of mutants."""

    mutants: int = 0
    by_schedules: int = 0  # noticed without the sanitizer
    sanitized: int = 0  # noticed by the sanitizer alone
    equivalent: int = 0
    gaps: int = 0  # survivors that are listed as gaps, or not at all

    def add(self, result: Result, entries: Sequence[survivors.Entry]) -> None:
        self.mutants += 1
        entry = survivors.entry_of(result, entries)
        if result.noticed:
            self.by_schedules += not result.sanitized
            self.sanitized += result.sanitized
        elif entry is not None and entry.classified == survivors.EQUIVALENT:
            self.equivalent += 1
        else:
            self.gaps += 1

    @property
    def real(self) -> int:
        """The number of mutants that are not equivalent."""
        return self.mutants - self.equivalent

    @property
    def noticed(self) -> int:
        return self.by_schedules + self.sanitized

    @property
    def share(self) -> str:
        return f"{100 * self.noticed / self.real:.1f} %" if self.real else "-"

    def row(self, name: str) -> list[str]:
        counts = self.mutants, self.equivalent, self.by_schedules, self.noticed
        return [name, *map(str, counts), str(self.gaps), self.share]


HEADER = ["mutants", "equivalent", "noticed by schedules", "with the sanitizer", "survive", "of those not equivalent"]


def scores(
    results: Iterable[Result], entries: Sequence[survivors.Entry], by: Callable[[Result], str]
) -> dict[str, Score]:
    """A score for each name that `by` gives a result, and "all"."""
    found: dict[str, Score] = {}
    for result in results:
        for name in (by(result), "all"):
            found.setdefault(name, Score()).add(result, entries)
    return found


def row_of(result: Result) -> str:
    return KINDS[result.kind].row


def rows(results: Iterable[Result], entries: Sequence[survivors.Entry], by: str) -> list[list[str]]:
    """Rows of a table with HEADER, the last one for all mutants. by: "kinds" or "programs"."""
    found = scores(results, entries, row_of if by == "kinds" else lambda result: result.program)
    names = [row for row in ROWS if row in found] if by == "kinds" else [name for name in found if name != "all"]
    return [found[name].row(name) for name in (*names, "all") if name in found]
