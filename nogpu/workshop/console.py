"""Consoles, tables and parsers of every command, in one style. rich is imported when the first table is made."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Item = TypeVar("Item")
WIDTH = 160  # characters of a line if neither a terminal nor COLUMNS sets the width


def make_console(**options: Any) -> Console:
    """A console with the width of the terminal or of COLUMNS, else WIDTH. options: those of rich's Console."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH, **options)


def make_table(left: Iterable[str], right: Iterable[str]) -> Table:
    """A table with left-aligned, then right-aligned columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for names, justify in ((left, "left"), (right, "right")):
        for name in names:
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
    return table


def tracked(items: Sequence[Item], description: str, hidden: bool = False) -> Iterable[Item]:
    """The items, with a progress bar on standard error if that is a terminal and `hidden` is False."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, description, console=console, transient=True, disable=hidden or not console.is_terminal)


def command_parser(usage: str | None, module: str) -> argparse.ArgumentParser:
    """A parser of `python -m MODULE`, whose description is the module's docstring as it stands."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
