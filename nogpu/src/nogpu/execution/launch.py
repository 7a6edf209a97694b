"""Launch that the device has accepted, and the interfaces of its observers."""

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
    """Recorder of a launch, or of the part of it that a worker runs."""

    values: bool
    """False leaves out the products of tcgen05.mma: accumulators stay as they are."""

    part: Any
    """What is recorded so far; it goes from the worker to its parent."""

    def close(self) -> None:
        """Ends the recording: the part has run, or has failed."""


class Recording(Protocol):
    """Recorder of launches."""

    def translate(self, entry: Entry) -> Program:
        """Program of a kernel that is recorded, as `compiler.translate.translate` returns it."""

    def begin(self, launch: Launch) -> PartRecorder:
        """Begins to record a launch, or a part of it, that is about to run in this process."""

    def end(self, launch: Launch, parts: list[Any]) -> None:
        """Ends the recording of a launch. parts: of each worker that ran some of it."""


class Queues(Protocol):
    """Order of queues."""

    def submitted(self, queue: int, what: str, entry: Entry | None = None) -> Any:
        """Adds a node to a queue (its handle): a launch or anything else. what: in words. entry: of a launch."""

    def accessed(self, memory: Allocations, node: Any, touched: Any) -> None:
        """Records the accesses of a node, from `Sanitizer.take_touched` for a launch. Raises EmulatorError."""


class Sanitizer(events.GridObserver):
    """Sanitizer of launches."""

    queues: Any
    """`Queues`, or None: their order does not matter."""

    @abstractmethod
    def follows(self, schedule: str) -> bool:
        """True if launches under a schedule are followed."""

    @abstractmethod
    def read(self, entry: Entry) -> None:
        """Reads a launched kernel: its source may have waivers."""

    @abstractmethod
    def take_touched(self) -> dict[int, Any]:
        """Accesses by number of a launch among those that have run together. They are returned once."""


@dataclass
class Launch:
    """Launch that the device has accepted."""

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
        """Sanitizer that follows the launch under a schedule, or None."""
        return self.sanitizer if self.sanitizer is not None and self.sanitizer.follows(schedule) else None
