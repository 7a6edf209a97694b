"""Settings of the device as text: checked values of options and environment variables. The module imports no NumPy."""

from __future__ import annotations

import re

WORKER_LIMIT = 1024  # number of processes
_STEP = r"(?:g\d+)?c\d+w\d+(?:(?:j\d+)+|\.\d+)"
_HOLD = f"{_STEP}@{_STEP}"
_SCHEDULE = re.compile(r"late|eager|(?:random|last):[0-9]{1,20}|replay:(?:-|%s(?:\+%s)*)" % (2 * (_HOLD,)))


def schedules(text: str) -> tuple[str, ...]:
    """Names of schedules, separated by commas. Raises ValueError for an unknown one and for one given twice."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _SCHEDULE.fullmatch(name):
            raise ValueError(f"{name!r} is no schedule: late, eager, random:SEED, last:SEED or replay:HOLDS expected")
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice")
    return names


def workers(text: str) -> int:
    """Number of processes. Raises ValueError for other text."""
    return _number(text, "processes", WORKER_LIMIT)


def instructions(text: str) -> int:
    """Number of warp instructions. Raises ValueError for other text."""
    return _number(text, "warp instructions", (1 << 63) - 1)


def _number(text: str, of: str, limit: int, least: int = 1) -> int:
    if not re.fullmatch("[0-9]{1,20}", text) or not least <= int(text) <= limit:
        raise ValueError(f"{text!r} is no number of {of}: an integer from {least} to {limit} expected")
    return int(text)


def runs(text: str) -> int:
    """Number of runs. Raises ValueError for other text."""
    return _number(text, "runs", (1 << 31) - 1)


def seconds(text: str) -> int:
    """Number of seconds, which may be 0. Raises ValueError for other text."""
    return _number(text, "seconds", (1 << 31) - 1, least=0)


def candidates(text: str) -> int | None:
    """Number of an autotuner's candidates, None for all. Raises ValueError for other text."""
    words = {"first": 1, "all": None}
    return words[text] if text in words else _number(text, "candidates", (1 << 31) - 1)


def switch(text: str) -> bool:
    """True for "1", False for "0". Raises ValueError for other text."""
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} is neither 0 nor 1")
    return text == "1"


CHECKS = {
    "every_launch": switch,
    "explore": runs,
    "random_seconds": seconds,
    "schedule": schedules,
    "workers": workers,
    "max_instructions": instructions,
}
"""Setting -> the check of its text."""
