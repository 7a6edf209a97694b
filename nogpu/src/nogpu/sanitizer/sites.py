"""Finds the place in a program that calls the device."""

from __future__ import annotations

import os
import sys
import sysconfig

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple({sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "purelib", "platlib")})


def call_site() -> str | None:
    """Text "file.py:line" for the innermost call that is neither the emulator's nor a library's, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", _OWN, *_LIBRARIES)) and os.sep + "site-packages" + os.sep not in name:
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None
