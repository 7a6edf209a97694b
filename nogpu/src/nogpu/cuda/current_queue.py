"""The queue on which torch's operations run. Each thread of the host has its own."""

from __future__ import annotations

import threading


class _State(threading.local):
    handle = 0


_state = _State()


def get() -> int:
    """Its handle."""
    return _state.handle


def choose(handle: int) -> None:
    """Work of this thread that names no queue goes to this one."""
    _state.handle = handle
