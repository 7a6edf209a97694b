"""Makes tables of the kernel's mutants, and of its sanitized runs without a mutation."""

from __future__ import annotations

from pathlib import Path

from tools.mutants import SURVIVORS
from workshop import records
from workshop.mutants import score, survivors
from workshop.mutants.results import load
from workshop.tables import command_text, markdown, missing


def mutants_table(results: Path, name: str) -> str:
    """The table of docs/results/mutants.json. name: "kinds" or "programs", by which rows are made."""
    saved = load(results / "mutants.json")
    if saved is None:
        return missing("python -m tools.mutants --foreign FOLDER --save docs/results/mutants.json")
    rows = score.rows(saved.results, survivors.load(SURVIVORS), name)
    caption = f"{command_text('tools.mutants', saved.versions['command'])}; DSL {saved.versions['nvidia-cutlass-dsl']}"
    return f"{markdown([name, *score.HEADER], rows)}\n\n{caption}"


def silence_table(results: Path, _: str) -> str:
    """The table of docs/results/silence.json, a row of totals."""
    saved = records.load(results / "silence.json")
    if saved is None:
        return missing("python -m tools.mutants --foreign FOLDER --silence 50 --save docs/results/silence.json")
    runs = saved["runs"].values()
    counts = len(runs), len(set().union(*runs)), sum(map(len, runs)), len(saved["reports"])
    caption = f"{command_text('tools.mutants', saved['command'])}; DSL {saved['nvidia-cutlass-dsl']}"
    return f"{markdown(['kernels', 'schedules', 'runs', 'reports'], [list(map(str, counts))])}\n\n{caption}"
