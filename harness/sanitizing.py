"""Requests the emulator's sanitizer for a submission, with the waivers of its file and of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nogpu.sanitizer import Waiver


@dataclass(frozen=True)
class Sanitizer:
    """The emulator's sanitizer, as a command requests it."""

    waivers: tuple[Waiver, ...]
    schedules: str | None  # schedules under which launches are followed, separated by commas; None for all

    def __str__(self) -> str:
        waived = "".join(f"\n  allowed: {waiver}" for waiver in self.waivers)
        under = f" under {self.schedules}" if self.schedules else ""
        return f"sanitizer: accesses were checked against the order of events{under}{waived}"


def chosen(submission: Path, allowed: str | None, schedules: str | None) -> Sanitizer:
    """The sanitizer of a run. Raises ValueError for a malformed waiver.

    submission: the file whose lines may waive rules. allowed: further waived rules, separated by commas.
    """
    from nogpu.sanitizer import RULES, waivers

    named = [waivers.parse(text, RULES) for text in allowed.split(",")] if allowed else []
    beside = waivers.in_source(submission.read_text(errors="replace"), str(submission), RULES)
    return Sanitizer((*named, *beside), schedules)
