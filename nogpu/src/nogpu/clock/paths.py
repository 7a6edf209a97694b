"""Paths of the files that a clock writes, checked before anything runs."""

from __future__ import annotations

import importlib.util
import os


def timeline_path(text: str) -> str:
    """The path of a timeline. Raises ValueError for another suffix and for a missing folder."""
    return _checked(text, ".json", ".json.gz")


def picture_path(text: str) -> str:
    """The path of a picture. Raises ValueError for another suffix, a missing folder, or a missing matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("a picture needs matplotlib: pip install 'nogpu[pictures]'")
    return _checked(text, ".png")


def _checked(text: str, *suffixes: str) -> str:
    if not text.endswith(suffixes):
        raise ValueError(f"{text!r} does not end in {' or '.join(suffixes)}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(text))):
        raise ValueError(f"there is no folder for {text!r}")
    return text
