"""Saved figures as Markdown, and the tables of the emulator itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from nogpu.bench import Result, rate_text, time_text
from workshop.records import load


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def missing(command: str) -> str:
    return f"*Not measured yet. `{command}` writes the file of this table.*"


def command_text(module: str, arguments: Sequence[str]) -> str:
    """The command, as code in Markdown. A first argument tools.NAME, which some files have, is left out."""
    words = arguments[1:] if arguments and arguments[0].startswith("tools.") else arguments
    return f"`{shlex.join(['python', '-m', module, *words])}`"


def emulator(results: Path, name: str) -> str:
    saved = load(results / "emulator.json")
    if saved is None:
        return missing("python -m nogpu.bench --json docs/results/emulator.json")
    rows = []
    for result in (Result(**fields) for fields in saved["results"]):
        low_to_high = f"{time_text(result.low)} to {time_text(result.high)}"
        rows.append([f"{result.family}: {result.name}", time_text(result.seconds), low_to_high, rate_text(result)])
    table = markdown(["operation", "median", "range", "per unit of work"], rows)
    return (
        f"{table}\n\n{saved['processor']}, Python {saved['python']}; `python -m nogpu.bench`, "
        "one process and thread. **Times of the emulator, not of any GPU.**"
    )
