"""Outcomes of mutants, as files keep them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workshop import records
from workshop.mutants.kinds import Mutant
from workshop.mutants.trial import LATE, SURVIVED, Outcome

Key = tuple[str, str, str, str, str, int]


@dataclass(frozen=True)
class Result:
    """A mutant and its outcome; the attributes are those of `kinds.Mutant` and `trial.Outcome`."""

    program: str
    kind: str
    change: str
    instruction: str
    place: str
    number: int
    line: int
    verdict: str
    schedule: str = ""
    sanitized: bool = False
    reason: str = ""
    seconds: float = 0.0

    @property
    def noticed(self) -> bool:
        return self.verdict not in (SURVIVED, LATE)

    @property
    def key(self) -> Key:
        return self.program, self.kind, self.change, self.instruction, self.place, self.number

    def __str__(self) -> str:
        text = f"{self.program}, PTX line {self.line}, {self.kind}: {self.instruction} ({self.change}); {self.place}"
        return f"{text}: {self.verdict}{' with the sanitizer' * self.sanitized} {self.schedule} {self.reason}".strip()


def of(program: str, mutant: Mutant, outcome: Outcome, seconds: float) -> Result:
    parts = mutant.kind, mutant.change, mutant.instruction, mutant.place, mutant.number, mutant.line
    found = outcome.verdict, outcome.schedule, outcome.sanitized, outcome.reason
    return Result(program, *parts, *found, round(seconds, 2))


@dataclass
class File:
    """Results of a run, and the texts that they belong to."""

    texts: dict[str, str]  # program -> hash of its PTX
    sources: dict[str, str]  # program -> file
    results: list[Result]
    versions: dict[str, Any]

    def save(self, path: Path | None) -> None:
        rows = [asdict(result) for result in self.results]
        record = {**self.versions, "texts": self.texts, "sources": self.sources, "results": rows}
        records.write(path, record, "results")


def load(path: Path | None) -> File | None:
    """The content of a file; None if there is none. Raises MeasurementError for malformed JSON."""
    saved = records.load(path)
    if saved is None:
        return None
    results = [Result(**item) for item in saved.pop("results")]
    return File(saved.pop("texts"), saved.pop("sources"), results, saved)
