"""Settings of the emulator: options of `python -m nogpu`, and variables NOGPU_NAME of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from nogpu.clock.paths import picture_path, timeline_path
from nogpu.execution.settings import CHECKS, schedules
from nogpu.hopper import MODES


def switch(text: str) -> bool:
    """A thing that is on or off. Raises ValueError, as the functions below."""
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} is neither 0 nor 1")
    return text == "1"


def chip(text: str) -> object:
    """A chip profile's name or file."""
    from nogpu.clock.chip import profile

    return profile(text)


def rules(text: str) -> list[str]:
    """Rules of the sanitizer, as `waivers.parse` takes each, separated by commas."""
    from nogpu.sanitizer.rules import RULES
    from nogpu.sanitizer.waivers import parse

    return [parse(each, RULES).text for each in text.split(",")]


def mode(text: str) -> str:
    """A way to run tensor-core work on a Hopper GPU."""
    if text not in MODES:
        raise ValueError(f"{text!r} is no mode: {', '.join(MODES)} expected")
    return text


def folder(text: str) -> str:
    """A folder, which may be missing."""
    if os.path.exists(text) and not os.path.isdir(text):
        raise ValueError(f"{text!r} is no folder")
    return text


def file(text: str) -> str:
    """A file to write, which may be missing, in a folder that may not."""
    if os.path.isdir(text) or not os.path.isdir(os.path.dirname(os.path.abspath(text))):
        raise ValueError(f"{text!r} cannot be written: it is a folder, or there is no folder for it")
    return text


def process(text: str) -> int:
    """The number of the process that shows progress; 0: none does."""
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(f"{text!r} is no number of a process: 0 expected, for no progress")
    return int(text)


SETTINGS: dict[str, Callable[[str], object]] = {
    **CHECKS,
    "lenient": switch,
    "sanitize": switch,
    "sanitize_allow": rules,
    "sanitize_schedule": schedules,
    "sanitize_log": file,
    "record": folder,
    "record_values": switch,
    "clock": chip,
    "clock_timeline": timeline_path,
    "clock_picture": picture_path,
    "clock_why": switch,
    "hopper_mode": mode,
    "progress": process,
}
"""Setting -> what reads its text. Raises ValueError for what is not legal."""


def variable(name: str) -> str:
    """The environment variable of a setting. An empty one is none."""
    return f"NOGPU_{name.upper()}"


def check(variables: Mapping[str, str]) -> None:
    """Raise ValueError, which names the variable, for an environment with a setting that is not legal."""
    for name, read in SETTINGS.items():
        text = variables.get(variable(name))
        if text:
            try:
                read(text)
            except ValueError as error:
                raise ValueError(f"environment variable {variable(name)}: {error}") from None
