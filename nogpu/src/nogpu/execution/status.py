"""The progress of long launches and replays on a terminal: CTAs and warp instructions so far.

One process of a tree writes to the terminal: the first one on the device, whose id is in NOGPU_PROGRESS, which its
children inherit. A harness that shows progress of its own runs its kernels in children, which show nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROCESS = "NOGPU_PROGRESS"
"""Environment variable: id of the process that shows progress; with any other value, none does."""

DELAY = 3.0  # seconds; shorter launches show nothing
TITLE = 40  # largest number of characters
INTERVAL = 0.1  # seconds between two changes of what is shown


def is_shown() -> bool:
    """True if this process shows progress: standard error is a terminal, and no other process is chosen."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty() and is_first()


def is_first() -> bool:
    """True if this process speaks for its tree. The first one that asks chooses itself."""
    return os.environ.setdefault(PROCESS, str(os.getpid())) == str(os.getpid())


class Status:
    """Line on standard error, where that is shown, about what runs, from its `DELAY`th second on until `close`."""

    def __init__(self, title: str, units: str = "CTAs") -> None:
        """units: name of the counted things, beside warp instructions."""
        self._title = title if len(title) <= TITLE else title[: TITLE - 1] + "…"
        self._units = units
        self._next = time.monotonic() + DELAY
        self._line: _Line | _PlainLine | None = None

    def __call__(self, done: int, total: int, instructions: int | None = None) -> None:
        """Shows units done, units in all, warp instructions so far if there are any."""
        now = time.monotonic()
        if now < self._next or (self._line is None and not is_shown()):
            return
        if self._line is None:
            self._line = _new_line(self._title)
        counted = "" if instructions is None else f", {instructions:,} warp instructions"
        self._line.show(done, total, f"{self._units}{counted}")
        self._next = now + INTERVAL

    def close(self) -> None:
        """Removes the line."""
        if self._line is not None:
            self._line.close()
            self._line = None


def _new_line(title: str) -> _Line | _PlainLine:
    try:
        return _Line(title)
    except ImportError:
        return _PlainLine(title)


class _Line:
    """Line by rich. It has no thread, since the process may fork, and leaves the program's output alone."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
        self._progress: Progress = Progress(
            *columns,
            TextColumn("{task.fields[counted]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID = self._progress.add_task(title, total=None, counted="")

    def show(self, done: int, total: int, counted: str) -> None:
        self._progress.update(self._task, completed=done, total=total, counted=counted)
        self._progress.start()
        self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


class _PlainLine:
    """Line without rich."""

    def __init__(self, title: str) -> None:
        self._title = title

    def show(self, done: int, total: int, counted: str) -> None:
        text = f"{self._title}: {done}/{total} {counted}"
        self._write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")

    def close(self) -> None:
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
