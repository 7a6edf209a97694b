"""Counts of mutants by kind and by program, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT
from tools import tables
from tools.mutants import survivors
from tools.mutants.kinds import KINDS, ROWS
from tools.mutants.results import Result, load
from tools.tables import command_text, markdown, missing

RESULTS = ROOT / "docs" / "results" / "mutants.json"


@dataclass
class Score:
    """Counts of mutants."""

    mutants: int = 0
    by_schedules: int = 0  # noticed without the sanitizer
    sanitized: int = 0  # noticed by the sanitizer alone
    equivalent: int = 0
    gaps: int = 0  # survivors that are listed as such, or not at all

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
        """Those that are not equivalent."""
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


def mutants_table(results: Path, name: str) -> str:
    """Mutants of docs/results/mutants.json. name: "kinds", a row for each row of kinds, or "programs"."""
    saved = load(results / RESULTS.name)
    if saved is None:
        return missing("python -m tools.mutants --foreign FOLDER --save docs/results/mutants.json")
    found = scores(saved.results, survivors.load(), row_of if name == "kinds" else lambda result: result.program)
    names = [row for row in ROWS if row in found] if name == "kinds" else [each for each in found if each != "all"]
    rows = [found[each].row(each) for each in (*names, "all")]
    caption = f"{command_text('tools.mutants', saved.versions['command'])}; DSL {saved.versions['nvidia-cutlass-dsl']}"
    return f"{markdown([name, *HEADER], rows)}\n\n{caption}"


def silence_table(results: Path, _: str) -> str:
    """The runs of docs/results/silence.json."""
    saved = tables.load(results / "silence.json")
    if saved is None:
        return missing("python -m tools.mutants --foreign FOLDER --silence 50 --save docs/results/silence.json")
    runs = saved["runs"].values()
    counts = len(runs), len(set().union(*runs)), sum(map(len, runs)), len(saved["reports"])
    caption = f"{command_text('tools.mutants', saved['command'])}; DSL {saved['nvidia-cutlass-dsl']}"
    return f"{markdown(['kernels', 'schedules', 'runs', 'reports'], [list(map(str, counts))])}\n\n{caption}"
