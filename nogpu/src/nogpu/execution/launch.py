"""A launch that the device has accepted, and what records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nogpu.hardware import recorder
from nogpu.hardware.causes import Sanitizer
from nogpu.hardware.program import Program
from nogpu.hardware.properties import LaunchConfig
from nogpu.ptx.module import Entry


class PartRecorder(recorder.Recorder, Protocol):
    """Records a launch, or the part of it that a worker runs."""

    part: Any
    """What is recorded so far; it goes from the worker to its parent."""

    def close(self) -> None:
        """The part has run, or has failed."""


class Recording(Protocol):
    """Records launches."""

    def translate(self, entry: Entry, kernels: bool) -> Program:
        """The program of a kernel that is recorded, as `compiler.translate.translate`."""

    def begin(self, launch: Launch) -> PartRecorder:
        """A launch, or a part of it, is about to run in this process."""

    def end(self, launch: Launch, parts: list[Any]) -> None:
        """A launch has run. parts: of each worker that ran some of it."""


@dataclass
class Launch:
    """A launch that the device has accepted."""

    program: Program
    config: LaunchConfig
    parameters: np.ndarray
    """uint8: the packed parameters, aligned and registered with the memory."""
    kernel: str
    schedules: tuple[str, ...]
    """Those of the device, or the launch's own."""
    lenient: bool | None = None
    """As `errors.leniency` takes it."""
    recording: Recording | None = None
    sanitizer: Sanitizer | None = None
    explorer: Any = None
    """`trials.Explorer`, or None."""
    queue: int = 0
    """Its handle."""
    node: Any = None
    """As `causes.Queues.submitted`."""
    touched: Any = None
    """What it has accessed, as `causes.Queues.accessed` takes it."""

    def followed_by(self, schedule: str) -> Sanitizer | None:
        """The sanitizer that follows it under a schedule."""
        return self.sanitizer if self.sanitizer is not None and self.sanitizer.follows(schedule) else None
