"""Saved figures as Markdown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class MeasurementError(Exception):
    """A table or a file that cannot be used; the text names it."""


def load(path: Path) -> dict[str, Any] | None:
    """The content of a saved file, or None where there is none. Raises MeasurementError for malformed JSON."""
    if not path.exists():
        return None
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MeasurementError(f"{path.name}: {error}") from None
    return saved


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def missing(command: str) -> str:
    return f"*Not measured yet. `{command}` writes the file of this table.*"


def command_text(module: str, arguments: Sequence[str]) -> str:
    """A command as it was typed."""
    return f"`{shlex.join(['python', '-m', module, *arguments])}`"
