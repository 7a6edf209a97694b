"""Launch that the device has accepted, and the interfaces of its observers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from nogpu.execution.journal import Journal
from nogpu.hardware import events
from nogpu.hardware.allocations import Allocations, Reached
from nogpu.hardware.program import Program
from nogpu.hardware.properties import LaunchConfig
from nogpu.ptx.module import Entry


class PartRecorder(events.GridObserver):
    """Recorder of a launch, or of the part of it that a worker runs."""

    values: bool
    """True if tcgen05.mma computes products; otherwise accumulators stay as they are."""

    part: Any
    """Records so far, which go from the worker to its parent."""

    def close(self) -> None:
        """Ends the recording: the part has run, or has failed."""


class Recording(Protocol):
    """Recorder of launches."""

    def translate(self, entry: Entry) -> Program:
        """Program of a kernel that is recorded, as `compiler.translate.translate` returns it."""

    def begin(self, launch: Launch) -> PartRecorder:
        """Begins to record a launch, or a part of it, that is about to run in this process."""

    def end(self, launch: Launch, parts: list[Any]) -> None:
        """Ends the recording of a launch. parts: `PartRecorder.part` of each worker that ran some of it."""


class Queues(Protocol):
    """Order of queues."""

    def submitted(self, queue: int, what: str, entry: Entry | None = None) -> Any:
        """Adds work to a queue (handle). Returns its node. what: the work in words. entry: kernel of a launch."""

    def accessed(self, memory: Allocations, node: Any, touched: Any) -> None:
        """Records a node's accesses (`Sanitizer.take_touched` for a launch). Raises EmulatorError for a conflict."""


class Sanitizer(events.GridObserver):
    """Sanitizer of launches."""

    queues: Any
    """`Queues`, or None if their order does not matter."""

    @abstractmethod
    def follows(self, schedule: str) -> bool:
        """True if launches under a schedule are followed."""

    @abstractmethod
    def read(self, entry: Entry) -> None:
        """Reads a launched kernel, whose source may have waivers."""

    @abstractmethod
    def take_touched(self) -> dict[int, Any]:
        """Accesses of the launches that have run together, by number of the launch. They are returned once."""


@dataclass
class Launch:
    """Launch that the device has accepted."""

    program: Program
    config: LaunchConfig
    parameters: np.ndarray
    """uint8: the packed parameters, aligned and registered with the memory."""
    kernel: str
    schedules: tuple[str, ...]
    """Schedules of the device, or the launch's own."""
    key: object = None
    """Equal for launches of a program with the same configuration, parameters and options."""
    lenient: bool | None = None
    """Argument of `errors.leniency`."""
    recording: Recording | None = None
    sanitizer: Sanitizer | None = None
    explorer: Any = None
    """`trials.Explorer`, or None."""
    queue: int = 0
    """Handle of the queue."""
    node: Any = None
    """Result of `Queues.submitted`, or None."""
    touched: Any = None
    """Accesses of the launch, as `Queues.accessed` takes them."""
    reached: list[Reached] = field(default_factory=list)
    """Bytes of global memory that it may have accessed, by run."""
    notes_stores: bool = False
    """True if `stores` is wanted."""
    stores: list[Journal] = field(default_factory=list)
    """Bytes that it has stored, by part of the run under the first schedule."""

    def followed_by(self, schedule: str) -> Sanitizer | None:
        """Sanitizer that follows the launch under a schedule, or None."""
        return self.sanitizer if self.sanitizer is not None and self.sanitizer.follows(schedule) else None
