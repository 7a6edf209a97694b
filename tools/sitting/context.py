"""The end of a process whose CUDA context an error has taken."""

from __future__ import annotations

import sys

from harness.runner import device_is_usable


def leave_if_lost(name: str) -> None:
    """End the process, for another one to go on, after an error that CUDA reports from every later call."""
    if not device_is_usable():
        sys.exit(f"{name}: this process's CUDA context is lost")
