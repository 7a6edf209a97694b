"""The queue on which torch's operations run. Each thread of the host has its own."""

from __future__ import annotations

import threading


class _State(threading.local):
    handle = 0


_state = _State()


def get() -> int:
    """The queue's handle."""
    return _state.handle


def choose(handle: int) -> None:
    """Choose the queue for work of this thread that names none."""
    _state.handle = handle
