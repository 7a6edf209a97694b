"""The list of mutants that nothing notices: equivalent ones, each with its proof, and gaps, each with its check."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workshop.mutants.results import Result

EQUIVALENT, GAP = "equivalent", "gap"


@dataclass(frozen=True)
class Entry:
    """One or several mutants: those that have all values given here. instruction, place: regular expressions."""

    classified: str  # EQUIVALENT or GAP
    why: str  # the proof, or the check that is missing
    kind: str
    programs: tuple[str, ...] = ()
    change: str | None = None
    instruction: str | None = None
    place: str | None = None
    number: int | None = None

    def matches(self, result: Result) -> bool:
        if self.kind != result.kind or (self.programs and result.program not in self.programs):
            return False
        found = (self.instruction, result.instruction), (self.place, result.place)
        if not all(pattern is None or re.search(pattern, text) for pattern, text in found):
            return False
        return self.change in (None, result.change) and self.number in (None, result.number)

    def __str__(self) -> str:
        parts = [", ".join(self.programs) or "all", self.kind]
        return "; ".join([*parts, *(str(part) for part in (self.change, self.instruction, self.place) if part)])


def load(path: Path) -> list[Entry]:
    """The entries of a file. Raises ValueError for an entry that is not legal."""
    found = []
    for item in tomllib.loads(path.read_text())["survivor"]:
        try:
            entry = Entry(**{**item, "programs": tuple(item.get("programs", ()))})
        except TypeError as error:
            raise ValueError(f"{path.name}: {item}: {error}") from None
        if entry.classified not in (EQUIVALENT, GAP) or not entry.why:
            raise ValueError(f"{path.name}: {entry}: neither {EQUIVALENT} nor {GAP}, or without a reason")
        found.append(entry)
    return found


def entry_of(result: Result, entries: Iterable[Entry]) -> Entry | None:
    """The first entry that matches a result; None if there is none."""
    return next((entry for entry in entries if entry.matches(result)), None)


def complaints(results: Sequence[Result], entries: Sequence[Entry], complete: bool = True) -> Iterator[str]:
    """Yields a line for each misfit: a survivor that no entry matches, a noticed mutant that one matches, and, if the
    results are complete, an entry without a mutant.
    """
    used = set()
    for result in results:
        entry = entry_of(result, entries)
        if entry is not None:
            used.add(entry)
        if result.noticed and entry is not None:
            yield f"noticed, but listed: {result}"
        elif not result.noticed and entry is None:
            yield f"not listed: {result}"
    if complete:
        yield from (f"no survivor: {entry}" for entry in entries if entry not in used)
