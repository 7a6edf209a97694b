"""Notes of the processes of a program for the command that has started it: lines of JSON in the file NOGPU_REPORT."""

from __future__ import annotations

import json
import os
from contextlib import suppress

REPORT = "NOGPU_REPORT"


def wanted() -> bool:
    """True if somebody reads notes."""
    return bool(os.environ.get(REPORT))


def note(kind: str, /, **fields: object) -> None:
    """Add a line, at once and whole, if somebody reads it and it can be written."""
    path = os.environ.get(REPORT)
    if path:
        line = json.dumps({"note": kind, "process": os.getpid(), **fields}) + "\n"
        with suppress(OSError):  # a process that is kept from the file
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
