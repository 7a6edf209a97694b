"""Notes of a program's processes for the command that started it: lines of JSON in the file that NOGPU_REPORT names."""

from __future__ import annotations

import json
import os
from contextlib import suppress

REPORT = "NOGPU_REPORT"


def wanted() -> bool:
    """True if a command reads the notes."""
    return bool(os.environ.get(REPORT))


def note(kind: str, /, **fields: object) -> None:
    """Appends a note in one write, if a command reads notes and the file can be written."""
    path = os.environ.get(REPORT)
    if path:
        line = json.dumps({"note": kind, "process": os.getpid(), **fields}) + "\n"
        with suppress(OSError):  # a process without access to the file
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
