"""What a device needs of a recording of launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from nogpu.hardware import recorder

if TYPE_CHECKING:
    from nogpu.execution.runs import Launch
    from nogpu.hardware.program import Program
    from nogpu.ptx.ir import Entry


class PartRecorder(recorder.Recorder, Protocol):
    """Records a launch, or the part of it that a worker runs."""

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
