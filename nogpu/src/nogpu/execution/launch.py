"""A launch that the device has accepted, and who observes it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nogpu.hardware import events
from nogpu.hardware.allocations import Allocations
from nogpu.hardware.program import Program
from nogpu.hardware.properties import LaunchConfig
from nogpu.ptx.module import Entry


class PartRecorder(events.GridObserver):
    """Records a launch, or the part of it that a worker runs."""

    values: bool
    """False leaves out the products of tcgen05.mma: accumulators stay as they are."""

    part: Any
    """What is recorded so far; it goes from the worker to its parent."""

    def close(self) -> None:
        """The part has run, or has failed."""


class Recording(Protocol):
    """Records launches."""

    def translate(self, entry: Entry) -> Program:
        """The program of a kernel that is recorded, as `compiler.translate.translate`."""

    def begin(self, launch: Launch) -> PartRecorder:
        """A launch, or a part of it, is about to run in this process."""

    def end(self, launch: Launch, parts: list[Any]) -> None:
        """A launch has run. parts: of each worker that ran some of it."""


class Queues(Protocol):
    """Follows the order of queues."""

    def submitted(self, queue: int, what: str, entry: Entry | None = None) -> Any:
        """A node of a queue (its handle): a launch or anything else. what: in words. entry: of a launch."""

    def accessed(self, memory: Allocations, node: Any, touched: Any) -> None:
        """A node has accessed what `Sanitizer.take_touched` has for a launch. Raises EmulatorError."""


class Sanitizer(events.GridObserver):
    """Follows the events of launches."""

    queues: Any
    """`Queues`, or None: their order does not matter."""

    @abstractmethod
    def follows(self, schedule: str) -> bool:
        """Whether it does so under a schedule."""

    @abstractmethod
    def read(self, entry: Entry) -> None:
        """A kernel is launched: its source may say which rules it is allowed to break."""

    @abstractmethod
    def take_touched(self) -> dict[int, Any]:
        """By number of a launch among those that have run together: what it has accessed. It is given once."""


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
    """As `Queues.submitted`."""
    touched: Any = None
    """What it has accessed, as `Queues.accessed` takes it."""

    def followed_by(self, schedule: str) -> Sanitizer | None:
        """The sanitizer that follows it under a schedule."""
        return self.sanitizer if self.sanitizer is not None and self.sanitizer.follows(schedule) else None
