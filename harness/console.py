"""Consoles, tables and figures of every command, in one style. rich is imported at the first console or table."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_COLUMNS = 10_000
WIDTH = 160  # characters of a line if neither a terminal nor COLUMNS sets the width


def make_console(width: int = WIDTH, **options: Any) -> Console:
    """A console as wide as the terminal or COLUMNS says, else `width` characters. options: those of rich's Console."""
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    given = min(int(columns[:9]), MOST_COLUMNS) if columns.isascii() and columns.isdecimal() else 0
    return Console(width=given or (None if sys.stdout.isatty() else width), **options)


def make_table(left: Iterable[str], right: Iterable[str], **options: Any) -> Table:
    """A table with left-aligned, then right-aligned columns. options: those of rich's Table."""
    from rich import box
    from rich.table import Table

    table = Table(**{"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False, **options})
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def geomean(values: Iterable[float]) -> float:
    """Geometric mean. Raises statistics.StatisticsError unless all values are positive and there is at least one."""
    return statistics.geometric_mean(values)
